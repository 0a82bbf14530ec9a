#include "app/kvrail-sim/content.h"

#define STEP ((uint64_t)0x9e3779b97f4a7c15)

static uint64_t content_base(uint64_t object, uint32_t generation, uint32_t plane, uint32_t position)
{
	uint64_t place = ((uint64_t)plane << 48) ^ ((uint64_t)position << 32) ^ generation;

	return random_mix(object * STEP ^ random_mix(place + 1));
}

static uint64_t content_first(uint64_t base, uint32_t generation)
{
	return (base & ~(uint64_t)UINT32_MAX) | generation;
}

void content_fill(uint8_t *block, size_t bytes, uint64_t object, uint32_t generation, uint32_t plane, uint32_t position)
{
	uint64_t base = content_base(object, generation, plane, position);
	uint64_t word = content_first(base, generation);

	for (size_t at = 0; at < bytes; at += sizeof(word)) {
		memcpy(block + at, &word, sizeof(word));
		base += STEP;
		word = base;
	}
}

bool content_is(
	const uint8_t *block, size_t bytes, uint64_t object, uint32_t generation, uint32_t plane, uint32_t position)
{
	uint64_t base = content_base(object, generation, plane, position);
	uint64_t word = content_first(base, generation), different = 0;

	for (size_t at = 0; at < bytes; at += sizeof(word)) {
		uint64_t found;

		memcpy(&found, block + at, sizeof(found));
		different |= found ^ word;
		base += STEP;
		word = base;
	}
	return different == 0;
}

bool content_is_poison(const uint8_t *block, size_t bytes)
{
	return bytes == 0 || (block[0] == CONTENT_POISON && memcmp(block, block + 1, bytes - 1) == 0);
}
