/* match.c - which of our ports a peer's address is nearest to: same subnet, by the interface's own mask, before any other. */
#include <ifaddrs.h>
#include <netinet/in.h>
#include <string.h>

#include "verbs/nic/nic.h"

#define MATCH_SAME 3u
#define MATCH_OTHER 1u /* there may be a route */
#define FALLBACK_BITS_V4 24u
#define FALLBACK_BITS_V6 64u
#define MAPPED_BITS 96u /* of a GID, in front of an IPv4 address */

static bool is_v4(const union ibv_gid *gid)
{
	static const uint8_t prefix[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(gid->raw, prefix, sizeof(prefix)) == 0;
}

static uint32_t count_bits(const uint8_t *bytes, size_t count)
{
	uint32_t bits = 0;

	for (size_t i = 0; i < count; i++)
		bits += (uint32_t)__builtin_popcount(bytes[i]);
	return bits;
}

/* Bits of the GID that the interface with this address calls its network; 0: none of its addresses, or of another family. */
static uint32_t mask_bits(const struct ifaddrs *entry, const union ibv_gid *gid)
{
	if (!entry->ifa_addr || !entry->ifa_netmask)
		return 0;
	if (entry->ifa_addr->sa_family == AF_INET && is_v4(gid)) {
		const struct sockaddr_in *own = (const struct sockaddr_in *)(const void *)entry->ifa_addr;
		const struct sockaddr_in *mask = (const struct sockaddr_in *)(const void *)entry->ifa_netmask;

		return memcmp(&own->sin_addr, gid->raw + 12, 4) == 0
			? MAPPED_BITS + count_bits((const uint8_t *)&mask->sin_addr, 4)
			: 0;
	}
	if (entry->ifa_addr->sa_family == AF_INET6 && !is_v4(gid)) {
		const struct sockaddr_in6 *own = (const struct sockaddr_in6 *)(const void *)entry->ifa_addr;
		const struct sockaddr_in6 *mask = (const struct sockaddr_in6 *)(const void *)entry->ifa_netmask;

		return memcmp(&own->sin6_addr, gid->raw, 16) == 0 ? count_bits((const uint8_t *)&mask->sin6_addr, 16)
								  : 0;
	}
	return 0;
}

static uint32_t network_bits(const union ibv_gid *gid)
{
	struct ifaddrs *all = NULL;
	uint32_t bits = 0;

	if (getifaddrs(&all) == 0) {
		for (const struct ifaddrs *entry = all; entry && bits == 0; entry = entry->ifa_next)
			bits = mask_bits(entry, gid);
		freeifaddrs(all);
	}
	/* An address alone (/32) says nothing of its neighbours. */
	if (bits > 0 && bits < 8 * sizeof(gid->raw))
		return bits;
	return is_v4(gid) ? MAPPED_BITS + FALLBACK_BITS_V4 : FALLBACK_BITS_V6;
}

static bool same_bits(const uint8_t *a, const uint8_t *b, uint32_t bits)
{
	uint32_t rest = bits % 8;

	if (memcmp(a, b, bits / 8) != 0)
		return false;
	return rest == 0 || ((a[bits / 8] ^ b[bits / 8]) >> (8 - rest)) == 0;
}

uint32_t nic_match(const struct verbs_device *device, const uint8_t *bytes, uint32_t length)
{
	struct nic_device *nic = nic_device_of((struct verbs_device *)(uintptr_t)device);
	struct nic_address theirs;
	struct nic_port port;

	pthread_mutex_lock(&nic->lock);
	port = nic->port;
	pthread_mutex_unlock(&nic->lock);
	if (nic_address_decode(bytes, length, &theirs) != 0 || theirs.link_layer != port.link_layer)
		return 0;
	if (port.link_layer == IBV_LINK_LAYER_INFINIBAND)
		return memcmp(port.gid.raw, theirs.gid.raw, 8) == 0 ? MATCH_SAME : MATCH_OTHER;
	return same_bits(port.gid.raw, theirs.gid.raw, network_bits(&port.gid)) ? MATCH_SAME : MATCH_OTHER;
}
