/* The redis adapter at a server that answers what no Redis would: nothing of it becomes data, nothing of it is waited for without end. */
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
#include "base/fault.h"
#include "tier/checksum.h"
#include "tier/fake_redis.h"
#include "tier/object_format.h"
#include "tier/redis_adapter.h"
#include "tier/redis_protocol.h"

#define BYTES 5000

static struct l2_adapter *open_at(const struct fake_redis *fake, struct redis_adapter_options options)
{
	struct l2_adapter *adapter;
	char error[512] = "";

	options.where = fake->where;
	options.retry_ns = 1;
	if (!options.timeout_ns)
		options.timeout_ns = 60 * KVR_SECOND; /* the host may be busy */
	if (!options.connections)
		options.connections = 1;
	if (redis_adapter_open(&options, &adapter, error, sizeof(error)) != 0)
		fail_msg("%s", error);
	return adapter;
}

/* "$9096\r\n", header, object, "\r\n": the right answer. */
static size_t right_answer(uint32_t number, uint8_t out[BYTES + 5000])
{
	struct object_header header = { .identity = object_identity(number, BYTES) };
	size_t length = (size_t)sprintf((char *)out, "$%d\r\n", BYTES + 4096);

	object_fill(number, out + length + 4096, BYTES);
	header.checksum = checksum_bytes(out + length + 4096, BYTES);
	object_header_encode(&header, out + length);
	length += 4096 + BYTES;
	memcpy(out + length, "\r\n", 2);
	return length + 2;
}

static void answers_that_are_none_end_the_request_alone(void **state)
{
	static const struct {
		const char *bytes;
		int status;
		enum fake_end end;
	} cases[] = {
		{ "$5\r\nhello\r\n", -EBADMSG, FAKE_GO_ON },
		{ "$0\r\n\r\n", -EBADMSG, FAKE_GO_ON },
		{ "$-1\r\n", -ENOENT, FAKE_GO_ON },
		{ "*-1\r\n", -ENOENT, FAKE_GO_ON },
		{ "$-2\r\n", -EIO, FAKE_GO_ON },
		{ "$99999999999999999999\r\n", -EIO, FAKE_GO_ON },
		{ "$999999999999999999\r\n", -EIO, FAKE_GO_ON },
		{ "$9096x\r\n", -EIO, FAKE_GO_ON },
		{ "$\r\n", -EIO, FAKE_GO_ON },
		{ "$--1\r\n", -EIO, FAKE_GO_ON },
		{ "*1000000000\r\n$1\r\nx\r\n", -EIO, FAKE_GO_ON },
		{ "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", -EIO, FAKE_GO_ON },
		{ "*0\r\n", -EIO, FAKE_GO_ON },
		{ "hello\r\n", -EIO, FAKE_GO_ON },
		{ "\r\n", -EIO, FAKE_GO_ON },
		{ "\n", -EIO, FAKE_GO_ON },
		{ "+OK\r\n", -EIO, FAKE_GO_ON },
		{ ":9096\r\n", -EIO, FAKE_GO_ON },
		{ "$-1\r\n$-1\r\n", -ENOENT, FAKE_GO_ON }, /* the second one is nobody's */
		{ "%5\r\n", -EIO, FAKE_GO_ON },
		{ "-\r\n", -EIO, FAKE_GO_ON },
		{ "-ERR \x1b[31mred\r\n", -EIO, FAKE_GO_ON },
		{ "-MOVED\r\n", -EIO, FAKE_GO_ON },
		{ "-MOVED 1 127.0.0.1:1\r\n", -EIO, FAKE_GO_ON },
		{ "-ASK 99999 :::::\r\n", -EIO, FAKE_GO_ON },
		{ "-LOADING Redis is loading the dataset in memory\r\n", -EBUSY, FAKE_GO_ON },
		{ "-CLUSTERDOWN The cluster is down\r\n", -EHOSTDOWN, FAKE_GO_ON },
		{ "-NOAUTH Authentication required.\r\n", -EACCES, FAKE_GO_ON },
		{ "", -ECONNRESET, FAKE_CLOSE },
		{ "$", -ECONNRESET, FAKE_CLOSE },
		{ "$9096\r\nhalf", -ECONNRESET, FAKE_CLOSE },
		{ "$-1\r\n", -ENOENT, FAKE_CLOSE },
	};
	struct fake_redis fake;
	struct l2_adapter *adapter;

	(void)state;
	fake_redis_start(&fake, false);
	adapter = open_at(&fake, (struct redis_adapter_options){ 0 });
	for (uint32_t i = 0; i < KVR_COUNT_OF(cases); i++) {
		int status;

		fake_redis_say(&fake, "GET", cases[i].bytes, strlen(cases[i].bytes), cases[i].end);
		/* The one before may have closed its connection, or is still doing so. */
		do {
			status = do_load(adapter, i, BYTES);
		} while (fake_redis_answered(&fake) == 0);
		if (status != cases[i].status)
			fail_msg("case %u, %s: %d, not %d", i, cases[i].bytes, status, cases[i].status);
		if (status == -EBADMSG)
			assert_int_equal(fake_redis_unlinked(&fake), 1);
	}
	fake_redis_say(&fake, "", "", 0, FAKE_GO_ON);
	while (do_store(adapter, 1, BYTES) != 0)
		sched_yield();
	assert_string_equal(stats_of(adapter).condition, "");
	adapter->driver->close(adapter);
	fake_redis_stop(&fake);
}

static void a_right_answer_is_taken_and_each_changed_byte_of_it_is_seen(void **state)
{
	static const uint32_t offsets[] = { 0, 1, 5, 6, 7, 20, 7 + 120, 7 + 4095, 7 + 4096, 7 + 4096 + BYTES - 1,
		7 + 4096 + BYTES - 4, 7 + 4096 + BYTES - 3 };
	static uint8_t right[BYTES + 5000], wrong[BYTES + 5000];
	size_t length = right_answer(3, right);
	struct fake_redis fake;
	struct l2_adapter *adapter;

	(void)state;
	fake_redis_start(&fake, false);
	adapter = open_at(&fake, (struct redis_adapter_options){ 0 });
	fake_redis_say(&fake, "GET", right, length, FAKE_GO_ON);
	assert_int_equal(do_load(adapter, 3, BYTES), 0);
	assert_int_equal(do_load(adapter, 4, BYTES), -EBADMSG); /* it is another one's */
	for (uint32_t i = 0; i < KVR_COUNT_OF(offsets); i++) {
		memcpy(wrong, right, length);
		wrong[offsets[i]] ^= 0x10;
		fake_redis_say(&fake, "GET", wrong, length, FAKE_CLOSE);
		assert_int_not_equal(do_load(adapter, 3, BYTES), 0);
	}
	fake_redis_say(&fake, "GET", right, length, FAKE_CLOSE);
	do {
		sched_yield();
	} while (do_load(adapter, 3, BYTES) != 0);
	adapter->driver->close(adapter);
	fake_redis_stop(&fake);
}

static void a_server_that_stalls_is_left_after_its_time(void **state)
{
	static uint8_t right[BYTES + 5000];
	size_t length = right_answer(3, right), parts[] = { 0, 1, 6, 7, 100, 4103, 5000, length - 2, length - 1 };
	struct fake_redis fake;
	struct l2_adapter *adapter;

	(void)state;
	fake_redis_start(&fake, false);
	adapter = open_at(&fake, (struct redis_adapter_options){ .timeout_ns = 20 * KVR_MS });
	for (uint32_t i = 0; i < KVR_COUNT_OF(parts); i++) {
		fake_redis_say(&fake, "GET", right, parts[i], FAKE_STALL);
		do {
			assert_int_equal(do_load(adapter, 3, BYTES), -EIO);
		} while (fake_redis_answered(&fake) == 0);
	}
	assert_non_null(strstr(stats_of(adapter).condition, "in time"));
	fake_redis_say(&fake, "PING", "", 0, FAKE_STALL);
	adapter->driver->close(adapter);
	adapter = open_at(&fake, (struct redis_adapter_options){ .timeout_ns = 20 * KVR_MS });
	assert_int_equal(do_contains(adapter, 3, BYTES), -EIO);
	adapter->driver->close(adapter);
	fake_redis_stop(&fake);
}

static void greetings_that_are_none_are_told(void **state)
{
	static const struct {
		const char *command, *bytes;
		int status;
	} cases[] = {
		{ "PING", "-NOAUTH Authentication required.\r\n", -EACCES },
		{ "PING", "-DENIED Redis is running in protected mode\r\n", -EACCES },
		{ "PING", "-LOADING Redis is loading the dataset in memory\r\n", -EBUSY },
		{ "PING", "HTTP/1.1 400 Bad Request\r\n\r\n", -EIO },
		{ "PING", ":1\r\n", -EIO },
		{ "PING", "$4\r\nPONG\r\n", -EIO },
		{ "AUTH", "-ERR invalid password\r\n", -EACCES },
		{ "AUTH", "$-1\r\n", -EIO },
		{ "SELECT", "-ERR DB index is out of range\r\n", -EINVAL },
	};
	struct fake_redis fake;

	(void)state;
	fake_redis_start(&fake, false);
	for (uint32_t i = 0; i < KVR_COUNT_OF(cases); i++) {
		struct l2_adapter *adapter;
		int status;

		/* Said first: the adapter may greet as soon as it is open. */
		fake_redis_say(&fake, cases[i].command, cases[i].bytes, strlen(cases[i].bytes), FAKE_GO_ON);
		adapter = open_at(&fake, (struct redis_adapter_options){ .user = "u", .password = "p", .database = 1 });
		status = do_store(adapter, i, BYTES);
		if (status != cases[i].status)
			fail_msg("case %u: %d, not %d", i, status, cases[i].status);
		assert_true(stats_of(adapter).condition[0] != '\0');
		adapter->driver->close(adapter);
	}
	/* The right to say PING is not needed. */
	fake_redis_say(&fake, "PING", "-NOPERM this user has no permissions\r\n", 38, FAKE_GO_ON);
	{
		struct l2_adapter *adapter = open_at(&fake, (struct redis_adapter_options){ .connections = 3 });

		assert_int_equal(do_store(adapter, 1, BYTES), 0);
		adapter->driver->close(adapter);
	}
	fake_redis_stop(&fake);
}

static void a_cluster_that_sends_us_around_is_left(void **state)
{
	static const char *const maps[] = { "*0\r\n", "*1\r\n*0\r\n", "*1\r\n:1\r\n", "+OK\r\n",
		"-ERR unknown command\r\n", "*1\r\n*3\r\n:0\r\n:99999\r\n*2\r\n$1\r\nx\r\n:1\r\n",
		"*1\r\n*3\r\n:9\r\n:5\r\n*2\r\n$1\r\nx\r\n:1\r\n", "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$0\r\n\r\n:0\r\n",
		"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n:1\r\n:1\r\n",
		"*1\r\n*3\r\n$1\r\n1\r\n:16383\r\n*2\r\n$1\r\nx\r\n:1\r\n",
		"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$2\r\n/x\r\n:1\r\n" };
	struct l2_identity identity = object_identity(1, BYTES);
	struct digester digester;
	struct fake_redis fake;
	char moved[128], key[128];
	uint32_t length;

	(void)state;
	fake_redis_start(&fake, true);
	assert_int_equal(digester_init(&digester), 0);
	length = redis_key(&digester, "kvrail:", &identity, key);
	for (uint32_t i = 0; i < KVR_COUNT_OF(maps); i++) {
		struct l2_adapter *adapter;

		/* Said first: it asks for the map once, as soon as it is open. */
		fake_redis_say(&fake, "CLUSTER", maps[i], strlen(maps[i]), FAKE_GO_ON);
		adapter = open_at(&fake, (struct redis_adapter_options){ .cluster = true });
		while (fake_redis_answered(&fake) == 0)
			assert_int_equal(do_store(adapter, 1, BYTES), 0);
		assert_int_equal(do_load(adapter, 1, BYTES), -ENOENT);
		adapter->driver->close(adapter);
	}
	for (uint32_t i = 0; i < 6; i++) {
		struct l2_adapter *adapter = open_at(&fake, (struct redis_adapter_options){ .cluster = true });
		uint32_t slot = redis_slot(key, length);

		snprintf(moved, sizeof(moved), "-%s %u %s:%u\r\n", i % 2 ? "ASK" : "MOVED", i < 4 ? slot : slot ^ 1,
			i < 2           ? ""
				: i < 4 ? "127.0.0.1"
					: "/tmp",
			fake.port);
		fake_redis_say(&fake, "GET", moved, strlen(moved), FAKE_GO_ON);
		assert_int_equal(do_load(adapter, 1, BYTES), -EIO);
		assert_int_equal(fake_redis_answered(&fake), i < 4 ? 6 : 1);
		adapter->driver->close(adapter);
	}
	digester_fini(&digester);
	fake_redis_stop(&fake);
}

static void what_has_not_begun_can_be_canceled_or_runs_out_of_time(void **state)
{
	struct l2_request requests[6];
	struct fake_redis fake;
	struct l2_adapter *adapter;
	struct list_node ended;
	uint32_t count = 0;
	uint8_t *memory = malloc(BYTES);

	(void)state;
	fake_redis_start(&fake, false);
	fake_redis_say(&fake, "GET", "", 0, FAKE_STALL);
	adapter = open_at(&fake,
		(struct redis_adapter_options){ .depth = 1, .request_limit = 5, .timeout_ns = 600 * KVR_SECOND });
	list_init(&ended);
	for (int i = 0; i < 6; i++) {
		requests[i] = (struct l2_request){ .operation = L2_LOAD, .urgent = i % 2 };
		requests[i].identity = object_identity(1, BYTES);
		requests[i].memory = memory;
		requests[i].deadline_ns = i == 1 || i == 2 ? clock_now_ns() + KVR_MS : 0;
		assert_int_equal(adapter->driver->submit(adapter, &requests[i]), i < 5 ? 0 : -EAGAIN);
		while (i == 0 && fake_redis_answered(&fake) == 0)
			sched_yield();
	}
	assert_int_equal(stats_of(adapter).in_flight, 5);
	adapter->driver->cancel(adapter, &requests[3]);
	adapter->driver->cancel(adapter, &requests[4]);
	while (count < 4) {
		count += adapter->driver->poll(adapter, &ended, 4 - count);
		sched_yield();
	}
	assert_int_equal(requests[1].status, -ETIMEDOUT);
	assert_int_equal(requests[2].status, -ETIMEDOUT);
	assert_int_equal(requests[3].status, -ECANCELED);
	assert_int_equal(requests[4].status, -ECANCELED);
	adapter->driver->close(adapter); /* with one under way */
	free(memory);
	fake_redis_stop(&fake);
}

static void a_wrong_option_or_want_of_memory_is_told(void **state)
{
	static const char *const points[] = { "redis/struct", "remote/wake_fd", "redis/jobs", "redis/headers",
		"redis/epoll", "remote/thread" };
	static const char *const wrong[] = { "", "host", "host:", ":1", "host:0", "host:65536", "host:1x", "a:b:1",
		"[::1]", "h:1,", "h:1,h:2", "h:123456789", "[]:1" };
	struct redis_adapter_options options = { .where = "127.0.0.1:1" };
	struct l2_adapter *adapter;
	char error[200];

	(void)state;
	for (uint32_t i = 0; i < KVR_COUNT_OF(wrong); i++) {
		options.where = wrong[i];
		assert_int_equal(redis_adapter_open(&options, &adapter, error, sizeof(error)), -EINVAL);
		assert_int_equal(redis_adapter_check_where(wrong[i], false, error, sizeof(error)), -EINVAL);
		assert_null(adapter);
	}
	assert_int_equal(redis_adapter_check_where("/run/x.sock", true, error, sizeof(error)), -EINVAL);
	assert_int_equal(redis_adapter_check_where("/run/x.sock", false, error, sizeof(error)), 0);
	assert_int_equal(redis_adapter_check_where("a:1,[::1]:2", true, error, sizeof(error)), 0);
	assert_int_equal(redis_adapter_check_where("[::1]:2", false, error, sizeof(error)), 0);
	options.where = "127.0.0.1:1";
	for (uint32_t i = 0; i < KVR_COUNT_OF(points); i++) {
		fault_arm_name(points[i], 1);
		assert_int_not_equal(redis_adapter_open(&options, &adapter, error, sizeof(error)), 0);
		assert_null(adapter);
	}
	fault_arm_name("redis/link", 1);
	assert_int_equal(redis_adapter_open(&options, &adapter, error, sizeof(error)), 0);
	assert_int_equal(do_contains(adapter, 1, BYTES), -EIO); /* no memory for the connection */
	assert_int_equal(do_contains(adapter, 1, BYTES), -ECONNREFUSED);
	adapter->driver->close(adapter);
	fault_arm(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answers_that_are_none_end_the_request_alone),
		cmocka_unit_test(a_right_answer_is_taken_and_each_changed_byte_of_it_is_seen),
		cmocka_unit_test(a_server_that_stalls_is_left_after_its_time),
		cmocka_unit_test(greetings_that_are_none_are_told),
		cmocka_unit_test(a_cluster_that_sends_us_around_is_left),
		cmocka_unit_test(what_has_not_begun_can_be_canceled_or_runs_out_of_time),
		cmocka_unit_test(a_wrong_option_or_want_of_memory_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
