/*
 * file_private.h - the inside of the file adapter: the place, its shards (one I/O thread each), their jobs.
 *
 *   submit -> shard.submitted (ring) -> queues -> jobs, one operation of file_io at a time -> shard.ended (ring) -> poll
 *   scan thread -> shard.found (ring) -> index; later it is the one that clears
 *
 * A shard's fields are its thread's, but for the rings and what is marked.
 */
#ifndef KVRAIL_TIER_FILE_PRIVATE_H
#define KVRAIL_TIER_FILE_PRIVATE_H

#include <dirent.h>
#include <pthread.h>
#include <semaphore.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/ring.h"
#include "tier/file_adapter.h"
#include "tier/file_format.h"
#include "tier/file_index.h"
#include "tier/file_io.h"

KVR_BEGIN_C

#define FILE_BOUNCE_BYTES (UINT32_C(256) << 10) /* a multiple of FILE_BLOCK */
#define FILE_TRANSFER_BYTES (UINT64_C(1) << 30) /* of one call */
#define FILE_EVICTIONS 8                        /* under way at once in a shard */
#define FILE_ID_HEX 16
#define FILE_TEMP_BYTES 64
#define FILE_SHARDS_MAX 16

/* The directory. Read only after file_place_open, but for what is marked: that is atomic. */
struct file_place {
	char path[512];
	int directory_fd;
	int lock_fd;                /* -1: read only */
	char temp[8 + FILE_ID_HEX]; /* "tmp-0123456789abcdef" */
	uint64_t device, inode;
	/* What the wall clock was ahead of clock_now_ns, so that the order of use does not follow its leaps; and its time then. */
	uint64_t wall_us, opened_us;
	uint64_t used_at_open; /* bytes of the whole file system: our files can't be more */
	uint64_t reserved_bytes;
	uint64_t check_interval_ns;
	enum file_sync sync;
	bool read_only;
	bool exclusive;
	uint32_t memory_align; /* of transfers with O_DIRECT */
	/* atomic */
	uint32_t direct;
	uint32_t no_allocate; /* the file system can't reserve room */
	uint32_t no_replace;  /* it has no rename that refuses to replace */
	uint32_t gone;        /* the path does not lead to our directory any more */
	int stores_errno;     /* why stores are off */
	int last_errno;       /* why the last store found no room or no right; 0: the last one was good */
	uint64_t stores_off_until_ns;
	uint64_t free_bytes; /* as of free_ns, less what was admitted since */
	uint64_t free_ns;
	uint64_t fan_made[FILE_FAN_COUNT / 64];
	uint32_t scanning; /* shards that have not seen the end of the scan */
};

/* One writer each: the shard's thread. */
struct file_counters {
	uint64_t objects, bytes;
	uint64_t loads, load_bytes, stores, store_bytes;
	uint64_t misses, corrupt, errors, evicted, evicted_bytes;
};

/* Bytes a second as credit: a transfer may begin while there is some, and may leave a debt. */
struct file_limit {
	uint64_t rate; /* 0: no limit */
	int64_t credit;
	uint64_t last_ns;
};

struct file_shard;
struct file_job;

struct file_job {
	struct file_op op;
	struct list_node node; /* of shard.free_jobs or shard.room_waiters */
	struct file_shard *shard;
	struct l2_request *request;
	struct file_name name;
	uint64_t image_bytes;
	uint64_t done_bytes; /* of the file that have been transferred */
	uint64_t room_bytes; /* counted in shard.pending_bytes */
	uint64_t freed_bytes;
	int fd;
	int status;
	bool direct;
	bool bounced;
	bool retried;
	bool store;
	uint32_t piece_bytes;
	uint64_t checksum;
	struct statx stat;
	char path[FILE_PATH_BYTES];
	char temp[FILE_TEMP_BYTES];
	/* each on a multiple of FILE_BLOCK */
	uint8_t *header; /* one block */
	uint8_t *tail;   /* one block: the last bytes and the padding */
	uint8_t *bounce; /* FILE_BOUNCE_BYTES */
};

struct file_eviction {
	struct file_op op;
	struct list_node node;
	struct file_shard *shard;
	struct file_name name;
	uint64_t bytes;
	char path[FILE_PATH_BYTES];
};

/* FILE_GONE: a file was removed by a CLEAR. FILE_PASSED: word[0] counts the shards that were there. FILE_CLEARED: the end,
 * word[0] is the request, word[1] its status. */
enum file_found { FILE_FOUND, FILE_FOUND_END, FILE_GONE, FILE_PASSED, FILE_CLEARED };

struct file_shard {
	struct ring submitted;
	struct ring ended;
	struct ring found;
	KVR_ALIGNED(KVR_CACHE_LINE) uint32_t sleeping; /* atomic, by exchange */
	uint32_t stopping;                             /* atomic */
	uint32_t cancels;                              /* atomic: grows with each cancel */
	KVR_ALIGNED(KVR_CACHE_LINE) struct file_counters counters;
	KVR_ALIGNED(KVR_CACHE_LINE) struct file_place *place;
	struct file_io *io;
	struct file_index *index;
	struct digester digester;
	uint32_t number;
	uint32_t depth;
	uint64_t capacity_bytes; /* of this shard; 0: not limited */
	uint32_t object_limit;
	struct file_job *jobs;
	uint8_t *buffers;
	struct list_node free_jobs;
	struct list_node room_waiters;
	struct list_node urgent, loads, stores; /* requests that have not begun */
	struct file_eviction evictions[FILE_EVICTIONS];
	struct list_node free_evictions;
	uint32_t active, active_stores;
	uint32_t cancels_seen;
	uint64_t pending_bytes; /* of stores that have room and are not in the index yet */
	uint32_t pending_count;
	uint64_t evicting_bytes; /* out of the index, and not yet off the disk */
	uint64_t written_bytes;  /* since open, while the scan goes on */
	uint64_t temp_count;
	uint64_t next_deadline_ns, next_check_ns, next_credit_ns;
	bool scanned;
	bool want_uring;
	uint64_t now_ns; /* of this turn */
	struct file_limit load_limit, store_limit;
	struct log_rate log_rate;
	/* the start-up thread's */
	pthread_t thread;
	bool running;
	sem_t ready;
	int start_error, uring_errno;
};

struct file_scan;

struct file_adapter {
	struct l2_adapter adapter;
	struct file_place place;
	struct file_shard *shards;
	uint32_t shard_count;
	uint32_t request_limit;
	uint64_t capacity_bytes;
	struct file_scan *scan;
	uint32_t next_poll; /* the submitting thread's */
	uint32_t in_flight; /* written by the submitting thread, relaxed */
	uint32_t uring;
};

/* file_place.c ------------------------------------------------------------------------------------------------------ */

int file_place_open(const struct file_adapter_options *options, struct file_place *place, char *error, size_t size);
void file_place_close(struct file_place *place);
/* The folder of a name is there. 0 or -errno; -ENOTDIR when something else has its name. */
int file_place_fan(struct file_place *place, uint16_t fan);
int file_place_temp(const struct file_place *place);
/* Reads the free space again, not more often than min_age_ns. */
void file_place_look(struct file_place *place, uint64_t now_ns, uint64_t min_age_ns);
/* Does the path still lead to our directory? */
void file_place_check(struct file_place *place);
/* O_DIRECT turned out not to work. Warns the first time. */
void file_place_lose_direct(struct file_place *place);
/* Temporary files of servers that live no more. */
void file_place_clean(const struct file_place *place);

/* file_shard.c ------------------------------------------------------------------------------------------------------ */

int file_shard_start(struct file_shard *shard);
void file_shard_stop(struct file_shard *shard);
/* Any thread, after it has pushed or set something that the shard should see. */
void file_shard_wake(struct file_shard *shard);
/* The job's request ends and the job is free again. */
void file_job_end(struct file_job *job, int status);
/* The next operation of the job; `done` goes on when it has ended. */
void file_job_start(struct file_job *job, enum file_op_kind kind, void (*done)(void *owner, struct file_op *op));
/* Counts and logs (not too often) a failure of the place. Returns error. */
int file_shard_fail(struct file_shard *shard, const char *what, const char *path, int error);
void file_request_end(struct file_shard *shard, struct l2_request *request, int status);

/* file_room.c ------------------------------------------------------------------------------------------------------- */

/* When a request uses its object. */
struct file_use file_shard_use(const struct file_shard *shard, const struct l2_request *request);
/* The index learns of a job's file; what does not fit goes. */
void file_shard_know(const struct file_job *job);
void file_shard_forget(struct file_shard *shard, const struct file_name *name);
/* Starts the eviction of the least recently used file; false: none, or too many under way. */
bool file_shard_evict(struct file_shard *shard);
/* Evicts while there is more than there may be. */
void file_shard_trim(struct file_shard *shard);
/* Stores that wait for room, in their order. */
void file_shard_room(struct file_shard *shard);
void file_shard_take_found(struct file_shard *shard);

/* file_load.c, file_store.c, file_image.c --------------------------------------------------------------------------- */

/* The time of the file is that of the use, so that the order outlives a restart. It may fail, where the file is another user's. */
void file_job_stamp(const struct file_job *job);
void file_load_begin(struct file_job *job);
void file_contains_begin(struct file_job *job);
void file_remove_begin(struct file_job *job);
void file_store_begin(struct file_job *job);
/* There is room now. */
void file_store_go(struct file_job *job);

/* Sets op.iov and op.offset for the bytes from done_bytes on. */
void file_image_prepare(struct file_job *job);
/* What READ brought goes where it belongs; done_bytes grows. False: a transfer of 0 bytes. */
bool file_image_advance(struct file_job *job, uint32_t transferred);
/* Memory must be copied for transfers of this job. */
bool file_image_must_bounce(const struct file_job *job);
/* After the last READ: 0 with *checksum of the object, or -EBADMSG. */
int file_image_verify(const struct file_job *job, uint64_t *checksum);

/* file_scan.c ------------------------------------------------------------------------------------------------------- */

int file_scan_start(struct file_adapter *adapter);
/* Ends it, early or between two CLEARs. NULL is harmless. */
void file_scan_stop(struct file_scan *scan);
/* After the shards, which may still hand it a CLEAR. */
void file_scan_free(struct file_scan **scan);

/* file_clear.c ------------------------------------------------------------------------------------------------------ */

/* The request ends when the scan's thread has removed what it names. */
void file_clear_begin(struct file_shard *shard, struct l2_request *request);
/* On the scan's thread. gone: tells the shard; false: the adapter closes. 0, or the first -errno. */
int file_clear_run(const struct file_place *place, const struct l2_request *request,
	bool (*gone)(void *context, const struct file_name *name), void *context);
DIR *file_scan_folder(const struct file_place *place, const char *folder);
/* Hands the request to the thread, which serves one at a time. */
void file_scan_clear(struct file_scan *scan, struct l2_request *request);

KVR_END_C

#endif
