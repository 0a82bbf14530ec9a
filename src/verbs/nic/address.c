#include "verbs/nic/address.h"

#include <errno.h>
#include <string.h>

static const uint8_t magic[4] = { 'K', 'V', 'R', 'N' };

static void put(uint8_t **out, uint64_t value, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		*(*out)++ = (uint8_t)(value >> 8 * i);
}

static uint64_t take(const uint8_t **in, unsigned bytes)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < bytes; i++)
		value |= (uint64_t) * (*in)++ << 8 * i;
	return value;
}

void nic_address_encode(const struct nic_address *address, uint8_t bytes[NIC_ADDRESS_BYTES])
{
	uint8_t *out = bytes;

	memcpy(out, magic, sizeof(magic));
	out += sizeof(magic);
	put(&out, NIC_ADDRESS_VERSION, 2);
	put(&out, NIC_ADDRESS_BYTES, 2);
	put(&out, address->qp_num, 4);
	put(&out, address->psn, 4);
	memcpy(out, address->gid.raw, sizeof(address->gid.raw));
	out += sizeof(address->gid.raw);
	put(&out, address->lid, 2);
	put(&out, address->mtu, 1);
	put(&out, address->link_layer, 1);
	put(&out, address->reads_started, 1);
	put(&out, address->reads_answered, 1);
	put(&out, address->needs_grh, 1);
	put(&out, 0, 1);
	put(&out, address->max_message_bytes, 8);
}

static bool is_sound(const struct nic_address *address)
{
	return address->qp_num != 0 && address->qp_num <= 0xffffff && address->psn <= 0xffffff &&
		address->mtu >= IBV_MTU_256 && address->mtu <= IBV_MTU_4096 &&
		(address->link_layer == IBV_LINK_LAYER_INFINIBAND || address->link_layer == IBV_LINK_LAYER_ETHERNET);
}

int nic_address_decode(const uint8_t *bytes, uint32_t length, struct nic_address *address)
{
	const uint8_t *in = bytes + sizeof(magic);
	uint64_t version, whole;

	if (length < NIC_ADDRESS_BYTES || memcmp(bytes, magic, sizeof(magic)) != 0)
		return -EBADMSG;
	version = take(&in, 2);
	whole = take(&in, 2);
	if (version < NIC_ADDRESS_VERSION || whole != length ||
		(version == NIC_ADDRESS_VERSION && length != NIC_ADDRESS_BYTES))
		return -EBADMSG;
	address->qp_num = (uint32_t)take(&in, 4);
	address->psn = (uint32_t)take(&in, 4);
	memcpy(address->gid.raw, in, sizeof(address->gid.raw));
	in += sizeof(address->gid.raw);
	address->lid = (uint16_t)take(&in, 2);
	address->mtu = (uint8_t)take(&in, 1);
	address->link_layer = (uint8_t)take(&in, 1);
	address->reads_started = (uint8_t)take(&in, 1);
	address->reads_answered = (uint8_t)take(&in, 1);
	address->needs_grh = take(&in, 1) & 1;
	(void)take(&in, 1);
	address->max_message_bytes = take(&in, 8);
	return is_sound(address) ? 0 : -EBADMSG;
}

static uint8_t lesser(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

int nic_path_agree(
	const struct nic_address *mine, const struct nic_address *theirs, struct nic_path *path, const char **why)
{
	bool same_subnet = memcmp(mine->gid.raw, theirs->gid.raw, 8) == 0;

	*why = "";
	if (mine->link_layer != theirs->link_layer) {
		*why = "one side is on InfiniBand, the other on Ethernet";
		return -EINVAL;
	}
	path->mtu = (enum ibv_mtu)lesser(mine->mtu, theirs->mtu);
	path->reads_started = lesser(mine->reads_started, theirs->reads_answered);
	path->reads_answered = lesser(mine->reads_answered, theirs->reads_started);
	path->global = mine->link_layer == IBV_LINK_LAYER_ETHERNET || mine->needs_grh || theirs->needs_grh ||
		theirs->lid == 0 || !same_subnet;
	if (mine->link_layer == IBV_LINK_LAYER_INFINIBAND && theirs->lid == 0 && mine->lid == 0) {
		*why = "neither side has a LID: is a subnet manager running?";
		return -EINVAL;
	}
	return 0;
}
