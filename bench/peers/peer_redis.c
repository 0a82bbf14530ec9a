/* peer_redis.c - redis-server through hiredis: a value for each block, GET and SET pipelined, 8 MiB in flight. */
#include <errno.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

static int failed(struct peer *peer, const char *what)
{
	redisContext *redis = peer->state;

	fprintf(stderr, "peers: %s: %s: %s\n", peer->name, what, redis && redis->errstr[0] ? redis->errstr : "failed");
	return -EIO;
}

/* "unix:PATH" or "HOST:PORT" */
static int redis_open(struct peer *peer, const char *address)
{
	char host[64] = "";
	const char *colon = strrchr(address, ':');
	redisContext *redis;

	if (strncmp(address, "unix:", 5) == 0) {
		redis = redisConnectUnix(address + 5);
	} else {
		snprintf(host, sizeof(host), "%.*s", (int)(colon - address), address);
		redis = redisConnect(host, (int)strtol(colon + 1, NULL, 10));
	}
	peer->state = redis;
	return redis && !redis->err ? 0 : failed(peer, "connect");
}

static int take_reply(struct peer *peer, redisReply **reply)
{
	void *any = NULL;

	if (redisGetReply(peer->state, &any) != REDIS_OK || !any)
		return failed(peer, "reply");
	*reply = any;
	return 0;
}

static void append(struct peer *peer, const struct pages *pages, uint32_t i, bool set)
{
	char key[PEER_KEY_BYTES];
	size_t length = (size_t)peer_key(key, pages, i);

	if (set)
		redisAppendCommand(peer->state, "SET %b %b", key, length, pages_block(pages, i), pages->page_bytes);
	else
		redisAppendCommand(peer->state, "GET %b", key, length);
}

static int take(struct peer *peer, const struct pages *pages, uint32_t i, bool set)
{
	redisReply *reply;
	bool good;

	if (take_reply(peer, &reply))
		return -EIO;
	good = set ? reply->type == REDIS_REPLY_STATUS
		   : reply->type == REDIS_REPLY_STRING && (size_t)reply->len == pages->page_bytes;
	if (good && !set)
		memcpy(pages_block(pages, i), reply->str, pages->page_bytes);
	freeReplyObject(reply);
	return good ? 0 : failed(peer, set ? "SET" : "GET");
}

static int move(struct peer *peer, const struct pages *pages, bool set)
{
	uint32_t batch = peer_batch(pages);
	int error = 0;

	for (uint32_t first = 0; !error && first < pages->count; first += batch) {
		uint32_t end = (uint32_t)kvr_min_u64(first + batch, pages->count);

		for (uint32_t i = first; i < end; i++)
			append(peer, pages, i, set);
		for (uint32_t i = first; !error && i < end; i++)
			error = take(peer, pages, i, set);
	}
	return error;
}

static int redis_set(struct peer *peer, const struct pages *pages, uint32_t round)
{
	(void)round;
	return move(peer, pages, true);
}

static int redis_get(struct peer *peer, const struct pages *pages, uint32_t round)
{
	(void)round;
	return move(peer, pages, false);
}

static int redis_ping(struct peer *peer)
{
	redisReply *reply = redisCommand(peer->state, "PING");

	if (!reply)
		return failed(peer, "PING");
	freeReplyObject(reply);
	return 0;
}

static void redis_close(struct peer *peer)
{
	if (peer->state)
		redisFree(peer->state);
	peer->state = NULL;
}

const struct peer peer_redis = {
	.name = "redis",
	.how = "a value a block, GET and SET pipelined through hiredis, 8 MiB in flight, copied into the pages",
	.open = redis_open,
	.set = redis_set,
	.get = redis_get,
	.ping = redis_ping,
	.close = redis_close,
};
