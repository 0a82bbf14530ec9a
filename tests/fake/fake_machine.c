/* fake_machine.c - the machine side: devices, ports, addresses, and objects without a life of their own. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake/fake_private.h"
#include "fake/fake_verbs.h"

/* The symbols are what is made here; the headers have calls of their own in front of these. */
#undef ibv_query_port
#undef ibv_reg_mr
#include <fcntl.h>

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max_entries,
	uint32_t flags, size_t entry_size);

static struct ibv_device devices[FAKE_DEVICES];
static int async_write_fd = -1;

int fake_async_fd(void)
{
	return async_write_fd;
}

void fake_event_put(int fd, const void *bytes, size_t length)
{
	if (write(fd, bytes, length) != (ssize_t)length)
		abort();
}

static bool event_take(int fd, void *bytes, size_t length)
{
	return read(fd, bytes, length) == (ssize_t)length;
}

struct ibv_device **ibv_get_device_list(int *count)
{
	const struct fake_verbs *state = fake_verbs_state();
	struct ibv_device **list;

	if (state->list_errno) {
		errno = state->list_errno;
		return NULL;
	}
	list = calloc(FAKE_DEVICES + 1, sizeof(struct ibv_device *));
	for (int i = 0; i < state->device_count; i++)
		list[i] = &devices[i];
	*count = state->device_count;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return fake_verbs_state()->names[device - devices];
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct fake_verbs *state = fake_verbs_state();
	struct ibv_context *context;
	int fds[2];

	if (state->open_errno) {
		errno = state->open_errno;
		return NULL;
	}
	context = calloc(1, sizeof(*context));
	if (pipe(fds) != 0)
		abort();
	context->device = device;
	context->async_fd = fds[0];
	context->cmd_fd = fds[1];
	context->num_comp_vectors = 2;
	context->ops.post_send = fake_post_send;
	context->ops.post_recv = fake_post_recv;
	context->ops.post_srq_recv = fake_post_srq_recv;
	context->ops.poll_cq = fake_poll_cq;
	context->ops.req_notify_cq = fake_req_notify_cq;
	async_write_fd = fds[1];
	state->opened++;
	return context;
}

int ibv_close_device(struct ibv_context *context)
{
	close(context->async_fd);
	close(context->cmd_fd);
	free(context);
	fake_verbs_state()->closed++;
	return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attributes)
{
	(void)context;
	*attributes = fake_verbs_state()->attributes;
	attributes->phys_port_cnt = (uint8_t)fake_verbs_state()->ports;
	return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attributes)
{
	(void)context;
	memcpy(attributes, &fake_verbs_state()->port[port - 1], sizeof(struct ibv_port_attr));
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max_entries,
	uint32_t flags, size_t entry_size)
{
	const struct fake_verbs *state = fake_verbs_state();

	(void)context;
	(void)flags;
	if ((size_t)state->gid_count > max_entries || entry_size != sizeof(*entries))
		return -EINVAL;
	memcpy(entries, state->gids, (size_t)state->gid_count * sizeof(*entries));
	return state->gid_count;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	return event_take(context->async_fd, event, sizeof(*event)) ? 0 : -1;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	(void)event;
	__atomic_fetch_add(&fake_verbs_state()->async_events_acked, 1, __ATOMIC_RELEASE);
}

const char *ibv_event_type_str(enum ibv_event_type event)
{
	return event == IBV_EVENT_PORT_ERR ? "port error" : event == IBV_EVENT_PORT_ACTIVE ? "port active" : "an event";
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd;

	errno = fake_verbs_state()->domain_errno;
	if (errno)
		return NULL;
	pd = calloc(1, sizeof(*pd));
	pd->context = context;
	fake_count(1);
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	fake_count(-1);
	return 0;
}

static struct ibv_mr *make_region(struct ibv_pd *pd, void *address, size_t length, int access)
{
	struct ibv_mr *mr;

	errno = fake_verbs_state()->region_errno;
	if (errno)
		return NULL;
	mr = calloc(1, sizeof(*mr));
	mr->context = pd->context;
	mr->pd = pd;
	mr->addr = address;
	mr->length = length;
	mr->lkey = 0x1000;
	mr->rkey = 0x2000;
	fake_verbs_state()->access = access;
	fake_count(1);
	return mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length, int access)
{
	fake_verbs_state()->access_by_iova2 = false;
	return make_region(pd, address, length, access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t length, uint64_t iova, unsigned int access)
{
	(void)iova;
	fake_verbs_state()->access_by_iova2 = true;
	return make_region(pd, address, length, (int)access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	struct fake_verbs *fake = fake_verbs_state();
	struct ibv_mr *mr;

	/* As the kernel does: the descriptor must be one, whatever it is of; offset and address agree within a page. */
	errno = fake->dmabuf_errno;
	if (!errno && (fcntl(fd, F_GETFD) < 0 || (iova - offset) % 4096 != 0))
		errno = EINVAL;
	if (errno)
		return NULL;
	mr = make_region(pd, (void *)(uintptr_t)iova, length, access);
	fake->dmabuf_fd = fd;
	fake->dmabuf_offset = offset;
	fake->dmabuf_length = length;
	fake->dmabuf_address = iova;
	return mr;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	free(mr);
	fake_count(-1);
	return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct fake_channel *channel = calloc(1, sizeof(*channel));
	int fds[2];

	if (pipe(fds) != 0)
		abort();
	channel->channel.context = context;
	channel->channel.fd = fds[0];
	channel->write_fd = fds[1];
	fake_count(1);
	return &channel->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	close(channel->fd);
	close(((struct fake_channel *)channel)->write_fd);
	free(channel);
	fake_count(-1);
	return 0;
}

struct ibv_cq *ibv_create_cq(
	struct ibv_context *context, int depth, void *cq_context, struct ibv_comp_channel *channel, int vector)
{
	struct fake_cq *cq;

	if (fake_verbs_state()->cq_errno || vector >= context->num_comp_vectors) {
		errno = fake_verbs_state()->cq_errno ? fake_verbs_state()->cq_errno : EINVAL;
		return NULL;
	}
	cq = calloc(1, sizeof(*cq));
	cq->cq.context = context;
	cq->cq.cq_context = cq_context;
	cq->cq.channel = channel;
	cq->cq.cqe = depth;
	fake_count(1);
	return &cq->cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	free(cq);
	fake_count(-1);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	if (!event_take(channel->fd, cq, sizeof(struct ibv_cq *)))
		return -1;
	*cq_context = (*cq)->cq_context;
	fake_verbs_state()->cq_events_got++;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
	(void)cq;
	fake_verbs_state()->cq_events_acked += count;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attributes)
{
	struct fake_srq *srq = calloc(1, sizeof(*srq));

	(void)attributes;
	srq->srq.context = pd->context;
	srq->srq.pd = pd;
	fake_count(1);
	return &srq->srq;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	free(srq);
	fake_count(-1);
	return 0;
}
