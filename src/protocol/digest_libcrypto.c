/* digest_libcrypto.c - SHA-256 by libcrypto, which knows the processor's own instructions for it. */
#ifdef KVRAIL_HAVE_OPENSSL

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>

#include "protocol/digest.h"

static const char seed_text[] = "kvrail chunk chain v1";

int digester_init(struct digester *digester)
{
	uint8_t digest[WIRE_DIGEST_BYTES];
	int result = -ENOSYS;

	digester->algorithm = EVP_MD_fetch(NULL, "SHA256", NULL);
	if (!digester->algorithm)
		return -ENOSYS;
	digester->context = EVP_MD_CTX_new();
	if (!digester->context) {
		result = -ENOMEM;
		goto free_algorithm;
	}
	/* The algorithm's own memory is allocated here; what follows only starts it over. */
	if (!EVP_DigestInit_ex2(digester->context, digester->algorithm, NULL))
		goto free_context;
	digester_hash(digester, seed_text, sizeof(seed_text) - 1, NULL, 0, digest);
	if (memcmp(digest, digest_seed, sizeof(digest)) != 0)
		goto free_context;
	return 0;

free_context:
	EVP_MD_CTX_free(digester->context);
free_algorithm:
	EVP_MD_free(digester->algorithm);
	digester->context = NULL;
	digester->algorithm = NULL;
	return result;
}

void digester_fini(struct digester *digester)
{
	EVP_MD_CTX_free(digester->context);
	EVP_MD_free(digester->algorithm);
	digester->context = NULL;
	digester->algorithm = NULL;
}

void digester_hash(struct digester *digester, const void *first, size_t first_length, const void *second,
	size_t second_length, uint8_t digest[WIRE_DIGEST_BYTES])
{
	EVP_MD_CTX *context = digester->context;
	bool done = EVP_DigestInit_ex2(context, NULL, NULL) && EVP_DigestUpdate(context, first, first_length) &&
		EVP_DigestUpdate(context, second, second_length) && EVP_DigestFinal_ex(context, digest, NULL);

	/* No input makes this fail once it has worked. A digest that is not one would hand out another chunk's bytes. */
	if (KVR_UNLIKELY(!done))
		__builtin_trap();
}

bool digest_equal(const uint8_t a[32], const uint8_t b[32])
{
	return CRYPTO_memcmp(a, b, 32) == 0;
}

#endif
