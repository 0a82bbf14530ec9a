/*
 * digest.h - the identity of a chunk: one fixed algorithm, no seed from the environment.
 *
 *   seed         = SHA-256("kvrail chunk chain v1")
 *   digest(i)    = SHA-256(digest(i-1) || tokens of chunk i, each as u32 little-endian);  digest(-1) = seed
 *   salt field   = SHA-256(salt text), or 32 zero bytes for no salt
 *   model key    = see digest_model_key
 *
 * SHA-256 comes from libcrypto, or from digest_portable.c in builds without it.
 *
 * Golden vectors: docs/PROTOCOL.md and tests/protocol/test_digest.c.
 */
#ifndef KVRAIL_PROTOCOL_DIGEST_H
#define KVRAIL_PROTOCOL_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "protocol/message.h"

KVR_BEGIN_C

/* The hashing state, kept so that no call allocates. One thread at a time. */
struct digester {
	void *context;   /* EVP_MD_CTX */
	void *algorithm; /* EVP_MD, fetched once */
};

/* 0, -ENOMEM, or -ENOSYS (libcrypto offers no SHA-256, or a wrong one). */
KVR_MUST_CHECK int digester_init(struct digester *digester);
void digester_fini(struct digester *digester);

/* SHA-256 of two pieces one behind the other; `second_length` may be 0. Allocates nothing. */
void digester_hash(struct digester *digester, const void *first, size_t first_length, const void *second, size_t second_length,
	uint8_t digest[WIRE_DIGEST_BYTES]);

extern const uint8_t digest_seed[WIRE_DIGEST_BYTES];

/* Digests of the whole chunks of `tokens` that follow a chunk with digest `parent` (NULL: digest_seed), into
 * digests[32 * chunk_count], where chunk_count = token_count / chunk_tokens; what is left over is ignored. Returns chunk_count. */
uint32_t digest_chain(struct digester *digester, const uint8_t *parent, const uint32_t *tokens, size_t token_count, uint32_t chunk_tokens,
	uint8_t *digests);

/* Salt field of a salt text; length 0 gives zero bytes. */
void digest_salt(struct digester *digester, const char *salt, size_t length, uint8_t out[WIRE_DIGEST_BYTES]);

/* The key of a model identity within a tenant: two registrations with the same key share their chunks (with the same salt and
 * digest), and nothing else ever matches. rank, readers and reader are not part of it.
 *   SHA-256("kvrail model v1" || u16 length, tenant || u16 length, model || u16 length, dtype || fingerprint || u32 world_size)
 * 0, or -EINVAL: a text longer than WIRE_NAME_MAX. */
KVR_MUST_CHECK int digest_model_key(struct digester *digester, const struct wire_text *tenant, const struct model_identity *identity,
	uint8_t key[WIRE_DIGEST_BYTES]);

/* HMAC-SHA256 for AUTHENTICATE (message.h). Allocates. 0, -EINVAL (empty secret, key name longer than WIRE_NAME_MAX) or -ENOSYS. */
KVR_MUST_CHECK int digest_proof(const void *secret, size_t secret_length, const uint8_t challenge[32], const uint8_t nonce[32],
	const char *key, size_t key_length, uint8_t proof[32]);
/* Compares in constant time. */
bool digest_equal(const uint8_t a[32], const uint8_t b[32]);

KVR_END_C

#endif
