/*
 * address.h - what one queue pair tells the other over the control socket, and what both make of it. Pure.
 *
 * Bytes, little-endian: "KVRN", u16 version (1), u16 length of all; u32 queue pair number, u32 first packet sequence
 * number, 16 bytes GID, u16 LID, u8 MTU (enum ibv_mtu), u8 link layer (1 InfiniBand, 2 Ethernet), u8 outstanding READs
 * that this side starts, u8 that it answers, u8 flags (1: needs a global route header), u8 zero, u64 largest message.
 * A later version only appends: who knows less reads the beginning.
 */
#ifndef KVRAIL_VERBS_NIC_ADDRESS_H
#define KVRAIL_VERBS_NIC_ADDRESS_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

#define NIC_ADDRESS_BYTES 48u
#define NIC_ADDRESS_VERSION 1u

struct nic_address {
	uint32_t qp_num;
	uint32_t psn;
	union ibv_gid gid;
	uint16_t lid;
	uint8_t mtu;        /* enum ibv_mtu */
	uint8_t link_layer; /* IBV_LINK_LAYER_INFINIBAND, IBV_LINK_LAYER_ETHERNET */
	uint8_t reads_started;
	uint8_t reads_answered;
	bool needs_grh;
	uint64_t max_message_bytes;
};

void nic_address_encode(const struct nic_address *address, uint8_t bytes[NIC_ADDRESS_BYTES]);
/* -EBADMSG: not such an address, or values that cannot be. */
KVR_MUST_CHECK int nic_address_decode(const uint8_t *bytes, uint32_t length, struct nic_address *address);

/* What two ends agree on. */
struct nic_path {
	enum ibv_mtu mtu;       /* the lesser (pitfalls J02) */
	uint8_t reads_started;  /* no more than the other side answers */
	uint8_t reads_answered; /* as many as the other side starts */
	bool global;            /* with a global route header */
};
/* `mine` as sent, `theirs` as received. -EINVAL with *why when the two cannot talk. */
KVR_MUST_CHECK int nic_path_agree(
	const struct nic_address *mine, const struct nic_address *theirs, struct nic_path *path, const char **why);

KVR_END_C

#endif
