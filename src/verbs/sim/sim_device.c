#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "protocol/message.h"
#include "verbs/sim/sim.h"

#define PAGE_BYTES ((uint64_t)4096)
#define IMPORTS_MAX WIRE_REGIONS_MAX
#define ACCESS_KNOWN \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING)

static const struct verbs_limits default_limits = {
	.max_cqe = 1u << 20,
	.max_send_wr = 4096,
	.max_recv_wr = 16384,
	.max_sge = 16,
	.max_inline_bytes = 256,
	.max_rd_atomic = 16,
	.max_dest_rd_atomic = 16,
	.max_message_bytes = UINT64_C(1) << 31,
	.max_region_bytes = UINT64_C(1) << 40,
};

static struct sim_device *device_of(struct verbs_device *device)
{
	return KVR_CONTAINER_OF(device, struct sim_device, base);
}

int sim_open(const struct verbs_open *options, struct verbs_device **device)
{
	struct sim_device *new;

	*device = NULL;
	if (!options->fabric)
		return -EINVAL;
	new = fault_point("sim_open") ? NULL : calloc(1, sizeof(*new));
	if (!new)
		return -ENOMEM;
	new->fabric = options->fabric;
	new->subnet = options->subnet;
	new->base.driver = &verbs_sim;
	new->base.context = &new->context;
	new->base.limits = default_limits;
	snprintf(new->base.name, sizeof(new->base.name), "sim %u", new->fabric->devices_opened++);
	new->context.ops.poll_cq = sim_poll_cq;
	new->context.ops.req_notify_cq = sim_req_notify_cq;
	new->context.ops.post_srq_recv = sim_post_srq_recv;
	new->context.ops.post_send = sim_post_send;
	new->context.ops.post_recv = sim_post_recv;
	new->context.cmd_fd = -1;
	new->context.async_fd = -1;
	list_init(&new->mrs);
	list_init(&new->cqs);
	list_init(&new->srqs);
	list_init(&new->qps);
	list_init(&new->areas);
	list_add_last(&new->fabric->devices, &new->in_fabric);
	*device = &new->base;
	return 0;
}

/* From now on nothing finds it. */
static void forget_keys(struct sim_mr *mr)
{
	struct sim_table *keys = &mr->device->fabric->keys;

	if (sim_table_find(keys, mr->base.lkey) == mr)
		sim_table_remove(keys, mr->base.lkey);
	if (sim_table_find(keys, mr->base.rkey) == mr)
		sim_table_remove(keys, mr->base.rkey);
}

static void area_free(struct sim_area *area)
{
	list_remove(&area->in_device);
	free(area->address);
	free(area);
}

void sim_device_free(struct sim_device *device)
{
	struct list_node *node;

	list_for_each_safe(qp_node, &device->qps) {
		struct sim_qp *qp = KVR_CONTAINER_OF(qp_node, struct sim_qp, in_device);

		sim_qp_kill(qp);
		sim_qp_bury(qp);
	}
	while ((node = list_pop_first(&device->srqs)))
		sim_destroy_srq(&KVR_CONTAINER_OF(node, struct sim_srq, in_device)->base);
	while ((node = list_pop_first(&device->cqs)))
		sim_destroy_cq(&KVR_CONTAINER_OF(node, struct sim_cq, in_device)->base);
	list_for_each_safe(mr_node, &device->mrs)
		sim_deregister_memory(&KVR_CONTAINER_OF(mr_node, struct sim_mr, in_device)->base);
	list_for_each_safe(area_node, &device->areas)
		area_free(KVR_CONTAINER_OF(area_node, struct sim_area, in_device));
	sim_streams_disown(device->fabric, device);
	list_remove(&device->in_fabric);
	free(device);
}

void sim_close(struct verbs_device *base)
{
	struct sim_device *device = device_of(base);
	bool empty = list_empty(&device->qps) && list_empty(&device->cqs) && list_empty(&device->srqs) &&
		list_empty(&device->mrs) && list_empty(&device->areas);

	if (!empty && !device->dead)
		device->fabric->counters.misuses++;
	sim_device_free(device);
}

void sim_fabric_kill_device(struct sim_fabric *fabric, struct verbs_device *base)
{
	struct sim_device *device = device_of(base);

	if (device->dead)
		return;
	device->dead = true;
	list_for_each(node, &device->qps)
		sim_qp_kill(KVR_CONTAINER_OF(node, struct sim_qp, in_device));
	sim_streams_end(fabric, device);
}

/* ---- memory --------------------------------------------------------------------------------------------------- */

/* Both keys into the table, or none. */
static int add_keys(struct sim_mr *mr)
{
	struct sim_fabric *fabric = mr->device->fabric;
	int error;

	mr->base.lkey = sim_table_new_key(&fabric->keys, &fabric->random, UINT64_C(1) << 32);
	error = sim_table_add(&fabric->keys, mr->base.lkey, mr);
	if (error)
		return error;
	mr->base.rkey = sim_table_new_key(&fabric->keys, &fabric->random, UINT64_C(1) << 32);
	error = sim_table_add(&fabric->keys, mr->base.rkey, mr);
	if (error)
		sim_table_remove(&fabric->keys, mr->base.lkey);
	return error;
}

static bool register_fails(struct sim_fabric *fabric)
{
	uint32_t chance = fabric->options.register_fail_per_million;

	return chance > 0 && random_chance(&fabric->random, chance, 1000000);
}

int sim_register_memory(struct verbs_device *base, void *address, uint64_t length, int access, struct ibv_mr **mr)
{
	struct sim_device *device = device_of(base);
	bool remote_write = access & IBV_ACCESS_REMOTE_WRITE;
	struct sim_mr *new;
	int error;

	*mr = NULL;
	if (device->dead || !address || length == 0 || length > base->limits.max_region_bytes ||
		(uintptr_t)address + length < (uintptr_t)address)
		return -EINVAL;
	if ((access & ~ACCESS_KNOWN) || (remote_write && !(access & IBV_ACCESS_LOCAL_WRITE)))
		return -EINVAL;
	if (fault_point("sim_register_memory") || register_fails(device->fabric))
		return -ENOMEM;
	new = calloc(1, sizeof(*new));
	if (!new)
		return -ENOMEM;
	new->device = device;
	new->access = access;
	new->base.context = &device->context;
	new->base.addr = address;
	new->base.length = length;
	error = add_keys(new);
	if (error) {
		free(new);
		return error;
	}
	list_add_last(&device->mrs, &new->in_device);
	*mr = &new->base;
	return 0;
}

int sim_deregister_memory(struct ibv_mr *base)
{
	struct sim_mr *mr = KVR_CONTAINER_OF(base, struct sim_mr, base);

	forget_keys(mr);
	list_remove(&mr->in_device);
	free(mr);
	return 0;
}

bool sim_may(const struct sim_device *device, uint32_t key, bool remote, uint64_t address, uint64_t length, int needed)
{
	const struct sim_mr *mr = sim_table_find(&device->fabric->keys, key);
	uint64_t start;

	if (!mr || mr->device != device || key != (remote ? mr->base.rkey : mr->base.lkey))
		return false;
	start = (uintptr_t)mr->base.addr;
	if (address < start || length > mr->base.length || address - start > mr->base.length - length)
		return false;
	return (mr->access & needed) == needed;
}

int sim_allocate(struct verbs_device *base, uint64_t length, void **address)
{
	struct sim_device *device = device_of(base);
	struct sim_area *area;

	*address = NULL;
	if (device->dead || length == 0 || length > base->limits.max_region_bytes)
		return -EINVAL;
	if (fault_point("sim_allocate"))
		return -ENOMEM;
	area = malloc(sizeof(*area));
	if (!area)
		return -ENOMEM;
	length = kvr_round_up(length, PAGE_BYTES);
	area->address = aligned_alloc(PAGE_BYTES, length);
	if (!area->address) {
		free(area);
		return -ENOMEM;
	}
	memset(area->address, 0, length);
	list_add_last(&device->areas, &area->in_device);
	*address = area->address;
	return 0;
}

void sim_release(struct verbs_device *base, void *address, uint64_t length)
{
	struct sim_device *device = device_of(base);

	(void)length;
	list_for_each_safe(node, &device->areas) {
		struct sim_area *area = KVR_CONTAINER_OF(node, struct sim_area, in_device);

		if (area->address == address) {
			area_free(area);
			return;
		}
	}
	device->fabric->counters.misuses++;
}

/* ---- memory that is lent to the peer -------------------------------------------------------------------------- */

int sim_export_memory(struct ibv_mr *mr, struct verbs_export *description)
{
	memset(description, 0, sizeof(*description));
	description->kind = MEMORY_REMOTE;
	description->rkey = mr->rkey;
	description->fd = -1;
	return 0;
}

int sim_import_memory(struct ibv_qp *base, const struct verbs_remote_memory *memory, struct verbs_import *import)
{
	struct sim_qp *qp = KVR_CONTAINER_OF(base, struct sim_qp, base);

	memset(import, 0, sizeof(*import));
	if (qp->gone || memory->length == 0 || memory->address + memory->length < memory->address)
		return -EINVAL;
	if (memory->kind != MEMORY_REMOTE)
		return -EOPNOTSUPP;
	if (qp->import_count == IMPORTS_MAX)
		return -ENOSPC;
	if (fault_point("sim_import_memory") || register_fails(qp->fabric))
		return -ENOMEM;
	if (qp->import_count == qp->import_capacity) {
		uint32_t capacity = qp->import_capacity ? qp->import_capacity * 2 : 16;
		uint32_t *imports = realloc(qp->imports, capacity * sizeof(*imports));

		if (!imports)
			return -ENOMEM;
		qp->imports = imports;
		qp->import_capacity = capacity;
	}
	qp->imports[qp->import_count++] = memory->rkey;
	import->rkey = memory->rkey;
	import->address = memory->address;
	import->length = memory->length;
	return 0;
}

void sim_forget_memory(struct ibv_qp *base, uint32_t rkey)
{
	struct sim_qp *qp = KVR_CONTAINER_OF(base, struct sim_qp, base);

	for (uint32_t i = 0; i < qp->import_count; i++) {
		if (qp->imports[i] == rkey) {
			qp->imports[i] = qp->imports[--qp->import_count];
			return;
		}
	}
	qp->fabric->counters.misuses++;
}
