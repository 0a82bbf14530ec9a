/* device.c - opening, closing, and the driver's table. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "verbs/nic/nic.h"

#define DEFAULT_LIBRARY "libibverbs.so.1"
#define MESSAGE_MAX (UINT64_C(1) << 30)

static uint32_t at_most(int value, uint32_t limit)
{
	return value <= 0 ? 0 : (uint32_t)value < limit ? (uint32_t)value : limit;
}

/*
 * RDMA READs of one queue pair. 256 KiB is what 400 Gbit/s carry in 5 us, a round trip within a cluster with the adapter's own time.
 * Completions that come every few READs keep requests flowing beside the data; all of them together at the end of many stop
 * the client, then the server (docs/NIC.md has the figures).
 */
#define NIC_READ_WINDOW_BYTES (UINT32_C(256) << 10)
#define NIC_READS_SIGNALLED 4

static void set_limits(struct nic_device *nic)
{
	struct verbs_limits *limits = &nic->device.limits;
	const struct ibv_device_attr *attributes = &nic->attributes;

	limits->max_cqe = at_most(attributes->max_cqe, 1u << 22);
	/* Of the queue's places one is the marker's. */
	limits->max_send_wr = at_most(attributes->max_qp_wr - 1, NIC_WR_MAX);
	limits->max_recv_wr = limits->max_send_wr;
	limits->max_sge = at_most(attributes->max_sge, 64);
	limits->max_inline_bytes = nic_probe_inline(nic);
	limits->max_rd_atomic = at_most(attributes->max_qp_init_rd_atom, UINT8_MAX);
	limits->max_dest_rd_atomic = at_most(attributes->max_qp_rd_atom, UINT8_MAX);
	limits->read_window_bytes = NIC_READ_WINDOW_BYTES;
	limits->reads_signalled = NIC_READS_SIGNALLED;
	limits->max_message_bytes = nic->port.max_message_bytes ? kvr_min_u64(nic->port.max_message_bytes, MESSAGE_MAX)
								: MESSAGE_MAX;
	limits->max_region_bytes = attributes->max_mr_size ? attributes->max_mr_size : UINT64_MAX;
}

static bool within(const char *what, uint32_t value, uint32_t limit)
{
	if (value <= limit)
		return true;
	log_error("nic: %s is %u, at most %u", what, value, limit);
	return false;
}

/* enum ibv_mtu, 0: none such. */
static uint8_t mtu_of(uint32_t bytes)
{
	for (unsigned mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; mtu++) {
		if (128u << mtu == bytes)
			return (uint8_t)mtu;
	}
	return 0;
}

static int take_settings(struct nic_device *nic, const struct verbs_nic_options *options)
{
	struct nic_settings *settings = &nic->settings;

	if (!within("service level", options->service_level, 15) ||
		!within("traffic class", options->traffic_class, 255) ||
		!within("hop limit", options->hop_limit, 255) || !within("timeout", options->timeout, 31) ||
		!within("retry count", options->retry_count, 7) || !within("RNR timer", options->rnr_timer, 31))
		return -EINVAL;
	nic->mtu_max = options->mtu_bytes ? mtu_of(options->mtu_bytes) : IBV_MTU_4096;
	if (nic->mtu_max == 0) {
		log_error("nic: a path MTU is 256, 512, 1024, 2048 or 4096, not %u", options->mtu_bytes);
		return -EINVAL;
	}
	settings->service_level = (uint8_t)options->service_level;
	settings->traffic_class = (uint8_t)options->traffic_class;
	settings->hop_limit = options->hop_limit ? (uint8_t)options->hop_limit : 64;
	settings->timeout = options->timeout ? (uint8_t)options->timeout : 14;
	settings->retry_count = options->retry_count ? (uint8_t)options->retry_count : 7;
	settings->rnr_timer = options->rnr_timer ? (uint8_t)options->rnr_timer : 12;
	return 0;
}

static int make_domain(struct nic_device *nic)
{
	errno = 0;
	nic->pd = fault_point("nic_open/domain") ? NULL : nic->library.alloc_pd(nic->real);
	if (nic->pd)
		return 0;
	log_error("nic: %s: no protection domain: %s", nic->device.name, strerror(errno));
	return errno == EPERM || errno == EACCES ? -EACCES : -ENOMEM;
}

static void free_device(struct nic_device *nic)
{
	nic_events_stop(nic);
	if (nic->pd && nic->library.dealloc_pd(nic->pd) != 0)
		log_error("nic: %s: closed while objects of it are left", nic->device.name);
	if (nic->real)
		nic->library.close_device(nic->real);
	nic_table_fini(&nic->table);
	pthread_mutex_destroy(&nic->lock);
	pthread_mutex_destroy(&nic->quiet_lock);
	pthread_cond_destroy(&nic->quiet_changed);
	free(nic);
}

static struct nic_device *new_device(void)
{
	struct nic_device *nic = fault_point("nic_open") ? NULL : calloc(1, sizeof(*nic));
	uint64_t seed = clock_now_ns();

	if (!nic)
		return NULL;
	pthread_mutex_init(&nic->lock, NULL);
	pthread_mutex_init(&nic->quiet_lock, NULL);
	pthread_cond_init(&nic->quiet_changed, NULL);
	list_init(&nic->buried);
	nic->wake_fd = -1;
	/* Without it the clock will do: a sequence number is no secret, it only must not repeat. */
	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != (ssize_t)sizeof(seed))
		seed ^= (uintptr_t)nic;
	random_init(&nic->random, seed);
	nic->context.ops.post_send = nic_post_send;
	nic->context.ops.post_recv = nic_post_recv;
	nic->context.ops.post_srq_recv = nic_post_srq_recv;
	nic->context.ops.poll_cq = nic_poll_cq;
	nic->context.ops.req_notify_cq = nic_req_notify_cq;
	nic->context.cmd_fd = -1;
	nic->context.async_fd = -1;
	nic->device.driver = &verbs_nic;
	nic->device.context = &nic->context;
	return nic;
}

static int nic_open(const struct verbs_open *options, struct verbs_device **out)
{
	struct nic_device *nic = new_device();
	int rc;

	if (!nic)
		return -ENOMEM;
	rc = take_settings(nic, &options->nic);
	if (rc == 0)
		rc = nic_library_load(&nic->library, options->nic.library ? options->nic.library : DEFAULT_LIBRARY);
	if (rc == 0)
		rc = nic_find(nic, options);
	if (rc == 0)
		rc = make_domain(nic);
	if (rc == 0)
		rc = nic_events_start(nic);
	if (rc != 0) {
		free_device(nic);
		return rc;
	}
	nic->port.mtu = (uint8_t)kvr_min_u64(nic->port.mtu, nic->mtu_max);
	set_limits(nic);
	*out = &nic->device;
	return 0;
}

static void nic_close(struct verbs_device *device)
{
	free_device(nic_device_of(device));
}

const struct verbs_driver verbs_nic = {
	.name = "nic",
	.gathers = true,
	.several_rails = true,
	.match = nic_match,
	.describe = nic_describe,
	.open = nic_open,
	.close = nic_close,
	.create_cq = nic_create_cq,
	.destroy_cq = nic_destroy_cq,
	.cq_event_fd = nic_cq_event_fd,
	.cq_clear_event = nic_cq_clear_event,
	.create_srq = nic_create_srq,
	.destroy_srq = nic_destroy_srq,
	.create_qp = nic_create_qp,
	.qp_address = nic_qp_address,
	.qp_connect = nic_qp_connect,
	.qp_start = nic_qp_start,
	.qp_fail = nic_qp_fail,
	.qp_idle = nic_qp_idle,
	.qp_stop = nic_qp_stop,
	.destroy_qp = nic_destroy_qp,
	.register_memory = nic_register_memory,
	.register_dmabuf = nic_register_dmabuf,
	.deregister_memory = nic_deregister_memory,
	.allocate = nic_allocate,
	.release = nic_release,
	.export_memory = nic_export_memory,
	.import_memory = nic_import_memory,
	.forget_memory = nic_forget_memory,
};
