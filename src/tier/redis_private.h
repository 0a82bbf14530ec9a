/*
 * redis_private.h - the inside of the redis adapter: jobs, links (connections), nodes (servers). All of it is the
 * adapter's thread's.
 *
 *   request -> job -> node.small, node.loads, node.stores (waiting) -> link.jobs (in the order of their replies) -> end
 *                      ^                                                 |
 *                      +---- moved, asked elsewhere, connection lost ----+
 */
#ifndef KVRAIL_TIER_REDIS_PRIVATE_H
#define KVRAIL_TIER_REDIS_PRIVATE_H

#include <netdb.h>

#include "base/clock.h"
#include "base/random.h"
#include "tier/object_body.h"
#include "tier/redis_adapter.h"
#include "tier/redis_protocol.h"
#include "tier/remote.h"
#include "tier/remote_clear.h"

KVR_BEGIN_C

#define REDIS_NODES_MAX 128
#define REDIS_SEEDS_MAX 8
#define REDIS_CONNECTIONS_MAX 16
#define REDIS_LINKS_MAX (1 + REDIS_CONNECTIONS_MAX) /* of a node; number 0 is for what has no bytes */
#define REDIS_SMALL_JOBS 256                        /* without bytes, under way at once */
#define REDIS_SMALL_PIPELINE 128
#define REDIS_VALUE_PIPELINE 2 /* the next command is there when a value has come */
#define REDIS_HOPS_MAX 5
#define REDIS_HEAD_BYTES 768
#define REDIS_INPUT_BYTES 16384
#define REDIS_OWN_JOBS 3 /* AUTH, SELECT, PING */
#define REDIS_NO_NODE UINT16_MAX
#define REDIS_CLEAR_KEYS 4096 /* of a page: more than a server gives when it is asked for 128 */

enum redis_command {
	REDIS_GET,
	REDIS_SET,
	REDIS_STRLEN,
	REDIS_UNLINK,
	REDIS_SCAN,     /* CLEAR's, as UNLINK may be */
	REDIS_GETRANGE, /* likewise */
	REDIS_AUTH,     /* from here on without a request */
	REDIS_SELECT,
	REDIS_PING,
	REDIS_CLUSTER_SLOTS,
};

struct redis_job {
	struct list_node node;
	struct l2_request *request; /* NULL: ours */
	enum redis_command command;
	uint32_t slot;
	uint32_t hops;  /* MOVED and ASK */
	uint32_t tries; /* connections lost under it */
	bool asking;
	bool damaged;      /* a GET or STRLEN found what must go: it is an UNLINK now, and ends with `status` */
	bool pooled_small; /* of redis.small_jobs, else of value_jobs; ours: neither */
	int status;
	uint32_t found; /* CLEAR's UNLINK and GETRANGE: which of redis_clear.found */
	/* what is sent: head, then of SET header, body, tail */
	uint32_t head_length, tail_length;
	uint64_t sent, length;
	char head[REDIS_HEAD_BYTES];
	char tail[64];
	uint8_t *header;         /* OBJECT_HEADER_BYTES; NULL in small jobs and ours */
	struct object_body body; /* behind it, of SET and GET */
	/* the reply */
	uint32_t acks;       /* replies of ASKING that come before it */
	enum resp_event got; /* its first event */
	bool fits;           /* GET: the value has a length that it may have, and there is a place for it */
	int misfit;          /* else why */
};

enum redis_link_state { REDIS_LINK_CLOSED, REDIS_LINK_CONNECTING, REDIS_LINK_GREETING, REDIS_LINK_READY };

struct redis_node;

struct redis_link {
	struct redis_node *node;
	uint32_t number;
	enum redis_link_state state;
	int fd;
	bool retired; /* takes no job any more, and closes after its last */
	bool watches_output;
	struct addrinfo *addresses, *address; /* not tried yet, while it connects */
	struct list_node jobs;
	uint32_t job_count;
	struct redis_job *unsent; /* the first that is not sent wholly, NULL: none */
	uint64_t deadline_ns;     /* of the connection, or of the first job's reply; UINT64_MAX: none */
	struct resp resp;
	struct redis_slots slots;
	struct redis_job own[REDIS_OWN_JOBS];
	uint8_t input[REDIS_INPUT_BYTES];
};

struct redis;

struct redis_node {
	struct redis *redis;
	bool used;
	bool seed;
	bool mapped; /* has slots, by the map or by a MOVED */
	uint16_t port;
	char host[REDIS_HOST_MAX + 1]; /* begins with '/': the path of a socket */
	struct redis_link *links[REDIS_LINKS_MAX];
	struct list_node small, loads, stores; /* jobs that wait for a connection */
	uint32_t stores_sent;
	uint32_t failures;  /* in a row */
	int error;          /* the last one, negative */
	uint32_t greetings; /* of its connection 0 */
	uint64_t until_ns;  /* no connection is tried before */
};

enum redis_clear_state {
	REDIS_CLEAR_NONE,
	REDIS_CLEAR_MAP,  /* the map of slots is asked for: before the first master, and after the last */
	REDIS_CLEAR_NODE, /* the next master is due */
	REDIS_CLEAR_PAGE, /* its next page */
	REDIS_CLEAR_SCANNING,
	REDIS_CLEAR_REMOVING, /* what the page had */
};

struct redis_clear {
	struct remote_clear book;
	enum redis_clear_state state;
	uint16_t node;
	bool asked; /* for the map, when there were `maps` answers */
	uint32_t maps, tries;
	uint32_t map_changes;
	uint32_t greetings; /* when the cursor came */
	char cursor[REDIS_CURSOR_BYTES];
	struct redis_scan scan;
	uint8_t found[REDIS_CLEAR_KEYS][32]; /* hashes, of the keys of a page */
};

struct redis {
	struct remote remote;
	int epoll_fd;
	char user[128];
	char password[256];
	char prefix[REDIS_PREFIX_MAX + 1];
	uint32_t database, connections, depth;
	uint64_t timeout_ns, retry_ns, expire_ms;
	bool cluster;
	struct random random;
	struct object_codec codec;
	struct redis_job *jobs; /* REDIS_SMALL_JOBS, then `depth` with headers */
	uint8_t *headers;
	struct list_node small_jobs, value_jobs; /* free ones */
	uint32_t next_node;                      /* whom to ask about the cluster */
	struct redis_job refresh;
	bool refreshing;
	int map_status;       /* of the last question */
	uint32_t maps;        /* questions that were answered, or failed */
	uint32_t map_changes; /* what of the map was seen to have changed */
	uint64_t refresh_ns;  /* when to ask for the map; UINT64_MAX: no need */
	uint64_t refreshed_ns;
	uint16_t map[REDIS_SLOTS];      /* node of each slot, REDIS_NO_NODE: not known */
	uint16_t map_next[REDIS_SLOTS]; /* while it is being read */
	struct redis_node nodes[REDIS_NODES_MAX];
	struct redis_clear clear;
};

/* redis_adapter.c --------------------------------------------------------------------------------------------------- */

/* Its command from its request, or (ours) from `command`. */
void redis_job_write(struct redis *redis, struct redis_job *job);
/* Its request has ended, and it is free. */
void redis_job_end(struct redis *redis, struct redis_job *job, int status, bool written);

/* redis_cluster.c --------------------------------------------------------------------------------------------------- */

/* NULL: there are too many. */
struct redis_node *redis_node_get(struct redis *redis, const char *host, uint16_t port);
/* Puts the job where it waits for a connection. */
void redis_route(struct redis *redis, struct redis_job *job);
void redis_node_add(struct redis_node *node, struct redis_job *job);
/* Jobs go to connections, which are opened as needed; what cannot go anywhere now ends. */
void redis_node_pump(struct redis_node *node);
/* A MOVED or ASK. False: it cannot be followed. */
bool redis_follow(struct redis_link *link, struct redis_job *job, const char *line, bool ask);
/* Ask for the map of slots soon. */
void redis_want_map(struct redis *redis);
void redis_map_begin(struct redis_link *link);
/* The reply to CLUSTER SLOTS is whole: good, or not. */
void redis_map_end(struct redis_link *link, bool good);
/* Starts the question for the map when it is due; drops nodes that nobody needs. */
void redis_cluster_turn(struct redis *redis);

/* redis_clear.c ----------------------------------------------------------------------------------------------------- */

/* Nothing else is under way; ends with remote_end. */
void redis_clear_begin(struct redis *redis, struct l2_request *request);
void redis_clear_step(struct redis *redis);
/* redis_clear_step has something to do at once. */
bool redis_clear_goes_on(const struct redis *redis);
/* A job of its request has ended, and is free. */
void redis_clear_job_ended(struct redis *redis, struct redis_job *job, int status);
/* Its GETRANGE was answered: the object is of the request's models. */
bool redis_clear_wants(const struct redis *redis, const struct redis_job *job);
/* Such a job, taken off its link, becomes an UNLINK. */
void redis_clear_remove(struct redis *redis, struct redis_job *job);

/* redis_link.c ------------------------------------------------------------------------------------------------------ */

/* False: it failed at once. */
bool redis_link_open(struct redis_link *link);
void redis_link_push(struct redis_link *link, struct redis_job *job);
void redis_link_send(struct redis_link *link);
void redis_link_event(struct redis_link *link, uint32_t events);
/* The connection is gone: its jobs go elsewhere once, or end. text: what is logged, and stays; detail: of the server,
 * or "". */
void redis_link_fail(struct redis_link *link, int error, const char *text, const char *detail);
void redis_link_close(struct redis_link *link);
/* The time of its reply, or of the connection, is over. */
void redis_link_late(struct redis_link *link);
/* Its deadline, from its first job. */
void redis_link_set_deadline(struct redis_link *link);

/* redis_reply.c ----------------------------------------------------------------------------------------------------- */

/* Events of the reply of the link's first job. False: the link has failed, and nothing more is to be read of it. */
bool redis_reply_event(struct redis_link *link, enum resp_event event, const uint8_t *piece, size_t piece_bytes);
/* Its reply is a value, which goes to its header and body. */
static inline bool redis_is_value(const struct redis_job *job)
{
	return job->command == REDIS_GET || job->command == REDIS_GETRANGE;
}
/* Where the next bytes of the value belong, and how many can go there; NULL: not wanted. */
uint8_t *redis_value_at(const struct redis_link *link, const struct redis_job *job, uint64_t *bytes);

KVR_END_C

#endif
