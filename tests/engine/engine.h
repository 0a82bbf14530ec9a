/*
 * engine.h - an inference engine without a model: paged KV memory on a GPU, filled and checked by kernels. It runs on machines with
 * GPUs and, over the fake library, without. One GPU, the first.
 *
 *   gpu_engine --server URL check        stores and retrieves in every layout; exit code 0: every word was right
 *   gpu_engine --server none export      dma-bufs of GPU memory, up to the descriptor
 *   gpu_engine --server URL loop         transfers without end (to be killed); prints "looping" when it has begun
 *   gpu_engine --server URL again        stores and retrieves until it has failed and is right again; exit code 0: it was
 *   gpu_engine --server URL order        layers and marks on streams, no processor waiting in between; every word is checked
 *   gpu_engine --server URL overlap      loading and computing layer by layer beside one after the other
 *   gpu_engine --server URL bench        rates as ratios to contiguous pinned copies, requests of $ENGINE_MIB (256)
 *   gpu_engine --server none lanes       the same of src/gpu alone, without a server, with kernels of different size
 */
#ifndef KVRAIL_TESTS_ENGINE_ENGINE_H
#define KVRAIL_TESTS_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "gpu/driver.h"
#include "kvrail.h"

#define ENGINE_IDS_MAX 65536u

struct engine {
	const char *url;
	struct gpu_driver driver;
	gpu_context context;
	gpu_stream stream, back; /* two, for copies in both directions */
	gpu_function fill, check, work;
	gpu_address wrong;
	uint32_t *ids;          /* pinned: for the kernels */
	uint32_t *result;       /* pinned */
	uint64_t request_bytes; /* of bench */
};

/* All of these end the process with words when something fails. */
void engine_open(struct engine *engine);
void engine_must(const struct engine *engine, int code, const char *what);
struct kvr_client *engine_client(const struct engine *engine, const char *name);
void engine_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
gpu_address engine_alloc(const struct engine *engine, uint64_t bytes);
/* The blocks ids[0 .. count-1] of a plane get, or must have, what belongs to the positions first, first + 1, ... */
void engine_fill(struct engine *engine, const struct kvr_plane *plane, const uint32_t *ids, uint32_t count,
	uint32_t seed, uint32_t first);
uint32_t engine_wrong(struct engine *engine, const struct kvr_plane *plane, const uint32_t *ids, uint32_t count,
	uint32_t seed, uint32_t first);
void engine_wait(const struct engine *engine);
/* A session over `chunks` chunks that nobody else has. */
struct kvr_session *engine_session(struct kvr_client *client, uint32_t registration, uint32_t salt, uint32_t chunks);
void engine_shuffle(uint32_t *ids, uint32_t count, uint32_t seed);

int engine_run_check(struct engine *engine);
int engine_run_order(struct engine *engine);
int engine_run_overlap(struct engine *engine);
int engine_run_export(struct engine *engine);
int engine_run_loop(struct engine *engine);
int engine_run_again(struct engine *engine);
int engine_run_bench(struct engine *engine);
int engine_run_lanes(struct engine *engine);

#endif
