/*
 * s3_adapter.h - objects in a bucket of S3, or of a server that speaks as S3 does.
 *
 *   PUT, GET, HEAD, DELETE of ENDPOINT/BUCKET/<prefix><object_hash in hex>, path-style, signed (s3_sign.h)
 *
 * One thread, libcurl's multi interface, up to `depth` objects and 64 questions under way at once, over connections
 * that stay. Bodies are the header of object_format.h and the object. What lies in the bucket is listed for CLEAR alone
 * (s3_list.h): else what is there is known by asking.
 */
#ifndef KVRAIL_TIER_S3_ADAPTER_H
#define KVRAIL_TIER_S3_ADAPTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "tier/adapter.h"
#include "tier/s3_sign.h"

KVR_BEGIN_C

enum s3_payload {
	S3_PAYLOAD_AUTO, /* signed over http, not over https, which protects it */
	S3_PAYLOAD_SIGNED,
	S3_PAYLOAD_UNSIGNED,
};

struct s3_adapter_options {
	const char *where;    /* "BUCKET" or "BUCKET/PREFIX": letters, digits and - . _ / */
	const char *endpoint; /* "https://host[:port]"; NULL or "": https://s3.REGION.amazonaws.com */
	const char *ca_file;  /* certificates that are trusted; NULL or "": the system's */
	const struct s3_credentials *credentials; /* with the region */
	uint32_t depth;                           /* objects under way at once, 1 .. 256; 0: 32 */
	uint32_t request_limit; /* taken and not ended yet, then submit says -EAGAIN; .. 65536; 0: 4096 */
	uint32_t tries;         /* of a request that fails in a way that may pass, 1 .. 10; 0: 3 */
	uint64_t timeout_ns;    /* for a connection, and for a request, beside 1 s for each MiB; 0: 5 s */
	uint64_t retry_ns;      /* wait before the second try, doubled for each, less up to a half; 0: 100 ms */
	int compress_level;     /* of zstd, 1 .. 19; 0: bytes are kept as they are */
	uint32_t element;       /* compressing: bytes of a number, 1, 2 or 4; 0: 2 */
	enum s3_payload payload;
	bool read_only;
};

/*
 * Starts the thread; nothing is asked of the server yet. options: not kept; credentials are copied, and wiped at the end.
 * error: what was wrong and what to do, untouched on success. Start-up thread.
 * 0, -EINVAL (an option), -ENOMEM, -EMFILE, -EAGAIN (no thread), -EOPNOTSUPP (built without libcurl, libxxhash, or libzstd to compress).
 * *adapter is NULL on an error. Ended by driver->close.
 */
KVR_MUST_CHECK int s3_adapter_open(
	const struct s3_adapter_options *options, struct l2_adapter **adapter, char *error, size_t error_size);

/* 0, or -EINVAL with `error`: what s3_adapter_open would refuse. Any thread. */
KVR_MUST_CHECK int s3_adapter_check(const char *where, const char *endpoint, char *error, size_t error_size);

KVR_END_C

#endif
