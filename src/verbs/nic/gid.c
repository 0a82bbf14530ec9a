#include "verbs/nic/gid.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const uint8_t mapped_prefix[12] = { [10] = 0xff, [11] = 0xff };

static bool is_mapped(const uint8_t *gid)
{
	return memcmp(gid, mapped_prefix, sizeof(mapped_prefix)) == 0;
}

int nic_gid_parse(const char *text, uint8_t address[16])
{
	char plain[NIC_GID_TEXT];
	struct in_addr v4;
	struct in6_addr v6;
	size_t length = strlen(text);

	if (length >= 2 && text[0] == '[' && text[length - 1] == ']') {
		text++;
		length -= 2;
	}
	if (length >= sizeof(plain))
		return -EINVAL;
	memcpy(plain, text, length);
	plain[length] = '\0';
	if (inet_pton(AF_INET, plain, &v4) == 1) {
		memcpy(address, mapped_prefix, sizeof(mapped_prefix));
		memcpy(address + sizeof(mapped_prefix), &v4, sizeof(v4));
		return 0;
	}
	if (inet_pton(AF_INET6, plain, &v6) != 1)
		return -EINVAL;
	memcpy(address, &v6, sizeof(v6));
	return 0;
}

/* False for what is nobody's address: empty, loopback, multicast. */
static bool is_usable(const uint8_t *gid)
{
	static const uint8_t nothing[16];
	static const uint8_t loopback[16] = { [15] = 1 };

	if (memcmp(gid, nothing, sizeof(nothing)) == 0 || memcmp(gid, loopback, sizeof(loopback)) == 0)
		return false;
	if (is_mapped(gid))
		return gid[12] != 0 && gid[12] != 127 && gid[12] < 224;
	/* an interface identifier that is not set yet is empty behind the prefix */
	return gid[0] != 0xff && memcmp(gid + 8, nothing, 8) != 0;
}

static bool is_routed(const uint8_t *gid)
{
	if (is_mapped(gid))
		return !(gid[12] == 169 && gid[13] == 254);
	return !(gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80);
}

/* 0: no address at all. */
static unsigned score(const struct ibv_gid_entry *entry, const struct nic_gid_wish *wish)
{
	const uint8_t *gid = entry->gid.raw;
	unsigned points = 1;

	if (!is_usable(gid))
		return 0;
	if (entry->gid_type == IBV_GID_TYPE_ROCE_V2)
		points += 8;
	if (is_routed(gid))
		points += 4;
	if (wish && wish->has_address && memcmp(gid, wish->address, sizeof(wish->address)) == 0)
		points += 2;
	if (wish && wish->interface != 0 && entry->ndev_ifindex == wish->interface)
		points += 1;
	return points;
}

int nic_gid_choose(const struct ibv_gid_entry *entries, size_t count, const struct nic_gid_wish *wish)
{
	unsigned best_points = 0;
	int best = -ENOENT;

	for (size_t i = 0; i < count; i++) {
		unsigned points = score(&entries[i], wish);

		if (points > best_points) {
			best_points = points;
			best = (int)i;
		}
	}
	return best;
}

const char *nic_gid_text(char buffer[NIC_GID_TEXT], const union ibv_gid *gid)
{
	const uint8_t *raw = gid->raw;

	if (is_mapped(raw))
		snprintf(buffer, NIC_GID_TEXT, "%u.%u.%u.%u", raw[12], raw[13], raw[14], raw[15]);
	else if (!inet_ntop(AF_INET6, raw, buffer, NIC_GID_TEXT))
		buffer[0] = '\0';
	return buffer;
}

const char *nic_gid_type_text(uint32_t type)
{
	switch (type) {
	case IBV_GID_TYPE_IB:
		return "InfiniBand";
	case IBV_GID_TYPE_ROCE_V1:
		return "RoCE v1";
	case IBV_GID_TYPE_ROCE_V2:
		return "RoCE v2";
	default:
		return "of an unknown type";
	}
}
