#include "tier/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fault.h"

#ifdef KVRAIL_FAULT_POINTS
static const struct file_fault {
	const char *name;
	enum file_op_kind kind;
	int result;
} file_faults[] = {
	{ "file_io/open", FILE_OP_OPEN, -EIO },
	{ "file_io/open_limit", FILE_OP_OPEN, -EMFILE },
	{ "file_io/open_no_direct", FILE_OP_OPEN, -EINVAL },
	{ "file_io/stat", FILE_OP_STAT, -EIO },
	{ "file_io/read", FILE_OP_READ, -EIO },
	{ "file_io/write", FILE_OP_WRITE, -EIO },
	{ "file_io/write_full", FILE_OP_WRITE, -ENOSPC },
	{ "file_io/write_read_only", FILE_OP_WRITE, -EROFS },
	{ "file_io/allocate", FILE_OP_ALLOCATE, -EIO },
	{ "file_io/allocate_full", FILE_OP_ALLOCATE, -ENOSPC },
	{ "file_io/allocate_unknown", FILE_OP_ALLOCATE, -EOPNOTSUPP },
	{ "file_io/sync", FILE_OP_SYNC, -EIO },
	{ "file_io/close", FILE_OP_CLOSE, -EIO },
	{ "file_io/rename", FILE_OP_RENAME, -EIO },
	{ "file_io/rename_flags", FILE_OP_RENAME, -EINVAL },
	{ "file_io/unlink", FILE_OP_UNLINK, -EIO },
};

/* Cuts a transfer to its first block: the kernel may do the same at any time. */
static void shorten(struct file_op *op)
{
	op->iov_count = 1;
	if (op->iov[0].iov_len > 4096)
		op->iov[0].iov_len = 4096;
}

static bool injected(struct file_op *op)
{
	for (size_t i = 0; i < KVR_COUNT_OF(file_faults); i++) {
		if (file_faults[i].kind != op->kind || !fault_point(file_faults[i].name))
			continue;
		if (op->kind == FILE_OP_CLOSE)
			close(op->fd);
		op->result = file_faults[i].result;
		return true;
	}
	if ((op->kind == FILE_OP_READ && fault_point("file_io/read_short")) ||
		(op->kind == FILE_OP_WRITE && fault_point("file_io/write_short")))
		shorten(op);
	return false;
}
#else
static bool injected(struct file_op *op)
{
	(void)op;
	return false;
}
#endif

int file_io_create(bool uring, uint32_t depth, struct file_io **out, int *why)
{
	int event_fd, error = -ENOSYS;

	*out = NULL;
	event_fd = fault_point("file_io/event_fd") ? (errno = EMFILE, -1) : eventfd(0, EFD_CLOEXEC);
	if (event_fd < 0)
		return -errno;
#ifdef KVRAIL_HAVE_URING
	if (uring)
		error = fault_point("file_io/uring") ? -EPERM : file_io_uring_driver.create(depth, out);
#endif
	if (uring && error && why)
		*why = -error;
	if (!*out) {
		error = file_io_threads_driver.create(depth, out);
		if (error) {
			close(event_fd);
			return error;
		}
	}
	(*out)->event_fd = event_fd;
	list_init(&(*out)->failed);
	return 0;
}

void file_io_destroy(struct file_io **slot)
{
	struct file_io *io = *slot;
	int event_fd;

	*slot = NULL;
	if (!io)
		return;
	event_fd = io->event_fd;
	io->driver->destroy(io);
	close(event_fd);
}

void file_io_start(struct file_io *io, struct file_op *op)
{
	if (injected(op)) {
		list_init(&op->node);
		list_add_last(&io->failed, &op->node);
		return;
	}
	io->driver->start(io, op);
}

void file_io_wait(struct file_io *io, uint64_t timeout_ns)
{
	io->driver->wait(io, list_empty(&io->failed) ? timeout_ns : 0);
}

struct file_op *file_io_reap(struct file_io *io)
{
	struct list_node *node = list_pop_first(&io->failed);

	return node ? KVR_CONTAINER_OF(node, struct file_op, node) : io->driver->reap(io);
}

void file_io_wake(struct file_io *io)
{
	uint64_t one = 1;

	while (write(io->event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

static long file_open(const struct file_op *op)
{
	struct open_how how = { .flags = (uint64_t)op->flags | O_CLOEXEC | O_NOFOLLOW,
		.mode = op->flags & O_CREAT ? 0600 : 0,
		.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH };
	long fd = syscall(SYS_openat2, op->fd, op->path, &how, sizeof(how));

	/* Old kernels, and containers whose filter does not know the call: links in the middle are then followed. */
	if (fd < 0 && (errno == ENOSYS || errno == EPERM))
		fd = openat(op->fd, op->path, (int)how.flags, 0600);
	return fd;
}

void file_op_run(struct file_op *op)
{
	long result = -1;

	switch (op->kind) {
	case FILE_OP_OPEN:
		result = file_open(op);
		break;
	case FILE_OP_STAT:
		result = statx(op->fd, op->path, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, op->stat);
		break;
	case FILE_OP_READ:
		result = preadv(op->fd, op->iov, (int)op->iov_count, (off_t)op->offset);
		break;
	case FILE_OP_WRITE:
		result = pwritev(op->fd, op->iov, (int)op->iov_count, (off_t)op->offset);
		break;
	case FILE_OP_ALLOCATE:
		result = fallocate(op->fd, 0, 0, (off_t)op->offset);
		break;
	case FILE_OP_SYNC:
		result = op->flags ? fdatasync(op->fd) : fsync(op->fd);
		break;
	case FILE_OP_CLOSE:
		result = close(op->fd);
		break;
	case FILE_OP_RENAME:
		result = renameat2(op->fd, op->path, op->fd, op->to, (unsigned)op->flags);
		break;
	case FILE_OP_UNLINK:
		result = unlinkat(op->fd, op->path, 0);
		break;
	}
	op->result = result < 0 ? -errno : (int)result;
}
