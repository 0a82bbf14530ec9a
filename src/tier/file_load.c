/*
 * file_load.c - LOAD, CONTAINS and REMOVE.
 *
 *   LOAD   open -> look at type and length -> read ... read -> verify -> close -> end
 *                        damaged: close -> unlink -> end
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "tier/file_private.h"

/* A file that is read gets a new time at most this often: the order of use that survives a restart. */
#define TOUCH_SECONDS 10
#define MICRO UINT64_C(1000000)

static void load_open(struct file_job *job);

static struct file_job *job_of(void *owner)
{
	return owner;
}

static void miss(struct file_job *job)
{
	struct file_shard *shard = job->shard;

	file_shard_forget(shard, &job->name);
	kvr_counter_add(&shard->counters.misses, 1);
	file_job_end(job, -ENOENT);
}

static void load_removed(void *owner, struct file_op *op)
{
	struct file_job *job = job_of(owner);

	if (op->result < 0 && op->result != -ENOENT)
		file_shard_fail(job->shard, "cannot remove the damaged file", job->path, op->result);
	file_job_end(job, job->status);
}

static void load_closed(void *owner, struct file_op *op)
{
	struct file_job *job = job_of(owner);
	struct file_shard *shard = job->shard;

	(void)op; /* nothing was written */
	job->fd = -1;
	switch (job->status) {
	case 0:
		file_shard_know(job);
		kvr_counter_add(&shard->counters.loads, 1);
		kvr_counter_add(&shard->counters.load_bytes, job->request->identity.bytes);
		file_job_end(job, 0);
		break;
	case -ENOENT:
		miss(job);
		break;
	case -EBADMSG:
		kvr_counter_add(&shard->counters.corrupt, 1);
		file_shard_fail(shard, "the file is damaged or another object's, it is removed:", job->path, 0);
		file_shard_forget(shard, &job->name);
		if (shard->place->read_only) {
			file_job_end(job, -EBADMSG);
			break;
		}
		job->op.fd = shard->place->directory_fd;
		job->op.path = job->path;
		file_job_start(job, FILE_OP_UNLINK, load_removed);
		break;
	case -EAGAIN: /* once more, without O_DIRECT */
		load_open(job);
		break;
	default:
		file_job_end(job, job->status);
	}
}

static void load_close(struct file_job *job, int status)
{
	job->status = status;
	job->op.fd = job->fd;
	file_job_start(job, FILE_OP_CLOSE, load_closed);
}

static void load_read(void *owner, struct file_op *op)
{
	struct file_job *job = job_of(owner);
	int status;

	if (op->result == -EINVAL && job->direct) {
		file_place_lose_direct(job->shard->place);
		load_close(job, -EAGAIN);
		return;
	}
	if (op->result == -EINTR || op->result == -EAGAIN) {
		file_image_prepare(job);
		file_job_start(job, FILE_OP_READ, load_read);
		return;
	}
	if (op->result < 0) {
		load_close(job, file_shard_fail(job->shard, "cannot read", job->path, op->result));
		return;
	}
	if (!file_image_advance(job, (uint32_t)op->result)) {
		load_close(job, -EBADMSG);
		return;
	}
	if (job->done_bytes < job->image_bytes) {
		file_image_prepare(job);
		file_job_start(job, FILE_OP_READ, load_read);
		return;
	}
	status = file_image_verify(job, &job->checksum);
	if (!status)
		job->request->checksum = job->checksum;
	load_close(job, status);
}

void file_job_stamp(const struct file_job *job)
{
	uint64_t at = file_shard_use(job->shard, job->request).at;
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT } };

	times[1].tv_sec = (time_t)(at / MICRO);
	times[1].tv_nsec = (long)(at % MICRO * KVR_US);
	(void)futimens(job->fd, times);
}

static void touch(const struct file_job *job, const struct statx *about)
{
	uint64_t at = file_shard_use(job->shard, job->request).at;

	if (!job->shard->place->read_only && (int64_t)(at / MICRO) - about->stx_mtime.tv_sec > TOUCH_SECONDS)
		file_job_stamp(job);
}

static void load_opened(void *owner, struct file_op *op)
{
	struct file_job *job = job_of(owner);
	struct statx about;

	switch (op->result) {
	case -ENOENT:
	case -ELOOP:   /* a link: not ours */
	case -ENXIO:   /* a socket */
	case -ENOTDIR: /* the folder is something else */
		miss(job);
		return;
	case -EINVAL:
		if (job->direct) {
			file_place_lose_direct(job->shard->place);
			load_open(job);
			return;
		}
		break;
	default:
		break;
	}
	if (op->result < 0) {
		file_job_end(job, file_shard_fail(job->shard, "cannot open", job->path, op->result));
		return;
	}
	job->fd = op->result;
	/* Not fstat, by which ThreadSanitizer follows descriptors: it does not see io_uring close them, and takes the next one of that number for
	 * the same. */
	if (statx(job->fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &about) != 0) {
		load_close(job, file_shard_fail(job->shard, "cannot look at", job->path, -errno));
		return;
	}
	if (!S_ISREG(about.stx_mode)) {
		load_close(job, -ENOENT);
		return;
	}
	if (about.stx_size != job->image_bytes) {
		load_close(job, -EBADMSG);
		return;
	}
	touch(job, &about);
	file_image_prepare(job);
	file_job_start(job, FILE_OP_READ, load_read);
}

static void load_open(struct file_job *job)
{
	job->done_bytes = 0;
	job->direct = kvr_load_relaxed(&job->shard->place->direct);
	job->bounced = file_image_must_bounce(job);
	job->op.fd = job->shard->place->directory_fd;
	job->op.path = job->path;
	/* NONBLOCK: a FIFO of this name must not stop us. */
	job->op.flags = O_RDONLY | O_NONBLOCK | (job->direct ? O_DIRECT : 0);
	file_job_start(job, FILE_OP_OPEN, load_opened);
}

void file_load_begin(struct file_job *job)
{
	const struct file_place *place = job->shard->place;
	struct file_use use = file_shard_use(job->shard, job->request);
	uint64_t known = file_index_use(job->shard->index, &job->name, &use);

	if (kvr_load_relaxed(&place->gone) || (place->exclusive && job->shard->scanned && !known)) {
		miss(job);
		return;
	}
	load_open(job);
}

static void contains_seen(void *owner, struct file_op *op)
{
	struct file_job *job = job_of(owner);

	if (op->result == 0 && S_ISREG(job->stat.stx_mode) && job->stat.stx_size == job->image_bytes) {
		file_shard_know(job);
		file_job_end(job, 0);
	} else if (op->result == 0 || op->result == -ENOENT || op->result == -ENOTDIR || op->result == -ELOOP) {
		miss(job);
	} else {
		file_job_end(job, file_shard_fail(job->shard, "cannot look at", job->path, op->result));
	}
}

/* Only for what the index does not know. */
void file_contains_begin(struct file_job *job)
{
	if (kvr_load_relaxed(&job->shard->place->gone)) {
		miss(job);
		return;
	}
	job->op.fd = job->shard->place->directory_fd;
	job->op.path = job->path;
	job->op.stat = &job->stat;
	file_job_start(job, FILE_OP_STAT, contains_seen);
}

static void removed(void *owner, struct file_op *op)
{
	struct file_job *job = job_of(owner);

	if (op->result < 0 && op->result != -ENOENT && op->result != -ENOTDIR) {
		file_job_end(job, file_shard_fail(job->shard, "cannot remove", job->path, op->result));
		return;
	}
	file_shard_forget(job->shard, &job->name);
	file_job_end(job, 0);
}

static void remove_seen(void *owner, struct file_op *op)
{
	struct file_job *job = job_of(owner);

	/* What is no regular file is not ours. */
	if (op->result < 0 || !S_ISREG(job->stat.stx_mode)) {
		op->result = -ENOENT;
		removed(owner, op);
		return;
	}
	job->op.fd = job->shard->place->directory_fd;
	job->op.path = job->path;
	file_job_start(job, FILE_OP_UNLINK, removed);
}

void file_remove_begin(struct file_job *job)
{
	if (job->shard->place->read_only) {
		file_job_end(job, -EROFS);
		return;
	}
	job->op.fd = job->shard->place->directory_fd;
	job->op.path = job->path;
	job->op.stat = &job->stat;
	file_job_start(job, FILE_OP_STAT, remove_seen);
}
