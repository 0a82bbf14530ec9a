/* sha256.h - SHA-256 of two pieces, by libcrypto or in plain C; which one is decided when kvrail is built. For digest.c only. */
#ifndef KVRAIL_PROTOCOL_SHA256_H
#define KVRAIL_PROTOCOL_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

/* Allocates nothing. A piece may be NULL when its length is 0; `digest` may be one of the pieces. False: it cannot be computed. */
KVR_MUST_CHECK bool sha256(
	const void *first, size_t first_length, const void *second, size_t second_length, uint8_t digest[32]);

/* Compares 32 bytes in a time that does not depend on them. */
bool sha256_equal(const uint8_t *a, const uint8_t *b);

KVR_END_C

#endif
