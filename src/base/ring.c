#include "base/ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"

KVR_STATIC_ASSERT(offsetof(struct ring, tail) == KVR_CACHE_LINE, "the producer has a line of its own");
KVR_STATIC_ASSERT(offsetof(struct ring, head) == 2 * KVR_CACHE_LINE, "the consumer has a line of its own");
KVR_STATIC_ASSERT(sizeof(struct ring) == 3 * KVR_CACHE_LINE, "nothing shares the consumer's line");

int ring_init(struct ring *ring, uint32_t capacity)
{
	uint64_t slots = 2, bytes;

	memset(ring, 0, sizeof(*ring));
	if (capacity < 2 || capacity > RING_CAPACITY_MAX)
		return -EINVAL;
	while (slots < capacity)
		slots *= 2;

	bytes = slots * sizeof(*ring->slots);
	ring->slots = fault_point("ring_init/slots") ? NULL : aligned_alloc(KVR_CACHE_LINE, bytes);
	if (!ring->slots)
		return -ENOMEM;
	/* Writing every page now keeps page faults out of the steps that use the ring. */
	memset(ring->slots, 0, bytes);
	ring->mask = slots - 1;
	return 0;
}

void ring_fini(struct ring *ring)
{
	free(ring->slots);
	memset(ring, 0, sizeof(*ring));
}
