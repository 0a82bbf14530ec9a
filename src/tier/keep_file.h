/*
 * keep_file.h - the files of an L1 that outlives the process: DIRECTORY/index and DIRECTORY/l1.0, l1.1, ... on tmpfs or
 * hugetlbfs.
 *
 * Nobody else may write there: the directory is the server's own user's. One server at a time: the index is locked. On
 * another kind of file system nothing is kept, since what is there after a loss of power would be believed.
 */
#ifndef KVRAIL_TIER_KEEP_FILE_H
#define KVRAIL_TIER_KEEP_FILE_H

#include <stdint.h>

#include "base/compiler.h"
#include "tier/keep.h"
#include "tier/l1_map.h"

KVR_BEGIN_C

struct keep_file_options {
	const char *directory;              /* made when only its last part is missing */
	const struct l1_map_options *areas; /* bytes are rounded up to the file system's pages */
	uint32_t area_count;
	uint32_t chunk_tokens;
	bool any_file_system; /* tests, on machines without a tmpfs to write to */
};

struct keep_file {
	struct keep *keep;
	struct l1_mapping areas[L1_AREAS_MAX];
	uint32_t area_count;
	int index_fd; /* holds the lock; -1: not open */
	void *index;
	uint64_t index_bytes;
};

/* 0; -EBUSY: another server has it; -ESTALE: it was written for another L1 or by another version; -EPERM: the
 * directory is not safe; -EINVAL: no such file system; -ENOSPC, -ENOMEM, -EINTR, or what the system said. Logged, with
 * what to do. */
KVR_MUST_CHECK int keep_file_open(const struct keep_file_options *options, struct keep_file *file);
/* Unmaps; the content stays. Harmless when nothing is open. */
void keep_file_close(struct keep_file *file);

KVR_END_C

#endif
