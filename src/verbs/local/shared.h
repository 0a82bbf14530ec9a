/*
 * shared.h - the memory that the two processes of a queue pair share: two message rings and what each side tells the
 * other.
 *
 *   0      struct local_shared: side[SERVER], side[CLIENT]
 *   4096   slots that the client fills and the server empties
 *   ...    slots that the server fills and the client empties
 *
 * Everything in it may be rewritten by the peer at any moment. Both sides keep their own copy of every index and size,
 * read a word of the peer's once, and check it before use; nothing read from here is ever an address or an unchecked
 * length.
 *
 * A slot's first line carries the sequence number, the header and the first bytes, so that a small message costs one
 * transfer of a cache line. Message number m (from 0) lies in slot m mod count and is there when its sequence is m + 1:
 * the store-release of `sequence` pairs with the consumer's load-acquire. The consumer's `head` comes back on a line of
 * its own, a quarter of the ring at a time, and is read only when the ring looks full.
 */
#ifndef KVRAIL_VERBS_LOCAL_SHARED_H
#define KVRAIL_VERBS_LOCAL_SHARED_H

#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

#define LOCAL_FIRST_BYTES 48u
#define LOCAL_SLOTS_MIN 4u
#define LOCAL_SLOTS_MAX 65536u
#define LOCAL_SLOTS_OFFSET 4096u
#define LOCAL_MESSAGE_BYTES_MAX (16u << 20)
#define LOCAL_SHARED_BYTES_MAX (UINT64_C(1) << 32)

enum local_slot_kind {
	LOCAL_SLOT_SEND = 1,
	LOCAL_SLOT_SEND_IMM = 2,
	LOCAL_SLOT_WRITE_IMM = 3, /* no payload: `length` bytes were written before */
};

struct KVR_ALIGNED(KVR_CACHE_LINE) local_slot {
	uint32_t sequence;
	uint32_t length;
	uint32_t kind;
	uint32_t immediate;
	uint8_t first[LOCAL_FIRST_BYTES];
};
KVR_STATIC_ASSERT(sizeof(struct local_slot) == KVR_CACHE_LINE, "the first line of a slot is one cache line");

enum local_closed {
	LOCAL_OPEN = 0,
	LOCAL_CLOSED = 1,       /* failed or destroyed: takes nothing any more */
	LOCAL_CLOSED_LENGTH = 2 /* a message did not fit the receive it met */
};

/* Written by one side, read by the other; `sleeping` is reset by the one that wakes. */
struct KVR_ALIGNED(KVR_CACHE_LINE) local_side {
	uint32_t head; /* messages taken */
	uint8_t pad0[KVR_CACHE_LINE - 4];
	uint32_t sleeping; /* wake me when you published a message or freed slots */
	uint32_t closed;   /* enum local_closed */
	uint8_t pad1[KVR_CACHE_LINE - 8];
};
KVR_STATIC_ASSERT(sizeof(struct local_side) == 2 * KVR_CACHE_LINE, "head and sleeping flag lie on lines of their own");

enum local_role { LOCAL_SERVER = 0, LOCAL_CLIENT = 1 };

struct local_shared {
	struct local_side side[2]; /* by enum local_role */
};
KVR_STATIC_ASSERT(sizeof(struct local_shared) <= LOCAL_SLOTS_OFFSET, "the sides lie before the slots");

/* The sizes of both rings. The server chooses, the client is told in the address and checks. */
struct local_geometry {
	uint32_t slots;         /* of each ring, a power of two */
	uint32_t stride;        /* bytes from slot to slot, a multiple of a cache line */
	uint32_t message_bytes; /* the longest message */
};

/* Bytes of one slot for messages up to so many bytes. */
static inline uint32_t local_slot_stride(uint32_t message_bytes)
{
	uint32_t behind = message_bytes > LOCAL_FIRST_BYTES ? message_bytes - LOCAL_FIRST_BYTES : 0;

	return (uint32_t)sizeof(struct local_slot) + (uint32_t)kvr_round_up(behind, KVR_CACHE_LINE);
}

static inline uint64_t local_shared_bytes(const struct local_geometry *geometry)
{
	return kvr_round_up(LOCAL_SLOTS_OFFSET + 2 * (uint64_t)geometry->slots * geometry->stride, 4096);
}

/*
 * What qp_address hands over, little-endian, 32 bytes:
 *   0  u32 magic    4  u16 version    6  u8 role    7  u8 zero
 *   8  u32 qp_num  12  u32 slots     16  u32 stride    20  u32 message_bytes    24  u64 zero
 * The server's comes with two descriptors: the memory, and the client's end of the wake socket. The client has no rings
 * to offer: its slots and stride are 0, and message_bytes is what it wants to send.
 */
#define LOCAL_ADDRESS_MAGIC 0x434f4c4bu
#define LOCAL_ADDRESS_VERSION 1u
#define LOCAL_ADDRESS_BYTES 32u
#define LOCAL_ADDRESS_FDS 2u

struct local_address {
	uint32_t qp_num;
	uint32_t role;
	struct local_geometry geometry;
};

void local_address_encode(const struct local_address *address, uint8_t bytes[LOCAL_ADDRESS_BYTES]);
/* 0; -EBADMSG: not an address of this driver and version, or sizes that contradict each other. */
KVR_MUST_CHECK int local_address_decode(const uint8_t *bytes, uint32_t length, struct local_address *address);

KVR_END_C

#endif
