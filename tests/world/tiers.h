/* tiers.h - a server with an L2, whose place is simulated, and three clients of one engine: a worker, its scheduler, another worker. */
#ifndef KVRAIL_TESTS_WORLD_TIERS_H
#define KVRAIL_TESTS_WORLD_TIERS_H

#include "tier/sim_adapter.h"
#include "world/slice.h"

#define ROOM 32u     /* objects that L1 holds */
#define DOCUMENT 20u /* chunks of a document */

struct tiers {
	struct slice slice;
	struct sim_place *place;
	struct l2_adapter *adapter;
	struct sim_adapter_options faults;
	struct l2_options l2;
	struct slice_client *scheduler, *worker, *other;
};

void tiers_init(struct tiers *tiers, uint64_t seed);
/* The server is killed and begins anew on the same place; its clients are back. */
void tiers_restart(struct tiers *tiers);
/* The same, with these limits of what waits for L2. */
void tiers_limit(struct tiers *tiers, uint32_t store_queue, uint64_t store_bytes_max);
/* From now on each request to L2 takes so long. */
void tiers_delay(struct tiers *tiers, uint64_t min_ns, uint64_t max_ns);
/* Until nothing is under way to L2 or from it. */
void tiers_rest(struct tiers *tiers);
/* All leave; the place was not misused. */
void tiers_fini(struct tiers *tiers);
/* The worker stores the document with the bytes of `mark`, and L2 has what it takes of it. */
void tiers_store(struct tiers *tiers, uint32_t document, uint32_t mark);
/* The worker finds `expected` chunks of it, with these bytes. */
void tiers_read(struct tiers *tiers, uint32_t document, uint32_t mark, uint32_t expected);

#endif
