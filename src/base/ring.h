/*
 * ring.h - single-producer single-consumer ring of 64-byte messages between two threads.
 *
 *   shared:    slots[capacity]  +  tail (written by the producer)  +  head (written by the consumer), each on a line
 *   producer:  tail, and a copy of head that is read again only when the ring looks full
 *   consumer:  head, and a copy of tail that is read again only when the ring looks empty
 *
 * Indices run freely and are masked at use; capacity is a power of two. The store-release of tail pairs with the
 * consumer's load-acquire, that of head with the producer's. The struct holds both sides' private words on lines of
 * their own, so that a ring is one object with no false sharing. When both sides are the same thread it works
 * unchanged.
 */
#ifndef KVRAIL_BASE_RING_H
#define KVRAIL_BASE_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"
#include "base/compiler.h"

KVR_BEGIN_C

/* What a ring carries: a kind, and up to seven words whose meaning the kind fixes. One cache line. */
struct KVR_ALIGNED(KVR_CACHE_LINE) ring_message {
	uint32_t kind;
	uint32_t count;
	uint64_t word[7];
};
KVR_STATIC_ASSERT(sizeof(struct ring_message) == KVR_CACHE_LINE, "a ring message is one cache line");

struct ring {
	/* read only after ring_init */
	KVR_ALIGNED(KVR_CACHE_LINE) struct ring_message *slots;
	uint64_t mask;
	/* producer's line */
	KVR_ALIGNED(KVR_CACHE_LINE) uint64_t tail;
	uint64_t head_copy;
	/* consumer's line */
	KVR_ALIGNED(KVR_CACHE_LINE) uint64_t head;
	uint64_t tail_copy;
};

/* capacity: 2 .. 2^20 messages, rounded up to a power of two. 0, -EINVAL, -ENOMEM; the struct is zeroed on an error.
 * The struct itself must lie on a cache line boundary (aligned_alloc when it is part of a heap object). */
#define RING_CAPACITY_MAX (UINT32_C(1) << 20)
KVR_MUST_CHECK int ring_init(struct ring *ring, uint32_t capacity);
/* Neither side may be in a call. Messages still inside are dropped. Harmless on a zeroed struct. */
void ring_fini(struct ring *ring);

/* producer thread ----------------------------------------------------------------------------------------------- */

/* The slot to fill, NULL when the ring is full. It becomes visible with ring_push_end. */
static inline struct ring_message *ring_push_begin(struct ring *ring)
{
	uint64_t tail = kvr_load_relaxed(&ring->tail);

	if (KVR_UNLIKELY(tail - ring->head_copy > ring->mask)) {
		ring->head_copy = kvr_load_acquire(&ring->head);
		if (tail - ring->head_copy > ring->mask)
			return NULL;
	}
	return &ring->slots[tail & ring->mask];
}

static inline void ring_push_end(struct ring *ring)
{
	kvr_store_release(&ring->tail, kvr_load_relaxed(&ring->tail) + 1);
}

/* False when the ring is full; nothing is pushed then. */
static inline bool ring_push(struct ring *ring, const struct ring_message *message)
{
	struct ring_message *slot = ring_push_begin(ring);

	if (KVR_UNLIKELY(!slot))
		return false;
	*slot = *message;
	ring_push_end(ring);
	return true;
}

/* How many messages can be pushed for certain now. */
static inline uint64_t ring_space(struct ring *ring)
{
	ring->head_copy = kvr_load_acquire(&ring->head);
	return ring->mask + 1 - (kvr_load_relaxed(&ring->tail) - ring->head_copy);
}

/* consumer thread ----------------------------------------------------------------------------------------------- */

/* The oldest message, NULL when there is none. It stays valid until ring_pop_end. */
static inline const struct ring_message *ring_pop_begin(struct ring *ring)
{
	uint64_t head = kvr_load_relaxed(&ring->head);

	if (head == ring->tail_copy) {
		ring->tail_copy = kvr_load_acquire(&ring->tail);
		if (head == ring->tail_copy)
			return NULL;
	}
	return &ring->slots[head & ring->mask];
}

static inline void ring_pop_end(struct ring *ring)
{
	kvr_store_release(&ring->head, kvr_load_relaxed(&ring->head) + 1);
}

static inline bool ring_pop(struct ring *ring, struct ring_message *message)
{
	const struct ring_message *slot = ring_pop_begin(ring);

	if (!slot)
		return false;
	*message = *slot;
	ring_pop_end(ring);
	return true;
}

static inline bool ring_empty(struct ring *ring)
{
	return ring_pop_begin(ring) == NULL;
}

KVR_END_C

#endif
