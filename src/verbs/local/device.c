/* device.c - opening, closing, and the driver's table. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "verbs/local/local.h"

static void set_limits(struct verbs_limits *limits)
{
	limits->max_cqe = 1u << 20;
	limits->max_send_wr = LOCAL_WR_MAX;
	limits->max_recv_wr = LOCAL_WR_MAX;
	limits->max_sge = LOCAL_SGE_MAX;
	limits->max_inline_bytes = LOCAL_INLINE_MAX;
	/* READs are copies like WRITEs: nothing is outstanding between two sides. */
	limits->max_rd_atomic = LOCAL_WR_MAX;
	limits->max_dest_rd_atomic = LOCAL_WR_MAX;
	limits->max_message_bytes = UINT64_C(1) << 30;
	limits->max_region_bytes = UINT64_C(1) << 46;
}

static int local_open(const struct verbs_open *options, struct verbs_device **out)
{
	struct local_device *local = fault_point("local_open") ? NULL : calloc(1, sizeof(*local));

	if (!local)
		return -ENOMEM;
	if (local_keys_init(&local->keys, LOCAL_KEYS, LOCAL_KEY_OURS) != 0) {
		free(local);
		return -ENOMEM;
	}
	pthread_mutex_init(&local->lock, NULL);
	list_init(&local->areas);
	list_init(&local->mappings);
	local->server = options->server;
	local->gpu = options->server ? options->gpu : NULL;
	local->slice_bytes = options->slice_bytes ? options->slice_bytes : LOCAL_SLICE_BYTES;
	local->context.ops.post_send = local_post_send;
	local->context.ops.post_recv = local_post_recv;
	local->context.ops.post_srq_recv = local_post_srq_recv;
	local->context.ops.poll_cq = local_poll_cq;
	local->context.ops.req_notify_cq = local_req_notify_cq;
	local->context.cmd_fd = -1;
	local->context.async_fd = -1;
	local->device.driver = &verbs_local;
	local->device.context = &local->context;
	set_limits(&local->device.limits);
	(void)snprintf(local->device.name, sizeof(local->device.name), "local");
	*out = &local->device;
	return 0;
}

static void local_close(struct verbs_device *device)
{
	struct local_device *local = KVR_CONTAINER_OF(device, struct local_device, device);

	while (!list_empty(&local->areas)) {
		struct local_area *area = KVR_CONTAINER_OF(local->areas.next, struct local_area, node);

		local_release(device, (void *)(uintptr_t)area->address, area->length);
	}
	local_keys_fini(&local->keys);
	pthread_mutex_destroy(&local->lock);
	free(local);
}

const struct verbs_driver verbs_local = {
	.name = "local",
	.moved_by_peer = true,
	.open = local_open,
	.close = local_close,
	.create_cq = local_create_cq,
	.destroy_cq = local_destroy_cq,
	.cq_event_fd = local_cq_event_fd,
	.cq_clear_event = local_cq_clear_event,
	.create_srq = local_create_srq,
	.destroy_srq = local_destroy_srq,
	.create_qp = local_create_qp,
	.qp_address = local_qp_address,
	.qp_connect = local_qp_connect,
	.qp_start = local_qp_start,
	.qp_fail = local_qp_fail,
	.qp_idle = local_qp_idle,
	.qp_stop = local_qp_stop,
	.destroy_qp = local_destroy_qp,
	.register_memory = local_register_memory,
	.deregister_memory = local_deregister_memory,
	.allocate = local_allocate,
	.release = local_release,
	.export_memory = local_export_memory,
	.import_memory = local_import_memory,
	.forget_memory = local_forget_memory,
};
