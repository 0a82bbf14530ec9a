/* find.c - which device, which port, which address; and clear words where there is none (pitfalls J01, J03, O10). */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "verbs/nic/nic.h"

#define GIDS_MAX 65536u

static const char *port_state(enum ibv_port_state state)
{
	switch (state) {
	case IBV_PORT_DOWN:
		return "down";
	case IBV_PORT_INIT:
		return "waiting for a subnet manager";
	case IBV_PORT_ARMED:
		return "armed, not yet active";
	case IBV_PORT_ACTIVE:
		return "active";
	default:
		return "not ready";
	}
}

static int choose_gid(struct nic_device *nic, struct nic_port *port, const struct ibv_gid_entry *entries, size_t count,
	const char *device)
{
	char text[NIC_GID_TEXT];
	int best = -ENOENT;

	if (nic->gid_index_set) {
		for (size_t i = 0; i < count && best < 0; i++) {
			if (entries[i].gid_index == port->gid_index)
				best = (int)i;
		}
	} else {
		best = nic_gid_choose(entries, count, &nic->wish);
	}
	if (best < 0 && nic->gid_index_set)
		log_error("nic: %s port %u has no address at GID index %u; show_gids or `rdma link` lists those it has",
			device, port->number, port->gid_index);
	else if (best < 0)
		log_error("nic: %s port %u has no usable address (GID): give its network interface an IP address and "
			  "set it up, or name one with the option for the GID index",
			device, port->number);
	if (best < 0)
		return -ENODEV;
	port->gid_index = entries[best].gid_index;
	port->gid = entries[best].gid;
	log_info("nic: %s port %u: address %s, GID index %u, %s%s", device, port->number,
		nic_gid_text(text, &port->gid), port->gid_index, nic_gid_type_text(entries[best].gid_type),
		nic->gid_index_set ? ", as named" : "");
	return 0;
}

/* InfiniBand reaches its subnet by LID: an address is only for the way through routers. */
static int read_gid(struct nic_device *nic, struct nic_port *port, uint32_t table_length, const char *device)
{
	bool infiniband = port->link_layer == IBV_LINK_LAYER_INFINIBAND;
	size_t capacity = (size_t)table_length * (nic->attributes.phys_port_cnt ? nic->attributes.phys_port_cnt : 1);
	struct ibv_gid_entry *entries;
	size_t count = 0;
	ssize_t found;
	int rc = 0;

	if (capacity == 0 || capacity > GIDS_MAX)
		capacity = GIDS_MAX;
	entries = calloc(capacity, sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	found = nic->library.query_gid_table(nic->real, entries, capacity, 0, sizeof(*entries));
	for (ssize_t i = 0; i < found; i++) {
		if (entries[i].port_num == port->number)
			entries[count++] = entries[i];
	}
	if (!infiniband || nic->gid_index_set) {
		rc = choose_gid(nic, port, entries, count, device);
	} else if (count > 0) {
		port->gid_index = entries[0].gid_index;
		port->gid = entries[0].gid;
	}
	free(entries);
	return rc;
}

/* 0; -ENETDOWN when the port is not active, without words: the caller knows whether others are left. */
static int read_port(
	struct nic_device *nic, struct nic_port *port, uint32_t number, const char *device, enum ibv_port_state *state)
{
	struct ibv_port_attr attributes;
	int error = nic_query_port(&nic->library, nic->real, number, &attributes);

	if (error) {
		log_error("nic: %s port %u: %s", device, number, strerror(error));
		return -ENODEV;
	}
	*state = attributes.state;
	if (attributes.state != IBV_PORT_ACTIVE)
		return -ENETDOWN;
	port->number = number;
	/* Devices that say nothing are from before there was anything but InfiniBand. */
	port->link_layer = attributes.link_layer == IBV_LINK_LAYER_ETHERNET ? IBV_LINK_LAYER_ETHERNET
									    : IBV_LINK_LAYER_INFINIBAND;
	port->mtu = (uint8_t)attributes.active_mtu;
	port->lid = attributes.lid;
	port->needs_grh = attributes.flags & IBV_QPF_GRH_REQUIRED;
	port->max_message_bytes = attributes.max_msg_sz;
	return read_gid(
		nic, port, (uint32_t)kvr_max_u64(attributes.gid_tbl_len > 0 ? attributes.gid_tbl_len : 0, 1), device);
}

int nic_port_read(struct nic_device *nic, struct nic_port *port, uint32_t number, const char *device)
{
	enum ibv_port_state state = IBV_PORT_NOP;

	return read_port(nic, port, number, device, &state);
}

/* The port that was asked for, or the first that is active. -ENETDOWN: this device has none; said when `loud`. */
static int choose_port(struct nic_device *nic, uint32_t wanted, const char *device, bool loud)
{
	uint32_t first = wanted ? wanted : 1, last = wanted ? wanted : nic->attributes.phys_port_cnt;
	enum ibv_port_state state = IBV_PORT_NOP;
	int rc = -ENETDOWN;

	if (wanted > nic->attributes.phys_port_cnt) {
		log_error(
			"nic: %s has no port %u, its ports are 1 to %u", device, wanted, nic->attributes.phys_port_cnt);
		return -ENODEV;
	}
	for (uint32_t number = first; number <= last && rc == -ENETDOWN; number++)
		rc = read_port(nic, &nic->port, number, device, &state);
	if (rc == -ENETDOWN && loud)
		log_error("nic: %s port %u is %s: check the cable, `ip link set ... up` for its network interface, or "
			  "the subnet manager on InfiniBand",
			device, first, port_state(state));
	return rc;
}

static int open_device(struct nic_device *nic, struct ibv_device *device, const char *name)
{
	int error;

	errno = 0;
	nic->real = nic->library.open_device(device);
	if (!nic->real) {
		error = errno ? errno : ENODEV;
		if (error == EACCES || error == EPERM) {
			log_error("nic: %s: no permission to open /dev/infiniband/uverbs*: run as a user or group that "
				  "may, and give a container --device=/dev/infiniband",
				name);
			return -EACCES;
		}
		log_error("nic: %s cannot be opened: %s", name, strerror(error));
		return error == ENOMEM ? -ENOMEM : -ENODEV;
	}
	error = nic->library.query_device(nic->real, &nic->attributes);
	if (!error)
		return 0;
	log_error("nic: %s: %s", name, strerror(error));
	nic->library.close_device(nic->real);
	nic->real = NULL;
	return -ENODEV;
}

static int try_device(struct nic_device *nic, struct ibv_device *device, const struct verbs_open *options, bool loud)
{
	const char *name = nic->library.get_device_name(device);
	int rc = open_device(nic, device, name);

	if (rc != 0)
		return rc;
	nic->port.gid_index = options->nic.gid_index;
	rc = choose_port(nic, options->port, name, loud);
	if (rc == 0) {
		snprintf(nic->device.name, sizeof(nic->device.name), "%s port %u", name, nic->port.number);
		return 0;
	}
	nic->library.close_device(nic->real);
	nic->real = NULL;
	return rc;
}

static void say_missing(struct nic_device *nic, struct ibv_device **list, int count, const char *wanted)
{
	struct text names = { 0 };

	for (int i = 0; i < count; i++)
		text_append(&names, "%s%s", i ? ", " : "", nic->library.get_device_name(list[i]));
	log_error("nic: there is no RDMA device %s here: there are %s", wanted, names.failed ? "others" : names.bytes);
	text_fini(&names);
}

static int find_in(struct nic_device *nic, struct ibv_device **list, int count, const struct verbs_open *options)
{
	int first_error = 0;

	for (int i = 0; i < count; i++) {
		bool named = options->device && options->device[0];
		int rc;

		if (named && strcmp(nic->library.get_device_name(list[i]), options->device) != 0)
			continue;
		rc = try_device(nic, list[i], options, named || count == 1);
		if (rc == 0 || named)
			return rc == -ENETDOWN ? -ENODEV : rc;
		if (first_error == 0 || first_error == -ENETDOWN)
			first_error = rc;
	}
	if (options->device && options->device[0]) {
		say_missing(nic, list, count, options->device);
		return -ENODEV;
	}
	if (first_error != -ENETDOWN)
		return first_error;
	if (count > 1)
		log_error("nic: no port of the %d RDMA devices here is active: check cables and `ip link`, or the "
			  "subnet manager on InfiniBand",
			count);
	return -ENODEV;
}

/* The interface that has the address, so that a GID of the same interface is known as near. */
static uint32_t interface_of(const uint8_t address[16])
{
	struct ifaddrs *all;
	uint32_t index = 0;

	if (getifaddrs(&all) != 0)
		return 0;
	for (const struct ifaddrs *one = all; one && index == 0; one = one->ifa_next) {
		uint8_t bytes[16] = { [10] = 0xff, [11] = 0xff };

		if (!one->ifa_addr)
			continue;
		if (one->ifa_addr->sa_family == AF_INET)
			memcpy(bytes + 12, &((const struct sockaddr_in *)(const void *)one->ifa_addr)->sin_addr, 4);
		else if (one->ifa_addr->sa_family == AF_INET6)
			memcpy(bytes, &((const struct sockaddr_in6 *)(const void *)one->ifa_addr)->sin6_addr, 16);
		else
			continue;
		if (memcmp(bytes, address, sizeof(bytes)) == 0)
			index = if_nametoindex(one->ifa_name);
	}
	freeifaddrs(all);
	return index;
}

int nic_find(struct nic_device *nic, const struct verbs_open *options)
{
	struct ibv_device **list;
	int count = 0, rc;

	nic->gid_index_set = options->nic.gid_index_set;
	/* A host name is no wish: which of its addresses would be meant? */
	if (options->nic.address && nic_gid_parse(options->nic.address, nic->wish.address) == 0) {
		nic->wish.has_address = true;
		nic->wish.interface = interface_of(nic->wish.address);
	}
	errno = 0;
	list = nic->library.get_device_list(&count);
	if (!list || count == 0) {
		log_error("nic: there is no RDMA device on this machine%s%s: load the adapter's driver (`rdma link` "
			  "shows its ports), give a container --device=/dev/infiniband, or use clients on this host",
			!list && errno ? ": " : "", !list && errno ? strerror(errno) : "");
		if (list)
			nic->library.free_device_list(list);
		return -ENODEV;
	}
	rc = find_in(nic, list, count, options);
	nic->library.free_device_list(list);
	return rc;
}
