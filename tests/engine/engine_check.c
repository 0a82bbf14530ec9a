/* engine_check.c - every layout that the library knows: filled, stored, overwritten, retrieved into other blocks, checked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

#define NB 96u /* blocks */
#define NL 3u  /* layers */
#define BS 16u /* tokens of a block */
#define NH 4u
#define HS 64u
#define ELEMENT 2u
#define CHUNKS 2u
#define PLANES_MAX 64u
#define TENSORS_MAX (2 * NL)

/* Shapes as kvrail.h's names say them; 0 ends one. `pad` elements follow each block where strides may. */
static const struct layout_case {
	const char *label;
	enum kvr_layout_name name;
	uint32_t tensors;
	uint64_t shape[6];
} cases[] = {
	{ "vLLM cross-layer", KVR_NB_NL_TWO_BS_NH_HS, 1, { NB, NL, 2, BS, NH, HS } },
	{ "TensorRT-LLM", KVR_NB_NL_TWO_NH_BS_HS, 1, { NB, NL, 2, NH, BS, HS } },
	{ "vLLM flash attention", KVR_NL_X_TWO_NB_BS_NH_HS, NL, { 2, NB, BS, NH, HS } },
	{ "vLLM flash attention HND", KVR_NL_X_TWO_NB_NH_BS_HS, NL, { 2, NB, NH, BS, HS } },
	{ "vLLM flashinfer", KVR_NL_X_NB_TWO_BS_NH_HS, NL, { NB, 2, BS, NH, HS } },
	{ "vLLM flashinfer HND", KVR_NL_X_NB_TWO_NH_BS_HS, NL, { NB, 2, NH, BS, HS } },
	{ "MLA", KVR_NL_X_NB_BS_HS, NL, { NB, BS, 576 } },
	{ "SGLang", KVR_TWO_X_NL_X_NBBS_NH_HS, 2 * NL, { (uint64_t)NB * BS, NH, HS } },
	{ "SGLang in blocks", KVR_TWO_X_NL_X_NB_BS_NH_HS, 2 * NL, { NB, BS, NH, HS } },
	{ "SGLang MLA", KVR_NL_X_NBBS_ONE_HS, NL, { (uint64_t)NB * BS, 1, 576 } },
	{ "opaque pages", KVR_NL_X_NB_BYTES, NL, { NB, 66 } }, /* 132 bytes a page: not a multiple of 16 */
};

static uint64_t make_tensors(const struct engine *engine, const struct layout_case *layout, struct kvr_tensor *tensors)
{
	uint64_t elements = 1;
	uint32_t dimensions = 0;

	while (dimensions < 6 && layout->shape[dimensions] > 0)
		elements *= layout->shape[dimensions++];
	for (uint32_t i = 0; i < layout->tensors; i++) {
		memset(&tensors[i], 0, sizeof(tensors[i]));
		tensors[i].address = (void *)(uintptr_t)engine_alloc(engine, elements * ELEMENT);
		tensors[i].dimensions = dimensions;
		tensors[i].element_bytes = ELEMENT;
		memcpy(tensors[i].shape, layout->shape, sizeof(layout->shape));
	}
	return elements * ELEMENT;
}

static void transfer(struct kvr_session *session, bool store, const uint32_t *ids, uint32_t count, const char *label)
{
	struct kvr_transfer request = KVR_TRANSFER_INIT;
	struct kvr_blocks blocks = { ids, count };
	struct kvr_result result;
	int error;

	request.chunk_count = CHUNKS;
	request.group_count = 1;
	request.groups = &blocks;
	error = store ? kvr_store(session, &request, 0, &result) : kvr_retrieve(session, &request, 0, &result);
	if (error || result.chunks != CHUNKS)
		engine_fail("%s: %s: %d, %u of %u chunks: %s", label, store ? "store" : "retrieve", error,
			result.chunks, CHUNKS, result.text);
}

/* Blocks from..to of a shuffled list, so that stored and retrieved ones have nothing in common. */
static void check_layout(
	struct engine *engine, struct kvr_client *client, const struct layout_case *layout, uint32_t salt)
{
	struct kvr_model model = KVR_MODEL_INIT;
	struct kvr_tensor tensors[TENSORS_MAX];
	struct kvr_plane planes[PLANES_MAX];
	struct kvr_group group;
	struct kvr_layout whole = { sizeof(whole), 1, &group };
	struct kvr_session *session;
	struct kvr_info info;
	uint32_t ids[NB], registration, count, wrong = 0;
	uint64_t bytes = make_tensors(engine, layout, tensors);

	if (kvr_layout_make(layout->name, tensors, layout->tensors, BS, planes, PLANES_MAX, &group))
		engine_fail("%s: %s", layout->label, kvr_error_text());
	model.name = layout->label;
	model.dtype = "bfloat16";
	if (kvr_register(client, &model, &whole, NULL, &registration))
		engine_fail("%s: kvr_register: %s", layout->label, kvr_error_text());
	kvr_get_info(client, &info);
	count = CHUNKS * info.chunk_tokens / BS;
	if (2 * count > NB)
		engine_fail("%u tokens a chunk are more than the check is made for", info.chunk_tokens);
	for (uint32_t i = 0; i < NB; i++)
		ids[i] = i;
	engine_shuffle(ids, NB, salt);
	for (uint32_t p = 0; p < group.plane_count; p++)
		engine_fill(engine, &planes[p], ids, count, salt + p, 0);
	engine_wait(engine);
	session = engine_session(client, registration, salt, CHUNKS);
	transfer(session, true, ids, count, layout->label);
	for (uint32_t i = 0; i < layout->tensors; i++)
		engine_must(engine, engine->driver.memory_set((gpu_address)(uintptr_t)tensors[i].address, 0xee, bytes),
			"overwrite");
	engine_wait(engine);
	transfer(session, false, ids + count, count, layout->label);
	for (uint32_t p = 0; p < group.plane_count; p++)
		wrong += engine_wrong(engine, &planes[p], ids + count, count, salt + p, 0);
	if (wrong > 0)
		engine_fail("%s: %u words are wrong", layout->label, wrong);
	kvr_end(session, 0);
	kvr_session_destroy(&session);
	if (kvr_unregister(client, registration))
		engine_fail("%s: kvr_unregister: %s", layout->label, kvr_error_text());
	for (uint32_t i = 0; i < layout->tensors; i++)
		engine_must(engine, engine->driver.memory_free((gpu_address)(uintptr_t)tensors[i].address), "free");
	printf("%-26s %2u planes of %llu bytes a block: right\n", layout->label, group.plane_count,
		(unsigned long long)planes[0].block_bytes);
}

int engine_run_check(struct engine *engine)
{
	struct kvr_client *client = engine_client(engine, "check");

	for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		check_layout(engine, client, &cases[i], 1000 * (i + 1));
	kvr_close(&client);
	return 0;
}

#define LOOP_PLANE_BYTES (UINT64_C(64) << 10)
#define LOOP_PLANES 8u
#define LOOP_BLOCKS 512u

int engine_run_loop(struct engine *engine)
{
	struct kvr_client *client = engine_client(engine, "loop");
	struct kvr_model model = KVR_MODEL_INIT;
	struct kvr_plane planes[LOOP_PLANES];
	struct kvr_group group = { BS, KVR_WINDOW_FULL, LOOP_BLOCKS, LOOP_PLANES, planes };
	struct kvr_layout whole = { sizeof(whole), 1, &group };
	uint32_t ids[LOOP_BLOCKS], registration, chunks;
	struct kvr_info info;

	for (uint32_t p = 0; p < LOOP_PLANES; p++) {
		planes[p].address = (void *)(uintptr_t)engine_alloc(engine, LOOP_BLOCKS * LOOP_PLANE_BYTES);
		planes[p].block_stride = planes[p].block_bytes = LOOP_PLANE_BYTES;
	}
	for (uint32_t i = 0; i < LOOP_BLOCKS; i++)
		ids[i] = i;
	engine_shuffle(ids, LOOP_BLOCKS, 1);
	model.name = "loop";
	model.dtype = "bfloat16";
	if (kvr_register(client, &model, &whole, NULL, &registration))
		engine_fail("kvr_register: %s", kvr_error_text());
	kvr_get_info(client, &info);
	chunks = LOOP_BLOCKS * BS / info.chunk_tokens;
	for (uint32_t round = 0;; round++) {
		struct kvr_session *session = engine_session(client, registration, round, chunks);
		struct kvr_transfer request = KVR_TRANSFER_INIT;
		struct kvr_blocks blocks = { ids, LOOP_BLOCKS };
		struct kvr_result result;

		request.chunk_count = chunks;
		request.group_count = 1;
		request.groups = &blocks;
		if (kvr_store(session, &request, 0, &result) || kvr_retrieve(session, &request, 0, &result))
			engine_fail("loop: %s", result.text);
		kvr_end(session, 0);
		kvr_session_destroy(&session);
		if (round == 0) {
			printf("looping\n");
			fflush(stdout);
		}
	}
}
