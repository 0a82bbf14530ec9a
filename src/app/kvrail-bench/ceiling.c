#include "app/kvrail-bench/ceiling.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "app/kvrail-bench/measure.h"
#include "base/clock.h"

#define SLICE_BYTES ((uint64_t)24 << 20)

int ceiling_init(struct ceiling *ceiling, const struct fakegpu *gpu, uint64_t working_set, uint64_t seed)
{
	uint64_t chunks_fit = gpu->block_count / gpu->shape.chunk_blocks;
	void *memory;

	memset(ceiling, 0, sizeof(*ceiling));
	random_init(&ceiling->random, seed);
	ceiling->object_bytes = gpu->shape.object_bytes;
	ceiling->page_bytes = gpu->shape.block_bytes;
	ceiling->object_count = (working_set + ceiling->object_bytes - 1) / ceiling->object_bytes;
	ceiling->working_set = ceiling->object_count * ceiling->object_bytes;
	ceiling->slice_chunks = (uint32_t)kvr_min_u64(
		kvr_max_u64(SLICE_BYTES / ceiling->object_bytes, 1), kvr_max_u64(chunks_fit, 1));
	ceiling->slice_bytes = ceiling->slice_chunks * ceiling->object_bytes;
	ceiling->ids = calloc((size_t)ceiling->slice_chunks * gpu->shape.chunk_blocks, sizeof(*ceiling->ids));
	memory = mmap(NULL, ceiling->working_set, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory != MAP_FAILED)
		ceiling->objects = memory;
	if (!ceiling->ids || !ceiling->objects) {
		ceiling_fini(ceiling);
		return -ENOMEM;
	}
	(void)madvise(memory, ceiling->working_set, MADV_HUGEPAGE); /* as good as it can be had */
	memset(memory, 1, ceiling->working_set);
	return 0;
}

void ceiling_fini(struct ceiling *ceiling)
{
	if (ceiling->objects)
		munmap(ceiling->objects, ceiling->working_set);
	free(ceiling->ids);
	memset(ceiling, 0, sizeof(*ceiling));
}

/* The planes of one chunk's blocks, in the order in which its object has them. */
static void copy_chunk(const struct fakegpu *gpu, uint8_t *object, const uint32_t *ids, bool to_blocks)
{
	uint32_t bytes = gpu->shape.block_bytes;

	for (uint32_t plane = 0; plane < gpu->shape.planes; plane++) {
		for (uint32_t block = 0; block < gpu->shape.chunk_blocks; block++, object += bytes) {
			uint8_t *page = fakegpu_block(gpu, plane, ids[block]);

			if (to_blocks)
				memcpy(page, object, bytes);
			else
				memcpy(object, page, bytes);
		}
	}
}

static double slice(struct ceiling *ceiling, const struct fakegpu *gpu, bool to_blocks)
{
	uint64_t begin_ns = clock_now_ns(), end_ns;

	for (uint32_t chunk = 0; chunk < ceiling->slice_chunks; chunk++) {
		uint64_t object = random_below(&ceiling->random, ceiling->object_count);

		copy_chunk(gpu, ceiling->objects + object * ceiling->object_bytes,
			ceiling->ids + (size_t)chunk * gpu->shape.chunk_blocks, to_blocks);
	}
	end_ns = clock_now_ns();
	return (double)ceiling->slice_bytes / (double)kvr_max_u64(end_ns - begin_ns, 1);
}

void ceiling_measure(struct ceiling *ceiling, struct fakegpu *gpu, bool edges)
{
	uint32_t count = ceiling->slice_chunks * gpu->shape.chunk_blocks;
	double speed[2];

	for (unsigned to_blocks = 0; to_blocks < 2; to_blocks++) {
		if (!fakegpu_take(gpu, count, ceiling->ids))
			return;
		speed[to_blocks] = slice(ceiling, gpu, to_blocks);
		fakegpu_give(gpu, count, ceiling->ids, edges);
	}
	if (ceiling->slices == CEILING_SLICES_MAX)
		return;
	ceiling->from_blocks[ceiling->slices] = speed[0];
	ceiling->to_blocks[ceiling->slices] = speed[1];
	ceiling->slices++;
}

static double median_copy(const double *values, size_t count)
{
	double copy[CEILING_SLICES_MAX];

	memcpy(copy, values, count * sizeof(*copy));
	return median_of(copy, count);
}

double ceiling_to_blocks(const struct ceiling *ceiling)
{
	return median_copy(ceiling->to_blocks, ceiling->slices);
}

double ceiling_from_blocks(const struct ceiling *ceiling)
{
	return median_copy(ceiling->from_blocks, ceiling->slices);
}
