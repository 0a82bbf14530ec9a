/* The s3 adapter at a server that verifies its signatures by itself, and answers wrongly when told to. */
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
#include "base/random.h"
#include "tier/checksum.h"
#include "tier/object_body.h"
#include "tier/place.h"
#include "tier/s3_server.h"

#define MIB (UINT64_C(1) << 20)
#define BYTES 5000

static struct s3_server server;
static struct s3_credentials credentials;

static struct l2_adapter *open_s3(const struct s3_adapter_options *options)
{
	struct l2_adapter *adapter;
	char error[512] = "";

	if (s3_adapter_open(options, &adapter, error, sizeof(error)) != 0)
		fail_msg("%s", error);
	return adapter;
}

static void store_and_load_all(const struct s3_adapter_options *options)
{
	static const uint64_t sizes[] = { 1, 4096, 100000, MIB, 3 * MIB + 17 };
	struct l2_adapter *adapter = open_s3(options);
	int refused = s3_server_count(&server, "refused");
	struct l2_stats stats;

	for (uint32_t i = 0; i < KVR_COUNT_OF(sizes); i++) {
		assert_int_equal(do_contains(adapter, i, sizes[i]), -ENOENT);
		assert_int_equal(do_load(adapter, i, sizes[i]), -ENOENT);
		assert_int_equal(do_store(adapter, i, sizes[i]), 0);
	}
	for (uint32_t i = 0; i < KVR_COUNT_OF(sizes); i++) {
		assert_int_equal(do_contains(adapter, i, sizes[i]), 0);
		assert_int_equal(do_load(adapter, i, sizes[i]), 0);
	}
	stats = stats_of(adapter);
	assert_int_equal(stats.stores, KVR_COUNT_OF(sizes));
	assert_int_equal(stats.loads, KVR_COUNT_OF(sizes));
	assert_int_equal(stats.misses, 2 * KVR_COUNT_OF(sizes));
	assert_int_equal(stats.errors + stats.corrupt + stats.in_flight, 0);
	assert_string_equal(stats.condition, "");
	adapter->driver->close(adapter);
	adapter = open_s3(options);
	for (uint32_t i = 0; i < KVR_COUNT_OF(sizes); i++) {
		assert_int_equal(do_load(adapter, i, sizes[i]), 0);
		assert_int_equal(do_remove(adapter, i, sizes[i]), 0);
		assert_int_equal(do_remove(adapter, i, sizes[i]), 0);
		assert_int_equal(do_load(adapter, i, sizes[i]), -ENOENT);
	}
	adapter->driver->close(adapter);
	assert_int_equal(s3_server_count(&server, "refused"), refused);
	assert_int_equal(s3_server_count(&server, "objects"), 0);
}

static void what_is_stored_is_loaded(void **state)
{
	struct s3_adapter_options options = s3_server_options(&server, &credentials);
	int unsigned_before;

	(void)state;
	store_and_load_all(&options);
	unsigned_before = s3_server_count(&server, "unsigned");
	options.payload = S3_PAYLOAD_UNSIGNED;
	options.depth = 1;
	store_and_load_all(&options);
	assert_true(s3_server_count(&server, "unsigned") > unsigned_before);
	snprintf(credentials.token, sizeof(credentials.token), "TOKEN");
	store_and_load_all(&options);
}

static void another_identity_is_another_object(void **state)
{
	struct s3_adapter_options options = s3_server_options(&server, &credentials);
	struct l2_request request = { .operation = L2_LOAD };
	struct l2_adapter *adapter = open_s3(&options);
	uint8_t memory[BYTES];

	(void)state;
	assert_int_equal(do_store(adapter, 1, 4096), 0);
	for (int i = 0; i < 5; i++) {
		request.identity = object_identity(1, 4096);
		request.identity.model_key[31] ^= i == 0;
		request.identity.salt[0] ^= i == 1;
		request.identity.digest[31] ^= i == 2;
		request.identity.part += i == 3;
		request.identity.bytes += i == 4;
		request.memory = memory;
		assert_int_equal(do_request(adapter, &request), -ENOENT);
	}
	request.operation = L2_STORE;
	request.identity = object_identity(1, 0);
	assert_int_equal(do_request(adapter, &request), -EINVAL);
	request.identity.bytes = UINT64_C(5) << 30;
	assert_int_equal(do_request(adapter, &request), -ENOSPC);
	request.identity = object_identity(7, BYTES);
	request.has_checksum = true;
	object_fill(7, memory, BYTES);
	request.checksum = checksum_bytes(memory, BYTES) ^ 1;
	assert_int_equal(do_request(adapter, &request), -EBADMSG);
	request.checksum ^= 1;
	assert_int_equal(do_request(adapter, &request), 0);
	assert_int_equal(do_load(adapter, 7, BYTES), 0);
	assert_int_equal(do_remove(adapter, 1, 4096), 0);
	assert_int_equal(do_remove(adapter, 7, BYTES), 0);
	adapter->driver->close(adapter);
}

/* pitfalls H05 */
static void what_is_damaged_is_a_miss_and_goes(void **state)
{
	static const char *const faults[] = { "flip", "long", "short" };
	struct s3_adapter_options options = s3_server_options(&server, &credentials);
	struct l2_adapter *adapter = open_s3(&options);

	(void)state;
	for (uint32_t i = 0; i < KVR_COUNT_OF(faults); i++) {
		assert_int_equal(do_store(adapter, 1, BYTES), 0);
		s3_server_fault(&server, "GET", 1, faults[i]);
		assert_int_equal(do_load(adapter, 1, BYTES), -EBADMSG);
		assert_int_equal(stats_of(adapter).corrupt, i + 1);
		assert_int_equal(s3_server_count(&server, "objects"), 0);
		assert_int_equal(do_load(adapter, 1, BYTES), -ENOENT);
	}
	/* One of another length is not there, and the next STORE replaces it. */
	assert_int_equal(do_store(adapter, 1, BYTES), 0);
	s3_server_fault(&server, "HEAD", 1, "long");
	assert_int_equal(do_contains(adapter, 1, BYTES), -ENOENT);
	assert_int_equal(do_contains(adapter, 1, BYTES), 0);
	adapter->driver->close(adapter);
	/* Where nothing may be removed it stays. */
	options.read_only = true;
	adapter = open_s3(&options);
	s3_server_fault(&server, "GET", 1, "flip");
	assert_int_equal(do_load(adapter, 1, BYTES), -EBADMSG);
	assert_int_equal(do_load(adapter, 1, BYTES), 0);
	assert_int_equal(do_store(adapter, 2, BYTES), -EROFS);
	assert_int_equal(do_remove(adapter, 1, BYTES), -EROFS);
	assert_non_null(strstr(stats_of(adapter).condition, "read only"));
	adapter->driver->close(adapter);
	options.read_only = false;
	adapter = open_s3(&options);
	assert_int_equal(do_remove(adapter, 1, BYTES), 0);
	adapter->driver->close(adapter);
}

static void what_may_pass_is_tried_again_and_then_told(void **state)
{
	static const struct {
		const char *on, *what;
		int times, status;
	} cases[] = {
		{ "GET", "503", 2, 0 },
		{ "GET", "500", 2, 0 },
		{ "GET", "429", 2, 0 },
		{ "GET", "close", 2, 0 },
		{ "GET", "truncate", 2, 0 },
		{ "GET", "chunked", 1, 0 },
		{ "PUT", "503", 2, 0 },
		{ "PUT", "close", 2, 0 },
		{ "GET", "503", 3, -EIO },
		{ "GET", "truncate", 3, -EIO },
		{ "GET", "garbage", 9, -EIO },
		{ "GET", "403", 1, -EACCES },
		{ "GET", "400", 1, -EIO },
		{ "GET", "301", 1, -EIO },
		{ "GET", "404", 1, -ENOENT },
		{ "GET", "204", 1, -EIO },
		{ "GET", "206", 1, -EIO },
		{ "PUT", "503", 3, -EIO },
		{ "PUT", "507", 1, -ENOSPC },
		{ "PUT", "404", 1, -EIO },
		{ "DELETE", "403", 1, -EACCES },
		{ "DELETE", "404", 1, 0 },
		{ "HEAD", "403", 1, -EACCES },
		{ "HEAD", "404", 1, -ENOENT },
		{ "HEAD", "503", 3, -EIO },
	};
	struct s3_adapter_options options = s3_server_options(&server, &credentials);
	struct l2_adapter *adapter;

	(void)state;
	options.timeout_ns = 60 * KVR_SECOND;
	adapter = open_s3(&options);
	for (uint32_t i = 0; i < KVR_COUNT_OF(cases); i++) {
		int status;

		assert_int_equal(do_store(adapter, 1, BYTES), 0);
		assert_string_equal(stats_of(adapter).condition, "");
		s3_server_fault(&server, cases[i].on, cases[i].times, cases[i].what);
		if (cases[i].on[0] == 'P')
			status = do_store(adapter, 1, BYTES);
		else if (cases[i].on[0] == 'H')
			status = do_contains(adapter, 1, BYTES);
		else
			status = cases[i].on[0] == 'D' ? do_remove(adapter, 1, BYTES) : do_load(adapter, 1, BYTES);
		if (status != cases[i].status)
			fail_msg("case %u, %s %s: %d, not %d", i, cases[i].on, cases[i].what, status, cases[i].status);
		if (status != 0 && status != -ENOENT)
			assert_true(stats_of(adapter).condition[0] != '\0');
		s3_server_fault(&server, "GET", 0, "");
	}
	assert_int_equal(do_remove(adapter, 1, BYTES), 0);
	adapter->driver->close(adapter);
}

static void a_server_that_stalls_is_left_after_its_time(void **state)
{
	struct s3_adapter_options options = s3_server_options(&server, &credentials);
	struct l2_adapter *adapter;

	(void)state;
	options.timeout_ns = 50 * KVR_MS;
	adapter = open_s3(&options);
	s3_server_fault(&server, "GET", 1000, "stall");
	assert_int_equal(do_load(adapter, 1, BYTES), -EIO);
	assert_non_null(strstr(stats_of(adapter).condition, "in time"));
	s3_server_fault(&server, "GET", 0, "");
	adapter->driver->close(adapter);
}

static void wrong_credentials_bucket_and_endpoint_are_told(void **state)
{
	struct s3_adapter_options options = s3_server_options(&server, &credentials);
	struct l2_adapter *adapter;

	(void)state;
	snprintf(credentials.secret_key, sizeof(credentials.secret_key), "wrong");
	adapter = open_s3(&options);
	assert_int_equal(do_store(adapter, 1, BYTES), -EACCES);
	assert_int_equal(do_load(adapter, 1, BYTES), -EACCES);
	assert_int_equal(do_contains(adapter, 1, BYTES), -EACCES);
	assert_non_null(strstr(stats_of(adapter).condition, "credentials"));
	adapter->driver->close(adapter);
	options = s3_server_options(&server, &credentials);
	options.where = "other/kv";
	adapter = open_s3(&options);
	assert_int_equal(do_load(adapter, 1, BYTES), -EIO);
	assert_int_equal(do_store(adapter, 1, BYTES), -EIO);
	assert_non_null(strstr(stats_of(adapter).condition, "no such bucket"));
	adapter->driver->close(adapter);
	options = s3_server_options(&server, &credentials);
	options.endpoint = "http://127.0.0.1:1";
	adapter = open_s3(&options);
	assert_int_equal(do_load(adapter, 1, BYTES), -EHOSTUNREACH);
	assert_non_null(strstr(stats_of(adapter).condition, "cannot be reached"));
	adapter->driver->close(adapter);
	options.endpoint = "https://127.0.0.1:1";
	options.ca_file = "/nonexistent";
	adapter = open_s3(&options);
	assert_int_not_equal(do_load(adapter, 1, BYTES), 0);
	adapter->driver->close(adapter);
}

static void what_has_not_begun_can_be_canceled_or_runs_out_of_time(void **state)
{
	struct s3_adapter_options options = s3_server_options(&server, &credentials);
	struct l2_request requests[6];
	struct l2_adapter *adapter;
	struct list_node ended;
	uint32_t count = 0;
	uint8_t *memory = malloc(BYTES);
	int before = s3_server_count(&server, "GET");

	(void)state;
	options.depth = 1;
	options.request_limit = 5;
	options.timeout_ns = 600 * KVR_SECOND;
	adapter = open_s3(&options);
	s3_server_fault(&server, "GET", 1, "stall");
	list_init(&ended);
	for (int i = 0; i < 6; i++) {
		requests[i] = (struct l2_request){ .operation = L2_LOAD, .urgent = i % 2 };
		requests[i].identity = object_identity(1, BYTES);
		requests[i].memory = memory;
		requests[i].deadline_ns = i == 1 || i == 2 ? clock_now_ns() + KVR_MS : 0;
		assert_int_equal(adapter->driver->submit(adapter, &requests[i]), i < 5 ? 0 : -EAGAIN);
		/* The first one is under way before another, which has a deadline, may begin in its place. */
		while (i == 0 && s3_server_count(&server, "GET") == before)
			sched_yield();
	}
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
	s3_server_fault(&server, "GET", 0, "");
}

static void a_wrong_option_or_want_of_memory_is_told(void **state)
{
	static const char *const points[] = { "s3/global", "s3/struct", "remote/wake_fd", "s3/multi", "s3/jobs",
		"s3/headers", "s3/easy", "remote/thread" };
	struct s3_adapter_options options = s3_server_options(&server, &credentials);
	struct l2_adapter *adapter;
	char error[300];

	(void)state;
	for (uint32_t i = 0; i < KVR_COUNT_OF(points); i++) {
		fault_arm_name(points[i], 1);
		assert_int_not_equal(s3_adapter_open(&options, &adapter, error, sizeof(error)), 0);
		assert_null(adapter);
	}
	fault_arm(0);
	credentials.region[0] = '\0';
	assert_int_equal(s3_adapter_open(&options, &adapter, error, sizeof(error)), -EINVAL);
	options = s3_server_options(&server, &credentials);
	credentials.access_key[0] = '\0';
	assert_int_equal(s3_adapter_open(&options, &adapter, error, sizeof(error)), -EINVAL);
	options = s3_server_options(&server, &credentials);
	snprintf(credentials.token, sizeof(credentials.token), "a\r\nX-Evil: 1");
	assert_int_equal(s3_adapter_open(&options, &adapter, error, sizeof(error)), -EINVAL);
	options = s3_server_options(&server, &credentials);
	options.depth = 257;
	assert_int_equal(s3_adapter_open(&options, &adapter, error, sizeof(error)), -EINVAL);
}

#define NUMBERS 100000

/* Numbers that compress, stored with compression and loaded without the option. */
static void store_numbers(struct l2_adapter *adapter, struct l2_request *request, uint8_t *memory, uint64_t bytes)
{
	memset(request, 0, sizeof(*request));
	request->operation = L2_STORE;
	request->identity = object_identity(5, bytes);
	request->memory = memory;
	for (uint64_t i = 0; i < bytes; i++)
		memory[i] = i % 2 ? (uint8_t)(0x3e + i % 3) : (uint8_t)random_mix(i);
	assert_int_equal(do_request(adapter, request), 0);
}

static void compressed_objects_are_loaded_by_everybody(void **state)
{
	static uint8_t memory[NUMBERS], back[NUMBERS];
	struct s3_adapter_options options = s3_server_options(&server, &credentials);
	struct l2_adapter *adapter;
	struct l2_request request;

	(void)state;
	if (!object_pack_available())
		skip();
	options.compress_level = 1;
	adapter = open_s3(&options);
	store_numbers(adapter, &request, memory, NUMBERS);
	adapter->driver->close(adapter);
	options.compress_level = 0;
	adapter = open_s3(&options);
	assert_int_equal(do_contains(adapter, 5, NUMBERS), 0);
	request.operation = L2_LOAD;
	request.memory = back;
	assert_int_equal(do_request(adapter, &request), 0);
	assert_memory_equal(memory, back, NUMBERS);
	s3_server_fault(&server, "GET", 1, "flip");
	assert_int_equal(do_request(adapter, &request), -EBADMSG);
	assert_int_equal(do_contains(adapter, 5, NUMBERS), -ENOENT);
	adapter->driver->close(adapter);
}

#define MANY 24
#define OBJECTS 12

struct flight {
	struct l2_request request;
	uint32_t number;
	uint64_t bytes;
	void *memory;
	bool busy;
};

static void begin_one(struct l2_adapter *adapter, struct flight *flight, struct random *random)
{
	static const enum l2_operation operations[] = { L2_LOAD, L2_LOAD, L2_STORE, L2_CONTAINS, L2_REMOVE };

	flight->number = (uint32_t)random_below(random, OBJECTS);
	flight->bytes = 1 + random_mix(flight->number) % 60000;
	flight->request = (struct l2_request){ .operation = operations[random_below(random, 5)],
		.identity = object_identity(flight->number, flight->bytes),
		.memory = flight->memory,
		.urgent = random_chance(random, 1, 2) };
	if (flight->request.operation == L2_STORE)
		object_fill(flight->number, flight->memory, flight->bytes);
	assert_int_equal(adapter->driver->submit(adapter, &flight->request), 0);
	flight->busy = true;
}

static void many_requests_at_once_never_give_a_wrong_byte(void **state)
{
	static struct flight flights[MANY];
	struct s3_adapter_options options = s3_server_options(&server, &credentials);
	struct l2_adapter *adapter;
	struct random random;
	uint32_t done = 0;

	(void)state;
	options.depth = 8;
	adapter = open_s3(&options);
	random_init(&random, 4711);
	for (int i = 0; i < MANY; i++)
		flights[i].memory = aligned_alloc(64, 61440);
	while (done < 400) {
		struct flight *flight = &flights[random_below(&random, MANY)];
		struct list_node ended, *node;

		if (!flight->busy)
			begin_one(adapter, flight, &random);
		list_init(&ended);
		done += adapter->driver->poll(adapter, &ended, 8);
		while ((node = list_pop_first(&ended))) {
			flight = KVR_CONTAINER_OF(
				KVR_CONTAINER_OF(node, struct l2_request, node), struct flight, request);
			flight->busy = false;
			if (flight->request.operation == L2_LOAD && flight->request.status == 0)
				assert_true(object_good(flight->number, flight->memory, flight->bytes));
			assert_true(flight->request.status == 0 || flight->request.status == -ENOENT);
		}
	}
	assert_int_equal(stats_of(adapter).errors + stats_of(adapter).corrupt, 0);
	adapter->driver->close(adapter); /* with requests under way */
	for (int i = 0; i < MANY; i++)
		free(flights[i].memory);
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
	print_message("without python3 or libcurl the s3 adapter is not tested\n");
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
		cmocka_unit_test(what_is_stored_is_loaded),
		cmocka_unit_test(another_identity_is_another_object),
		cmocka_unit_test(what_is_damaged_is_a_miss_and_goes),
		cmocka_unit_test(what_may_pass_is_tried_again_and_then_told),
		cmocka_unit_test(a_server_that_stalls_is_left_after_its_time),
		cmocka_unit_test(wrong_credentials_bucket_and_endpoint_are_told),
		cmocka_unit_test(what_has_not_begun_can_be_canceled_or_runs_out_of_time),
		cmocka_unit_test(a_wrong_option_or_want_of_memory_is_told),
		cmocka_unit_test(compressed_objects_are_loaded_by_everybody),
		cmocka_unit_test(many_requests_at_once_never_give_a_wrong_byte),
	};
	const struct CMUnitTest none[] = { cmocka_unit_test(python_and_libcurl_are_there) };

	setenv("no_proxy", "*", 1);
	snprintf(server.endpoint, sizeof(server.endpoint), "http://127.0.0.1:1");
	if (!can_run())
		return cmocka_run_group_tests(none, NULL, NULL);
	return cmocka_run_group_tests(tests, start, stop);
}
