/*
 * file_io.h - calls on files that go on while their thread does something else: by io_uring, or by a few threads.
 *
 * All but file_io_wake is for one thread, the one that created it. An operation and what it points to are file_io's from
 * file_io_start until file_io_reap has returned it.
 */
#ifndef KVRAIL_TIER_FILE_IO_H
#define KVRAIL_TIER_FILE_IO_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "base/compiler.h"
#include "base/list.h"

KVR_BEGIN_C

enum file_op_kind {
	FILE_OP_OPEN,     /* directory, path, flags: result is the descriptor; no symbolic link is followed */
	FILE_OP_STAT,     /* directory, path: *stat; of a link, not of what it points to */
	FILE_OP_READ,     /* fd, iov, offset: result is the bytes */
	FILE_OP_WRITE,    /* the same */
	FILE_OP_ALLOCATE, /* fd, offset: the length to have room for */
	FILE_OP_SYNC,     /* fd, flags: 1 for the data alone */
	FILE_OP_CLOSE,    /* fd: closed, whatever the result */
	FILE_OP_RENAME,   /* directory, path, to, flags: of renameat2 */
	FILE_OP_UNLINK,   /* directory, path */
};

#define FILE_IOV_MAX 3

struct file_op {
	struct list_node node;
	enum file_op_kind kind;
	int result; /* >= 0, or -errno */
	int fd;     /* the file, or the directory that paths start from */
	int flags;
	const char *path;
	const char *to;
	struct statx *stat;
	struct iovec iov[FILE_IOV_MAX];
	uint32_t iov_count;
	uint64_t offset;
	uint64_t how[3];                               /* file_io's */
	void (*done)(void *owner, struct file_op *op); /* the caller's, as is owner */
	void *owner;
};

struct file_io;

struct file_io_driver {
	const char *name;
	/* 0 or -errno; *io is NULL then. depth: operations under way at most. */
	int (*create)(uint32_t depth, struct file_io **io);
	void (*destroy)(struct file_io *io); /* nothing is under way */
	void (*start)(struct file_io *io, struct file_op *op);
	/* Hands to the kernel what was started, and sleeps until an operation has ended, file_io_wake was called, or
	 * timeout_ns have passed (UINT64_MAX: for ever; 0: does not sleep). */
	void (*wait)(struct file_io *io, uint64_t timeout_ns);
	struct file_op *(*reap)(struct file_io *io); /* NULL: none has ended */
};

extern const struct file_io_driver file_io_threads_driver;
#ifdef KVRAIL_HAVE_URING
extern const struct file_io_driver file_io_uring_driver;
#endif

struct file_io {
	const struct file_io_driver *driver;
	int event_fd;
	struct list_node failed; /* by a fault point */
};

/* uring: tries io_uring first, and when there is none *why (if not NULL) is its errno. 0 or -errno. */
KVR_MUST_CHECK int file_io_create(bool uring, uint32_t depth, struct file_io **io, int *why);
void file_io_destroy(struct file_io **io);
void file_io_start(struct file_io *io, struct file_op *op);
void file_io_wait(struct file_io *io, uint64_t timeout_ns);
struct file_op *file_io_reap(struct file_io *io);
/* Any thread: ends a file_io_wait that sleeps, or the next one. One write(2). */
void file_io_wake(struct file_io *io);

/* Does the operation now, in the calling thread, and sets its result. */
void file_op_run(struct file_op *op);

KVR_END_C

#endif
