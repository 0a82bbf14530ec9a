/* engine.c - the program, and what its modes share. */
#include "engine/engine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/pattern_ptx.h"

void engine_fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fprintf(stderr, "gpu_engine: ");
	vfprintf(stderr, format, arguments);
	fprintf(stderr, "\n");
	va_end(arguments);
	exit(1);
}

void engine_must(const struct engine *engine, int code, const char *what)
{
	char text[160];

	if (code != GPU_DONE)
		engine_fail("%s: %s", what, gpu_driver_error(&engine->driver, code, text, sizeof(text)));
}

void engine_open(struct engine *engine)
{
	gpu_module module;
	void *memory = NULL;
	char reason[200];
	int device = 0;

	if (gpu_driver_load(NULL, &engine->driver, reason, sizeof(reason)))
		engine_fail("%s", reason);
	engine_must(engine, engine->driver.device_get(&device, 0), "device");
	engine_must(engine, engine->driver.context_retain(&engine->context, device), "context");
	engine_must(engine, engine->driver.context_set(engine->context), "context");
	engine_must(engine, engine->driver.module_load(&module, gpu_pattern_ptx), "module");
	engine_must(engine, engine->driver.module_function(&engine->fill, module, "kvrail_fill"), "fill");
	engine_must(engine, engine->driver.module_function(&engine->check, module, "kvrail_check"), "check");
	engine_must(engine, engine->driver.module_function(&engine->work, module, "kvrail_work"), "work");
	engine_must(engine, engine->driver.stream_create(&engine->stream, GPU_STREAM_NON_BLOCKING, 0), "stream");
	engine_must(engine, engine->driver.stream_create(&engine->back, GPU_STREAM_NON_BLOCKING, 0), "stream");
	engine_must(engine,
		engine->driver.host_alloc(
			&memory, (ENGINE_IDS_MAX + 64) * sizeof(uint32_t), GPU_HOST_PORTABLE | GPU_HOST_MAPPED),
		"pinned memory");
	engine->ids = memory;
	engine->result = engine->ids + ENGINE_IDS_MAX;
	engine->wrong = engine_alloc(engine, 64);
}

struct kvr_client *engine_client(const struct engine *engine, const char *name)
{
	struct kvr_options options = KVR_OPTIONS_INIT;
	struct kvr_client *client;

	options.url = engine->url;
	options.name = name;
	if (kvr_open(&options, &client))
		engine_fail("kvr_open: %s", kvr_error_text());
	return client;
}

gpu_address engine_alloc(const struct engine *engine, uint64_t bytes)
{
	gpu_address address = 0;

	engine_must(engine, engine->driver.memory_alloc(&address, bytes), "GPU memory");
	return address;
}

void engine_wait(const struct engine *engine)
{
	engine_must(engine, engine->driver.stream_wait(engine->stream), "the engine's stream");
}

static void launch(struct engine *engine, bool check, const struct kvr_plane *plane, const uint32_t *ids,
	uint32_t count, uint32_t seed, uint32_t first)
{
	uint64_t address = (uint64_t)(uintptr_t)plane->address;
	uint64_t stride = plane->block_stride, bytes = plane->block_bytes;
	void *parameters[] = { &address, &stride, &bytes, &engine->ids, &count, &seed, &first, &engine->wrong };

	if (count > ENGINE_IDS_MAX)
		engine_fail("%u blocks at once", count);
	engine_wait(engine); /* the ids of the launch before may still be read */
	memcpy(engine->ids, ids, count * sizeof(uint32_t));
	engine_must(engine,
		engine->driver.launch(check ? engine->check : engine->fill, count < 512 ? count : 512, 1, 1, 256, 1, 1,
			0, engine->stream, parameters, NULL),
		"launch");
}

void engine_fill(struct engine *engine, const struct kvr_plane *plane, const uint32_t *ids, uint32_t count,
	uint32_t seed, uint32_t first)
{
	launch(engine, false, plane, ids, count, seed, first);
}

uint32_t engine_wrong(struct engine *engine, const struct kvr_plane *plane, const uint32_t *ids, uint32_t count,
	uint32_t seed, uint32_t first)
{
	*engine->result = 0;
	engine_must(engine, engine->driver.copy_to_device(engine->wrong, engine->result, 4, engine->stream), "copy");
	launch(engine, true, plane, ids, count, seed, first);
	engine_must(engine, engine->driver.copy_to_host(engine->result, engine->wrong, 4, engine->stream), "copy");
	engine_wait(engine);
	return *engine->result;
}

struct kvr_session *engine_session(struct kvr_client *client, uint32_t registration, uint32_t salt, uint32_t chunks)
{
	struct kvr_session *session;
	struct kvr_info info;
	uint32_t *tokens;
	char id[64];

	kvr_get_info(client, &info);
	snprintf(id, sizeof(id), "engine-%u-%u", registration, salt);
	tokens = malloc((size_t)chunks * info.chunk_tokens * sizeof(uint32_t));
	for (uint32_t i = 0; tokens && i < chunks * info.chunk_tokens; i++)
		tokens[i] = salt * 2654435761u ^ i;
	if (!tokens || kvr_session_create(client, registration, id, NULL, &session) ||
		kvr_session_tokens(session, tokens, (size_t)chunks * info.chunk_tokens))
		engine_fail("a session of %u chunks: %s", chunks, kvr_error_text());
	free(tokens);
	return session;
}

void engine_shuffle(uint32_t *ids, uint32_t count, uint32_t seed)
{
	for (uint32_t i = count; i > 1; i--) {
		uint32_t other, held = ids[i - 1];

		seed = seed * 1664525u + 1013904223u;
		other = (uint32_t)(((uint64_t)seed * i) >> 32);
		ids[i - 1] = ids[other];
		ids[other] = held;
	}
}

int main(int count, char **arguments)
{
	static const struct {
		const char *name;
		int (*run)(struct engine *engine);
	} modes[] = { { "check", engine_run_check }, { "order", engine_run_order }, { "overlap", engine_run_overlap },
		{ "export", engine_run_export }, { "loop", engine_run_loop }, { "again", engine_run_again },
		{ "bench", engine_run_bench }, { "lanes", engine_run_lanes } };
	struct engine engine;

	memset(&engine, 0, sizeof(engine));
	for (size_t i = 0; count == 4 && i < sizeof(modes) / sizeof(modes[0]); i++) {
		if (strcmp(arguments[1], "--server") != 0 || strcmp(arguments[3], modes[i].name) != 0)
			continue;
		engine.url = arguments[2];
		engine_open(&engine);
		return modes[i].run(&engine);
	}
	fprintf(stderr, "usage: gpu_engine --server URL check|order|overlap|export|loop|again|bench|lanes\n");
	return 2;
}
