/* describe.c - a device's settings and state in words and numbers, for status pages. */
#include <stdio.h>

#include "base/text.h"
#include "verbs/nic/nic.h"

static const char *state_of(const struct nic_device *nic)
{
	static const char *const words[] = {
		[VERBS_ACTIVE] = "active",
		[VERBS_MOVED] = "active",
		[VERBS_PORT_DOWN] = "port down",
		[VERBS_LOST] = "lost",
	};

	return words[verbs_health_of(kvr_load_relaxed(&nic->device.health))];
}

void nic_describe(const struct verbs_device *device, struct text *out)
{
	struct nic_device *nic = KVR_CONTAINER_OF(device, struct nic_device, device);
	char address[NIC_GID_TEXT];
	struct nic_port port;

	pthread_mutex_lock(&nic->lock);
	port = nic->port;
	pthread_mutex_unlock(&nic->lock);
	text_append(out, "\"state\":\"%s\",\"port\":%u,\"link_layer\":\"%s\"", state_of(nic), port.number,
		port.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand");
	text_append(out, ",\"address\":\"%s\",\"gid_index\":%u,\"lid\":%u,\"mtu_bytes\":%u",
		nic_gid_text(address, &port.gid), port.gid_index, port.lid, 128u << port.mtu);
	text_append(out,
		",\"service_level\":%u,\"traffic_class\":%u,\"hop_limit\":%u,\"timeout\":%u,\"retry_count\":%u,"
		"\"rnr_timer\":%u",
		nic->settings.service_level, nic->settings.traffic_class, nic->settings.hop_limit,
		nic->settings.timeout, nic->settings.retry_count, nic->settings.rnr_timer);
	text_append(out,
		",\"port_errors_total\":%llu,\"address_changes_total\":%llu,\"queue_pair_errors_total\":%llu,"
		"\"queue_pairs_closed_total\":%llu",
		(unsigned long long)kvr_load_relaxed(&nic->counters.port_errors),
		(unsigned long long)kvr_load_relaxed(&nic->counters.address_changes),
		(unsigned long long)kvr_load_relaxed(&nic->counters.qp_errors),
		(unsigned long long)kvr_load_relaxed(&nic->counters.qps_closed));
}
