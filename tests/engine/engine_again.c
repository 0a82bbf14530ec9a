/* engine_again.c - one engine that stores and retrieves on, whatever ends its requests: a server that is gone, a GPU that it lost. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "engine/engine.h"

#define PLANE_BYTES 8192u
#define BLOCKS 256u
#define BS 16u
#define ROUNDS 5u /* right ones after the last that failed */
#define SECONDS 240
#define PATIENCE_NS UINT64_C(20000000000)

/* Stored from the first half of the blocks and retrieved into the second one. False: a request ended with an error; said: its words. */
static bool one_round(struct engine *engine, struct kvr_client *client, uint32_t registration,
	const struct kvr_plane *plane, uint32_t *ids, uint32_t round, char *said)
{
	struct kvr_transfer request = KVR_TRANSFER_INIT;
	struct kvr_blocks blocks = { ids, BLOCKS / 2 };
	struct kvr_session *session;
	struct kvr_result result;
	struct kvr_info info;
	bool good = false;

	kvr_get_info(client, &info);
	request.chunk_count = BLOCKS / 2 * BS / info.chunk_tokens;
	request.group_count = 1;
	request.groups = &blocks;
	session = engine_session(client, registration, round, request.chunk_count);
	engine_fill(engine, plane, ids, BLOCKS / 2, round, 0);
	engine_wait(engine);
	if (kvr_store(session, &request, PATIENCE_NS, &result) == 0 && result.chunks == request.chunk_count) {
		blocks.ids = ids + BLOCKS / 2;
		good = kvr_retrieve(session, &request, PATIENCE_NS, &result) == 0 &&
			result.chunks == request.chunk_count;
	}
	if (!good && strcmp(said, result.text) != 0) {
		snprintf(said, sizeof(result.text), "%s", result.text);
		printf("round %u: error %d: %s\n", round, result.error, result.text);
		fflush(stdout);
	}
	if (good && engine_wrong(engine, plane, ids + BLOCKS / 2, BLOCKS / 2, round, 0) > 0)
		engine_fail("round %u: words are wrong", round);
	kvr_end(session, PATIENCE_NS);
	kvr_session_destroy(&session);
	return good;
}

int engine_run_again(struct engine *engine)
{
	const struct timespec pause = { 0, 50000000 };
	struct kvr_client *client = engine_client(engine, "again");
	struct kvr_model model = KVR_MODEL_INIT;
	struct kvr_plane plane = { .block_stride = PLANE_BYTES, .block_bytes = PLANE_BYTES };
	struct kvr_group group = { BS, KVR_WINDOW_FULL, BLOCKS, 1, &plane };
	struct kvr_layout whole = { sizeof(whole), 1, &group };
	uint32_t ids[BLOCKS], registration, right = 0, failed = 0;
	char said[sizeof(((struct kvr_result *)NULL)->text)] = "";
	time_t until = time(NULL) + SECONDS;

	plane.address = (void *)(uintptr_t)engine_alloc(engine, (uint64_t)BLOCKS * PLANE_BYTES);
	for (uint32_t i = 0; i < BLOCKS; i++)
		ids[i] = i;
	engine_shuffle(ids, BLOCKS, 7);
	model.name = "again";
	model.dtype = "bfloat16";
	if (kvr_register(client, &model, &whole, NULL, &registration))
		engine_fail("kvr_register: %s", kvr_error_text());
	for (uint32_t round = 0; right < ROUNDS || failed == 0; round++) {
		if (one_round(engine, client, registration, &plane, ids, round, said)) {
			right++;
		} else {
			right = 0;
			failed++;
		}
		if (time(NULL) > until)
			engine_fail("after %u failures nothing works again", failed);
		nanosleep(&pause, NULL);
	}
	printf("again: right after %u failures\n", failed);
	kvr_close(&client);
	return 0;
}
