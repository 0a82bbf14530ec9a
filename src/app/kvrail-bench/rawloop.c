#include "app/kvrail-bench/rawloop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "app/kvrail-bench/measure.h"
#include "base/clock.h"
#include "base/random.h"
#include "protocol/message.h"
#include "verbs/driver.h"

#define CHAIN 64u
#define CHAINS_OUT 4u
#define SLICE_BYTES ((uint64_t)24 << 20)
#define SLICE_NS (50 * KVR_MS) /* slow devices */
#define SLICES_MAX 1024u

struct side {
	struct verbs_device *device;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	uint8_t *memory;
	struct ibv_mr *mr;
	bool started;
};

struct rawloop {
	const struct verbs_driver *driver;
	struct side ours, theirs; /* the server's, the client's */
	struct verbs_import import;
	bool imported;
	uint64_t page_bytes, bytes, pages, slice_pages;
	struct random random;
	double gbps[2][SLICES_MAX]; /* [write] */
	size_t slices;
};

/* ---- two connected queue pairs ---- */

static int side_open(struct rawloop *loop, struct side *side, const struct rawloop_options *options)
{
	struct verbs_open open = { .device = options->device, .server = side == &loop->ours };
	struct verbs_qp_options qp = { .max_send_wr = CHAIN * (CHAINS_OUT + 1),
		.max_recv_wr = 16,
		.max_sge = 1,
		.max_message_bytes = 4096,
		.peer_recv_wr = 16 };
	int error = loop->driver->open(&open, &side->device);

	if (!error)
		error = loop->driver->create_cq(side->device, 1024, &side->cq);
	qp.send_cq = qp.recv_cq = side->cq;
	return error ? error : loop->driver->create_qp(side->device, &qp, &side->qp);
}

static int side_connect(struct rawloop *loop, struct side *side, struct side *other)
{
	const struct stream_peer peer = { getpid(), geteuid(), getegid() };
	uint8_t bytes[WIRE_ADDRESS_MAX];
	int fds[STREAM_FDS_MAX];
	unsigned fd_count = 0;
	uint32_t length;
	int error = loop->driver->qp_address(other->qp, bytes, sizeof(bytes), &length, fds, &fd_count);

	if (!error)
		error = loop->driver->qp_connect(side->qp, bytes, length, fds, fd_count, &peer);
	if (!error)
		loop->driver->qp_start(side->qp);
	side->started = !error;
	return error;
}

static void side_stop(struct rawloop *loop, struct side *side)
{
	struct ibv_wc wc[16];

	if (!side->started)
		return;
	loop->driver->qp_fail(side->qp);
	while (!loop->driver->qp_idle(side->qp))
		(void)ibv_poll_cq(side->cq, 16, wc);
	loop->driver->qp_stop(side->qp);
}

static void side_close(struct rawloop *loop, struct side *side)
{
	if (side->qp)
		loop->driver->destroy_qp(side->qp);
	if (side->cq)
		loop->driver->destroy_cq(side->cq);
	if (side->mr)
		(void)loop->driver->deregister_memory(side->mr);
	if (side->memory && side == &loop->theirs)
		loop->driver->release(side->device, side->memory, loop->bytes);
	else if (side->memory)
		munmap(side->memory, loop->bytes);
	if (side->device)
		loop->driver->close(side->device);
}

/* ---- memory as the server and a client have it ---- */

static int make_memory(struct rawloop *loop)
{
	const int remote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	void *address = mmap(NULL, loop->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct verbs_remote_memory memory = { .length = loop->bytes };
	struct verbs_export description;
	int error;

	if (address == MAP_FAILED)
		return -ENOMEM;
	loop->ours.memory = address;
	(void)madvise(address, loop->bytes, MADV_HUGEPAGE);
	memset(address, 1, loop->bytes);
	error = loop->driver->register_memory(
		loop->ours.device, address, loop->bytes, IBV_ACCESS_LOCAL_WRITE, &loop->ours.mr);
	if (!error)
		error = loop->driver->allocate(loop->theirs.device, loop->bytes, &address);
	if (error)
		return error;
	loop->theirs.memory = address;
	error = loop->driver->register_memory(loop->theirs.device, address, loop->bytes, remote, &loop->theirs.mr);
	if (!error)
		error = loop->driver->export_memory(loop->theirs.mr, &description);
	if (error)
		return error;
	memory.address = (uintptr_t)address;
	memory.offset = description.offset;
	memory.kind = description.kind;
	memory.rkey = description.rkey;
	memory.fd = description.fd;
	error = loop->driver->import_memory(loop->ours.qp, &memory, &loop->import);
	loop->imported = !error;
	return error;
}

int rawloop_open(const struct rawloop_options *options, struct rawloop **out)
{
	bool nic = strcmp(options->driver, verbs_nic.name) == 0;
	struct rawloop *loop;
	int error;

	if (!nic && strcmp(options->driver, verbs_local.name) != 0)
		return -EOPNOTSUPP;
	loop = calloc(1, sizeof(*loop));
	if (!loop)
		return -ENOMEM;
	loop->driver = nic ? &verbs_nic : &verbs_local;
	loop->page_bytes = options->page_bytes;
	loop->pages = kvr_max_u64(options->working_set / options->page_bytes, CHAIN);
	loop->bytes = kvr_round_up(loop->pages * loop->page_bytes, 4096);
	loop->slice_pages = kvr_max_u64(SLICE_BYTES / loop->page_bytes, CHAIN);
	random_init(&loop->random, options->seed);
	error = side_open(loop, &loop->ours, options);
	if (!error)
		error = side_open(loop, &loop->theirs, options);
	if (!error)
		error = side_connect(loop, &loop->ours, &loop->theirs);
	if (!error)
		error = side_connect(loop, &loop->theirs, &loop->ours);
	if (!error)
		error = make_memory(loop);
	if (error) {
		rawloop_close(loop);
		return error;
	}
	*out = loop;
	return 0;
}

void rawloop_close(struct rawloop *loop)
{
	if (!loop)
		return;
	side_stop(loop, &loop->ours);
	side_stop(loop, &loop->theirs);
	if (loop->imported)
		loop->driver->forget_memory(loop->ours.qp, loop->import.rkey);
	side_close(loop, &loop->ours);
	side_close(loop, &loop->theirs);
	free(loop);
}

/* ---- the loop ---- */

/* `count` pages between random places, the last of them signalled. */
static int post(struct rawloop *loop, enum ibv_wr_opcode opcode, uint32_t count)
{
	struct ibv_send_wr chain[CHAIN], *bad;
	struct ibv_sge entries[CHAIN];

	for (uint32_t i = 0; i < count; i++) {
		uint64_t here = random_below(&loop->random, loop->pages) * loop->page_bytes;
		uint64_t there = random_below(&loop->random, loop->pages) * loop->page_bytes;

		entries[i] = (struct ibv_sge){ (uintptr_t)(loop->ours.memory + here), (uint32_t)loop->page_bytes,
			loop->ours.mr->lkey };
		chain[i] = (struct ibv_send_wr){ .sg_list = &entries[i], .num_sge = 1, .opcode = opcode };
		chain[i].next = i + 1 < count ? &chain[i + 1] : NULL;
		chain[i].send_flags = i + 1 < count ? 0 : IBV_SEND_SIGNALED;
		chain[i].wr.rdma.remote_addr = loop->import.address + there;
		chain[i].wr.rdma.rkey = loop->import.rkey;
	}
	return ibv_post_send(loop->ours.qp, chain, &bad) ? -EIO : 0;
}

/* A slice, or what of it is posted within SLICE_NS. Bytes a nanosecond; 0: it failed. */
static double run(struct rawloop *loop, enum ibv_wr_opcode opcode)
{
	uint64_t left = loop->slice_pages, pages = 0, begin_ns = clock_now_ns();
	uint32_t chains = 0;
	struct ibv_wc wc[8];

	while (left > 0 || chains > 0) {
		int count;

		for (; left > 0 && chains < CHAINS_OUT; chains++) {
			uint32_t more = (uint32_t)kvr_min_u64(left, CHAIN);

			if (post(loop, opcode, more))
				return 0;
			left -= more;
			pages += more;
		}
		count = ibv_poll_cq(loop->ours.cq, 8, wc);
		for (int i = 0; i < count; i++) {
			if (wc[i].status != IBV_WC_SUCCESS)
				return 0;
		}
		if (count < 0)
			return 0;
		chains -= (uint32_t)count;
		if (count > 0 && clock_now_ns() - begin_ns > SLICE_NS)
			left = 0;
	}
	return (double)(pages * loop->page_bytes) / (double)kvr_max_u64(clock_now_ns() - begin_ns, 1);
}

int rawloop_measure(struct rawloop *loop)
{
	for (unsigned write = 0; write < 2; write++) {
		double gbps = run(loop, write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ);

		if (gbps <= 0)
			return -EIO;
		if (loop->slices < SLICES_MAX)
			loop->gbps[write][loop->slices] = gbps;
	}
	loop->slices += loop->slices < SLICES_MAX;
	return 0;
}

double rawloop_gbps(const struct rawloop *loop, bool write)
{
	double values[SLICES_MAX];

	memcpy(values, loop->gbps[write], loop->slices * sizeof(*values));
	return median_of(values, loop->slices);
}
