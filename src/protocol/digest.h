/*
 * digest.h - the identity of a chunk: one fixed algorithm, no seed from the environment.
 *
 *   seed         = SHA-256("kvrail chunk chain v1")
 *   digest(i)    = SHA-256(digest(i-1) || tokens of chunk i, each as u32 little-endian);  digest(-1) = seed
 *   salt field   = SHA-256(salt text), or 32 zero bytes for no salt
 *   model key    = see digest_model_key
 *
 * SHA-256 comes from libcrypto, or from sha256_portable.c in builds without it. No call here allocates.
 *
 * Golden vectors: docs/PROTOCOL.md and tests/wire/digests.txt.
 */
#ifndef KVRAIL_PROTOCOL_DIGEST_H
#define KVRAIL_PROTOCOL_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "protocol/message.h"

KVR_BEGIN_C

/* Shows that SHA-256 of this build has passed its self-test. Hashing itself needs no memory but the stack: one digester
 * may serve several threads, and there is nothing to free. */
struct digester {
	bool tested;
};

/* 0, or -ENOSYS: the SHA-256 of this build is missing or wrong. */
KVR_MUST_CHECK int digester_init(struct digester *digester);
void digester_fini(struct digester *digester);

/* SHA-256 of two pieces one behind the other; `second_length` may be 0. `digest` may be one of the pieces. */
void digester_hash(struct digester *digester, const void *first, size_t first_length, const void *second,
	size_t second_length, uint8_t digest[WIRE_DIGEST_BYTES]);

extern const uint8_t digest_seed[WIRE_DIGEST_BYTES];

/* Digests of the whole chunks of `tokens` that follow a chunk with digest `parent` (NULL: digest_seed), into
 * digests[32 * chunk_count], where chunk_count = token_count / chunk_tokens; what is left over is ignored. Returns
 * chunk_count. */
uint32_t digest_chain(struct digester *digester, const uint8_t *parent, const uint32_t *tokens, size_t token_count,
	uint32_t chunk_tokens, uint8_t *digests);

/* Salt field of a salt text; length 0 gives zero bytes. */
void digest_salt(struct digester *digester, const char *salt, size_t length, uint8_t out[WIRE_DIGEST_BYTES]);

/* The key of a model identity within a tenant: two registrations with the same key share their chunks (with the same
 * salt and digest), and nothing else ever matches. rank, readers and reader are not part of it.
 *   SHA-256("kvrail model v1" || u16 length, tenant || u16 length, model || u16 length, dtype || fingerprint || u32
 * world_size) 0, or -EINVAL: a text longer than WIRE_NAME_MAX. */
KVR_MUST_CHECK int digest_model_key(struct digester *digester, const struct wire_text *tenant,
	const struct model_identity *identity, uint8_t key[WIRE_DIGEST_BYTES]);

/* HMAC-SHA256 for AUTHENTICATE (message.h). 0, -EINVAL (empty secret, key name longer than WIRE_NAME_MAX) or -ENOSYS.
 */
KVR_MUST_CHECK int digest_proof(const void *secret, size_t secret_length, const uint8_t challenge[32],
	const uint8_t nonce[32], const char *key, size_t key_length, uint8_t proof[32]);
/* Compares in constant time. */
bool digest_equal(const uint8_t a[32], const uint8_t b[32]);

KVR_END_C

#endif
