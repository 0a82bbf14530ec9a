/*
 * redis_clear.c - CLEAR: each master's keys are listed by SCAN, page by page, and what is ours is removed.
 *
 *   map of the slots (cluster) -> for each master: SCAN -> UNLINK of each key of the page -> next page ... -> map again
 *                                                        -> with model keys: GETRANGE of its header first
 *
 * Ours is what has the form of our keys, and is a string; with model keys, what also has the header of such an object.
 * It may be cut short at any time: what is left is whole.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tier/redis_private.h"

#define PAGES_MAX (UINT64_C(1) << 26) /* of one master: a list that never ends is none */
#define MAP_TRIES_MAX 8
#define SAY_INTERVAL_NS (10 * KVR_SECOND)

static bool cut_short(const struct redis *redis)
{
	return kvr_load_relaxed(&redis->clear.request->status) == -ECANCELED;
}

static void keep_status(struct redis *redis, int status)
{
	if (!redis->clear.status)
		redis->clear.status = status;
}

void redis_clear_begin(struct redis *redis, struct l2_request *request)
{
	struct redis_clear *clear = &redis->clear;

	memset(clear, 0, sizeof(*clear));
	clear->request = request;
	clear->node = REDIS_NO_NODE;
	clear->state = redis->cluster ? REDIS_CLEAR_MAP : REDIS_CLEAR_NODE;
	clear->say_ns = redis->remote.now_ns + SAY_INTERVAL_NS;
}

static void clear_end(struct redis *redis)
{
	struct redis_clear *clear = &redis->clear;
	struct l2_request *request = clear->request;
	int status = cut_short(redis) ? -ECANCELED : clear->status;

	log_info("l2 %s: clear: %llu objects removed, %llu keys looked at%s%s", redis->remote.adapter.name,
		(unsigned long long)clear->removed, (unsigned long long)clear->seen, status ? "; cut short: " : "",
		status ? strerror(-status) : "");
	clear->request = NULL;
	clear->state = REDIS_CLEAR_NONE;
	remote_end(&redis->remote, request, status, false);
}

/* ---- the map ---- */

static bool map_whole(const struct redis *redis)
{
	for (uint32_t slot = 0; slot < REDIS_SLOTS; slot++)
		if (redis->map[slot] == REDIS_NO_NODE)
			return false;
	return true;
}

/* A question that was under way already tells of before: another one is asked. */
static void map_step(struct redis *redis)
{
	struct redis_clear *clear = &redis->clear;

	if (!clear->asked) {
		if (redis->refreshing)
			return;
		clear->asked = true;
		clear->maps = redis->maps;
		redis->refresh_ns = 0;
		return;
	}
	if (redis->maps == clear->maps)
		return;
	clear->asked = false;
	if (redis->map_status && ++clear->tries < MAP_TRIES_MAX && !cut_short(redis))
		return;
	if (redis->map_status)
		keep_status(redis, redis->map_status);
	else if (!map_whole(redis))
		keep_status(redis, -EHOSTDOWN);
	if (clear->node != REDIS_NO_NODE) { /* at the end */
		if (redis->map_changes != clear->map_changes) {
			remote_complain(&redis->remote,
				"slots moved while it was cleared: some objects may be left, clear again");
			keep_status(redis, -EAGAIN);
		}
		clear_end(redis);
		return;
	}
	clear->map_changes = redis->map_changes;
	clear->state = REDIS_CLEAR_NODE;
}

/* ---- a master's list ---- */

static bool key_found(void *owner, const char *key, uint32_t length)
{
	struct redis *redis = owner;
	struct redis_clear *clear = &redis->clear;

	clear->seen++;
	if (clear->found_count == REDIS_CLEAR_KEYS)
		return false;
	if (redis_key_parse(redis->prefix, key, length, clear->found[clear->found_count]))
		clear->found_count++;
	return true;
}

static struct redis_job *clear_job(struct redis *redis, struct list_node *free_jobs, enum redis_command command)
{
	struct redis_job *job = KVR_CONTAINER_OF(list_pop_first(free_jobs), struct redis_job, node);

	job->request = redis->clear.request;
	job->command = command;
	job->hops = job->tries = 0;
	job->asking = job->damaged = false;
	job->status = 0;
	redis->clear.under_way++;
	return job;
}

static void node_begin(struct redis *redis)
{
	struct redis_clear *clear = &redis->clear;

	for (uint32_t i = clear->node == REDIS_NO_NODE ? 0 : clear->node + 1U; i < REDIS_NODES_MAX; i++) {
		if (!redis->nodes[i].used || (redis->cluster && !redis->nodes[i].mapped))
			continue;
		clear->node = (uint16_t)i;
		clear->pages = 0;
		memcpy(clear->cursor, "0", 2);
		clear->state = REDIS_CLEAR_PAGE;
		return;
	}
	if (!redis->cluster || clear->node == REDIS_NO_NODE) {
		clear_end(redis);
		return;
	}
	clear->tries = 0;
	clear->state = REDIS_CLEAR_MAP;
}

static void page_begin(struct redis *redis)
{
	struct redis_clear *clear = &redis->clear;
	struct redis_job *job;

	if (list_empty(&redis->small_jobs))
		return;
	clear->found_count = clear->found_next = 0;
	redis_scan_init(&clear->scan, key_found, redis);
	job = clear_job(redis, &redis->small_jobs, REDIS_SCAN);
	job->slot = REDIS_SLOTS;
	clear->state = REDIS_CLEAR_SCANNING;
	redis_job_write(redis, job);
	redis_node_add(&redis->nodes[clear->node], job);
}

/* A server that has restarted since it gave the cursor has another order of its keys. */
static int page_status(struct redis *redis)
{
	const struct redis_clear *clear = &redis->clear;

	if (clear->cursor[0] != '0' && clear->greetings != redis->nodes[clear->node].greetings)
		return -ECONNRESET;
	if (clear->scan.cursor[0] != '0' &&
		(clear->pages >= PAGES_MAX || strcmp(clear->cursor, clear->scan.cursor) == 0)) {
		remote_complain(&redis->remote, "the server's list of keys has no end");
		return -EIO;
	}
	return 0;
}

static void page_ended(struct redis *redis, int status)
{
	struct redis_clear *clear = &redis->clear;

	clear->pages++;
	if (!status)
		status = page_status(redis);
	if (status) {
		/* The other masters are cleared all the same. */
		keep_status(redis, status);
		clear->state = REDIS_CLEAR_NODE;
		return;
	}
	clear->greetings = redis->nodes[clear->node].greetings;
	memcpy(clear->cursor, clear->scan.cursor, sizeof(clear->cursor));
	clear->state = REDIS_CLEAR_REMOVING;
}

static bool is_of_the_models(const struct l2_request *request, const struct redis_job *job)
{
	const uint8_t *keys = request->memory;
	struct object_header header;

	if (!job->fits || object_header_decode(job->header, &header) != 0)
		return false;
	for (uint64_t at = 0; at < request->identity.bytes; at += sizeof(header.identity.model_key))
		if (memcmp(keys + at, header.identity.model_key, sizeof(header.identity.model_key)) == 0)
			return true;
	return false;
}

bool redis_clear_wants(const struct redis *redis, const struct redis_job *job)
{
	return !cut_short(redis) && is_of_the_models(redis->clear.request, job);
}

void redis_clear_remove(struct redis *redis, struct redis_job *job)
{
	job->command = REDIS_UNLINK;
	job->hops = 0;
	job->asking = false;
	redis_job_write(redis, job);
	redis_route(redis, job);
}

void redis_clear_job_ended(struct redis *redis, struct redis_job *job, int status)
{
	struct redis_clear *clear = &redis->clear;

	clear->under_way--;
	if (job->command == REDIS_SCAN)
		page_ended(redis, status);
	else if (status && status != -ENOENT)
		keep_status(redis, status);
}

static void remove_some(struct redis *redis)
{
	struct redis_clear *clear = &redis->clear;
	bool everything = !clear->request->memory;
	struct list_node *free_jobs = everything ? &redis->small_jobs : &redis->value_jobs;

	while (clear->found_next < clear->found_count && !cut_short(redis) && !list_empty(free_jobs)) {
		struct redis_job *job = clear_job(redis, free_jobs, everything ? REDIS_UNLINK : REDIS_GETRANGE);

		job->found = clear->found_next++;
		redis_job_write(redis, job);
		redis_route(redis, job);
	}
	if ((clear->found_next < clear->found_count && !cut_short(redis)) || clear->under_way > 0)
		return;
	clear->state = clear->cursor[0] == '0' ? REDIS_CLEAR_NODE : REDIS_CLEAR_PAGE;
	if (redis->remote.now_ns < clear->say_ns)
		return;
	clear->say_ns = redis->remote.now_ns + SAY_INTERVAL_NS;
	log_info("l2 %s: clear goes on: %llu objects removed so far", redis->remote.adapter.name,
		(unsigned long long)clear->removed);
}

void redis_clear_step(struct redis *redis)
{
	struct redis_clear *clear = &redis->clear;
	enum redis_clear_state before;

	do {
		before = clear->state;
		if (before != REDIS_CLEAR_NONE && clear->under_way == 0 && cut_short(redis)) {
			clear_end(redis);
			return;
		}
		if (before == REDIS_CLEAR_MAP)
			map_step(redis);
		else if (before == REDIS_CLEAR_NODE)
			node_begin(redis);
		else if (before == REDIS_CLEAR_PAGE)
			page_begin(redis);
		else if (before == REDIS_CLEAR_REMOVING)
			remove_some(redis);
	} while (clear->state != before);
}

bool redis_clear_goes_on(const struct redis *redis)
{
	const struct redis_clear *clear = &redis->clear;

	if (clear->state == REDIS_CLEAR_MAP)
		return clear->asked ? redis->maps != clear->maps : !redis->refreshing;
	return clear->state == REDIS_CLEAR_NODE || clear->state == REDIS_CLEAR_PAGE ||
		(clear->state == REDIS_CLEAR_REMOVING &&
			(clear->under_way == 0 ||
				(clear->found_next < clear->found_count && !cut_short(redis) &&
					!list_empty(
						clear->request->memory ? &redis->value_jobs : &redis->small_jobs))));
}
