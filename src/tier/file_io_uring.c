/* file_io_uring.c - the ring of the kernel. The ring is used by the thread that made it alone. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tier/file_io.h"

struct file_io_uring {
	struct io_uring ring;
	struct file_io io;
	uint64_t event; /* read from event_fd by the ring itself, so that one wait serves both */
	bool listening;
	struct list_node waiting; /* started when the submission queue was full */
};
KVR_STATIC_ASSERT(sizeof(struct open_how) == sizeof(((struct file_op *)NULL)->how), "an operation keeps its open_how");

static struct file_io_uring *uring_of(struct file_io *io)
{
	return KVR_CONTAINER_OF(io, struct file_io_uring, io);
}

static bool uring_knows_all(struct io_uring *ring)
{
	static const int wanted[] = { IORING_OP_OPENAT2, IORING_OP_STATX, IORING_OP_READV, IORING_OP_WRITEV,
		IORING_OP_FALLOCATE, IORING_OP_FSYNC, IORING_OP_CLOSE, IORING_OP_RENAMEAT, IORING_OP_UNLINKAT,
		IORING_OP_READ };
	struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
	bool all = probe != NULL;

	for (size_t i = 0; all && i < KVR_COUNT_OF(wanted); i++)
		all = io_uring_opcode_supported(probe, wanted[i]);
	io_uring_free_probe(probe);
	return all;
}

static int uring_create(uint32_t depth, struct file_io **out)
{
	/* Completions are handled when this thread asks for them, not by interrupting it. Kernels before 6.1 say no. */
	struct io_uring_params params = { .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN };
	struct file_io_uring *uring = calloc(1, sizeof(*uring));
	int error;

	*out = NULL;
	if (!uring)
		return -ENOMEM;
	error = io_uring_queue_init_params(depth + 1, &uring->ring, &params);
	if (error == -EINVAL) {
		memset(&params, 0, sizeof(params));
		error = io_uring_queue_init_params(depth + 1, &uring->ring, &params);
	}
	if (error) {
		free(uring);
		return error;
	}
	/* Without EXT_ARG a wait with a time limit would need an operation of its own. */
	if (!(params.features & IORING_FEAT_EXT_ARG) || !uring_knows_all(&uring->ring)) {
		io_uring_queue_exit(&uring->ring);
		free(uring);
		return -ENOSYS;
	}
	uring->io.driver = &file_io_uring_driver;
	list_init(&uring->waiting);
	*out = &uring->io;
	return 0;
}

static void uring_destroy(struct file_io *io)
{
	struct file_io_uring *uring = uring_of(io);

	io_uring_queue_exit(&uring->ring);
	free(uring);
}

static void prepare_open(struct io_uring_sqe *sqe, struct file_op *op)
{
	struct open_how how = { .flags = (uint64_t)op->flags | O_CLOEXEC | O_NOFOLLOW,
		.mode = op->flags & O_CREAT ? 0600 : 0,
		.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH };

	memcpy(op->how, &how, sizeof(how));
	io_uring_prep_openat2(sqe, op->fd, op->path, (struct open_how *)(void *)op->how);
}

static void prepare(struct io_uring_sqe *sqe, struct file_op *op)
{
	switch (op->kind) {
	case FILE_OP_OPEN:
		prepare_open(sqe, op);
		break;
	case FILE_OP_STAT:
		io_uring_prep_statx(sqe, op->fd, op->path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, op->stat);
		break;
	case FILE_OP_READ:
		io_uring_prep_readv(sqe, op->fd, op->iov, op->iov_count, op->offset);
		break;
	case FILE_OP_WRITE:
		io_uring_prep_writev(sqe, op->fd, op->iov, op->iov_count, op->offset);
		break;
	case FILE_OP_ALLOCATE:
		io_uring_prep_fallocate(sqe, op->fd, 0, 0, (off_t)op->offset);
		break;
	case FILE_OP_SYNC:
		io_uring_prep_fsync(sqe, op->fd, op->flags ? IORING_FSYNC_DATASYNC : 0);
		break;
	case FILE_OP_CLOSE:
		io_uring_prep_close(sqe, op->fd);
		break;
	case FILE_OP_RENAME:
		io_uring_prep_renameat(sqe, op->fd, op->path, op->fd, op->to, (unsigned)op->flags);
		break;
	case FILE_OP_UNLINK:
		io_uring_prep_unlinkat(sqe, op->fd, op->path, 0);
		break;
	}
	io_uring_sqe_set_data(sqe, op);
}

static bool uring_queue(struct file_io_uring *uring, struct file_op *op)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);

	if (!sqe)
		return false;
	prepare(sqe, op);
	return true;
}

static void uring_start(struct file_io *io, struct file_op *op)
{
	struct file_io_uring *uring = uring_of(io);

	list_init(&op->node);
	if (!list_empty(&uring->waiting) || !uring_queue(uring, op))
		list_add_last(&uring->waiting, &op->node);
}

static void uring_listen(struct file_io_uring *uring)
{
	struct io_uring_sqe *sqe;

	if (uring->listening)
		return;
	sqe = io_uring_get_sqe(&uring->ring);
	if (!sqe)
		return;
	io_uring_prep_read(sqe, uring->io.event_fd, &uring->event, sizeof(uring->event), 0);
	io_uring_sqe_set_data(sqe, NULL);
	uring->listening = true;
}

static void uring_wait(struct file_io *io, uint64_t timeout_ns)
{
	struct file_io_uring *uring = uring_of(io);
	struct __kernel_timespec time = { .tv_sec = (long long)(timeout_ns / KVR_SECOND),
		.tv_nsec = (long long)(timeout_ns % KVR_SECOND) };
	struct io_uring_cqe *cqe;

	while (!list_empty(&uring->waiting)) {
		struct list_node *node = uring->waiting.next;

		if (!uring_queue(uring, KVR_CONTAINER_OF(node, struct file_op, node)))
			break;
		list_remove(node);
	}
	uring_listen(uring);
	/* An error (interrupted, time over, the kernel is short of memory) only means another turn: what could not be
	 * handed over stays in the queue. */
	if (timeout_ns == 0 || !list_empty(&uring->waiting))
		io_uring_submit_and_get_events(&uring->ring);
	else if (timeout_ns == UINT64_MAX)
		io_uring_submit_and_wait(&uring->ring, 1);
	else
		io_uring_submit_and_wait_timeout(&uring->ring, &cqe, 1, &time, NULL);
}

static struct file_op *uring_reap(struct file_io *io)
{
	struct file_io_uring *uring = uring_of(io);
	struct io_uring_cqe *cqe;
	struct file_op *op;

	/* Only looks at memory, unless completions have overflowed. */
	while (io_uring_cq_ready(&uring->ring) && io_uring_peek_cqe(&uring->ring, &cqe) == 0) {
		int result = cqe->res;

		op = io_uring_cqe_get_data(cqe);
		io_uring_cqe_seen(&uring->ring, cqe);
		if (op) {
			op->result = result;
			return op;
		}
		uring->listening = false;
	}
	return NULL;
}

const struct file_io_driver file_io_uring_driver = {
	.name = "io_uring",
	.create = uring_create,
	.destroy = uring_destroy,
	.start = uring_start,
	.wait = uring_wait,
	.reap = uring_reap,
};
