/*
 * prefetch.h - what the management core asks of an L2 engine: bring chunks of a chain into L1.
 *
 *   management                                           engine
 *     | begin(job) ---------------------------------------> |   chunks first .. first+count-1 of the chain are wanted
 *     | <------------------------- prefetch_early(job, n)   |   n of them are there, as far as is known (QUERY_EARLY)
 *     | cancel(job) --------------------------------------> |   nobody waits any more, and the digests may go
 *     | <------------------------------ prefetch_done(job)  |   exactly once for every job begun, canceled or not
 *
 * All of it on the management core's thread: an engine with threads of its own hears of their completions in step().
 * The engine publishes what it brings through the chunk table, and keeps a lock (cache_lock) on each chunk that it
 * has published for a job until prefetch_done has returned: then the session holds those that count, and the engine
 * drops its own. What is in L1 already it leaves alone. After prefetch_done the management core looks again: what is
 * there counts, so a load that failed shortens the hit. A lookup's deadline is kept by the management core: it
 * cancels and takes what is there.
 *
 * Objects that clients store are offered to it (used): it may write them through, and pins them as it needs.
 */
#ifndef KVRAIL_MGMT_PREFETCH_H
#define KVRAIL_MGMT_PREFETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/list.h"

KVR_BEGIN_C

struct management;
struct session;

struct prefetch_job {
	/* the engine's while the job is under way */
	struct list_node node;
	void *engine;

	/* read only for the engine */
	uint32_t space; /* of the chunk table */
	uint32_t parts; /* objects of a chunk */
	uint32_t tenant;
	const uint8_t *model_key; /* 32 bytes, until prefetch_done */
	const uint64_t
		*part_bytes; /* of each part's object, 0: no worker of that rank has registered; until prefetch_done */
	uint8_t salt[32];
	uint32_t first, count; /* chunks of the chain */
	uint64_t deadline_ns;  /* 0: none */

	/* the management core's */
	struct management *management;
	struct session *session; /* NULL: nobody waits any more */
	uint32_t model;
	uint32_t early;
	bool early_known;
};

/* An object that is resident, and was published or used just now. */
struct prefetch_object {
	const uint8_t *model_key, *salt, *digest; /* 32 bytes each */
	uint32_t entry, part;                     /* of the chunk table */
	bool again;                               /* it was there before */
	uint64_t used_ns;                         /* when its session's chain began to be used */
	uint32_t position;                        /* of its chunk in the chain */
};

struct prefetch_engine {
	void *context;
	uint64_t default_deadline_ns; /* of a lookup that names none; 0: none */
	/* 0, or negative: not begun, and the lookup is answered from L1. May call prefetch_done before it returns. */
	int (*begin)(void *context, struct prefetch_job *job);
	/* May call prefetch_done before it returns. The digests may not be looked at afterwards. */
	void (*cancel)(void *context, struct prefetch_job *job);
	/* One bounded turn, in each turn of the management core. True when it did something. NULL: none. */
	bool (*step)(void *context, uint64_t now_ns);
	/* When the next turn is due unless something is begun, UINT64_MAX: never. NULL: never. */
	uint64_t (*next_ns)(void *context, uint64_t now_ns);
	/* After a STORE published an object or found it there, and after a RETRIEVE read it. NULL: it does not care. */
	void (*used)(void *context, const struct prefetch_object *object);
	/* CLEAR, see tier/l2.h: -EAGAIN, another one is at it. All four or none. */
	int (*clear_begin)(void *context);
	bool (*clear_quiet)(void *context);
	void (*clear_remove)(void *context, const uint8_t (*model_keys)[32], uint32_t count); /* NULL: everything */
	bool (*clear_ended)(void *context, uint32_t *failed);
	/* The server is leaving: what is written is to be whole soon. NULL: nothing to do. */
	void (*hurry)(void *context);
	/* Nothing is being written or read. NULL: always so. */
	bool (*idle)(void *context);
};

/* Digest of chunk `first` + index, 32 bytes; not after cancel. */
const uint8_t *prefetch_digest(const struct prefetch_job *job, uint32_t index);
/* How many of the chunks, from the first on, the engine knows to be there; before prefetch_done. */
void prefetch_early(struct prefetch_job *job, uint32_t count);
void prefetch_done(struct prefetch_job *job);

KVR_END_C

#endif
