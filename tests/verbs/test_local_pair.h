/* test_local_pair.h - one side of a connection over the local driver, for its tests. Everything asserts: a test stops
 * at the first thing that is not as it should be. */
#ifndef KVRAIL_TESTS_VERBS_TEST_LOCAL_PAIR_H
#define KVRAIL_TESTS_VERBS_TEST_LOCAL_PAIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "verbs/driver.h"

#define MESSAGE_BYTES 8192u
#define RECEIVES 16u

struct side {
	struct verbs_device *device;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buffers; /* RECEIVES to receive into, then as many to send from */
};

struct offer {
	uint8_t bytes[512];
	uint32_t length;
	int fds[STREAM_FDS_MAX];
	unsigned fd_count;
};

static inline struct ibv_sge buffer_entry(const struct side *side, uint32_t index, uint32_t length)
{
	struct ibv_sge entry;

	entry.addr = (uintptr_t)(side->buffers + (size_t)index * MESSAGE_BYTES);
	entry.length = length;
	entry.lkey = side->mr->lkey;
	return entry;
}

static inline void side_post_receive(struct side *side, uint32_t index)
{
	struct ibv_sge entry = buffer_entry(side, index, MESSAGE_BYTES);
	struct ibv_recv_wr wr, *bad = NULL;

	memset(&wr, 0, sizeof(wr));
	wr.wr_id = index;
	wr.sg_list = &entry;
	wr.num_sge = 1;
	assert_int_equal(ibv_post_recv(side->qp, &wr, &bad), 0);
}

/* A device, a queue and a queue pair in INIT, all receives posted. */
static inline void side_open_with(
	struct side *side, bool server, uint64_t slice_bytes, const struct verbs_gpu_table *gpu)
{
	struct verbs_open open_options;
	struct verbs_qp_options options;

	memset(side, 0, sizeof(*side));
	memset(&open_options, 0, sizeof(open_options));
	memset(&options, 0, sizeof(options));
	open_options.server = server;
	open_options.slice_bytes = slice_bytes;
	open_options.gpu = gpu;
	assert_int_equal(verbs_local.open(&open_options, &side->device), 0);
	assert_int_equal(verbs_local.create_cq(side->device, 1024, &side->cq), 0);
	options.send_cq = side->cq;
	options.recv_cq = side->cq;
	options.max_send_wr = 64;
	options.max_recv_wr = RECEIVES;
	options.max_sge = 4;
	options.max_message_bytes = MESSAGE_BYTES;
	options.peer_recv_wr = RECEIVES;
	assert_int_equal(verbs_local.create_qp(side->device, &options, &side->qp), 0);
	side->buffers = aligned_alloc(4096, (size_t)2 * RECEIVES * MESSAGE_BYTES);
	assert_non_null(side->buffers);
	memset(side->buffers, 0, (size_t)2 * RECEIVES * MESSAGE_BYTES);
	assert_int_equal(verbs_local.register_memory(side->device, side->buffers, (size_t)2 * RECEIVES * MESSAGE_BYTES,
				 IBV_ACCESS_LOCAL_WRITE, &side->mr),
		0);
	for (uint32_t i = 0; i < RECEIVES; i++)
		side_post_receive(side, i);
}

static inline void side_open(struct side *side, bool server, uint64_t slice_bytes)
{
	side_open_with(side, server, slice_bytes, NULL);
}

static inline void side_offer(struct side *side, struct offer *offer)
{
	assert_int_equal(verbs_local.qp_address(side->qp, offer->bytes, sizeof(offer->bytes), &offer->length,
				 offer->fds, &offer->fd_count),
		0);
}

static inline struct stream_peer this_process(void)
{
	struct stream_peer peer = { getpid(), geteuid(), getegid() };

	return peer;
}

static inline void side_connect(struct side *side, const struct offer *offer, struct stream_peer peer)
{
	assert_int_equal(
		verbs_local.qp_connect(side->qp, offer->bytes, offer->length, offer->fds, offer->fd_count, &peer), 0);
	verbs_local.qp_start(side->qp);
}

/* Both sides in this process. */
static inline void pair_open_with(
	struct side *server, struct side *client, uint64_t slice_bytes, const struct verbs_gpu_table *gpu)
{
	struct offer from_server, from_client;

	side_open_with(server, true, slice_bytes, gpu);
	side_open(client, false, 0);
	side_offer(server, &from_server);
	side_offer(client, &from_client);
	side_connect(server, &from_client, this_process());
	side_connect(client, &from_server, this_process());
}

static inline void pair_open(struct side *server, struct side *client, uint64_t slice_bytes)
{
	pair_open_with(server, client, slice_bytes, NULL);
}

/* Fails what is left and frees everything. */
static inline void side_close(struct side *side)
{
	struct ibv_wc wc[16];

	verbs_local.qp_fail(side->qp);
	while (!verbs_local.qp_idle(side->qp))
		(void)ibv_poll_cq(side->cq, 16, wc);
	verbs_local.qp_stop(side->qp);
	verbs_local.destroy_qp(side->qp);
	verbs_local.destroy_cq(side->cq);
	assert_int_equal(verbs_local.deregister_memory(side->mr), 0);
	verbs_local.close(side->device);
	free(side->buffers);
	memset(side, 0, sizeof(*side));
}

/* Sends `length` bytes of buffer `index`. */
static inline int side_send(struct side *side, uint32_t index, uint32_t length, uint64_t wr_id)
{
	struct ibv_sge entry = buffer_entry(side, index, length);
	struct ibv_send_wr wr, *bad = NULL;

	memset(&wr, 0, sizeof(wr));
	wr.wr_id = wr_id;
	wr.sg_list = &entry;
	wr.num_sge = 1;
	wr.opcode = IBV_WR_SEND;
	wr.send_flags = IBV_SEND_SIGNALED;
	return ibv_post_send(side->qp, &wr, &bad);
}

static inline int side_transfer(struct side *side, enum ibv_wr_opcode opcode, const struct ibv_sge *entries, int count,
	uint64_t remote, uint32_t rkey, uint64_t wr_id)
{
	struct ibv_send_wr wr, *bad = NULL;

	memset(&wr, 0, sizeof(wr));
	wr.wr_id = wr_id;
	wr.sg_list = (struct ibv_sge *)entries;
	wr.num_sge = count;
	wr.opcode = opcode;
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = remote;
	wr.wr.rdma.rkey = rkey;
	return ibv_post_send(side->qp, &wr, &bad);
}

/* The next completion; waits for it by polling. */
static inline struct ibv_wc side_wait(struct side *side)
{
	struct ibv_wc wc;
	int count;

	do {
		count = ibv_poll_cq(side->cq, 1, &wc);
	} while (count == 0);
	assert_int_equal(count, 1);
	return wc;
}

static inline bool side_is_readable(const struct side *side)
{
	struct pollfd pollfd;

	pollfd.fd = verbs_local.cq_event_fd(side->cq);
	pollfd.events = POLLIN;
	return poll(&pollfd, 1, 0) == 1;
}

#endif
