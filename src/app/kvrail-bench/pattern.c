#include "app/kvrail-bench/pattern.h"

#include <stdbool.h>
#include <string.h>

#include "base/random.h"

#define LANE_STEP 0x9e3779b97f4a7c15u
/* Four lanes at once, as two vectors that every 64-bit processor has: additions, shifts and xor of 64-bit lanes. */
typedef uint64_t lanes __attribute__((vector_size(16)));
struct group {
	lanes low, high;
};
#define LANES 4
#define GROUP_BYTES sizeof(struct group)

struct pattern pattern_make(uint64_t chunk, uint32_t rank, uint32_t plane, uint32_t block, uint64_t generation)
{
	uint64_t key = random_mix(chunk + LANE_STEP);

	key = random_mix(key ^ ((uint64_t)rank << 32 | plane));
	key = random_mix(key + LANE_STEP * (block + 1u));
	return (struct pattern){ key, generation };
}

static uint64_t stream_of(struct pattern pattern)
{
	return random_mix(pattern.key + pattern.generation * LANE_STEP);
}

static inline lanes mix_lanes(lanes counter)
{
	counter ^= counter >> 29;
	return counter ^ (counter << 17);
}

static inline struct group mix(const struct group *counter)
{
	return (struct group){ mix_lanes(counter->low), mix_lanes(counter->high) };
}

static inline void advance(struct group *counter)
{
	counter->low += LANES * LANE_STEP;
	counter->high += LANES * LANE_STEP;
}

/* Sets the counter behind the first group and returns that one, which has the generation in lane 0. */
static struct group begin(struct pattern pattern, struct group *counter)
{
	uint64_t stream = stream_of(pattern);
	struct group first;

	counter->low = (lanes){ stream, stream + LANE_STEP };
	counter->high = (lanes){ stream + 2 * LANE_STEP, stream + 3 * LANE_STEP };
	first = mix(counter);
	first.low[0] = pattern.key ^ pattern.generation;
	advance(counter);
	return first;
}

void pattern_fill(void *block, size_t bytes, struct pattern pattern)
{
	struct group counter;
	struct group group = begin(pattern, &counter);
	uint8_t *to = block;
	size_t at = 0;

	for (; at + GROUP_BYTES <= bytes; at += GROUP_BYTES) {
		__builtin_memcpy(to + at, &group, GROUP_BYTES);
		group = mix(&counter);
		advance(&counter);
	}
	memcpy(to + at, &group, bytes - at);
}

/* Byte by byte, where it is known that something differs. */
static size_t count_differences(const uint8_t *found, const uint8_t *wanted, size_t bytes, size_t offset, size_t before,
	size_t *first, uint8_t *expected)
{
	size_t count = 0;

	for (size_t i = 0; i < bytes; i++) {
		if (found[i] == wanted[i])
			continue;
		if (before + count == 0) {
			*first = offset + i;
			*expected = wanted[i];
		}
		count++;
	}
	return count;
}

static inline bool differs(const uint8_t *found, const struct group *group)
{
	struct group read;
	lanes difference;

	__builtin_memcpy(&read, found, GROUP_BYTES);
	difference = (read.low ^ group->low) | (read.high ^ group->high);
	return (difference[0] | difference[1]) != 0;
}

size_t pattern_check(const void *block, size_t bytes, struct pattern pattern, size_t *first, uint8_t *expected)
{
	struct group counter;
	struct group group = begin(pattern, &counter);
	const uint8_t *from = block;
	size_t at = 0, count = 0;

	for (; at + GROUP_BYTES <= bytes; at += GROUP_BYTES) {
		if (KVR_UNLIKELY(differs(from + at, &group)))
			count += count_differences(
				from + at, (const uint8_t *)&group, GROUP_BYTES, at, count, first, expected);
		group = mix(&counter);
		advance(&counter);
	}
	return count + count_differences(from + at, (const uint8_t *)&group, bytes - at, at, count, first, expected);
}

uint64_t pattern_generation(const void *block, struct pattern pattern)
{
	uint64_t lane;

	memcpy(&lane, block, sizeof(lane));
	return lane ^ pattern.key;
}

void pattern_poison(void *memory, size_t bytes)
{
	memset(memory, PATTERN_POISON, bytes);
}

size_t pattern_check_poison(const void *memory, size_t bytes, size_t *first)
{
	const uint8_t *from = memory;
	size_t count = 0;

	for (size_t i = 0; i < bytes; i++) {
		if (from[i] == PATTERN_POISON)
			continue;
		if (count++ == 0)
			*first = i;
	}
	return count;
}
