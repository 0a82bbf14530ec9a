/*
 * file_store.c - STORE: a file gets its name when it is whole.
 *
 *   checksum -> is it there already? -> room -> open a temporary file -> allocate -> write ... write -> [sync] -> close
 *     -> rename, without replacing -> [sync the folder] -> end
 *   on an error: close -> unlink the temporary file -> end
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "tier/checksum.h"
#include "tier/file_private.h"

static void store_open(struct file_job *job);
static void store_write(struct file_job *job);
static void store_rename(struct file_job *job);

static struct file_job *job_of(void *owner)
{
	return owner;
}

static void give_room_back(struct file_job *job)
{
	if (!job->room_bytes)
		return;
	job->shard->pending_bytes -= job->room_bytes;
	job->shard->pending_count--;
	job->room_bytes = 0;
}

static void store_end(struct file_job *job, int status)
{
	struct file_shard *shard = job->shard;

	give_room_back(job);
	if (!status) {
		shard->written_bytes += shard->scanned ? 0 : job->image_bytes;
		file_shard_know(job);
		kvr_counter_add(&shard->counters.stores, 1);
		kvr_counter_add(&shard->counters.store_bytes, job->request->identity.bytes);
		if (kvr_load_relaxed(&shard->place->last_errno))
			kvr_store_relaxed(&shard->place->last_errno, 0);
	}
	file_job_end(job, status);
}

static void store_unlinked(void *owner, struct file_op *op)
{
	struct file_job *job = job_of(owner);

	(void)op; /* what is left is removed by the next server that starts */
	give_room_back(job);
	file_job_end(job, job->status);
}

static void store_discard(struct file_job *job)
{
	job->op.fd = job->shard->place->directory_fd;
	job->op.path = job->temp;
	file_job_start(job, FILE_OP_UNLINK, store_unlinked);
}

static void store_closed_failed(void *owner, struct file_op *op)
{
	(void)op;
	job_of(owner)->fd = -1;
	store_discard(owner);
}

/* Stores end soon without trying for a while, where trying is of no use; loads go on. */
static int store_fail(struct file_job *job, const char *what, const char *path, int error)
{
	struct file_place *place = job->shard->place;

	if (error == -EDQUOT) { /* the file system's free space does not show it: room for the next one */
		error = -ENOSPC;
		while (job->freed_bytes < job->image_bytes) {
			job->freed_bytes += kvr_max_u64(file_index_oldest_bytes(job->shard->index), FILE_BLOCK);
			if (!file_shard_evict(job->shard))
				break;
		}
	}
	if (error == -ENOSPC)
		kvr_store_relaxed(&place->free_ns, (uint64_t)0); /* what we thought was free is not */
	if (error == -ENOSPC || error == -EROFS || error == -EACCES || error == -EPERM) {
		kvr_store_relaxed(&place->last_errno, -error);
		kvr_store_relaxed(&place->stores_errno, -error);
		kvr_store_relaxed(&place->stores_off_until_ns, job->shard->now_ns + place->check_interval_ns);
	}
	return file_shard_fail(job->shard, what, path, error);
}

static void store_abandon(struct file_job *job, const char *what, int error)
{
	job->status = store_fail(job, what, job->temp, error);
	if (job->fd < 0) {
		store_discard(job);
		return;
	}
	job->op.fd = job->fd;
	file_job_start(job, FILE_OP_CLOSE, store_closed_failed);
}

static void folder_closed(void *owner, struct file_op *op)
{
	struct file_job *job = job_of(owner);

	(void)op;
	job->fd = -1;
	/* The name may not survive a loss of power: the object is there all the same. */
	store_end(job, 0);
}

static void folder_synced(void *owner, struct file_op *op)
{
	struct file_job *job = job_of(owner);

	if (op->result < 0)
		file_shard_fail(job->shard, "cannot sync the folder of", job->path, op->result);
	job->op.fd = job->fd;
	file_job_start(job, FILE_OP_CLOSE, folder_closed);
}

static void folder_opened(void *owner, struct file_op *op)
{
	struct file_job *job = job_of(owner);

	if (op->result < 0) {
		file_shard_fail(job->shard, "cannot open the folder of", job->path, op->result);
		store_end(job, 0);
		return;
	}
	job->fd = op->result;
	job->op.fd = job->fd;
	job->op.flags = 0;
	file_job_start(job, FILE_OP_SYNC, folder_synced);
}

static void store_renamed(void *owner, struct file_op *op)
{
	struct file_job *job = job_of(owner);
	struct file_place *place = job->shard->place;

	if (op->result == -EEXIST) { /* another server was first, or a file that is not ours has the name */
		job->status = 0;
		store_discard(job);
		return;
	}
	if (op->result == -EINVAL && !kvr_load_relaxed(&place->no_replace)) {
		kvr_store_relaxed(&place->no_replace, (uint32_t)1);
		store_rename(job);
		return;
	}
	if (op->result == -ENOENT && !job->retried) { /* somebody has removed the folder */
		job->retried = true;
		kvr_fetch_and(&place->fan_made[job->name.fan / 64], ~(UINT64_C(1) << job->name.fan % 64));
		store_rename(job);
		return;
	}
	if (op->result < 0) {
		store_abandon(job, "cannot rename", op->result);
		return;
	}
	if (place->sync != FILE_SYNC_ALL) {
		store_end(job, 0);
		return;
	}
	text_copy(job->temp, sizeof(job->temp), job->path);
	job->temp[3] = '\0'; /* the folder */
	job->op.fd = place->directory_fd;
	job->op.path = job->temp;
	job->op.flags = O_RDONLY | O_DIRECTORY;
	file_job_start(job, FILE_OP_OPEN, folder_opened);
}

static void store_rename(struct file_job *job)
{
	struct file_place *place = job->shard->place;
	int error = file_place_fan(place, job->name.fan);

	if (error) {
		store_abandon(job, "cannot make the folder for", error);
		return;
	}
	job->op.fd = place->directory_fd;
	job->op.path = job->temp;
	job->op.to = job->path;
	job->op.flags = kvr_load_relaxed(&place->no_replace) ? 0 : RENAME_NOREPLACE;
	file_job_start(job, FILE_OP_RENAME, store_renamed);
}

/* Some file systems say only here that the disk is full. */
static void store_closed(void *owner, struct file_op *op)
{
	struct file_job *job = job_of(owner);

	job->fd = -1;
	if (op->result < 0 && op->result != -EINTR)
		store_abandon(job, "cannot close", op->result);
	else
		store_rename(job);
}

static void store_close(struct file_job *job)
{
	job->op.fd = job->fd;
	file_job_start(job, FILE_OP_CLOSE, store_closed);
}

static void store_synced(void *owner, struct file_op *op)
{
	struct file_job *job = job_of(owner);

	if (op->result < 0)
		store_abandon(job, "cannot sync", op->result);
	else
		store_close(job);
}

static void store_written(void *owner, struct file_op *op)
{
	struct file_job *job = job_of(owner);

	if (op->result == -EINTR || op->result == -EAGAIN) {
		store_write(job);
		return;
	}
	if (op->result < 0) {
		store_abandon(job, "cannot write", op->result);
		return;
	}
	if (!file_image_advance(job, (uint32_t)op->result)) {
		store_abandon(job, "cannot write", -EIO);
		return;
	}
	if (job->done_bytes < job->image_bytes) {
		store_write(job);
		return;
	}
	if (job->request->used_ns)
		file_job_stamp(job);
	if (job->shard->place->sync == FILE_SYNC_NONE) {
		store_close(job);
	} else {
		job->op.fd = job->fd;
		job->op.flags = 1;
		file_job_start(job, FILE_OP_SYNC, store_synced);
	}
}

static void store_write(struct file_job *job)
{
	file_image_prepare(job);
	file_job_start(job, FILE_OP_WRITE, store_written);
}

static void store_allocated(void *owner, struct file_op *op)
{
	struct file_job *job = job_of(owner);

	if (op->result == -EOPNOTSUPP || op->result == -ENOSYS || op->result == -EINVAL) {
		kvr_store_relaxed(&job->shard->place->no_allocate, (uint32_t)1);
	} else if (op->result < 0 && op->result != -EINTR) {
		store_abandon(job, "cannot allocate", op->result);
		return;
	}
	store_write(job);
}

static void store_opened(void *owner, struct file_op *op)
{
	struct file_job *job = job_of(owner);
	struct file_place *place = job->shard->place;

	if (op->result == -ENOENT && !job->retried && file_place_temp(place) == 0) {
		job->retried = true;
		store_open(job);
		return;
	}
	if (op->result == -EINVAL && job->direct) {
		file_place_lose_direct(place);
		store_open(job);
		return;
	}
	if (op->result < 0) {
		store_end(job, store_fail(job, "cannot open", job->temp, op->result));
		return;
	}
	job->retried = false;
	job->fd = op->result;
	if (kvr_load_relaxed(&place->no_allocate)) {
		store_write(job);
		return;
	}
	job->op.fd = job->fd;
	job->op.offset = job->image_bytes;
	file_job_start(job, FILE_OP_ALLOCATE, store_allocated);
}

static void store_open(struct file_job *job)
{
	struct file_shard *shard = job->shard;

	job->direct = kvr_load_relaxed(&shard->place->direct);
	job->bounced = file_image_must_bounce(job);
	snprintf(job->temp, sizeof(job->temp), "%s/%u-%llu", shard->place->temp, shard->number,
		(unsigned long long)shard->temp_count++);
	job->op.fd = shard->place->directory_fd;
	job->op.path = job->temp;
	job->op.flags = O_WRONLY | O_CREAT | O_EXCL | (job->direct ? O_DIRECT : 0);
	file_job_start(job, FILE_OP_OPEN, store_opened);
}

void file_store_go(struct file_job *job)
{
	struct object_header header = { .identity = job->request->identity, .checksum = job->checksum };
	uint64_t tail = header.identity.bytes & (FILE_BLOCK - 1);

	object_header_encode(&header, job->header);
	memset(job->tail, 0, FILE_BLOCK);
	memcpy(job->tail, (const uint8_t *)job->request->memory + header.identity.bytes - tail, tail);
	store_open(job);
}

static void store_seen(void *owner, struct file_op *op)
{
	struct file_job *job = job_of(owner);

	if (op->result == 0 && S_ISREG(job->stat.stx_mode) && job->stat.stx_size == job->image_bytes) {
		file_shard_know(job);
		file_job_end(job, 0);
		return;
	}
	/* One that is ours and damaged makes place; what else is wrong shows when the file is written. */
	if (op->result == 0 && S_ISREG(job->stat.stx_mode) &&
		unlinkat(job->shard->place->directory_fd, job->path, 0) == 0)
		file_shard_forget(job->shard, &job->name);
	list_add_last(&job->shard->room_waiters, &job->node);
}

/* 0, or how the request ends. */
static int store_refusal(const struct file_job *job)
{
	const struct file_place *place = job->shard->place;

	if (place->read_only)
		return -EROFS;
	if (kvr_load_relaxed(&place->gone))
		return -EIO;
	if (job->shard->now_ns < kvr_load_relaxed(&place->stores_off_until_ns))
		return -kvr_load_relaxed(&place->stores_errno);
	return 0;
}

void file_store_begin(struct file_job *job)
{
	struct file_shard *shard = job->shard;
	const struct l2_request *request = job->request;
	struct file_use use = file_shard_use(shard, request);
	int refusal = store_refusal(job);

	if (refusal) {
		kvr_counter_add(&shard->counters.errors, 1);
		file_job_end(job, refusal);
		return;
	}
	if (file_index_use(shard->index, &job->name, &use)) {
		file_job_end(job, 0);
		return;
	}
	job->checksum = checksum_bytes(request->memory, request->identity.bytes);
	if (request->has_checksum && request->checksum != job->checksum) {
		kvr_counter_add(&shard->counters.corrupt, 1);
		file_job_end(job, -EBADMSG);
		return;
	}
	if (shard->place->exclusive && shard->scanned) {
		list_add_last(&shard->room_waiters, &job->node);
		return;
	}
	job->op.fd = shard->place->directory_fd;
	job->op.path = job->path;
	job->op.stat = &job->stat;
	file_job_start(job, FILE_OP_STAT, store_seen);
}
