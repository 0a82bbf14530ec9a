/*
 * libFuzzer target for what a Redis server may answer: the bytes go through the parser, in pieces, to a connection that
 * has a GET, a STRLEN, a SET and a CLUSTER SLOTS under way, in an order that the first byte says, and with two of its bits
 * a CLEAR's SCAN and GETRANGE before them. No byte outside the
 * object's memory is written, each request ends at most once, and a load ends well only with the right bytes.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tier/checksum.h"
#include "tier/redis_private.h"

#define BYTES 64
#define GUARD 32

/* Kept on: a broken promise ends the run and leaves the input behind. */
static void demand(bool holds)
{
	if (!holds)
		abort();
}

static void no_log(void *context, enum log_level level, const char *line)
{
	(void)context;
	(void)level;
	(void)line;
}

struct world {
	struct redis *redis;
	struct redis_link *link;
	struct redis_job jobs[5];
	struct l2_request requests[4]; /* the last one: CLEAR */
	uint8_t model_key[32];
	uint8_t header[2][OBJECT_HEADER_BYTES];
	uint8_t memory[2 * GUARD + BYTES];
};

static void begin(struct world *world, uint32_t number, enum l2_operation operation, enum redis_command command)
{
	struct redis_job *job = &world->jobs[number];
	struct l2_request *request = &world->requests[number];

	request->operation = operation;
	request->identity.bytes = BYTES;
	request->identity.digest[0] = (uint8_t)number;
	request->memory = world->memory + GUARD;
	job->request = request;
	job->command = command;
	job->header = world->header[number & 1];
	job->pooled_small = true;
	world->redis->remote.active++;
	world->redis->remote.active_stores += operation == L2_STORE;
	redis_job_write(world->redis, job);
	redis_link_push(world->link, job);
}

/* Every byte of a key is there. */
static bool key_found(void *owner, const char *key, uint32_t length)
{
	uint8_t hash[32];

	demand(length <= REDIS_KEY_MAX);
	(void)owner;
	return length == 0 || key[length - 1] != '!' || redis_key_parse("k:", key, length, hash);
}

static void begin_clear(struct world *world, uint32_t number, enum redis_command command)
{
	struct redis *redis = world->redis;
	struct redis_job *job = &world->jobs[number];

	redis->clear.book.request = &world->requests[3];
	redis->clear.book.request->operation = L2_CLEAR;
	redis->clear.book.request->memory = world->model_key;
	redis->clear.book.request->identity.bytes = sizeof(world->model_key);
	redis->clear.book.under_way++;
	memcpy(redis->clear.cursor, "7", 2);
	redis_scan_init(&redis->clear.scan, key_found, NULL);
	job->request = redis->clear.book.request;
	job->command = command;
	job->slot = REDIS_SLOTS;
	job->header = world->header[1];
	job->pooled_small = true;
	redis_job_write(redis, job);
	redis_link_push(world->link, job);
}

static void make(struct world *world, uint8_t order)
{
	struct redis *redis = calloc(1, sizeof(*redis));
	struct redis_node *node;

	memset(world, 0, sizeof(*world));
	demand(redis != NULL);
	world->redis = redis;
	redis->epoll_fd = -1;
	redis->cluster = order & 1;
	redis->connections = 1;
	redis->retry_ns = 1;
	redis->refresh_ns = UINT64_MAX;
	memset(redis->map, 0xff, sizeof(redis->map));
	memcpy(redis->prefix, "k:", 3);
	list_init(&redis->small_jobs);
	demand(ring_init(&redis->remote.ended, 16) == 0 && digester_init(&redis->remote.digester) == 0);
	node = redis_node_get(redis, "127.0.0.1", 1);
	node->seed = true;
	world->link = calloc(1, sizeof(*world->link));
	demand(world->link != NULL);
	node->links[0] = world->link;
	world->link->node = node;
	world->link->fd = -1;
	world->link->state = REDIS_LINK_READY;
	list_init(&world->link->jobs);
	resp_init(&world->link->resp);
	if (order & 8)
		begin_clear(world, 3, REDIS_SCAN);
	if (order & 16)
		begin_clear(world, 4, REDIS_GETRANGE);
	for (uint32_t i = 0; i < 4; i++) {
		switch ((order >> 1) + i & 3) {
		case 0:
			begin(world, 0, L2_LOAD, REDIS_GET);
			break;
		case 1:
			begin(world, 1, L2_CONTAINS, REDIS_STRLEN);
			break;
		case 2:
			begin(world, 2, L2_STORE, REDIS_SET);
			break;
		case 3:
			redis->refresh.command = REDIS_CLUSTER_SLOTS;
			redis_job_write(redis, &redis->refresh);
			redis_link_push(world->link, &redis->refresh);
			break;
		}
	}
	list_for_each(item, &world->link->jobs) {
		struct redis_job *job = KVR_CONTAINER_OF(item, struct redis_job, node);

		job->sent = job->length;
	}
	world->link->unsent = NULL;
}

/* As redis_link.c reads: what can go straight to its place does, every other time. */
static void answer(struct world *world, const uint8_t *data, size_t size)
{
	struct redis_link *link = world->link;
	const uint8_t *at = data, *end = data + size, *piece = NULL;
	size_t piece_bytes = 0;
	enum resp_event event;
	bool direct = false;

	for (;;) {
		uint64_t offered = 0;

		direct = !direct;
		if (direct && resp_bulk_left(&link->resp) > 0 && !list_empty(&link->jobs)) {
			struct redis_job *job = KVR_CONTAINER_OF(link->jobs.next, struct redis_job, node);
			uint8_t *to = redis_is_value(job) ? redis_value_at(link, job, &offered) : NULL;

			if (to) {
				offered = kvr_min_u64(offered, (uint64_t)(end - at));
				memcpy(to, at, offered);
				at += offered;
				resp_bulk_took(&link->resp, offered);
			}
		}
		event = resp_next(&link->resp, &at, end, &piece, &piece_bytes);
		if (event == RESP_MORE || !redis_reply_event(link, event, piece, piece_bytes))
			return;
	}
}

static void check(struct world *world)
{
	struct ring_message message;
	bool ended[3] = { false };

	for (uint32_t i = 0; i < GUARD; i++)
		demand(world->memory[i] == 0 && world->memory[GUARD + BYTES + i] == 0);
	while (ring_pop(&world->redis->remote.ended, &message)) {
		const struct l2_request *request = (const struct l2_request *)(uintptr_t)message.word[0];
		uint32_t number = (uint32_t)(request - world->requests);
		struct object_header header;

		demand(number < 3 && !ended[number]);
		ended[number] = true;
		if (request->operation != L2_LOAD || (int)(int64_t)message.word[1] != 0)
			continue;
		demand(object_header_decode(world->header[0], &header) == 0 &&
			object_identity_equal(&header.identity, &request->identity) &&
			checksum_bytes(request->memory, BYTES) == header.checksum);
	}
}

/* The value that the GET asks for, where the input has a byte 0xff: no mutation finds a checksum. */
static size_t expand(const uint8_t *data, size_t size, uint8_t *out, size_t room)
{
	struct object_header header = { .identity = { .bytes = BYTES } };
	uint8_t value[OBJECT_HEADER_BYTES + BYTES] = { 0 };
	size_t length = 0;

	header.checksum = checksum_bytes(value + OBJECT_HEADER_BYTES, BYTES);
	object_header_encode(&header, value);
	for (size_t i = 0; i < size && length + sizeof(value) < room; i++) {
		if (data[i] != 0xff) {
			out[length++] = data[i];
			continue;
		}
		memcpy(out + length, value, sizeof(value));
		length += sizeof(value);
	}
	return length;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t bytes[65536];
	static struct world world;
	size_t length;

	log_set_sink(no_log, NULL);
	if (size == 0)
		return 0;
	length = expand(data + 1, size - 1, bytes, sizeof(bytes));
	make(&world, data[0]);
	answer(&world, bytes, length);
	check(&world);
	if (world.link->state != REDIS_LINK_CLOSED)
		redis_link_fail(world.link, -ECONNRESET, "the end", "");
	ring_fini(&world.redis->remote.ended);
	free(world.link);
	free(world.redis);
	return 0;
}
