/* engine_lanes.c - scattered pages through a lane of src/gpu, in this process, with kernels of different size. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "engine/engine.h"
#include "gpu/gpu.h"

#define BYTES (UINT64_C(512) << 20)
#define ROUNDS 7u

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct lanes {
	struct gpu_lane *lane[2]; /* from, to the GPU */
	uint64_t posted[2];
};

/* All pages, in a scattered order on the GPU, with at most `window` bytes under way in each direction. directions: 1 up, 2 down, 3 both
 * in turn. */
static double copy_all(struct lanes *lanes, const uint8_t *host, gpu_address device, const uint32_t *ids, uint32_t page,
	uint64_t window, int directions)
{
	uint32_t count = (uint32_t)(BYTES / page);
	double start = now();
	uint64_t failed = 0;
	bool lost = false;

	for (uint32_t i = 0; i < count; i++) {
		bool up = directions == 3 ? (i / 32) % 2 == 0 : directions == 1;

		while (!failed && (lanes->posted[up] - gpu_lane_done(lanes->lane[up], &failed)) * page >= window)
			;
		while (gpu_lane_put(lanes->lane[up], (uint64_t)(uintptr_t)host + (uint64_t)i * page,
			device + (uint64_t)ids[i] * page, page))
			gpu_lane_publish(lanes->lane[up]);
		lanes->posted[up]++;
		if (i % 32 == 31 || i + 1 == count)
			gpu_lane_publish(lanes->lane[up]);
	}
	for (unsigned up = 0; up < 2; up++) {
		while (gpu_lane_done(lanes->lane[up], &failed) < lanes->posted[up])
			;
		lost |= failed > 0;
	}
	if (lost)
		engine_fail("copies failed");
	return (double)BYTES / (now() - start) * 1e-9;
}

static void run_one(const struct engine *engine, uint32_t blocks, uint32_t threads, uint8_t *host, gpu_address device)
{
	static const uint64_t windows[] = { UINT64_C(16) << 20, UINT64_C(64) << 20 };
	struct gpus_options options;
	struct lanes lanes = { { NULL, NULL }, { 0, 0 } };
	struct gpus *gpus;
	char reason[200];

	memset(&options, 0, sizeof(options));
	options.driver = &engine->driver;
	options.threads = options.never_sleep = true;
	options.blocks = blocks;
	options.block_threads = threads;
	if (gpus_open(&options, &gpus, reason, sizeof(reason)) || gpus_register_host(gpus, host, BYTES) ||
		gpu_lane_open(gpus, 0, false, NULL, NULL, &lanes.lane[0]) ||
		gpu_lane_open(gpus, 0, true, NULL, NULL, &lanes.lane[1]))
		engine_fail("gpus: %s", reason);
	for (unsigned w = 0; w < 2; w++) {
		printf("%2u blocks of %4u, %2u MiB under way:", blocks, threads, (unsigned)(windows[w] >> 20));
		for (uint32_t page = 4096; page <= 65536; page *= 2) {
			uint32_t count = (uint32_t)(BYTES / page);
			uint32_t *ids = malloc(count * sizeof(uint32_t));
			double rates[4][ROUNDS];

			for (uint32_t i = 0; ids && i < count; i++)
				ids[i] = i;
			engine_shuffle(ids, count, 3);
			for (unsigned round = 0; round < ROUNDS; round++) {
				for (int d = 1; d <= 3; d++)
					rates[d][round] = copy_all(&lanes, host, device, ids, page, windows[w], d);
			}
			for (int d = 1; d <= 3; d++)
				qsort(rates[d], ROUNDS, sizeof(double), compare);
			printf("  %u: %.1f %.1f %.1f", page, rates[1][ROUNDS / 2], rates[2][ROUNDS / 2],
				rates[3][ROUNDS / 2]);
			free(ids);
		}
		printf("\n");
		fflush(stdout);
	}
	gpu_lane_close(gpus, &lanes.lane[0]);
	gpu_lane_close(gpus, &lanes.lane[1]);
	gpus_close(&gpus);
}

int engine_run_lanes(struct engine *engine)
{
	static const uint32_t shapes[][2] = { { 4, 1024 }, { 8, 1024 }, { 8, 512 }, { 2, 1024 } };
	gpu_address device = engine_alloc(engine, BYTES);
	uint8_t *host = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (host == MAP_FAILED)
		engine_fail("no memory");
	(void)madvise(host, BYTES, MADV_HUGEPAGE);
	memset(host, 1, BYTES);
	printf("GB/s by page size: to the GPU, from it, both in turn; two kernels at once in each direction\n");
	for (unsigned i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		run_one(engine, shapes[i][0], shapes[i][1], host, device);
	return 0;
}
