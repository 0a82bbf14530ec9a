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

void redis_clear_begin(struct redis *redis, struct l2_request *request)
{
	struct redis_clear *clear = &redis->clear;

	memset(clear, 0, sizeof(*clear));
	remote_clear_begin(&clear->book, &redis->remote, request);
	clear->node = REDIS_NO_NODE;
	clear->state = redis->cluster ? REDIS_CLEAR_MAP : REDIS_CLEAR_NODE;
}

static void clear_end(struct redis *redis)
{
	redis->clear.state = REDIS_CLEAR_NONE;
	remote_clear_end(&redis->clear.book, &redis->remote);
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
	if (redis->map_status && ++clear->tries < MAP_TRIES_MAX && !remote_clear_cut_short(&clear->book))
		return;
	if (redis->map_status)
		remote_clear_keep(&clear->book, redis->map_status);
	else if (!map_whole(redis))
		remote_clear_keep(&clear->book, -EHOSTDOWN);
	if (clear->node != REDIS_NO_NODE) { /* at the end */
		if (redis->map_changes != clear->map_changes) {
			remote_complain(&redis->remote,
				"slots moved while it was cleared: some objects may be left, clear again");
			remote_clear_keep(&clear->book, -EAGAIN);
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

	clear->book.seen++;
	if (clear->book.found_count == REDIS_CLEAR_KEYS)
		return false;
	if (redis_key_parse(redis->prefix, key, length, clear->found[clear->book.found_count]))
		clear->book.found_count++;
	return true;
}

static struct redis_job *clear_job(struct redis *redis, struct list_node *free_jobs, enum redis_command command)
{
	struct redis_job *job = KVR_CONTAINER_OF(list_pop_first(free_jobs), struct redis_job, node);

	job->request = redis->clear.book.request;
	job->command = command;
	job->hops = job->tries = 0;
	job->asking = job->damaged = false;
	job->status = 0;
	redis->clear.book.under_way++;
	return job;
}

static void node_begin(struct redis *redis)
{
	struct redis_clear *clear = &redis->clear;

	for (uint32_t i = clear->node == REDIS_NO_NODE ? 0 : clear->node + 1U; i < REDIS_NODES_MAX; i++) {
		if (!redis->nodes[i].used || (redis->cluster && !redis->nodes[i].mapped))
			continue;
		clear->node = (uint16_t)i;
		clear->book.pages = 0;
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
	clear->book.found_count = clear->book.found_next = 0;
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
		(clear->book.pages >= PAGES_MAX || strcmp(clear->cursor, clear->scan.cursor) == 0)) {
		remote_complain(&redis->remote, "the server's list of keys has no end");
		return -EIO;
	}
	return 0;
}

static void page_ended(struct redis *redis, int status)
{
	struct redis_clear *clear = &redis->clear;

	clear->book.pages++;
	if (!status)
		status = page_status(redis);
	if (status) {
		/* The other masters are cleared all the same. */
		remote_clear_keep(&clear->book, status);
		clear->state = REDIS_CLEAR_NODE;
		return;
	}
	clear->greetings = redis->nodes[clear->node].greetings;
	memcpy(clear->cursor, clear->scan.cursor, sizeof(clear->cursor));
	clear->state = REDIS_CLEAR_REMOVING;
}

bool redis_clear_wants(const struct redis *redis, const struct redis_job *job)
{
	const struct remote_clear *book = &redis->clear.book;
	struct object_header header;

	return !remote_clear_cut_short(book) && job->fits && object_header_decode(job->header, &header) == 0 &&
		object_is_cleared(book->request, &header.identity);
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

	clear->book.under_way--;
	if (job->command == REDIS_SCAN)
		page_ended(redis, status);
	else if (status && status != -ENOENT)
		remote_clear_keep(&clear->book, status);
}

static void remove_some(struct redis *redis)
{
	struct redis_clear *clear = &redis->clear;
	bool everything = !clear->book.request->memory;
	struct list_node *free_jobs = everything ? &redis->small_jobs : &redis->value_jobs;

	while (remote_clear_has_more(&clear->book) && !list_empty(free_jobs)) {
		struct redis_job *job = clear_job(redis, free_jobs, everything ? REDIS_UNLINK : REDIS_GETRANGE);

		job->found = clear->book.found_next++;
		redis_job_write(redis, job);
		redis_route(redis, job);
	}
	if (remote_clear_has_more(&clear->book) || clear->book.under_way > 0)
		return;
	clear->state = clear->cursor[0] == '0' ? REDIS_CLEAR_NODE : REDIS_CLEAR_PAGE;
	remote_clear_say(&clear->book, &redis->remote);
}

void redis_clear_step(struct redis *redis)
{
	struct redis_clear *clear = &redis->clear;
	enum redis_clear_state before;

	do {
		before = clear->state;
		if (before != REDIS_CLEAR_NONE && clear->book.under_way == 0 && remote_clear_cut_short(&clear->book)) {
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
			(clear->book.under_way == 0 ||
				(remote_clear_has_more(&clear->book) &&
					!list_empty(clear->book.request->memory ? &redis->value_jobs
										: &redis->small_jobs))));
}
