/* cq.c - completion queues with their event channel, and shared receive queues. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "verbs/nic/nic.h"

static int make_channel(struct nic_device *nic, struct nic_cq *cq)
{
	int flags;

	cq->channel = nic->library.create_comp_channel(nic->real);
	if (!cq->channel)
		return -ENOMEM;
	flags = fcntl(cq->channel->fd, F_GETFL);
	return flags >= 0 && fcntl(cq->channel->fd, F_SETFL, flags | O_NONBLOCK) == 0 ? 0 : -ENOMEM;
}

/* Spread over the device's interrupt vectors, a queue after the other. */
static int next_vector(struct nic_device *nic)
{
	uint32_t vector;

	pthread_mutex_lock(&nic->lock);
	vector = nic->next_vector++;
	pthread_mutex_unlock(&nic->lock);
	return nic->real->num_comp_vectors > 0 ? (int)(vector % (uint32_t)nic->real->num_comp_vectors) : 0;
}

static void free_cq(struct nic_device *nic, struct nic_cq *cq)
{
	if (cq->real && nic->library.destroy_cq(cq->real) != 0)
		log_error("nic: %s: a completion queue could not be destroyed: %s", nic->device.name, strerror(errno));
	if (cq->channel)
		nic->library.destroy_comp_channel(cq->channel);
	free(cq->held);
	free(cq);
}

/* Of each queue pair one more completes than its owner knows. Who asks for places for so many queue pairs that a sixteenth more is
 * not enough gives them less than 16 each. */
static uint32_t with_markers(uint32_t depth, uint32_t most)
{
	return (uint32_t)kvr_min_u64((uint64_t)depth + depth / 16 + 16, most);
}

int nic_create_cq(struct verbs_device *device, uint32_t depth, struct ibv_cq **out)
{
	struct nic_device *nic = nic_device_of(device);
	struct nic_cq *cq;

	if (depth == 0 || depth > device->limits.max_cqe)
		return -EINVAL;
	cq = fault_point("nic_create_cq") ? NULL : calloc(1, sizeof(*cq));
	if (!cq)
		return -ENOMEM;
	cq->cq.context = &nic->context;
	cq->held_capacity = depth;
	cq->held = calloc(depth, sizeof(*cq->held));
	errno = 0;
	if (cq->held && make_channel(nic, cq) == 0)
		cq->real = nic->library.create_cq(
			nic->real, (int)with_markers(depth, device->limits.max_cqe), cq, cq->channel, next_vector(nic));
	if (!cq->real) {
		int error = errno;

		log_error("nic: %s: a completion queue of %u entries: %s", device->name, depth, strerror(error));
		if (error == ENOMEM)
			nic_say_memlock(nic, "a completion queue", 0, error);
		free_cq(nic, cq);
		return error == EINVAL ? -EINVAL : -ENOMEM;
	}
	cq->cq.cqe = (int)depth;
	*out = &cq->cq;
	return 0;
}

void nic_destroy_cq(struct ibv_cq *ibv)
{
	struct nic_cq *cq = nic_cq_of(ibv);
	struct nic_device *nic = nic_of_context(ibv->context);

	pthread_mutex_lock(&nic->lock);
	nic_sweep(nic, cq);
	pthread_mutex_unlock(&nic->lock);
	free_cq(nic, cq);
}

int nic_cq_event_fd(const struct ibv_cq *cq)
{
	return nic_cq_of(cq)->channel->fd;
}

void nic_cq_clear_event(struct ibv_cq *ibv)
{
	struct nic_cq *cq = nic_cq_of(ibv);
	struct nic_device *nic = nic_of_context(ibv->context);
	struct ibv_cq *which;
	void *context;
	unsigned count = 0;

	/* The channel is this queue's alone, so every event on it is to be acknowledged there (pitfalls I14). */
	while (nic->library.get_cq_event(cq->channel, &which, &context) == 0)
		count++;
	if (count > 0)
		nic->library.ack_cq_events(cq->real, count);
}

static void free_srq(struct nic_device *nic, struct nic_srq *srq)
{
	if (srq->real && nic->library.destroy_srq(srq->real) != 0)
		log_error("nic: %s: a shared receive queue could not be destroyed: %s", nic->device.name,
			strerror(errno));
	free(srq->ids);
	free(srq->unused);
	free(srq);
}

int nic_create_srq(struct verbs_device *device, uint32_t depth, struct ibv_srq **out)
{
	struct nic_device *nic = nic_device_of(device);
	struct ibv_srq_init_attr attributes = { .attr = { .max_wr = depth, .max_sge = NIC_SRQ_SGE } };
	struct nic_srq *srq;

	if (depth == 0 || depth > (uint32_t)nic->attributes.max_srq_wr)
		return -EINVAL;
	if (attributes.attr.max_sge > (uint32_t)nic->attributes.max_srq_sge)
		attributes.attr.max_sge = (uint32_t)nic->attributes.max_srq_sge;
	srq = fault_point("nic_create_srq") ? NULL : calloc(1, sizeof(*srq));
	if (!srq)
		return -ENOMEM;
	srq->srq.context = &nic->context;
	srq->srq.pd = nic->pd;
	srq->depth = depth;
	srq->ids = calloc(depth, sizeof(*srq->ids));
	srq->unused = calloc(depth, sizeof(*srq->unused));
	errno = 0;
	if (srq->ids && srq->unused)
		srq->real = nic->library.create_srq(nic->pd, &attributes);
	if (!srq->real) {
		log_error("nic: %s: a shared receive queue of %u: %s", device->name, depth, strerror(errno));
		free_srq(nic, srq);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < depth; i++)
		srq->unused[srq->unused_count++] = depth - 1 - i;
	*out = &srq->srq;
	return 0;
}

void nic_destroy_srq(struct ibv_srq *srq)
{
	free_srq(nic_of_context(srq->context), nic_srq_of(srq));
}
