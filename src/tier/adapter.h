/*
 * adapter.h - a place outside L1 that keeps objects: a disk, a shared file system, another server.
 *
 *   L2 engine (management core)                                adapter
 *     | submit(request) ------------------------------------->   queued, or -EAGAIN: its queue is full
 *     |                                                          ... its own threads, a ring of the kernel, or step()
 *     | <------------------------------- poll() -> list of ended requests, each exactly once, with its status
 *
 * Calls are made by one thread, the management core's, and none of them blocks or allocates; submit may wake a thread
 * of the adapter that sleeps, with one system call. An adapter without threads does its work in step(), so that a
 * simulator can run one (slow and faulty) with virtual time.
 *
 * Memory: `memory` is L1's (or the engine's) and stays untouched by anybody else until the request has ended. What a
 * LOAD left there counts only with status 0; otherwise it may hold anything.
 *
 * An object is written once and never changed: a STORE of what exists ends with 0 and may write nothing. A STORE is
 * visible to CONTAINS and LOAD when it has ended with 0, and to whoever opens the same place after a crash either
 * whole or not at all. The full identity is kept with each object and compared on each LOAD.
 */
#ifndef KVRAIL_TIER_ADAPTER_H
#define KVRAIL_TIER_ADAPTER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/list.h"

KVR_BEGIN_C

/* What an object is, wholly: two objects with one identity hold the same bytes. */
struct l2_identity {
	uint8_t model_key[32]; /* model identity, tenant included */
	uint8_t salt[32];
	uint8_t digest[32]; /* of the chunk, and by it of all that precedes it */
	uint32_t part;      /* rank and group, as in cache.h */
	uint32_t reserved;  /* 0 */
	uint64_t bytes;     /* length of the object: one of another length is another object */
};

enum l2_operation {
	L2_CONTAINS, /* is it there? By what the adapter knows: a LOAD may still find it gone */
	L2_LOAD,
	L2_STORE,
	L2_REMOVE, /* ends with 0 also when it was not there */
	L2_CLEAR,  /* removes many, see below; nothing else is under way, and nothing is submitted until it has ended */
};

/*
 * L2_CLEAR: memory NULL removes everything, else `identity.bytes` / 32 model keys are there, and all objects of these
 * models are removed, whoever stored them. Other fields of identity are 0. It may take long. -EOPNOTSUPP: the place
 * cannot; other errors: some may be left.
 *
 * status, when it has ended:
 *   0            done; CONTAINS: it is there
 *   -ENOENT      CONTAINS, LOAD: it is not there
 *   -EBADMSG     LOAD: what is there is not this object (checksum, identity, length, format); the adapter has removed
 *                it or made it invisible
 *   -ENOSPC      STORE: no room, and making some is not possible now
 *   -ECANCELED   canceled before it was begun, or the adapter was closing
 *   -ETIMEDOUT, -EIO, -EROFS, -EACCES, ...  the place failed; the adapter has counted and logged it
 */
struct l2_request {
	struct list_node node; /* the adapter's until the request has ended */
	enum l2_operation operation;
	int status;
	struct l2_identity identity;
	void *memory; /* LOAD, STORE: identity.bytes long */
	uint64_t
		checksum; /* XXH3 of the bytes: STORE, when has_checksum: they must have it, else -EBADMSG; LOAD: set */
	bool has_checksum;
	bool urgent;          /* LOAD: a lookup waits for it; goes before what is not */
	uint64_t deadline_ns; /* what has not begun by then ends with -ETIMEDOUT; 0: none */
	/* For an adapter that evicts: when the chain of chunks that the object is of began to be used (of clock_now_ns; 0: now), and which
	 * of its chunks it is. The least recently used goes first; of those that were used at one time, late chunks before early ones. */
	uint64_t used_ns;
	uint32_t position;
	void *owner; /* the submitter's */
};

struct l2_stats {                   /* gauges and counters since open, for status and metrics */
	uint64_t objects, bytes;    /* kept now, as far as is known; 0 when `uncounted` */
	uint64_t capacity_bytes;    /* 0: not limited by us */
	uint64_t loads, load_bytes; /* that ended with 0 */
	uint64_t stores, store_bytes;
	uint64_t misses;  /* CONTAINS and LOAD that ended with -ENOENT */
	uint64_t corrupt; /* -EBADMSG */
	uint64_t errors;  /* the place failed */
	uint64_t evicted, evicted_bytes;
	uint32_t in_flight;
	bool uncounted;      /* nothing is known of what is kept: others store and evict there, too */
	bool scanning;       /* the index is being rebuilt: what exists may not be known yet */
	bool read_only;      /* stores are refused, see `condition` */
	char condition[160]; /* what a person should know ("" : all is well) */
};

struct l2_adapter;

/* One table for each kind of adapter; all but `open` (which differs by kind) is here. */
struct l2_adapter_driver {
	const char *kind; /* "file", "redis", "s3", "sim" */
	/* Takes the request. 0, or -EAGAIN: the queue is full, nothing was taken. */
	int (*submit)(struct l2_adapter *adapter, struct l2_request *request);
	/* Asks that a request that has not begun ends soon, with -ECANCELED. It still ends through poll. */
	void (*cancel)(struct l2_adapter *adapter, struct l2_request *request);
	/* Appends at most `limit` ended requests to `ended`; returns how many. */
	uint32_t (*poll)(struct l2_adapter *adapter, struct list_node *ended, uint32_t limit);
	/* One bounded turn of an adapter without threads; true when it did something. NULL: has threads. */
	bool (*step)(struct l2_adapter *adapter, uint64_t now_ns);
	/* Readable by any thread. */
	void (*get_stats)(struct l2_adapter *adapter, struct l2_stats *stats);
	/* Ends what is under way: memory of requests is not touched after it returns, and they are gone without poll.
	 * May block, for the start-up thread at the end. */
	void (*close)(struct l2_adapter *adapter);
};

/* Embedded at the start of each adapter's own struct. */
struct l2_adapter {
	const struct l2_adapter_driver *driver;
	char name[64]; /* of the place, as status shows it: "file:/var/cache/kvrail" */
};

KVR_END_C

#endif
