/*
 * ghosts.h - what was evicted lately, so that what comes back is known: a fingerprint for each chunk, without its bytes.
 *
 * Buckets of a cache line. A new ghost takes the place of the oldest of its bucket; none is found once more than `window` have come
 * after it. A fingerprint has 32 bits and a bucket eight, so about one in 500 million of those asked for is found wrongly: it is
 * kept longer than it should be, no more.
 *
 * Owner: the management core. Only init and fini allocate.
 */
#ifndef KVRAIL_TIER_GHOSTS_H
#define KVRAIL_TIER_GHOSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

struct ghost {
	uint32_t fingerprint;
	uint32_t number; /* of those that came, modulo 2^32; with fingerprint 0: none */
};

struct ghosts {
	struct ghost *slots;
	uint32_t bucket_mask;
	uint32_t number; /* of the one that came last */
};

/* Room for at least `count` ghosts, which is rounded up to a power of two. 0 or -ENOMEM. */
KVR_MUST_CHECK int ghosts_init(struct ghosts *ghosts, uint32_t count);
void ghosts_fini(struct ghosts *ghosts);
/* key: 64 well-mixed bits of what was evicted. */
void ghosts_add(struct ghosts *ghosts, uint64_t key);
/* True when it was evicted, and at most `window` after it; it is none any more. */
bool ghosts_take(struct ghosts *ghosts, uint64_t key, uint64_t window);
uint64_t ghosts_bytes(const struct ghosts *ghosts);

KVR_END_C

#endif
