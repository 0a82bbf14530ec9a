/*
 * sha256_libcrypto.c - SHA-256 by libcrypto, which knows the processor's own instructions for it.
 *
 * Not through EVP: in libcrypto 3.0 EVP_DigestInit_ex2 frees and allocates the algorithm's memory at each start, also when it is
 * given the same digest again. These functions keep all in a struct on the stack; libcrypto 3 marks them deprecated.
 */
#ifdef KVRAIL_HAVE_OPENSSL

#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "protocol/sha256.h"

bool sha256(const void *first, size_t first_length, const void *second, size_t second_length, uint8_t digest[32])
{
	SHA256_CTX context;

	return SHA256_Init(&context) && SHA256_Update(&context, first, first_length) &&
		SHA256_Update(&context, second, second_length) && SHA256_Final(digest, &context);
}

bool sha256_equal(const uint8_t *a, const uint8_t *b)
{
	return CRYPTO_memcmp(a, b, 32) == 0;
}

#endif
