/*
 * file_image.c - how the bytes of a file lie in memory: header block, the object in whole blocks, last block.
 *
 *     file     | header |  blocks of the object  ...  | last bytes 00000 |
 *     memory   | header |  request.memory        ...  | tail             |      one call, three pieces
 *
 * Where request.memory is not aligned as the device wants it, pieces of the file go through job.bounce instead.
 */
#include <errno.h>
#include <string.h>

#include "tier/checksum.h"
#include "tier/file_private.h"

static uint64_t whole_bytes(const struct file_job *job)
{
	return job->request->identity.bytes & ~(uint64_t)(FILE_BLOCK - 1);
}

static uint64_t tail_bytes(const struct file_job *job)
{
	return job->request->identity.bytes & (FILE_BLOCK - 1);
}

bool file_image_must_bounce(const struct file_job *job)
{
	return job->direct && whole_bytes(job) && (uintptr_t)job->request->memory % job->shard->place->memory_align;
}

/* The contiguous memory at a position of the file, and how much of it. */
static uint8_t *image_at(const struct file_job *job, uint64_t position, uint64_t *bytes)
{
	uint64_t whole = whole_bytes(job);

	if (position < FILE_BLOCK) {
		*bytes = FILE_BLOCK - position;
		return job->header + position;
	}
	position -= FILE_BLOCK;
	if (position < whole) {
		*bytes = whole - position;
		return (uint8_t *)job->request->memory + position;
	}
	*bytes = FILE_BLOCK - (position - whole);
	return job->tail + (position - whole);
}

static void bounce_copy(struct file_job *job, uint64_t position, uint32_t bytes, bool into_bounce)
{
	uint32_t copied = 0;

	while (copied < bytes) {
		uint64_t piece;
		uint8_t *memory = image_at(job, position + copied, &piece);

		if (piece > bytes - copied)
			piece = bytes - copied;
		if (into_bounce)
			memcpy(job->bounce + copied, memory, piece);
		else
			memcpy(memory, job->bounce + copied, piece);
		copied += (uint32_t)piece;
	}
}

void file_image_prepare(struct file_job *job)
{
	struct file_op *op = &job->op;
	uint64_t position = job->done_bytes, left = job->image_bytes - position, piece;

	op->fd = job->fd;
	op->offset = position;
	op->iov_count = 0;
	if (job->bounced) {
		job->piece_bytes = (uint32_t)kvr_min_u64(left, FILE_BOUNCE_BYTES);
		if (job->store)
			bounce_copy(job, position, job->piece_bytes, true);
		op->iov[0] = (struct iovec){ job->bounce, job->piece_bytes };
		op->iov_count = 1;
		return;
	}
	left = kvr_min_u64(left, FILE_TRANSFER_BYTES);
	while (left > 0 && op->iov_count < FILE_IOV_MAX) {
		uint8_t *memory = image_at(job, position, &piece);

		piece = kvr_min_u64(piece, left);
		op->iov[op->iov_count++] = (struct iovec){ memory, piece };
		position += piece;
		left -= piece;
	}
}

bool file_image_advance(struct file_job *job, uint32_t transferred)
{
	if (transferred == 0)
		return false;
	/* The next transfer begins at a block again; a part of one is transferred twice. */
	if (job->done_bytes + transferred < job->image_bytes)
		transferred &= ~(FILE_BLOCK - 1);
	if (job->bounced && !job->store)
		bounce_copy(job, job->done_bytes, transferred, false);
	job->done_bytes += transferred;
	return transferred > 0;
}

int file_image_verify(const struct file_job *job, uint64_t *checksum)
{
	const struct l2_request *request = job->request;
	uint64_t tail = tail_bytes(job);
	struct object_header header;

	if (object_header_decode(job->header, &header) || header.encoding != OBJECT_ENCODING_NONE ||
		!object_identity_equal(&header.identity, &request->identity))
		return -EBADMSG;
	if (tail > 0) {
		memcpy((uint8_t *)request->memory + whole_bytes(job), job->tail, tail);
		for (uint32_t i = (uint32_t)tail; i < FILE_BLOCK; i++) {
			if (job->tail[i] != 0)
				return -EBADMSG;
		}
	}
	*checksum = checksum_bytes(request->memory, request->identity.bytes);
	return *checksum == header.checksum ? 0 : -EBADMSG;
}
