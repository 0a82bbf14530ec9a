/* redis_reply.c - what a reply means for the job that it answers. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tier/redis_private.h"

static struct redis_job *first_job(const struct redis_link *link)
{
	return KVR_CONTAINER_OF(link->jobs.next, struct redis_job, node);
}

/* Of a server's text for the log: what can be printed. */
static void printable(char *out, size_t size, const char *line)
{
	size_t i;

	for (i = 0; i + 1 < size && line[i]; i++)
		out[i] = line[i] >= ' ' && line[i] <= '~' ? line[i] : '?';
	out[i] = '\0';
}

static bool nonsense(struct redis_link *link, const char *detail)
{
	redis_link_fail(link, -EPROTO, "answers what is no answer", detail);
	return false;
}

uint8_t *redis_value_at(const struct redis_link *link, const struct redis_job *job, uint64_t *bytes)
{
	uint64_t left = resp_bulk_left(&link->resp);
	uint64_t position = OBJECT_HEADER_BYTES + job->body.length - left;

	if (!job->fits || left == 0)
		return NULL;
	if (position < OBJECT_HEADER_BYTES) {
		*bytes = OBJECT_HEADER_BYTES - position;
		return job->header + position;
	}
	*bytes = left;
	return job->body.bytes + (position - OBJECT_HEADER_BYTES);
}

/* A piece that came into the link's own buffer: the parser has counted it already. */
static void value_piece(struct redis_link *link, struct redis_job *job, const uint8_t *piece, size_t piece_bytes)
{
	uint64_t whole = OBJECT_HEADER_BYTES + job->body.length;
	uint64_t position = whole - resp_bulk_left(&link->resp) - piece_bytes;
	uint64_t part = 0;

	if (!job->fits)
		return;
	if (position < OBJECT_HEADER_BYTES) {
		part = kvr_min_u64(piece_bytes, OBJECT_HEADER_BYTES - position);
		memcpy(job->header + position, piece, part);
		position += part;
	}
	if (part < piece_bytes)
		memcpy(job->body.bytes + (position - OBJECT_HEADER_BYTES), piece + part, piece_bytes - part);
}

/* ---- ends ---- */

/* It is not the first of the link any more. */
static void take_off(struct redis_link *link, struct redis_job *job)
{
	list_remove(&job->node);
	link->job_count--;
	link->node->stores_sent -= job->command == REDIS_SET;
	redis_link_set_deadline(link);
}

static void well(struct redis_link *link, bool stored)
{
	struct redis *redis = link->node->redis;

	link->node->failures = 0;
	if (!kvr_load_relaxed(&redis->remote.condition))
		return;
	for (uint32_t i = 0; i < REDIS_NODES_MAX; i++)
		if (redis->nodes[i].used && redis->nodes[i].failures > 0 && (redis->nodes[i].mapped || !redis->cluster))
			return;
	remote_well(&redis->remote, stored);
}

static void end_well(struct redis_link *link, struct redis_job *job, int status, bool written)
{
	take_off(link, job);
	well(link, written);
	redis_job_end(link->node->redis, job, status, written);
}

/* What lies there is not the object: it goes, and the job ends with the status then. */
static void remove_damaged(struct redis_link *link, struct redis_job *job, int status)
{
	struct redis *redis = link->node->redis;
	char key[REDIS_KEY_MAX];
	uint32_t length = redis_key(&redis->remote.digester, redis->prefix, &job->request->identity, key);

	take_off(link, job);
	remote_complain(
		&redis->remote, "the value is damaged or another object's, it is removed: %.*s", (int)length, key);
	if (redis->remote.read_only) {
		redis_job_end(redis, job, status, false);
		return;
	}
	job->damaged = true;
	job->asking = false;
	job->status = status;
	job->command = REDIS_UNLINK;
	job->hops = 0;
	redis_job_write(redis, job);
	redis_route(redis, job);
}

static void value_ended(struct redis_link *link, struct redis_job *job)
{
	int error = job->misfit;

	if (job->fits)
		error = object_body_check(&link->node->redis->codec, job->request, &job->body, job->header);
	if (error == -EBADMSG)
		remove_damaged(link, job, error);
	else
		end_well(link, job, error, false);
}

static bool get_ended(struct redis_link *link, struct redis_job *job)
{
	if (job->got == RESP_NIL)
		end_well(link, job, -ENOENT, false);
	else if (job->got != RESP_BULK)
		return nonsense(link, "to GET");
	else
		value_ended(link, job);
	return true;
}

static bool strlen_ended(struct redis_link *link, struct redis_job *job)
{
	int64_t bytes = link->resp.number;

	if (job->got != RESP_INTEGER || bytes < 0)
		return nonsense(link, "to STRLEN");
	if (bytes == 0)
		end_well(link, job, -ENOENT, false);
	else if (!object_body_may_be(&job->request->identity, (uint64_t)bytes))
		remove_damaged(link, job, -ENOENT); /* it would keep the right one out */
	else
		end_well(link, job, 0, false);
	return true;
}

static bool set_ended(struct redis_link *link, struct redis_job *job)
{
	if (job->got == RESP_NIL) /* NX: it is there */
		end_well(link, job, 0, false);
	else if (job->got == RESP_STATUS)
		end_well(link, job, 0, true);
	else
		return nonsense(link, "to SET");
	return true;
}

static bool unlink_ended(struct redis_link *link, struct redis_job *job)
{
	struct redis *redis = link->node->redis;

	if (job->got != RESP_INTEGER)
		return nonsense(link, "to UNLINK");
	if (job->request->operation == L2_CLEAR)
		redis->clear.book.removed += link->resp.number > 0;
	end_well(link, job, job->damaged ? job->status : 0, false);
	return true;
}

static bool scan_ended(struct redis_link *link, struct redis_job *job)
{
	const struct redis_scan *scan = &link->node->redis->clear.scan;

	if (scan->bad || !scan->whole)
		return nonsense(link, "to SCAN");
	end_well(link, job, 0, false);
	return true;
}

static bool getrange_ended(struct redis_link *link, struct redis_job *job)
{
	struct redis *redis = link->node->redis;

	if (job->got != RESP_BULK)
		return nonsense(link, "to GETRANGE");
	if (!redis_clear_wants(redis, job)) {
		end_well(link, job, 0, false);
		return true;
	}
	take_off(link, job);
	well(link, false);
	redis_clear_remove(redis, job);
	return true;
}

static void ready(struct redis_link *link)
{
	link->node->greetings += link->number == 0;
	link->state = REDIS_LINK_READY;
}

static bool greeting_ended(struct redis_link *link, struct redis_job *job)
{
	if (job->got != RESP_STATUS)
		return nonsense(link, "to the greeting");
	take_off(link, job);
	if (job->command == REDIS_PING)
		ready(link);
	return true;
}

/* ---- errors ---- */

struct answer {
	int status;
	bool refuses; /* stores are kept out by it */
	const char *condition;
};

static struct answer answer_of(enum redis_trouble trouble)
{
	switch (trouble) {
	case REDIS_LOADING:
		return (struct answer){ -EBUSY, false, "the server is busy: it loads its data set, or runs a script" };
	case REDIS_READONLY:
		return (struct answer){ -EROFS, true, "the server is a read-only replica: name the primary" };
	case REDIS_OOM:
		return (struct answer){ -ENOSPC, true,
			"the server has no memory left: set maxmemory-policy to allkeys-lru, or raise maxmemory" };
	case REDIS_MISCONF:
		return (struct answer){ -EIO, true, "the server refuses writes: it cannot save, or misses replicas" };
	case REDIS_REFUSED:
		return (struct answer){ -EACCES, false, "the server refuses us: check user and password" };
	case REDIS_NOPERM:
		return (struct answer){
			-EACCES, false,
			"the user lacks a right: get, set, strlen, unlink, ping, to be cleared scan and getrange, in a cluster cluster|slots; and the keys"
		};
	case REDIS_CLUSTERDOWN:
		return (struct answer){ -EHOSTDOWN, false, "the cluster cannot answer now" };
	case REDIS_MOVED:
	case REDIS_ASK:
		return (struct answer){ -EIO, false, "the server belongs to a cluster: add cluster=yes" };
	case REDIS_WRONGTYPE:
	case REDIS_OTHER:
		break;
	}
	return (struct answer){ -EIO, false, "the server answers with errors" };
}

static bool greeting_refused(
	struct redis_link *link, struct redis_job *job, enum redis_trouble trouble, const char *line)
{
	struct answer answer = answer_of(trouble);

	/* The right to say PING is not needed. */
	if (job->command == REDIS_PING && trouble == REDIS_NOPERM) {
		take_off(link, job);
		ready(link);
		return true;
	}
	if (job->command == REDIS_AUTH)
		answer = answer_of(trouble == REDIS_LOADING ? trouble : REDIS_REFUSED);
	else if (job->command == REDIS_SELECT)
		answer = (struct answer){ -EINVAL, false, "the server has no such database" };
	redis_link_fail(link, answer.status, answer.condition, line);
	return false;
}

static void map_refused(struct redis_link *link, struct redis_job *job, const char *line)
{
	struct redis *redis = link->node->redis;

	take_off(link, job);
	redis_map_end(link, false);
	remote_complain(&redis->remote, "no map of the cluster's slots from %s:%u: %s", link->node->host,
		link->node->port, line);
	redis_job_end(redis, job, -EIO, false);
}

/* The reply was an error. False: the link has failed. */
static bool refused(struct redis_link *link, struct redis_job *job)
{
	struct redis *redis = link->node->redis;
	enum redis_trouble trouble = redis_trouble_of(link->resp.line + 1);
	struct answer answer = answer_of(trouble);
	char line[160];

	printable(line, sizeof(line), link->resp.line + 1);
	if (job->command == REDIS_CLUSTER_SLOTS) {
		map_refused(link, job, line);
		return true;
	}
	if (!job->request)
		return greeting_refused(link, job, trouble, line);
	if (trouble == REDIS_WRONGTYPE) { /* another program's key: not there, and not ours to remove */
		end_well(link, job, job->command == REDIS_UNLINK ? job->status : -ENOENT, false);
		return true;
	}
	take_off(link, job);
	if ((trouble == REDIS_MOVED || trouble == REDIS_ASK) &&
		redis_follow(link, job, link->resp.line + 1, trouble == REDIS_ASK))
		return true;
	/* After a fail-over another connection may lead to the primary. */
	if (trouble == REDIS_READONLY)
		link->retired = true;
	if (redis->cluster)
		redis_want_map(redis);
	remote_complain(&redis->remote, "%s: %s", answer.condition, line);
	remote_condition(&redis->remote, answer.condition, 0, answer.refuses);
	redis_job_end(redis, job, answer.status, false);
	return true;
}

static bool job_answered(struct redis_link *link, struct redis_job *job)
{
	switch (job->got == RESP_ERROR ? REDIS_AUTH : job->command) {
	case REDIS_GET:
		return get_ended(link, job);
	case REDIS_SET:
		return set_ended(link, job);
	case REDIS_STRLEN:
		return strlen_ended(link, job);
	case REDIS_UNLINK:
		return unlink_ended(link, job);
	case REDIS_SCAN:
		return scan_ended(link, job);
	case REDIS_GETRANGE:
		return getrange_ended(link, job);
	case REDIS_CLUSTER_SLOTS:
		if (link->slots.bad) {
			map_refused(link, job, "that is no such map");
			return true;
		}
		take_off(link, job);
		redis_map_end(link, true);
		redis_job_end(link->node->redis, job, 0, false);
		return true;
	case REDIS_AUTH:
	case REDIS_SELECT:
	case REDIS_PING:
		break;
	}
	return job->got == RESP_ERROR ? refused(link, job) : greeting_ended(link, job);
}

/* The reply to ASKING comes before that to the command itself. */
static bool reply_ended(struct redis_link *link, struct redis_job *job)
{
	bool ack = job->acks > 0, good = job->got == RESP_STATUS;

	if (!ack)
		return job_answered(link, job);
	job->acks--;
	job->got = RESP_MORE;
	return good || nonsense(link, "to ASKING");
}

bool redis_reply_event(struct redis_link *link, enum resp_event event, const uint8_t *piece, size_t piece_bytes)
{
	struct redis_job *job = list_empty(&link->jobs) ? NULL : first_job(link);

	if (event == RESP_BAD)
		return nonsense(link, "");
	if (!job || job->sent < job->length) {
		char line[160] = "before it was asked";

		if (event == RESP_ERROR)
			printable(line, sizeof(line), link->resp.line + 1);
		return nonsense(link, line);
	}
	if (event == RESP_END)
		return reply_ended(link, job);
	if (job->command == REDIS_CLUSTER_SLOTS && event != RESP_ERROR) {
		redis_slots_event(&link->slots, &link->resp, event, piece, piece_bytes);
		return true;
	}
	if (job->command == REDIS_SCAN && event != RESP_ERROR) {
		redis_scan_event(&link->node->redis->clear.scan, &link->resp, event, piece, piece_bytes);
		return true;
	}
	if (redis_is_value(job) && job->acks == 0 && job->got == RESP_BULK && event == RESP_PIECE) {
		value_piece(link, job, piece, piece_bytes);
		return true;
	}
	if (job->got != RESP_MORE)
		return event == RESP_PIECE || nonsense(link, "more than one");
	job->got = event;
	/* The only reply with bytes is a value's; what else has some, or is an array, is none of ours. */
	if (event == RESP_ARRAY || (event == RESP_BULK && (!redis_is_value(job) || job->acks > 0)))
		return nonsense(link, "of another kind");
	if (event == RESP_BULK && job->command == REDIS_GETRANGE) {
		job->fits = link->resp.number == OBJECT_HEADER_BYTES;
	} else if (event == RESP_BULK) {
		job->misfit = object_body_load(job->request, (uint64_t)link->resp.number, &job->body);
		job->fits = job->misfit == 0;
	}
	return true;
}
