/* pattern.cu - fills and checks blocks of a plane by pattern.h: a block of threads for each KV block. */
#include "pattern.h"

extern "C" __global__ void kvrail_fill(uint8_t *plane, uint64_t stride, uint64_t bytes, const uint32_t *ids, uint32_t count,
	uint32_t seed, uint32_t first)
{
	for (uint32_t j = blockIdx.x; j < count; j += gridDim.x) {
		uint32_t *block = (uint32_t *)(plane + ids[j] * stride);

		for (uint32_t w = threadIdx.x; w < bytes / 4; w += blockDim.x)
			block[w] = pattern_word(seed, first + j, w);
	}
}

/* What a model computes: multiplications and additions, and nothing of memory. */
extern "C" __global__ void kvrail_work(uint32_t rounds, float *out)
{
	float a = (float)threadIdx.x, b = a + 1.0f, c = a + 2.0f, d = a + 3.0f;

	for (uint32_t i = 0; i < rounds; i++) {
		a = a * 0.999f + 0.5f;
		b = b * 0.998f + 0.5f;
		c = c * 0.997f + 0.5f;
		d = d * 0.996f + 0.5f;
	}
	if (a + b + c + d == -1.0f)
		*out = a;
}

/* Adds the number of wrong words to *wrong. */
extern "C" __global__ void kvrail_check(const uint8_t *plane, uint64_t stride, uint64_t bytes, const uint32_t *ids,
	uint32_t count, uint32_t seed, uint32_t first, uint32_t *wrong)
{
	uint32_t mine = 0;

	for (uint32_t j = blockIdx.x; j < count; j += gridDim.x) {
		const uint32_t *block = (const uint32_t *)(plane + ids[j] * stride);

		for (uint32_t w = threadIdx.x; w < bytes / 4; w += blockDim.x)
			mine += block[w] != pattern_word(seed, first + j, w);
	}
	if (mine > 0)
		atomicAdd(wrong, mine);
}
