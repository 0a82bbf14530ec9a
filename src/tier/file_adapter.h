/*
 * file_adapter.h - objects as files in a directory: on a local disk, or on a file system that several servers share.
 *
 *   DIR/lock-<id>, DIR/tmp-<id>/      of each server that has the place open: its lock, its files not yet complete
 *   DIR/<3 hex digits>/<64 hex digits>.kvo      one object each; the format is in object_format.h and docs/L2_ADAPTERS.md
 *
 * Everything is done by `io_threads` threads of the adapter (and one that lists the directory at start). Each has a
 * share of the objects, by their digest, and of the capacity. The calls of adapter.h push to and pop from rings;
 * submit wakes a thread that sleeps with one write(2), and does no other system call.
 *
 * Evicts by itself, the least recently used object first, so that the files it knows never take more than
 * `capacity_bytes` and the file system keeps `reserved_bytes` free. Memory: 68 bytes for each object known, and for
 * each I/O thread queue_depth bounce buffers of 264 KiB.
 *
 * Only files of ours are ever removed or replaced: names as above, regular files. Anything else in DIR is left alone.
 */
#ifndef KVRAIL_TIER_FILE_ADAPTER_H
#define KVRAIL_TIER_FILE_ADAPTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "tier/adapter.h"

KVR_BEGIN_C

/* What a STORE waits for before it ends. Without any a loss of power may lose, or tear, the newest objects; checksums
 * turn those into misses. A kill of the process never loses what has ended. */
enum file_sync {
	FILE_SYNC_NONE,
	FILE_SYNC_DATA, /* the file's bytes are on the medium before it gets its name */
	FILE_SYNC_ALL,  /* and the name as well, before the STORE ends */
};

struct file_adapter_options {
	const char *directory;          /* exists, or its parent does and it is made (mode 0700) */
	uint64_t capacity_bytes;        /* of all files together; 0: what the file system has room for */
	uint64_t reserved_bytes;        /* free space that is left to others */
	uint64_t load_bytes_per_second; /* 0: no limit */
	uint64_t store_bytes_per_second;
	uint64_t check_interval_ns; /* how often the directory and the free space are looked at; 0: 1 s */
	uint32_t queue_depth;       /* requests under way at once in each thread, 1 .. 1024; 0: 32 */
	uint32_t request_limit;     /* requests taken and not ended yet, then submit says -EAGAIN; .. 65536; 0: 4096 */
	uint32_t object_limit;      /* objects known at most, the index is bounded; 0: 16 Mi */
	uint32_t io_threads;        /* 1 .. 16; 0: 1 */
	enum file_sync sync;
	bool buffered; /* through the page cache, not O_DIRECT; so also, with one warning, where O_DIRECT does not work */
	bool no_uring;  /* threads instead of io_uring; so also, with one warning, where io_uring does not work */
	bool read_only; /* nothing is written or removed */
	bool exclusive; /* no other server uses the directory: a miss in the index is one, no file is looked for */
};

/*
 * Opens the place, writes and reads back one small file (not when read_only), starts the threads and the scan, and
 * returns while the scan goes on: until it has ended what is not known yet is found by opening its file, and a STORE
 * that might go over the capacity ends with -ENOSPC.
 *
 * options: not kept. error: what was wrong and what to do, of at most error_size bytes with the 0; untouched on
 * success. Start-up thread; blocks.
 * 0, -EINVAL (an option), -ENOENT, -ENOTDIR, -EACCES, -EROFS, -ENOSPC, -EIO, ... (the directory), -ENOMEM, -EAGAIN (no
 * thread), -EOPNOTSUPP (built without libxxhash). *adapter is NULL on an error. Ended by driver->close.
 */
KVR_MUST_CHECK int file_adapter_open(
	const struct file_adapter_options *options, struct l2_adapter **adapter, char *error, size_t error_size);

/* How the place is used, after all fall-backs: "io_uring, direct", "threads, buffered". Any thread. */
const char *file_adapter_mode(const struct l2_adapter *adapter);

KVR_END_C

#endif
