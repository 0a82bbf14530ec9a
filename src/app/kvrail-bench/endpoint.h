/* endpoint.h - one connection: a scheduler's, or a rank's with its paged KV memory. One thread at a time. */
#ifndef KVRAIL_APP_BENCH_ENDPOINT_H
#define KVRAIL_APP_BENCH_ENDPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "app/kvrail-bench/fakegpu.h"
#include "app/kvrail-bench/geometry.h"
#include "app/kvrail-bench/gpumem.h"
#include "app/kvrail-bench/settings.h"
#include "base/compiler.h"
#include "kvrail.h"

KVR_BEGIN_C

/* What all connections of one run have in common. */
struct endpoint_options {
	const struct server_settings *server;
	const char *model;
	const char *dtype;
	const char *run; /* hashed into the identity: other runs' chunks are never met */
	struct shape shape;
	uint32_t blocks; /* of a rank's memory */
	uint64_t seed;
	struct gpumem *gpumem; /* NULL: the memory is the host's */
};

struct endpoint {
	struct kvr_client *client;
	uint32_t registration;
	uint32_t holder, reader; /* which part of a chunk, and which of those who read it */
	void *memory;            /* of the host: the pages, or what is to be on the GPU and was there */
	struct gpumem *gpumem;   /* NULL: the pages are in `memory` */
	uint64_t device_memory;  /* the pages on the GPU */
	struct fakegpu gpu;
	uint8_t fingerprint[32];
};

/* All: 0, or a negative errno with words in why[]; the endpoint is to be closed also after a failure. */
KVR_MUST_CHECK int endpoint_open_rank(
	struct endpoint *endpoint, const struct endpoint_options *options, uint32_t rank, char *why, size_t why_size);
/* For a model whose ranks are registered: fingerprint is one of theirs. */
KVR_MUST_CHECK int endpoint_open_scheduler(struct endpoint *endpoint, const struct endpoint_options *options,
	const uint8_t fingerprint[32], char *why, size_t why_size);
void endpoint_close(struct endpoint *endpoint);

/* Blocks of a rank's memory to where the server moves them from and to, or back; nothing to do in host memory. 0 or -EIO. */
KVR_MUST_CHECK int endpoint_sync(struct endpoint *endpoint, bool to_gpu, uint32_t count, const uint32_t *ids);

/* What kvr_poll or kvr_wait returned: false while the ticket is under way. True: *result holds how it ended, also
 * when the call itself failed. *result was zeroed before the call. */
bool endpoint_answered(int error, struct kvr_result *result);

KVR_END_C

#endif
