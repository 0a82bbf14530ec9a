/* CLEAR of a bucket: what is ours goes, all of it or that of some models; nothing else does. */
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
#include "tier/place.h"
#include "tier/s3_server.h"

#define BYTES 700
#define MANY 130 /* three pages of the server's */

static struct s3_server server;
static struct s3_credentials credentials;

static struct l2_adapter *open_at(const char *where, bool read_only)
{
	struct s3_adapter_options options = s3_server_options(&server, &credentials);
	struct l2_adapter *adapter;
	char error[512] = "";

	options.where = where;
	options.read_only = read_only;
	options.depth = 4;
	options.retry_ns = 1;
	options.timeout_ns = 60 * KVR_SECOND; /* the host may be busy */
	if (s3_adapter_open(&options, &adapter, error, sizeof(error)) != 0)
		fail_msg("%s", error);
	return adapter;
}

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

static int objects(void)
{
	return s3_server_count(&server, "objects");
}

static void all_goes_and_what_is_not_ours_stays(void **state)
{
	/* Beside it, below it, and with a prefix that begins as it does. */
	static const char *const others[] = { "bucket", "bucket/k", "bucket/kv2", "bucket/kv/below" };
	struct l2_adapter *adapter = open_at("bucket/kv", false), *other;
	struct l2_stats stats;

	(void)state;
	assert_int_equal(do_clear(adapter, NULL, 0), 0); /* of nothing */
	for (uint32_t i = 0; i < KVR_COUNT_OF(others); i++) {
		other = open_at(others[i], false);
		store_many(other, 2);
		other->driver->close(other);
	}
	assert_int_equal(objects(), 8);
	store_many(adapter, MANY);
	assert_int_equal(objects(), MANY + 8);
	assert_int_equal(do_clear(adapter, NULL, 0), 0);
	assert_int_equal(objects(), 8);
	for (uint32_t i = 0; i < KVR_COUNT_OF(others); i++) {
		other = open_at(others[i], false);
		assert_int_equal(do_load(other, 1, BYTES), 0);
		assert_int_equal(do_clear(other, NULL, 0), 0);
		assert_int_equal(do_load(other, 1, BYTES), -ENOENT);
		other->driver->close(other);
		assert_int_equal(objects(), 8 - 2 * ((int)i + 1));
	}
	stats = stats_of(adapter);
	assert_int_equal(stats.errors + stats.corrupt + stats.in_flight, 0);
	assert_string_equal(stats.condition, "");
	assert_int_equal(s3_server_count(&server, "refused"), 0);
	adapter->driver->close(adapter);
}

static void models_alone_go(void **state)
{
	struct l2_adapter *adapter = open_at("bucket/kv", false);
	uint8_t keys[2][32];

	(void)state;
	store_many(adapter, MANY);
	memcpy(keys[0], object_identity(3, BYTES).model_key, 32);
	memcpy(keys[1], object_identity(77, BYTES).model_key, 32);
	/* A server that knows no ranges is listened to as far as is needed. */
	s3_server_fault(&server, "GET", 20, "whole");
	assert_int_equal(do_clear(adapter, keys, 2), 0);
	assert_int_equal(objects(), MANY - 2);
	for (uint32_t i = 0; i < MANY; i++)
		assert_int_equal(do_contains(adapter, i, BYTES), i == 3 || i == 77 ? -ENOENT : 0);
	/* Headers that are none: nothing is removed. */
	memcpy(keys[0], object_identity(5, BYTES).model_key, 32);
	s3_server_fault(&server, "GET", 1000, "garbage");
	assert_int_not_equal(do_clear(adapter, keys, 1), 0);
	assert_int_equal(objects(), MANY - 2);
	s3_server_fault(&server, "GET", 0, "503");
	assert_int_equal(do_clear(adapter, NULL, 0), 0);
	assert_int_equal(objects(), 0);
	adapter->driver->close(adapter);
}

static void what_may_pass_is_tried_again_and_what_is_no_list_ends_it(void **state)
{
	struct l2_adapter *adapter = open_at("bucket/kv", false), *reader = open_at("bucket/kv", true);

	(void)state;
	store_many(adapter, MANY);
	assert_int_equal(do_clear(reader, NULL, 0), -EROFS);
	s3_server_fault(&server, "LIST", 1000, "none");
	assert_int_equal(do_clear(adapter, NULL, 0), -EIO);
	assert_non_null(strstr(stats_of(adapter).condition, "list of keys"));
	s3_server_fault(&server, "LIST", 1000, "endless");
	assert_int_equal(do_clear(adapter, NULL, 0), -EIO);
	s3_server_fault(&server, "LIST", 1000, "403");
	assert_int_equal(do_clear(adapter, NULL, 0), -EACCES);
	s3_server_fault(&server, "DELETE", 1000, "403");
	assert_int_equal(do_clear(adapter, NULL, 0), -EACCES);
	assert_int_equal(objects(), MANY);
	s3_server_fault(&server, "LIST", 2, "503");
	assert_int_equal(do_clear(adapter, NULL, 0), 0);
	assert_int_equal(objects(), 0);
	assert_string_equal(stats_of(adapter).condition, "");
	reader->driver->close(reader);
	adapter->driver->close(adapter);
}

static int start(void **state)
{
	(void)state;
	return s3_server_start(&server) ? 0 : -1;
}

static int stop(void **state)
{
	(void)state;
	s3_server_stop(&server);
	return 0;
}

static void python_and_libcurl_are_there(void **state)
{
	(void)state;
	print_message("without python3 or libcurl CLEAR of the s3 adapter is not tested\n");
	skip();
}

static bool can_run(void)
{
	struct s3_adapter_options options = s3_server_options(&server, &credentials);
	struct l2_adapter *adapter;
	char error[300];

	if (s3_adapter_open(&options, &adapter, error, sizeof(error)) == -EOPNOTSUPP)
		return false;
	adapter->driver->close(adapter);
	return system("command -v python3 >/dev/null") == 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_goes_and_what_is_not_ours_stays),
		cmocka_unit_test(models_alone_go),
		cmocka_unit_test(what_may_pass_is_tried_again_and_what_is_no_list_ends_it),
	};
	const struct CMUnitTest none[] = { cmocka_unit_test(python_and_libcurl_are_there) };

	setenv("no_proxy", "*", 1);
	snprintf(server.endpoint, sizeof(server.endpoint), "http://127.0.0.1:1");
	if (!can_run())
		return cmocka_run_group_tests(none, NULL, NULL);
	return cmocka_run_group_tests(tests, start, stop);
}
