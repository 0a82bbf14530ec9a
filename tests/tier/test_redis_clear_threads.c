/* CLEAR of a Redis server, and of a cluster of them: what is ours goes, all of it or that of some models; nothing else does. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tier/fake_redis.h"
#include "tier/redis_protocol.h"
#include "tier/redis_server.h"

#define BYTES 700
#define MANY 500
#define NODES REDIS_CLUSTER_NODES

static int do_clear(struct l2_adapter *adapter, void *model_keys, uint64_t count)
{
	struct l2_request request = { .operation = L2_CLEAR, .memory = model_keys };

	request.identity.bytes = count * 32;
	return do_request(adapter, &request);
}

static void store_many(struct l2_adapter *adapter, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(do_store(adapter, i, BYTES), 0);
}

/* What stands beside our keys. */
static void add_foreign_keys(const struct redis_server *server)
{
	char key[128], out[256];
	struct l2_identity identity = object_identity(100000, BYTES);

	redis_key_of(&identity, key);
	redis_cli(server, out, "SET other 1");
	redis_cli(server, out, "SET kvrail 1");
	redis_cli(server, out, "SET kvrail: 1");
	redis_cli(server, out, "SET kvrail:settings 1");
	redis_cli(server, out, "SET %sx 1", key);                        /* one character more */
	redis_cli(server, out, "SET %.*s 1", (int)strlen(key) - 1, key); /* one less */
	redis_cli(server, out, "SET kvrail:%064d%s 1", 0, "X");
	redis_cli(server, out, "SET x%s 1", key);
	redis_cli(server, out, "SET kvrail:ABCDEF%058d 1", 0); /* digits that we do not write */
	redis_cli(server, out, "HSET %s a b", key);            /* another program's, whatever its name */
}

#define FOREIGN 10
#define FOREIGN_TEXT "10"

static void all_goes_and_what_is_not_ours_stays(void **state)
{
	struct redis_server server;
	struct l2_adapter *adapter;
	struct l2_stats stats;

	(void)state;
	redis_server_start(&server, "");
	adapter = redis_open(&server, (struct redis_adapter_options){ 0 });
	assert_int_equal(do_clear(adapter, NULL, 0), 0); /* of nothing */
	add_foreign_keys(&server);
	redis_says(&server, FOREIGN_TEXT, "DBSIZE");
	store_many(adapter, MANY);
	assert_int_equal(do_clear(adapter, NULL, 0), 0);
	redis_says(&server, FOREIGN_TEXT, "DBSIZE");
	for (uint32_t i = 0; i < MANY; i += 50)
		assert_int_equal(do_load(adapter, i, BYTES), -ENOENT);
	assert_int_equal(do_store(adapter, 1, BYTES), 0);
	assert_int_equal(do_load(adapter, 1, BYTES), 0);
	stats = stats_of(adapter);
	assert_int_equal(stats.errors + stats.corrupt + stats.in_flight, 0);
	assert_string_equal(stats.condition, "");
	adapter->driver->close(adapter);
	redis_server_stop(&server);
}

/* Characters that mean something to MATCH mean nothing in a prefix. */
static void the_prefix_is_taken_by_the_letter(void **state)
{
	static const char *const prefixes[] = { "a*b:", "a?b:", "[ab]:", "\\a:", "a[^b]:" };
	struct redis_server server;
	struct l2_adapter *adapters[KVR_COUNT_OF(prefixes)];
	char size[16];

	(void)state;
	redis_server_start(&server, "");
	for (uint32_t i = 0; i < KVR_COUNT_OF(prefixes); i++) {
		adapters[i] = redis_open(&server, (struct redis_adapter_options){ .prefix = prefixes[i] });
		assert_int_equal(do_store(adapters[i], 1, BYTES), 0);
	}
	for (uint32_t i = 0; i < KVR_COUNT_OF(prefixes); i++) {
		snprintf(size, sizeof(size), "%u", (unsigned)KVR_COUNT_OF(prefixes) - i - 1);
		assert_int_equal(do_clear(adapters[i], NULL, 0), 0);
		redis_says(&server, size, "DBSIZE");
		adapters[i]->driver->close(adapters[i]);
	}
	redis_server_stop(&server);
}

static void models_alone_go(void **state)
{
	struct redis_server server;
	struct l2_adapter *adapter;
	uint8_t keys[2][32];
	char key[128], size[16], out[256];
	struct l2_identity identity = object_identity(3, BYTES);

	(void)state;
	redis_server_start(&server, "");
	adapter = redis_open(&server, (struct redis_adapter_options){ .depth = 4, .connections = 2 });
	add_foreign_keys(&server);
	store_many(adapter, MANY);
	/* Of a damaged one nobody knows whose it is. */
	redis_key_of(&identity, key);
	redis_cli(&server, out, "SETRANGE %s 9 XX", key);
	memcpy(keys[0], object_identity(7, BYTES).model_key, 32);
	memcpy(keys[1], object_identity(3, BYTES).model_key, 32);
	assert_int_equal(do_clear(adapter, keys, 2), 0);
	snprintf(size, sizeof(size), "%d", MANY + FOREIGN - 1);
	redis_says(&server, size, "DBSIZE");
	redis_says(&server, "1", "EXISTS %s", key);
	for (uint32_t i = 0; i < MANY; i++)
		if (i != 3)
			assert_int_equal(do_contains(adapter, i, BYTES), i == 7 ? -ENOENT : 0);
	assert_int_equal(stats_of(adapter).errors, 0);
	adapter->driver->close(adapter);
	redis_server_stop(&server);
}

static void who_may_not_is_told(void **state)
{
	struct redis_server server;
	struct l2_adapter *adapter;
	char out[256];

	(void)state;
	redis_server_start(&server, "");
	adapter = redis_open(&server, (struct redis_adapter_options){ 0 });
	store_many(adapter, 3);
	adapter->driver->close(adapter);
	adapter = redis_open(&server, (struct redis_adapter_options){ .read_only = true });
	assert_int_equal(do_clear(adapter, NULL, 0), -EROFS);
	adapter->driver->close(adapter);
	redis_cli(&server, out, "ACL SETUSER kv on '>pw' '~kvrail:*' +get +set +strlen +unlink");
	adapter = redis_open(&server, (struct redis_adapter_options){ .user = "kv", .password = "pw" });
	assert_int_equal(do_clear(adapter, NULL, 0), -EACCES);
	assert_non_null(strstr(stats_of(adapter).condition, "scan"));
	adapter->driver->close(adapter);
	redis_says(&server, "3", "DBSIZE");
	redis_cli(&server, out, "ACL SETUSER kv +scan");
	adapter = redis_open(&server, (struct redis_adapter_options){ .user = "kv", .password = "pw" });
	assert_int_equal(do_clear(adapter, NULL, 0), 0);
	redis_says(&server, "0", "DBSIZE");
	adapter->driver->close(adapter);
	redis_server_kill(&server);
	adapter = redis_open(&server, (struct redis_adapter_options){ 0 });
	assert_int_not_equal(do_clear(adapter, NULL, 0), 0);
	assert_int_equal(stats_of(adapter).in_flight, 0);
	adapter->driver->close(adapter);
	place_remove(&server.place);
}

static void each_master_of_a_cluster_is_cleared(void **state)
{
	struct redis_server servers[NODES];
	struct l2_adapter *adapter;
	char where[64];
	uint8_t key[32];

	(void)state;
	redis_cluster_start(servers);
	snprintf(where, sizeof(where), "127.0.0.1:%u", servers[1].port);
	adapter = redis_open(NULL, (struct redis_adapter_options){ .where = where, .cluster = true, .connections = 1 });
	assert_int_equal(do_clear(adapter, NULL, 0), 0); /* before anything else is known of it */
	store_many(adapter, 120);
	memcpy(key, object_identity(11, BYTES).model_key, 32);
	assert_int_equal(do_clear(adapter, key, 1), 0);
	for (uint32_t i = 0; i < 120; i++)
		assert_int_equal(do_contains(adapter, i, BYTES), i == 11 ? -ENOENT : 0);
	assert_int_equal(do_clear(adapter, NULL, 0), 0);
	for (int i = 0; i < NODES; i++)
		redis_says(&servers[i], "0", "DBSIZE");
	assert_int_equal(stats_of(adapter).errors, 0);
	/* One of them is gone: the others are cleared, and the answer says that not all is. */
	store_many(adapter, 60);
	redis_server_kill(&servers[2]);
	assert_int_not_equal(do_clear(adapter, NULL, 0), 0);
	redis_says(&servers[0], "0", "DBSIZE");
	redis_says(&servers[1], "0", "DBSIZE");
	adapter->driver->close(adapter);
	place_remove(&servers[2].place);
	for (int i = 0; i < NODES - 1; i++)
		redis_server_stop(&servers[i]);
}

/* ---- a server that answers badly ---- */

static struct l2_adapter *open_at(const struct fake_redis *fake)
{
	struct redis_adapter_options options = { .where = fake->where, .retry_ns = 1, .timeout_ns = 60 * KVR_SECOND };
	struct l2_adapter *adapter;
	char error[512] = "";

	if (redis_adapter_open(&options, &adapter, error, sizeof(error)) != 0)
		fail_msg("%s", error);
	return adapter;
}

#define KEY "kvrail:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define HEAD "*2\r\n$1\r\n0\r\n"

static void answers_that_are_none_end_it(void **state)
{
	static const struct {
		const char *bytes;
		int status;
		uint32_t unlinked;
	} cases[] = {
		{ HEAD "*0\r\n", 0, 0 },
		{ HEAD "*1\r\n$71\r\n" KEY "\r\n", 0, 1 },
		{ HEAD "*2\r\n$71\r\n" KEY "\r\n$71\r\n" KEY "\r\n", 0, 2 },
		{ HEAD "*1\r\n$70\r\nkvrail:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde\r\n", 0,
			0 },
		{ HEAD "*1\r\n$71\r\nkvrail;0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\r\n", 0,
			0 },
		{ HEAD "*1\r\n$71\r\nkvrail:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdeg\r\n", 0,
			0 },
		{ HEAD "*2\r\n$0\r\n\r\n$1\r\nx\r\n", 0, 0 },
		{ HEAD "*-1\r\n", -EIO, 0 },
		{ HEAD "*1\r\n$-1\r\n", -EIO, 0 },
		{ HEAD "*1\r\n:1\r\n", -EIO, 0 },
		{ HEAD "*1\r\n*1\r\n$1\r\nx\r\n", -EIO, 0 },
		{ HEAD "$1\r\nx\r\n", -EIO, 0 },
		{ "*2\r\n$2\r\n00\r\n*0\r\n", -EIO, 0 },
		{ "*2\r\n$0\r\n\r\n*0\r\n", -EIO, 0 },
		{ "*2\r\n$2\r\n-1\r\n*0\r\n", -EIO, 0 },
		{ "*2\r\n$21\r\n123456789012345678901\r\n*0\r\n", -EIO, 0 },
		{ "*2\r\n$3\r\n1\r0\r\n*0\r\n", -EIO, 0 },
		{ "*2\r\n:0\r\n*0\r\n", -EIO, 0 },
		{ "*2\r\n*0\r\n*0\r\n", -EIO, 0 },
		{ "*1\r\n$1\r\n0\r\n", -EIO, 0 },
		{ "*3\r\n$1\r\n0\r\n*0\r\n*0\r\n", -EIO, 0 },
		{ "*0\r\n", -EIO, 0 },
		{ "+OK\r\n", -EIO, 0 },
		{ ":1\r\n", -EIO, 0 },
		{ "$1\r\n0\r\n", -EIO, 0 },
		{ "$-1\r\n", -EIO, 0 },
		{ "-ERR syntax error\r\n", -EIO, 0 },
		{ "-MOVED 1 127.0.0.1:1\r\n", -EIO, 0 },
		{ "-NOPERM no\r\n", -EACCES, 0 },
		/* A cursor that comes again and again: the second page ends it, and what it had stays. */
		{ "*2\r\n$2\r\n17\r\n*1\r\n$71\r\n" KEY "\r\n", -EIO, 1 },
	};
	struct fake_redis fake;

	(void)state;
	fake_redis_start(&fake, false);
	for (uint32_t i = 0; i < KVR_COUNT_OF(cases); i++) {
		struct l2_adapter *adapter = open_at(&fake);
		int status;

		fake_redis_say(&fake, "SCAN", cases[i].bytes, strlen(cases[i].bytes), FAKE_GO_ON);
		status = do_clear(adapter, NULL, 0);
		if (status != cases[i].status)
			fail_msg("case %u, %s: %d, not %d", i, cases[i].bytes, status, cases[i].status);
		assert_int_equal(fake_redis_unlinked(&fake), cases[i].unlinked);
		adapter->driver->close(adapter);
	}
	fake_redis_stop(&fake);
}

/* More keys than a page has: what a server gives is not taken without end. */
static void a_page_without_end_is_no_page(void **state)
{
	static char bytes[FAKE_ANSWER_MAX];
	struct fake_redis fake;
	struct l2_adapter *adapter;
	size_t length;

	(void)state;
	fake_redis_start(&fake, false);
	adapter = open_at(&fake);
	length = (size_t)snprintf(bytes, sizeof(bytes), HEAD "*1000000000000\r\n");
	while (length + 80 < sizeof(bytes))
		length += (size_t)snprintf(bytes + length, sizeof(bytes) - length, "$71\r\n" KEY "\r\n");
	fake_redis_say(&fake, "SCAN", bytes, length, FAKE_CLOSE);
	assert_int_equal(do_clear(adapter, NULL, 0), -ECONNRESET);
	assert_int_equal(fake_redis_unlinked(&fake), 0);
	adapter->driver->close(adapter);
	fake_redis_stop(&fake);
}

/* Asked for headers, it answers what is none: nothing is removed. */
static void headers_that_are_none_keep_the_object(void **state)
{
	static const char *const answers[] = { "$0\r\n\r\n", "$5\r\nhello\r\n", "$-1\r\n", ":1\r\n", "+OK\r\n",
		"*0\r\n", "-WRONGTYPE other\r\n", "$4097\r\n" };
	static const int statuses[] = { 0, 0, -EIO, -EIO, -EIO, -EIO, 0, -ECONNRESET };
	struct fake_redis fake;
	uint8_t key[32] = { 1 };

	(void)state;
	for (uint32_t i = 0; i < KVR_COUNT_OF(answers); i++) {
		struct l2_adapter *adapter;
		int status;

		fake_redis_start(&fake, false);
		fake_redis_page(&fake, HEAD "*1\r\n$71\r\n" KEY "\r\n");
		adapter = open_at(&fake);
		fake_redis_say(&fake, "GETRANGE", answers[i], strlen(answers[i]),
			statuses[i] == -ECONNRESET ? FAKE_CLOSE : FAKE_GO_ON);
		status = do_clear(adapter, key, 1);
		if (status != statuses[i])
			fail_msg("case %u, %s: %d, not %d", i, answers[i], status, statuses[i]);
		assert_int_equal(fake_redis_unlinked(&fake), 0);
		adapter->driver->close(adapter);
		fake_redis_stop(&fake);
	}
}

/* It goes on and on, with a new cursor each time: whoever asked ends it. */
static void a_clear_that_goes_on_can_be_canceled(void **state)
{
	struct l2_request request = { .operation = L2_CLEAR };
	struct l2_adapter *adapter;
	struct fake_redis fake;
	struct list_node ended;

	(void)state;
	fake_redis_start(&fake, false);
	fake_redis_page(&fake, "endless");
	adapter = open_at(&fake);
	assert_int_equal(adapter->driver->submit(adapter, &request), 0);
	while (fake_redis_pages(&fake) < 10)
		sched_yield();
	list_init(&ended);
	assert_int_equal(adapter->driver->poll(adapter, &ended, 1), 0);
	adapter->driver->cancel(adapter, &request);
	while (adapter->driver->poll(adapter, &ended, 1) == 0)
		sched_yield();
	assert_int_equal(request.status, -ECANCELED);
	/* And one that nobody ends does not keep the adapter from closing. */
	request = (struct l2_request){ .operation = L2_CLEAR };
	assert_int_equal(adapter->driver->submit(adapter, &request), 0);
	adapter->driver->close(adapter);
	fake_redis_stop(&fake);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_goes_and_what_is_not_ours_stays),
		cmocka_unit_test(the_prefix_is_taken_by_the_letter),
		cmocka_unit_test(models_alone_go),
		cmocka_unit_test(who_may_not_is_told),
		cmocka_unit_test(each_master_of_a_cluster_is_cleared),
	};
	const struct CMUnitTest fakes[] = {
		cmocka_unit_test(answers_that_are_none_end_it),
		cmocka_unit_test(a_page_without_end_is_no_page),
		cmocka_unit_test(headers_that_are_none_keep_the_object),
		cmocka_unit_test(a_clear_that_goes_on_can_be_canceled),
	};
	int failed = cmocka_run_group_tests(fakes, NULL, NULL);

	return failed + redis_run_tests(tests, KVR_COUNT_OF(tests));
}
