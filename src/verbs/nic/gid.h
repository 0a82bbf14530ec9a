/*
 * gid.h - which entry of a port's GID table is the address of this side. Pure: entries in, index out.
 *
 * The rule for Ethernet: RoCE v2 before RoCE v1, an address that is routed before a link-local one, one that stands on
 * the interface (or is the address) that the program is bound to before another, the lower index last. Empty, loopback
 * and multicast entries are none (pitfalls J01).
 */
#ifndef KVRAIL_VERBS_NIC_GID_H
#define KVRAIL_VERBS_NIC_GID_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

/* What the operator wants, or is bound to. */
struct nic_gid_wish {
	bool has_address;
	uint8_t address[16]; /* IPv4 as ::ffff:a.b.c.d */
	uint32_t interface;  /* index of the network interface that has it; 0: unknown */
};

/* "10.0.0.1", "fd00::1", brackets allowed: into the form of a GID. 0 or -EINVAL. */
KVR_MUST_CHECK int nic_gid_parse(const char *text, uint8_t address[16]);
/* The place in `entries` of the best one, -ENOENT when none is usable. */
KVR_MUST_CHECK int nic_gid_choose(const struct ibv_gid_entry *entries, size_t count, const struct nic_gid_wish *wish);
/* As an address; "RoCE v2" and the like for the type. */
#define NIC_GID_TEXT 48
const char *nic_gid_text(char buffer[NIC_GID_TEXT], const union ibv_gid *gid);
const char *nic_gid_type_text(uint32_t type);

KVR_END_C

#endif
