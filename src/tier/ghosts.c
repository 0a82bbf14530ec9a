#include "tier/ghosts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"

#define BUCKET_GHOSTS (KVR_CACHE_LINE / sizeof(struct ghost))

int ghosts_init(struct ghosts *ghosts, uint32_t count)
{
	uint64_t buckets = 1;

	while (buckets * BUCKET_GHOSTS < count)
		buckets *= 2;
	memset(ghosts, 0, sizeof(*ghosts));
	ghosts->slots = fault_point("ghosts/slots") ? NULL : aligned_alloc(KVR_CACHE_LINE, buckets * KVR_CACHE_LINE);
	if (!ghosts->slots)
		return -ENOMEM;
	memset(ghosts->slots, 0, buckets * KVR_CACHE_LINE);
	ghosts->bucket_mask = (uint32_t)(buckets - 1);
	return 0;
}

void ghosts_fini(struct ghosts *ghosts)
{
	free(ghosts->slots);
	ghosts->slots = NULL;
}

static struct ghost *bucket_of(const struct ghosts *ghosts, uint64_t key)
{
	return &ghosts->slots[((uint32_t)key & ghosts->bucket_mask) * BUCKET_GHOSTS];
}

/* 0 is no fingerprint. */
static uint32_t fingerprint_of(uint64_t key)
{
	return (uint32_t)(key >> 32) ? (uint32_t)(key >> 32) : 1;
}

void ghosts_add(struct ghosts *ghosts, uint64_t key)
{
	struct ghost *bucket = bucket_of(ghosts, key), *place = bucket;
	uint32_t fingerprint = fingerprint_of(key);

	ghosts->number++;
	for (struct ghost *ghost = bucket; ghost < bucket + BUCKET_GHOSTS; ghost++) {
		if (ghost->fingerprint == 0 || ghost->fingerprint == fingerprint) {
			place = ghost;
			break;
		}
		if (ghosts->number - ghost->number > ghosts->number - place->number)
			place = ghost;
	}
	place->fingerprint = fingerprint;
	place->number = ghosts->number;
}

bool ghosts_take(struct ghosts *ghosts, uint64_t key, uint64_t window)
{
	struct ghost *bucket = bucket_of(ghosts, key);

	for (struct ghost *ghost = bucket; ghost < bucket + BUCKET_GHOSTS; ghost++) {
		if (ghost->fingerprint != fingerprint_of(key))
			continue;
		ghost->fingerprint = 0;
		return ghosts->number - ghost->number <= window;
	}
	return false;
}

uint64_t ghosts_bytes(const struct ghosts *ghosts)
{
	return ghosts->slots ? ((uint64_t)ghosts->bucket_mask + 1) * KVR_CACHE_LINE : 0;
}
