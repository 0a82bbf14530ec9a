#include "protocol/digest.h"

#include <errno.h>
#include <string.h>

#include "protocol/frame.h"
#include "protocol/sha256.h"

#define HASH_BLOCK_BYTES 64u /* of SHA-256 */
#define HMAC_INNER 0x36u
#define HMAC_OUTER 0x5cu

static const char seed_text[] = "kvrail chunk chain v1";
static const char proof_text[] = "kvrail authenticate v1";
static const char model_text[] = "kvrail model v1";

/* SHA-256 of seed_text; digester_init computes it again as a self-test. */
const uint8_t digest_seed[WIRE_DIGEST_BYTES] = { 0xcd, 0x0e, 0xcb, 0x87, 0x74, 0x9e, 0xea, 0x30, 0x08, 0x82, 0xc7, 0xd9,
	0xd2, 0x10, 0xe9, 0x42, 0x73, 0x68, 0x2e, 0x4b, 0xb2, 0x9b, 0x4b, 0x30, 0x22, 0x86, 0x84, 0x91, 0xf9, 0xaa,
	0x7a, 0x8e };

int digester_init(struct digester *digester)
{
	uint8_t digest[WIRE_DIGEST_BYTES];

	digester->tested = sha256(seed_text, sizeof(seed_text) - 1, NULL, 0, digest) &&
		digest_equal(digest, digest_seed);
	return digester->tested ? 0 : -ENOSYS;
}

void digester_fini(struct digester *digester)
{
	digester->tested = false;
}

void digester_hash(struct digester *digester, const void *first, size_t first_length, const void *second,
	size_t second_length, uint8_t digest[WIRE_DIGEST_BYTES])
{
	/* No input makes this fail. A digest that is not one would hand out another chunk's bytes: better none at all. */
	if (KVR_UNLIKELY(!digester->tested || !sha256(first, first_length, second, second_length, digest)))
		__builtin_trap();
}

bool digest_equal(const uint8_t a[32], const uint8_t b[32])
{
	return sha256_equal(a, b);
}

uint32_t digest_chain(struct digester *digester, const uint8_t *parent, const uint32_t *tokens, size_t token_count,
	uint32_t chunk_tokens, uint8_t *digests)
{
	uint32_t chunk_count;

	if (chunk_tokens == 0)
		return 0;
	if (!parent)
		parent = digest_seed;
	chunk_count = (uint32_t)kvr_min_u64(token_count / chunk_tokens, UINT32_MAX);
	for (uint32_t i = 0; i < chunk_count; i++) {
		/* Tokens lie in memory as they are hashed: cursor.h refuses to compile on a big-endian host. */
		digester_hash(digester, parent, WIRE_DIGEST_BYTES, tokens + (size_t)i * chunk_tokens,
			(size_t)chunk_tokens * sizeof(*tokens), digests);
		parent = digests;
		digests += WIRE_DIGEST_BYTES;
	}
	return chunk_count;
}

void digest_salt(struct digester *digester, const char *salt, size_t length, uint8_t out[WIRE_DIGEST_BYTES])
{
	if (length == 0)
		memset(out, 0, WIRE_DIGEST_BYTES);
	else
		digester_hash(digester, salt, length, NULL, 0, out);
}

int digest_model_key(struct digester *digester, const struct wire_text *tenant, const struct model_identity *identity,
	uint8_t key[WIRE_DIGEST_BYTES])
{
	uint8_t data[sizeof(model_text) - 1 + 3 * (2 + WIRE_NAME_MAX) + 32 + 4];
	struct put_cursor out = { data, data + sizeof(data) };

	if (tenant->length > WIRE_NAME_MAX || identity->model.length > WIRE_NAME_MAX ||
		identity->dtype.length > WIRE_NAME_MAX)
		return -EINVAL;
	/* Each text with its length in front: no two identities can run into the same bytes. */
	if (!put_bytes(&out, model_text, sizeof(model_text) - 1) || !put_text(&out, tenant) ||
		!put_text(&out, &identity->model) || !put_text(&out, &identity->dtype) ||
		!put_32_bytes(&out, identity->fingerprint) || !put_u32(&out, identity->world_size))
		return -EINVAL;
	digester_hash(digester, data, sizeof(data) - put_left(&out), NULL, 0, key);
	return 0;
}

/* HMAC as RFC 2104 has it, from two hashes of two pieces each. */
static void hmac(struct digester *digester, const void *secret, size_t secret_length, const void *data, size_t length,
	uint8_t mac[WIRE_DIGEST_BYTES])
{
	uint8_t block[HASH_BLOCK_BYTES] = { 0 };

	if (secret_length > sizeof(block))
		digester_hash(digester, secret, secret_length, NULL, 0, block);
	else
		memcpy(block, secret, secret_length);
	for (size_t i = 0; i < sizeof(block); i++)
		block[i] ^= HMAC_INNER;
	digester_hash(digester, block, sizeof(block), data, length, mac);
	for (size_t i = 0; i < sizeof(block); i++)
		block[i] ^= HMAC_INNER ^ HMAC_OUTER;
	digester_hash(digester, block, sizeof(block), mac, WIRE_DIGEST_BYTES, mac);
	explicit_bzero(block, sizeof(block)); /* it is as good as the secret */
}

int digest_proof(const void *secret, size_t secret_length, const uint8_t challenge[32], const uint8_t nonce[32],
	const char *key, size_t key_length, uint8_t proof[32])
{
	uint8_t data[sizeof(proof_text) - 1 + 32 + 32 + WIRE_NAME_MAX];
	struct put_cursor out = { data, data + sizeof(data) };
	struct digester digester;
	int result;

	if (secret_length == 0)
		return -EINVAL;
	if (!put_bytes(&out, proof_text, sizeof(proof_text) - 1) || !put_bytes(&out, challenge, 32) ||
		!put_bytes(&out, nonce, 32) || !put_bytes(&out, key, key_length))
		return -EINVAL;
	result = digester_init(&digester);
	if (result)
		return result;
	hmac(&digester, secret, secret_length, data, sizeof(data) - put_left(&out), proof);
	digester_fini(&digester);
	return 0;
}
