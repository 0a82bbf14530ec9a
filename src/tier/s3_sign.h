/*
 * s3_sign.h - the signature of a request to an S3 server: AWS Signature Version 4, in headers. Pure: the time is given.
 *
 * libcurl has this as well (CURLOPT_AWS_SIGV4), but not for us: 7.88 signs headers that it then does not send, as the
 * "Expect:" that is taken off, sends a given date twice, and gives S3 no x-amz-content-sha256; later versions do other
 * things. The examples of Amazon's documentation are tests/tier/test_s3_sign.c.
 */
#ifndef KVRAIL_TIER_S3_SIGN_H
#define KVRAIL_TIER_S3_SIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "protocol/digest.h"

KVR_BEGIN_C

#define S3_HEADERS_MAX 8
#define S3_DATE_BYTES 17          /* "20130524T000000Z" and the 0 */
#define S3_AUTHORIZATION_MAX 1024 /* with the 0 */
#define S3_HASH_BYTES 65          /* 64 hex digits and the 0 */
#define S3_UNSIGNED "UNSIGNED-PAYLOAD"

struct s3_credentials {
	char access_key[129];
	char secret_key[257];
	char token[2049]; /* of a session; "": none */
	char region[64];
};

struct s3_header {
	const char *name; /* lower case */
	const char *value;
};

struct s3_request {
	const char *method;
	const char *path;  /* as it is sent: encoded, begins with '/' */
	const char *query; /* as it is sent: encoded, sorted; "": none */
	const struct s3_header
		*headers; /* all that are signed, sorted by name; host and x-amz-date must be among them */
	uint32_t header_count;
	const char *payload_hash; /* what x-amz-content-sha256 says */
	const char *date;         /* what x-amz-date says */
};

/* "20130524T000000Z" of seconds since 1970. */
void s3_date(uint64_t seconds, char out[S3_DATE_BYTES]);
/* SHA-256 in hex of two pieces, one behind the other. */
void s3_hash(struct digester *digester, const void *first, size_t first_length, const void *second,
	size_t second_length, char out[S3_HASH_BYTES]);
/* The value of the header Authorization. 0, -EINVAL: too many headers; -ENAMETOOLONG: it does not fit; -ENOMEM. */
KVR_MUST_CHECK int s3_sign(struct digester *digester, const struct s3_credentials *credentials,
	const struct s3_request *request, char out[S3_AUTHORIZATION_MAX]);

/* ---- what a server says ---- */

/* The text of <Code> in an error's XML: letters, digits, at most size - 1 of them; "" when there is none. */
void s3_error_code(const char *body, size_t length, char *out, size_t size);

/* One profile of a shared credentials file: access key, secret key and token. 0; -ENOENT: no such profile; -EINVAL: it
 * lacks a key, or one is too long. */
KVR_MUST_CHECK int s3_read_profile(const char *text, const char *profile, struct s3_credentials *credentials);

KVR_END_C

#endif
