/*
 * redis_adapter.h - objects as values of a Redis or Valkey server, or of a cluster of them.
 *
 *   L2 engine -> remote.h -> the adapter's thread -> for each node one connection for what has no bytes (STRLEN,
 *   UNLINK) and `connections` for values (GET, SET ... NX)
 *
 * Speaks the protocol itself (resp.h), so that values move between the socket and L1 without a copy in between and no
 * reply can take memory. Keys and values: redis_protocol.h, docs/L2_ADAPTERS.md.
 */
#ifndef KVRAIL_TIER_REDIS_ADAPTER_H
#define KVRAIL_TIER_REDIS_ADAPTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "tier/adapter.h"

KVR_BEGIN_C

struct redis_adapter_options {
	const char *where;    /* "HOST:PORT", "[ADDRESS]:PORT", "/run/redis.sock"; of a cluster several, with commas */
	const char *user;     /* ACL user; NULL or "": the default one */
	const char *password; /* NULL or "": none */
	const char *prefix;   /* of keys, at most 63 characters; NULL: "kvrail:" */
	uint32_t database;    /* SELECT; only 0 in a cluster */
	uint32_t connections; /* for values, to each node, 1 .. 16; 0: 4 */
	uint32_t depth;       /* values under way at once, 1 .. 1024; 0: 32 */
	uint32_t request_limit; /* taken and not ended yet, then submit says -EAGAIN; .. 65536; 0: 4096 */
	uint64_t timeout_ns;    /* for a connection, and for an answer, beside 1 s for each MiB of it; 0: 2 s */
	uint64_t retry_ns;      /* the first wait after a failure, doubled up to 10 s, less up to a half; 0: 50 ms */
	uint64_t expire_ns;     /* time to live of each object, whole milliseconds; 0: none */
	int compress_level;     /* of zstd, 1 .. 19; 0: bytes are kept as they are */
	uint32_t element;       /* compressing: bytes of a number, 1, 2 or 4; 0: 2 */
	bool cluster;
	bool read_only;
};

/*
 * Starts the thread, which connects when there is something to ask: a server that cannot be reached now is no error, it
 * is told by a log line and `condition`, and tried again.
 *
 * options: not kept; the password is copied, and wiped at the end. error: what was wrong and what to do, untouched on
 * success. Start-up thread.
 * 0, -EINVAL (an option), -ENOMEM, -EMFILE, -EAGAIN (no thread), -EOPNOTSUPP (built without libxxhash, or libzstd to compress). *adapter is NULL
 * on an error. Ended by driver->close, which may wait for a host name that is being looked up.
 */
KVR_MUST_CHECK int redis_adapter_open(
	const struct redis_adapter_options *options, struct l2_adapter **adapter, char *error, size_t error_size);

/* 0, or -EINVAL with `error`: what `where` would be refused with. Any thread. */
KVR_MUST_CHECK int redis_adapter_check_where(const char *where, bool cluster, char *error, size_t error_size);

KVR_END_C

#endif
