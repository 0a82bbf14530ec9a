/* sha256_portable.c - SHA-256 (FIPS 180-4) in plain C, for builds without libcrypto. Several times slower. */
#ifndef KVRAIL_HAVE_OPENSSL

#include <string.h>

#include "protocol/sha256.h"

#define BLOCK_BYTES 64u
#define LENGTH_BYTES 8u
#define DIGEST_BYTES 32u
#define ROUNDS 64

struct sha256_state {
	uint32_t state[8];
	uint64_t length;            /* bytes so far */
	uint8_t block[BLOCK_BYTES]; /* the first length % BLOCK_BYTES of them wait */
};

/* The first 32 bits of the fractional parts of the square roots of the first 8 primes, and of the cube roots of the first 64. */
static const uint32_t initial_state[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
	0x1f83d9ab, 0x5be0cd19 };
static const uint32_t round_constants[ROUNDS] = { 0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b,
	0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
	0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc,
	0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1,
	0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
	0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814,
	0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2 };

static uint32_t rotate(uint32_t value, int bits)
{
	return value >> bits | value << (32 - bits);
}

static uint32_t load_big_endian(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void expand(uint32_t schedule[ROUNDS], const uint8_t *block)
{
	for (int i = 0; i < 16; i++)
		schedule[i] = load_big_endian(block + 4 * i);
	for (int i = 16; i < ROUNDS; i++) {
		uint32_t a = schedule[i - 15], b = schedule[i - 2];

		schedule[i] = schedule[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + schedule[i - 7] +
			(rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
	}
}

static void compress(uint32_t state[8], const uint8_t *block)
{
	uint32_t schedule[ROUNDS];
	uint32_t s[8];

	expand(schedule, block);
	memcpy(s, state, sizeof(s));
	for (int i = 0; i < ROUNDS; i++) {
		uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
		uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
		uint32_t t1 = s[7] + (rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25)) + choice +
			round_constants[i] + schedule[i];
		uint32_t t2 = (rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22)) + majority;

		memmove(s + 1, s, 7 * sizeof(*s));
		s[4] += t1;
		s[0] = t1 + t2;
	}
	for (int i = 0; i < 8; i++)
		state[i] += s[i];
}

static void update(struct sha256_state *sha, const void *data, size_t length)
{
	const uint8_t *bytes = (const uint8_t *)data;

	while (length) {
		size_t used = sha->length % BLOCK_BYTES;
		size_t take = length < BLOCK_BYTES - used ? length : BLOCK_BYTES - used;

		memcpy(sha->block + used, bytes, take);
		sha->length += take;
		bytes += take;
		length -= take;
		if (used + take == BLOCK_BYTES)
			compress(sha->state, sha->block);
	}
}

static void finish(struct sha256_state *sha, uint8_t digest[DIGEST_BYTES])
{
	static const uint8_t padding[BLOCK_BYTES] = { 0x80 };
	uint64_t bits = sha->length * 8;
	uint8_t length[LENGTH_BYTES];
	size_t used = sha->length % BLOCK_BYTES;
	size_t room = BLOCK_BYTES - LENGTH_BYTES;

	for (unsigned int i = 0; i < LENGTH_BYTES; i++)
		length[i] = (uint8_t)(bits >> (56 - 8 * i));
	update(sha, padding, used < room ? room - used : BLOCK_BYTES + room - used);
	update(sha, length, sizeof(length));
	for (unsigned int i = 0; i < DIGEST_BYTES; i++)
		digest[i] = (uint8_t)(sha->state[i / 4] >> (24 - 8 * (i % 4)));
}

bool sha256(const void *first, size_t first_length, const void *second, size_t second_length, uint8_t digest[32])
{
	struct sha256_state sha = { .length = 0 };

	memcpy(sha.state, initial_state, sizeof(sha.state));
	update(&sha, first, first_length);
	update(&sha, second, second_length);
	finish(&sha, digest);
	return true;
}

bool sha256_equal(const uint8_t *a, const uint8_t *b)
{
	volatile uint8_t difference = 0; /* volatile: no early way out for the compiler either */

	for (unsigned int i = 0; i < DIGEST_BYTES; i++)
		difference |= a[i] ^ b[i];
	return difference == 0;
}

#endif
