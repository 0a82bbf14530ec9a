/*
 * Digests are the same in every process and language: the expected ones in tests/wire/digests.txt are made by Python's hashlib
 * (tests/wire/golden.py). pitfalls E03, E05, E06, E07, F01
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef KVRAIL_HAVE_OPENSSL
#include <openssl/crypto.h>
#endif

#include "protocol/digest.h"

#define TOKENS 768

static unsigned long allocations; /* by libcrypto; the code of kvrail itself has none to call */

static void vector(const char *name, uint8_t digest[WIRE_DIGEST_BYTES])
{
	char path[512], found[64], hex[80];
	bool seen = false;
	FILE *file;

	snprintf(path, sizeof(path), "%s/tests/wire/digests.txt", KVRAIL_SOURCE_DIR);
	file = fopen(path, "r");
	assert_non_null(file);
	while (!seen && fscanf(file, "%63s %79s", found, hex) == 2)
		seen = strcmp(found, name) == 0;
	fclose(file);
	assert_true(seen);
	assert_int_equal(strlen(hex), 2 * WIRE_DIGEST_BYTES);
	for (size_t i = 0; i < WIRE_DIGEST_BYTES; i++)
		assert_int_equal(sscanf(hex + 2 * i, "%2hhx", &digest[i]), 1);
}

static void assert_vector(const uint8_t *digest, const char *name)
{
	uint8_t expected[WIRE_DIGEST_BYTES];

	vector(name, expected);
	assert_memory_equal(digest, expected, sizeof(expected));
}

static void counting(uint32_t *tokens, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		tokens[i] = i;
}

static void scattered(uint32_t *tokens, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		tokens[i] = i * 2654435761u;
}

static int set_up(void **state)
{
	static struct digester digester;

	assert_int_equal(digester_init(&digester), 0);
	*state = &digester;
	return 0;
}

static int tear_down(void **state)
{
	digester_fini(*state);
	return 0;
}

static void seed_is_the_digest_of_its_text(void **state)
{
	uint8_t digest[WIRE_DIGEST_BYTES];

	digester_hash(*state, "kvrail chunk", 12, " chain v1", 9, digest);
	assert_memory_equal(digest, digest_seed, sizeof(digest));
	assert_vector(digest, "seed");
}

static void chain_of_whole_chunks_matches_python(void **state)
{
	uint32_t tokens[TOKENS];
	uint8_t digests[4 * WIRE_DIGEST_BYTES];

	counting(tokens, TOKENS);
	assert_int_equal(digest_chain(*state, NULL, tokens, TOKENS, 256, digests), 3);
	assert_vector(digests, "counting.256.0");
	assert_vector(digests + 32, "counting.256.1");
	assert_vector(digests + 64, "counting.256.2");
	scattered(tokens, 64);
	assert_int_equal(digest_chain(*state, digest_seed, tokens, 64, 16, digests), 4);
	assert_vector(digests, "scattered.16.0");
	assert_vector(digests + 32, "scattered.16.1");
	assert_vector(digests + 64, "scattered.16.2");
	assert_vector(digests + 96, "scattered.16.3");
}

static void a_chain_can_be_continued_from_its_last_digest(void **state)
{
	uint32_t tokens[TOKENS];
	uint8_t digests[2 * WIRE_DIGEST_BYTES], parent[WIRE_DIGEST_BYTES];

	counting(tokens, TOKENS);
	vector("counting.256.0", parent);
	assert_int_equal(digest_chain(*state, parent, tokens + 256, TOKENS - 256, 256, digests), 2);
	assert_vector(digests, "counting.256.1");
	assert_vector(digests + 32, "counting.256.2");
}

static void tokens_behind_the_last_whole_chunk_do_not_count(void **state)
{
	uint32_t tokens[TOKENS];
	uint8_t digests[2 * WIRE_DIGEST_BYTES];

	counting(tokens, TOKENS);
	memset(digests, 0xa5, sizeof(digests));
	assert_int_equal(digest_chain(*state, NULL, tokens, 255, 256, digests), 0);
	assert_int_equal(digest_chain(*state, NULL, tokens, 511, 256, digests), 1);
	assert_vector(digests, "counting.256.0");
	assert_int_equal(digests[32], 0xa5);
	assert_int_equal(digest_chain(*state, NULL, tokens, TOKENS, 0, digests), 0);
}

static void one_token_and_another_parent_are_hashed_as_documented(void **state)
{
	static const uint8_t zeros[WIRE_DIGEST_BYTES];
	uint32_t tokens[TOKENS];
	uint8_t digest[WIRE_DIGEST_BYTES];

	tokens[0] = UINT32_MAX;
	assert_int_equal(digest_chain(*state, NULL, tokens, 1, 1, digest), 1);
	assert_vector(digest, "single.1.0");
	counting(tokens, TOKENS);
	assert_int_equal(digest_chain(*state, zeros, tokens, 256, 256, digest), 1);
	assert_vector(digest, "zero-parent.256.0");
}

static void pieces_are_hashed_as_if_they_were_one(void **state)
{
	uint8_t text[300], whole[WIRE_DIGEST_BYTES], pieces[WIRE_DIGEST_BYTES];

	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (uint8_t)(i * 5);
	for (size_t length = 0; length <= sizeof(text); length++) {
		digester_hash(*state, text, length, NULL, 0, whole);
		for (size_t cut = 0; cut <= length; cut += 13) {
			digester_hash(*state, text, cut, text + cut, length - cut, pieces);
			assert_memory_equal(whole, pieces, sizeof(whole));
		}
	}
}

static void salt_has_a_field_of_its_own_also_when_there_is_none(void **state)
{
	uint8_t field[WIRE_DIGEST_BYTES];

	digest_salt(*state, NULL, 0, field);
	assert_vector(field, "salt.none");
	digest_salt(*state, "salt of golden", 14, field);
	assert_vector(field, "salt.golden");
}

struct model_case {
	const char *vector, *tenant, *model, *dtype;
	uint8_t fingerprint; /* its first byte */
	uint32_t world_size;
};

static const struct model_case models[] = {
	{ "model.plain", "", "llama3-8b", "bfloat16", 0x31, 1 },
	{ "model.tenant", "tenant-a", "llama3-8b", "bfloat16", 0x31, 1 },
	{ "model.adapter", "tenant-a", "llama3-8b@2", "bfloat16", 0x31, 1 },
	{ "model.dtype", "tenant-a", "llama3-8b", "fp8_e4m3", 0x31, 1 },
	{ "model.fingerprint", "tenant-a", "llama3-8b", "bfloat16", 0x32, 1 },
	{ "model.world", "tenant-a", "llama3-8b", "bfloat16", 0x31, 8 },
	{ "model.moved", "tenant-al", "lama3-8b", "bfloat16", 0x31, 1 },
};

static struct wire_text text(const char *bytes)
{
	struct wire_text made = { bytes, (uint32_t)strlen(bytes) };

	return made;
}

static void model_key(
	struct digester *digester, const struct model_case *from, uint32_t rank, uint8_t key[WIRE_DIGEST_BYTES])
{
	uint8_t fingerprint[32];
	struct wire_text tenant = text(from->tenant);
	struct model_identity identity = { text(from->model), text(from->dtype), fingerprint, from->world_size, rank,
		rank + 1, rank };

	for (size_t i = 0; i < sizeof(fingerprint); i++)
		fingerprint[i] = (uint8_t)(from->fingerprint + i);
	assert_int_equal(digest_model_key(digester, &tenant, &identity, key), 0);
}

static void model_key_differs_with_every_field_that_changes_the_bytes(void **state)
{
	uint8_t keys[KVR_COUNT_OF(models)][WIRE_DIGEST_BYTES];

	for (size_t i = 0; i < KVR_COUNT_OF(models); i++) {
		model_key(*state, &models[i], 0, keys[i]);
		assert_vector(keys[i], models[i].vector);
		for (size_t j = 0; j < i; j++)
			assert_false(digest_equal(keys[i], keys[j]));
	}
}

static void model_key_is_the_same_for_all_ranks_and_readers(void **state)
{
	uint8_t first[WIRE_DIGEST_BYTES], other[WIRE_DIGEST_BYTES];

	model_key(*state, &models[5], 0, first);
	model_key(*state, &models[5], 7, other);
	assert_memory_equal(first, other, sizeof(first));
}

static void model_key_refuses_names_beyond_the_limit(void **state)
{
	static char name[WIRE_NAME_MAX + 1];
	uint8_t fingerprint[32] = { 0 }, key[WIRE_DIGEST_BYTES];
	struct wire_text tenant = { name, WIRE_NAME_MAX };
	struct model_identity identity = { { name, WIRE_NAME_MAX }, { name, WIRE_NAME_MAX }, fingerprint, 1, 0, 1, 0 };

	assert_int_equal(digest_model_key(*state, &tenant, &identity, key), 0);
	identity.dtype.length++;
	assert_int_equal(digest_model_key(*state, &tenant, &identity, key), -EINVAL);
}

static void proof_matches_python_for_every_length_of_secret(void **state)
{
	uint8_t counted[256], proof[32];

	(void)state;
	for (size_t i = 0; i < sizeof(counted); i++)
		counted[i] = (uint8_t)i;
	assert_int_equal(digest_proof("secret", 6, counted + 0x01, counted + 0x41, "team-a", 6, proof), 0);
	assert_vector(proof, "proof.short");
	assert_int_equal(digest_proof(counted, 64, counted + 0x01, counted + 0x41, "team-a", 6, proof), 0);
	assert_vector(proof, "proof.block");
	assert_int_equal(digest_proof(counted, 100, counted + 0x01, counted + 0x41, NULL, 0, proof), 0);
	assert_vector(proof, "proof.long");
}

static void proof_without_a_secret_or_with_a_long_key_name_is_refused(void **state)
{
	static const uint8_t zeros[32];
	static const char name[WIRE_NAME_MAX + 1];
	uint8_t proof[32];

	(void)state;
	assert_int_equal(digest_proof("", 0, zeros, zeros, "k", 1, proof), -EINVAL);
	assert_int_equal(digest_proof("secret", 6, zeros, zeros, name, WIRE_NAME_MAX, proof), 0);
	assert_int_equal(digest_proof("secret", 6, zeros, zeros, name, WIRE_NAME_MAX + 1, proof), -EINVAL);
}

static void digests_are_equal_only_when_every_bit_is(void **state)
{
	uint8_t a[WIRE_DIGEST_BYTES], b[WIRE_DIGEST_BYTES];

	(void)state;
	vector("salt.golden", a);
	memcpy(b, a, sizeof(b));
	assert_true(digest_equal(a, b));
	for (int bit = 0; bit < 256; bit++) {
		b[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_false(digest_equal(a, b));
		b[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}

static void hashing_allocates_nothing(void **state)
{
	static uint32_t tokens[16 * 256];
	static uint8_t digests[16 * WIRE_DIGEST_BYTES];
	struct digester own;
	unsigned long before;

	assert_int_equal(digester_init(&own), 0);
#ifdef KVRAIL_HAVE_OPENSSL
	OPENSSL_free(OPENSSL_malloc(1));
	assert_true(allocations > 0); /* the counting works */
#endif
	before = allocations;
	for (int i = 0; i < 100; i++)
		assert_int_equal(digest_chain(&own, NULL, tokens, KVR_COUNT_OF(tokens), 256, digests), 16);
	digest_salt(&own, "salt", 4, digests);
	model_key(&own, &models[0], 0, digests);
	assert_int_equal(digest_proof("secret", 6, digests, digests, "k", 1, digests), 0);
	assert_int_equal(allocations, before);
	digester_fini(&own);
	(void)state;
}

static void two_digesters_do_not_disturb_each_other(void **state)
{
	struct digester own;
	uint32_t tokens[256];
	uint8_t digest[WIRE_DIGEST_BYTES], other[WIRE_DIGEST_BYTES];

	assert_int_equal(digester_init(&own), 0);
	counting(tokens, 256);
	assert_int_equal(digest_chain(&own, NULL, tokens, 256, 256, digest), 1);
	digest_salt(*state, "salt of golden", 14, other);
	assert_vector(digest, "counting.256.0");
	assert_vector(other, "salt.golden");
	digester_fini(&own);
	digest_salt(*state, "salt of golden", 14, other);
	assert_vector(other, "salt.golden");
}

#ifdef KVRAIL_HAVE_OPENSSL
static void *counted_malloc(size_t size, const char *file, int line)
{
	(void)file, (void)line;
	allocations++;
	return malloc(size);
}

static void *counted_realloc(void *memory, size_t size, const char *file, int line)
{
	(void)file, (void)line;
	allocations++;
	return realloc(memory, size);
}

static void counted_free(void *memory, const char *file, int line)
{
	(void)file, (void)line;
	free(memory);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(seed_is_the_digest_of_its_text),
		cmocka_unit_test(chain_of_whole_chunks_matches_python),
		cmocka_unit_test(a_chain_can_be_continued_from_its_last_digest),
		cmocka_unit_test(tokens_behind_the_last_whole_chunk_do_not_count),
		cmocka_unit_test(one_token_and_another_parent_are_hashed_as_documented),
		cmocka_unit_test(pieces_are_hashed_as_if_they_were_one),
		cmocka_unit_test(salt_has_a_field_of_its_own_also_when_there_is_none),
		cmocka_unit_test(model_key_differs_with_every_field_that_changes_the_bytes),
		cmocka_unit_test(model_key_is_the_same_for_all_ranks_and_readers),
		cmocka_unit_test(model_key_refuses_names_beyond_the_limit),
		cmocka_unit_test(proof_matches_python_for_every_length_of_secret),
		cmocka_unit_test(proof_without_a_secret_or_with_a_long_key_name_is_refused),
		cmocka_unit_test(digests_are_equal_only_when_every_bit_is),
		cmocka_unit_test(hashing_allocates_nothing),
		cmocka_unit_test(two_digesters_do_not_disturb_each_other),
	};

#ifdef KVRAIL_HAVE_OPENSSL
	if (!CRYPTO_set_mem_functions(counted_malloc, counted_realloc, counted_free))
		return 1;
#endif
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
