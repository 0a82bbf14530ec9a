/*
 * peer.h - one way to keep blocks of bytes outside of an engine: what bench/peers measures side by side. All move the same
 * blocks of the same pages, in requests of the same bytes, and look up the same token list; one thread calls.
 */
#ifndef KVRAIL_BENCH_PEER_H
#define KVRAIL_BENCH_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

#define PEER_CHUNK_BLOCKS 16u
#define PEER_CHUNK_TOKENS 256u
#define PEER_LOOKUP_CHUNKS 512u
#define PEER_LOOKUP_TOKENS (PEER_LOOKUP_CHUNKS * PEER_CHUNK_TOKENS)
#define PEER_REQUEST_BYTES ((uint64_t)8 << 20) /* in flight at once: a request, or so many pipelined ones */

/* The engine's paged memory. Block i of the data lies in page order[i]; `count` is a multiple of PEER_CHUNK_BLOCKS. */
struct pages {
	uint8_t *memory;
	size_t page_bytes;
	uint32_t count;
	uint32_t *order;
};

static inline uint8_t *pages_block(const struct pages *pages, uint32_t block)
{
	return pages->memory + (size_t)pages->order[block] * pages->page_bytes;
}

struct peer {
	const char *name;
	const char *how; /* what one request is */
	/* All: 0, or a negative errno after saying why. `address`: where its server listens. */
	int (*open)(struct peer *peer, const char *address);
	/* Sets pages->memory, NULL: the caller's own. Before the first set of this size of pages. */
	int (*use)(struct peer *peer, struct pages *pages);
	void (*unuse)(struct peer *peer, struct pages *pages);
	/* All blocks, in requests of PEER_REQUEST_BYTES; `round` makes the data new. */
	int (*set)(struct peer *peer, const struct pages *pages, uint32_t round);
	int (*get)(struct peer *peer, const struct pages *pages, uint32_t round);
	/* The smallest request there is. */
	int (*ping)(struct peer *peer);
	/* NULL: has nothing of the kind. `tokens`: PEER_LOOKUP_TOKENS, stored before by `learn`. known: their digests have been
	 * computed by an earlier call, or are not needed. */
	int (*learn)(struct peer *peer, const uint32_t *tokens);
	int (*lookup)(struct peer *peer, const uint32_t *tokens, bool known);
	void (*close)(struct peer *peer);
	void *state;
	int server; /* process id; 0: unknown */
};

extern const struct peer peer_kvrail;
#ifdef PEERS_HAVE_HIREDIS
extern const struct peer peer_redis;
#endif
extern const struct peer peer_memcached;
#ifdef PEERS_HAVE_ZMQ
extern const struct peer peer_zmq;
/* The server in C; runs until it is killed. The program's exit code. */
int zmq_serve(const char *address);
#endif

/* "peers: WHAT: words of error", returns error. */
int peer_failed(const char *what, int error);
/* Name of block i. */
#define PEER_KEY_BYTES 24
int peer_key(char key[PEER_KEY_BYTES], const struct pages *pages, uint32_t block);
/* Blocks of one batch. */
static inline uint32_t peer_batch(const struct pages *pages)
{
	uint32_t blocks = (uint32_t)(PEER_REQUEST_BYTES / pages->page_bytes);

	blocks -= blocks % PEER_CHUNK_BLOCKS;
	return blocks ? blocks : PEER_CHUNK_BLOCKS;
}

KVR_END_C

#endif
