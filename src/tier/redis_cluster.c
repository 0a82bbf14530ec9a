/*
 * redis_cluster.c - the servers: which one has a key, and which of a server's connections takes a job.
 *
 * The map of slots is only what makes a job go to the right node at once: any other node answers MOVED, which is
 * followed and remembered. So a map that is old, missing or wrong costs a round trip, never an answer.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/text.h"
#include "tier/redis_private.h"

#define MAP_INTERVAL_NS KVR_SECOND /* the map is not asked for more often */

static bool link_alive(const struct redis_link *link)
{
	return link && link->state != REDIS_LINK_CLOSED;
}

/* ---- nodes ---- */

static bool node_idle(const struct redis_node *node)
{
	for (uint32_t i = 0; i < REDIS_LINKS_MAX; i++)
		if (link_alive(node->links[i]))
			return false;
	return list_empty(&node->small) && list_empty(&node->loads) && list_empty(&node->stores);
}

static struct redis_node *free_node(struct redis *redis)
{
	for (uint32_t i = 0; i < REDIS_NODES_MAX; i++)
		if (!redis->nodes[i].used)
			return &redis->nodes[i];
	for (uint32_t i = 0; i < REDIS_NODES_MAX; i++)
		if (!redis->nodes[i].seed && !redis->nodes[i].mapped && node_idle(&redis->nodes[i]))
			return &redis->nodes[i];
	return NULL;
}

struct redis_node *redis_node_get(struct redis *redis, const char *host, uint16_t port)
{
	struct redis_node *node;

	for (uint32_t i = 0; i < REDIS_NODES_MAX; i++) {
		node = &redis->nodes[i];
		if (node->used && node->port == port && strcmp(node->host, host) == 0)
			return node;
	}
	node = free_node(redis);
	if (!node)
		return NULL;
	node->redis = redis;
	node->used = true;
	node->seed = false;
	node->mapped = false;
	node->port = port;
	text_copy(node->host, sizeof(node->host), host);
	list_init(&node->small);
	list_init(&node->loads);
	list_init(&node->stores);
	node->stores_sent = 0;
	node->failures = 0;
	node->until_ns = 0;
	return node;
}

/* Nodes take turns; one that rests only when all do. */
static struct redis_node *any_node(struct redis *redis)
{
	struct redis_node *best = NULL;

	for (uint32_t i = 0; i < REDIS_NODES_MAX; i++) {
		struct redis_node *node = &redis->nodes[(redis->next_node + i) % REDIS_NODES_MAX];

		if (!node->used || (redis->cluster && !node->seed && !node->mapped))
			continue;
		if (node->until_ns <= redis->remote.now_ns) {
			redis->next_node = (uint32_t)(node - redis->nodes) + 1;
			return node;
		}
		if (!best || node->until_ns < best->until_ns)
			best = node;
	}
	return best;
}

void redis_node_add(struct redis_node *node, struct redis_job *job)
{
	struct list_node *queue = &node->small;

	if (job->command == REDIS_GET || job->command == REDIS_GETRANGE)
		queue = &node->loads;
	else if (job->command == REDIS_SET)
		queue = &node->stores;
	list_init(&job->node);
	list_add_last(queue, &job->node);
}

void redis_route(struct redis *redis, struct redis_job *job)
{
	struct redis_node *node = NULL;

	if (redis->cluster && job->request && redis->map[job->slot] != REDIS_NO_NODE)
		node = &redis->nodes[redis->map[job->slot]];
	if (!node)
		node = any_node(redis); /* there is one: seeds stay */
	redis_node_add(node, job);
}

/* ---- a node's connections ---- */

static struct redis_link *make_link(struct redis_node *node, uint32_t number)
{
	struct redis_link *link = fault_point("redis/link") ? NULL : calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	link->node = node;
	link->number = number;
	link->fd = -1;
	link->deadline_ns = UINT64_MAX;
	list_init(&link->jobs);
	node->links[number] = link;
	return link;
}

/* There is a connection, or one is on its way. */
static bool open_link(struct redis_node *node, uint32_t number)
{
	struct redis_link *link = node->links[number];

	if (link_alive(link))
		return true;
	if (node->redis->remote.now_ns < node->until_ns)
		return false;
	if (!link)
		link = make_link(node, number);
	return link && redis_link_open(link);
}

static bool takes(const struct redis_link *link, uint32_t pipeline)
{
	return link && link->state == REDIS_LINK_READY && !link->retired && link->job_count < pipeline;
}

static void give(struct redis_link *link, struct list_node *queue)
{
	redis_link_push(link, KVR_CONTAINER_OF(list_pop_first(queue), struct redis_job, node));
}

static void fail_queue(struct redis_node *node, struct list_node *queue)
{
	struct list_node *item;

	while ((item = list_pop_first(queue)))
		redis_job_end(node->redis, KVR_CONTAINER_OF(item, struct redis_job, node),
			node->error ? node->error : -EIO, false);
}

static void pump_small(struct redis_node *node)
{
	struct redis_link *link;

	if (list_empty(&node->small))
		return;
	if (!open_link(node, 0)) {
		fail_queue(node, &node->small);
		return;
	}
	link = node->links[0];
	while (!list_empty(&node->small) && takes(link, REDIS_SMALL_PIPELINE))
		give(link, &node->small);
	redis_link_send(link);
}

/* A store when none is under way, so that loads without end do not keep it out. */
static struct list_node *next_value(struct redis_node *node)
{
	if (!list_empty(&node->stores) && (node->stores_sent == 0 || list_empty(&node->loads)))
		return &node->stores;
	return list_empty(&node->loads) ? NULL : &node->loads;
}

static void pump_values(struct redis_node *node)
{
	struct list_node *queue = next_value(node);
	bool any = false;

	/* First each connection one, then each its second. */
	for (uint32_t fill = 1; queue && fill <= REDIS_VALUE_PIPELINE; fill++) {
		for (uint32_t i = 1; queue && i <= node->redis->connections; i++) {
			any |= open_link(node, i);
			if (!takes(node->links[i], fill))
				continue;
			give(node->links[i], queue);
			redis_link_send(node->links[i]);
			queue = next_value(node);
		}
	}
	if (queue && !any) {
		fail_queue(node, &node->loads);
		fail_queue(node, &node->stores);
	}
}

void redis_node_pump(struct redis_node *node)
{
	pump_small(node);
	pump_values(node);
}

/* ---- the map of slots ---- */

void redis_want_map(struct redis *redis)
{
	uint64_t jitter = random_below(&redis->random, MAP_INTERVAL_NS / 4);
	uint64_t at = kvr_max_u64(redis->remote.now_ns, redis->refreshed_ns + MAP_INTERVAL_NS + jitter);

	redis->refresh_ns = kvr_min_u64(redis->refresh_ns, at);
}

bool redis_follow(struct redis_link *link, struct redis_job *job, const char *line, bool ask)
{
	struct redis *redis = link->node->redis;
	struct redis_node *node;
	char host[REDIS_HOST_MAX + 1];
	uint16_t port;
	uint32_t slot;

	if (!redis->cluster || redis_parse_move(line, &slot, host, &port) || slot != job->slot || host[0] == '/' ||
		job->hops++ == REDIS_HOPS_MAX)
		return false;
	node = redis_node_get(redis, host[0] ? host : link->node->host, port);
	if (!node)
		return false;
	job->asking = ask;
	redis->map_changes++;
	if (!ask) {
		redis->map[slot] = (uint16_t)(node - redis->nodes);
		node->mapped = true;
		redis_want_map(redis);
	}
	redis_job_write(redis, job);
	redis_node_add(node, job);
	return true;
}

static bool map_range(void *owner, uint32_t first, uint32_t last, const char *host, uint16_t port)
{
	struct redis_link *link = owner;
	struct redis *redis = link->node->redis;
	struct redis_node *node;

	if (host[0] == '/')
		return false;
	node = redis_node_get(redis, host[0] ? host : link->node->host, port);
	if (!node)
		return false;
	node->mapped = true; /* so that none of this reply takes its place */
	for (uint32_t slot = first; slot <= last; slot++)
		redis->map_next[slot] = (uint16_t)(node - redis->nodes);
	return true;
}

void redis_map_begin(struct redis_link *link)
{
	struct redis *redis = link->node->redis;

	memset(redis->map_next, 0xff, sizeof(redis->map_next));
	redis_slots_init(&link->slots, map_range, link);
}

static void retire(struct redis_node *node)
{
	for (uint32_t i = 0; i < REDIS_LINKS_MAX; i++) {
		struct redis_link *link = node->links[i];

		if (!link_alive(link))
			continue;
		link->retired = true;
		if (list_empty(&link->jobs) && link->state == REDIS_LINK_READY)
			redis_link_close(link);
	}
}

void redis_map_end(struct redis_link *link, bool good)
{
	struct redis *redis = link->node->redis;

	if (good) {
		redis->map_changes += memcmp(redis->map, redis->map_next, sizeof(redis->map)) != 0;
		memcpy(redis->map, redis->map_next, sizeof(redis->map));
	}
	for (uint32_t i = 0; i < REDIS_NODES_MAX; i++)
		redis->nodes[i].mapped = false;
	for (uint32_t slot = 0; slot < REDIS_SLOTS; slot++)
		if (redis->map[slot] != REDIS_NO_NODE)
			redis->nodes[redis->map[slot]].mapped = true;
	for (uint32_t i = 0; i < REDIS_NODES_MAX; i++) {
		struct redis_node *node = &redis->nodes[i];

		if (node->used && !node->mapped && !node->seed && node != link->node)
			retire(node);
	}
}

void redis_cluster_turn(struct redis *redis)
{
	struct redis_node *node;

	if (!redis->cluster || redis->refreshing || redis->remote.now_ns < redis->refresh_ns)
		return;
	node = any_node(redis);
	redis->refreshing = true;
	redis->refresh_ns = UINT64_MAX;
	redis->refreshed_ns = redis->remote.now_ns;
	redis->refresh.command = REDIS_CLUSTER_SLOTS;
	redis_job_write(redis, &redis->refresh);
	redis_node_add(node, &redis->refresh);
}
