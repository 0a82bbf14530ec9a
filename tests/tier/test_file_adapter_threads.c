/* The file adapter as its user sees it: what is stored is loaded, with every way of doing I/O. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/random.h"
#include "tier/checksum.h"
#include "tier/place.h"

#define MIB (UINT64_C(1) << 20)

static const uint64_t sizes[] = { 1, 64, 4095, 4096, 4097, 65536, 100000, 262144 - 64, 262144, 262145, MIB,
	3 * MIB + 17 };

static void store_and_load_all(struct file_adapter_options options)
{
	struct l2_adapter *adapter;
	struct l2_stats stats;
	struct place place;
	uint64_t bytes = 0;

	place_make(&place);
	adapter = place_open(&place, &options);
	for (uint32_t i = 0; i < 2 * KVR_COUNT_OF(sizes); i++) {
		assert_int_equal(do_contains(adapter, i, sizes[i / 2]), -ENOENT);
		assert_int_equal(do_load(adapter, i, sizes[i / 2]), -ENOENT);
		assert_int_equal(do_store(adapter, i, sizes[i / 2]), 0);
		bytes += sizes[i / 2];
	}
	for (uint32_t i = 0; i < 2 * KVR_COUNT_OF(sizes); i++) {
		assert_int_equal(do_contains(adapter, i, sizes[i / 2]), 0);
		assert_int_equal(do_load(adapter, i, sizes[i / 2]), 0);
		assert_int_equal(do_store(adapter, i, sizes[i / 2]), 0);
	}
	stats = stats_of(adapter);
	assert_int_equal(stats.stores, 2 * KVR_COUNT_OF(sizes));
	assert_int_equal(stats.loads, 2 * KVR_COUNT_OF(sizes));
	assert_int_equal(stats.load_bytes, bytes);
	assert_int_equal(stats.store_bytes, bytes);
	assert_int_equal(stats.misses, 4 * KVR_COUNT_OF(sizes));
	assert_int_equal(stats.objects, 2 * KVR_COUNT_OF(sizes));
	assert_int_equal(stats.errors + stats.corrupt + stats.in_flight, 0);
	assert_int_equal(place_count(&place, ".kvo", &bytes), stats.objects);
	assert_int_equal(stats.bytes, bytes);
	assert_int_equal(do_remove(adapter, 3, sizes[1]), 0);
	assert_int_equal(do_remove(adapter, 3, sizes[1]), 0);
	assert_int_equal(do_load(adapter, 3, sizes[1]), -ENOENT);
	adapter->driver->close(adapter);

	/* Another start knows what there was. */
	adapter = place_open(&place, &options);
	wait_scanned(adapter);
	assert_int_equal(stats_of(adapter).objects, stats.objects - 1);
	for (uint32_t i = 0; i < 2 * KVR_COUNT_OF(sizes); i++)
		assert_int_equal(do_load(adapter, i, sizes[i / 2]), i == 3 ? -ENOENT : 0);
	adapter->driver->close(adapter);
	assert_int_equal(place_count(&place, "", NULL), stats.objects - 1); /* no lock, no temporary file */
	place_remove(&place);
}

static void what_is_stored_is_loaded(void **state)
{
	(void)state;
	store_and_load_all((struct file_adapter_options){ .queue_depth = 4 });
	store_and_load_all((struct file_adapter_options){ .buffered = true });
	store_and_load_all((struct file_adapter_options){ .no_uring = true });
	store_and_load_all((struct file_adapter_options){ .no_uring = true, .buffered = true, .exclusive = true });
	store_and_load_all((struct file_adapter_options){ .io_threads = 3, .sync = FILE_SYNC_DATA });
	store_and_load_all((struct file_adapter_options){ .sync = FILE_SYNC_ALL, .exclusive = true });
}

static void another_identity_is_another_object(void **state)
{
	struct file_adapter_options options = { .queue_depth = 0 };
	struct l2_request request = { .operation = L2_LOAD };
	struct l2_adapter *adapter;
	uint8_t memory[5000];
	struct place place;

	(void)state;
	place_make(&place);
	adapter = place_open(&place, &options);
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
	assert_int_equal(do_load(adapter, 1, 4096), 0);
	adapter->driver->close(adapter);
	place_remove(&place);
}

static void what_is_no_object_is_refused(void **state)
{
	struct file_adapter_options options = { .queue_depth = 0 };
	struct l2_request request = { .operation = L2_STORE };
	struct l2_adapter *adapter;
	struct place place;
	uint8_t memory[64];

	(void)state;
	place_make(&place);
	adapter = place_open(&place, &options);
	request.memory = memory;
	request.identity = object_identity(1, 0);
	assert_int_equal(do_request(adapter, &request), -EINVAL);
	request.identity = object_identity(1, UINT64_MAX - 5);
	assert_int_equal(do_request(adapter, &request), -EINVAL);
	request.identity.bytes = 64;
	request.identity.reserved = 1;
	assert_int_equal(do_request(adapter, &request), -EINVAL);
	request.operation = L2_LOAD;
	assert_int_equal(do_request(adapter, &request), -ENOENT);
	assert_int_equal(place_count(&place, ".kvo", NULL), 0);
	adapter->driver->close(adapter);
	place_remove(&place);
}

static void checksums_go_with_the_object(void **state)
{
	struct file_adapter_options options = { .queue_depth = 0 };
	struct l2_request request = { .operation = L2_STORE, .has_checksum = true };
	struct l2_adapter *adapter;
	struct place place;
	uint8_t memory[5000];

	(void)state;
	place_make(&place);
	adapter = place_open(&place, &options);
	object_fill(7, memory, sizeof(memory));
	request.identity = object_identity(7, sizeof(memory));
	request.memory = memory;
	request.checksum = checksum_bytes(memory, sizeof(memory)) ^ 1;
	assert_int_equal(do_request(adapter, &request), -EBADMSG);
	assert_int_equal(stats_of(adapter).corrupt, 1);
	assert_int_equal(do_contains(adapter, 7, sizeof(memory)), -ENOENT);
	request.checksum ^= 1;
	assert_int_equal(do_request(adapter, &request), 0);
	request.operation = L2_LOAD;
	request.checksum = 0;
	assert_int_equal(do_request(adapter, &request), 0);
	assert_int_equal(request.checksum, checksum_bytes(memory, sizeof(memory)));
	adapter->driver->close(adapter);
	place_remove(&place);
}

/* Loads at a byte a second: the first one leaves such a debt that no other begins. */
static struct l2_adapter *blocked_adapter(const struct place *place, uint32_t request_limit)
{
	struct file_adapter_options options = { .load_bytes_per_second = 1, .request_limit = request_limit };
	struct l2_adapter *adapter = place_open(place, &options);

	assert_int_equal(do_store(adapter, 1, MIB), 0);
	assert_int_equal(do_load(adapter, 1, MIB), 0);
	return adapter;
}

static void what_has_not_begun_can_be_canceled_or_runs_out_of_time(void **state)
{
	struct l2_request requests[4];
	struct l2_adapter *adapter;
	struct list_node ended;
	struct place place;
	uint32_t count = 0;
	void *memory = malloc(MIB);

	(void)state;
	place_make(&place);
	adapter = blocked_adapter(&place, 8);
	list_init(&ended);
	for (int i = 0; i < 4; i++) {
		requests[i] = (struct l2_request){ .operation = L2_LOAD, .urgent = i % 2 };
		requests[i].identity = object_identity(1, MIB);
		requests[i].memory = memory;
		requests[i].deadline_ns = i < 2 ? clock_now_ns() + KVR_MS : 0;
		assert_int_equal(adapter->driver->submit(adapter, &requests[i]), 0);
	}
	adapter->driver->cancel(adapter, &requests[2]);
	adapter->driver->cancel(adapter, &requests[3]);
	while (count < 4) {
		count += adapter->driver->poll(adapter, &ended, 4 - count);
		sched_yield();
	}
	assert_int_equal(requests[0].status, -ETIMEDOUT);
	assert_int_equal(requests[1].status, -ETIMEDOUT);
	assert_int_equal(requests[2].status, -ECANCELED);
	assert_int_equal(requests[3].status, -ECANCELED);
	adapter->driver->close(adapter);
	free(memory);
	place_remove(&place);
}

static void a_full_queue_says_so_and_close_drops_what_waits(void **state)
{
	struct l2_request requests[9];
	struct l2_adapter *adapter;
	struct place place;

	(void)state;
	place_make(&place);
	adapter = blocked_adapter(&place, 8);
	for (int i = 0; i < 9; i++) {
		requests[i] = (struct l2_request){ .operation = L2_LOAD };
		requests[i].identity = object_identity(1, MIB);
		assert_int_equal(adapter->driver->submit(adapter, &requests[i]), i < 8 ? 0 : -EAGAIN);
	}
	assert_int_equal(stats_of(adapter).in_flight, 8);
	/* memory is NULL: nothing of them may be touched */
	adapter->driver->close(adapter);
	place_remove(&place);
}

static void two_servers_share_a_directory(void **state)
{
	struct file_adapter_options options = { .queue_depth = 0 };
	struct l2_adapter *first, *second;
	struct place place;

	(void)state;
	place_make(&place);
	first = place_open(&place, &options);
	second = place_open(&place, &options);
	wait_scanned(first);
	wait_scanned(second);
	assert_int_equal(do_store(first, 1, 10000), 0);
	assert_int_equal(do_store(first, 2, 10000), 0);
	/* found by looking */
	assert_int_equal(do_contains(second, 1, 10000), 0);
	assert_int_equal(do_load(second, 2, 10000), 0);
	assert_int_equal(stats_of(second).objects, 2);
	/* a store of what the other has stored writes nothing */
	assert_int_equal(do_store(first, 3, 10000), 0);
	assert_int_equal(do_store(second, 3, 10000), 0);
	assert_int_equal(stats_of(second).stores, 0);
	/* what the other has removed, or evicted, is a miss */
	assert_int_equal(do_remove(second, 1, 10000), 0);
	assert_int_equal(do_load(first, 1, 10000), -ENOENT);
	assert_int_equal(do_contains(first, 1, 10000), -ENOENT);
	assert_int_equal(stats_of(first).errors, 0);
	first->driver->close(first);
	assert_int_equal(do_store(second, 4, 10000), 0); /* its temporary folder is still there */
	second->driver->close(second);
	place_remove(&place);
}

static void a_read_only_place_loads_and_changes_nothing(void **state)
{
	struct file_adapter_options options = { .queue_depth = 0 };
	struct l2_adapter *adapter;
	struct place place;

	(void)state;
	place_make(&place);
	adapter = place_open(&place, &options);
	assert_int_equal(do_store(adapter, 1, 5000), 0);
	adapter->driver->close(adapter);
	options.read_only = true;
	adapter = place_open(&place, &options);
	assert_int_equal(place_count(&place, "", NULL), 1);
	assert_int_equal(do_load(adapter, 1, 5000), 0);
	assert_int_equal(do_store(adapter, 2, 5000), -EROFS);
	assert_int_equal(do_remove(adapter, 1, 5000), -EROFS);
	assert_true(stats_of(adapter).read_only);
	assert_non_null(strstr(stats_of(adapter).condition, "read only"));
	adapter->driver->close(adapter);
	assert_int_equal(place_count(&place, "", NULL), 1);
	place_remove(&place);
}

#define MANY 64
#define OBJECTS 40

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
	if (random_chance(random, 1, 20))
		adapter->driver->cancel(adapter, &flight->request);
	flight->busy = true;
}

static void end_one(struct flight *flight)
{
	int status = flight->request.status;

	flight->busy = false;
	if (flight->request.operation == L2_LOAD && status == 0)
		assert_true(object_good(flight->number, flight->memory, flight->bytes));
	assert_true(
		status == 0 || status == -ECANCELED || (status == -ENOENT && flight->request.operation != L2_STORE));
}

static void many_requests_of_all_kinds(struct file_adapter_options options, uint32_t rounds)
{
	static struct flight flights[2][MANY];
	struct l2_adapter *adapters[2];
	struct random random;
	struct place place;

	random_init(&random, 4711);
	place_make(&place);
	for (int i = 0; i < 2; i++) {
		adapters[i] = place_open(&place, &options);
		wait_scanned(adapters[i]);
		for (int j = 0; j < MANY; j++)
			flights[i][j].memory = aligned_alloc(64, 61440);
	}
	for (uint32_t round = 0; round < rounds; round++) {
		struct l2_adapter *adapter = adapters[round % 2];
		struct flight *flight = &flights[round % 2][random_below(&random, MANY)];
		struct list_node ended;

		if (!flight->busy)
			begin_one(adapter, flight, &random);
		list_init(&ended);
		adapter->driver->poll(adapter, &ended, 8);
		while (!list_empty(&ended)) {
			struct list_node *node = list_pop_first(&ended);

			end_one(KVR_CONTAINER_OF(
				KVR_CONTAINER_OF(node, struct l2_request, node), struct flight, request));
		}
	}
	for (int i = 0; i < 2; i++) {
		adapters[i]->driver->close(adapters[i]); /* with requests under way */
		for (int j = 0; j < MANY; j++) {
			free(flights[i][j].memory);
			flights[i][j].busy = false;
		}
	}
	assert_int_equal(place_count(&place, "", NULL), place_count(&place, ".kvo", NULL));
	place_remove(&place);
}

static void many_requests_of_all_kinds_at_two_servers_never_give_a_wrong_byte(void **state)
{
	(void)state;
	many_requests_of_all_kinds(
		(struct file_adapter_options){ .io_threads = 2, .queue_depth = 8, .capacity_bytes = 1024 * 1024 },
		6000);
	many_requests_of_all_kinds(
		(struct file_adapter_options){ .no_uring = true, .capacity_bytes = 1024 * 1024 }, 6000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_stored_is_loaded),
		cmocka_unit_test(another_identity_is_another_object),
		cmocka_unit_test(what_is_no_object_is_refused),
		cmocka_unit_test(checksums_go_with_the_object),
		cmocka_unit_test(what_has_not_begun_can_be_canceled_or_runs_out_of_time),
		cmocka_unit_test(a_full_queue_says_so_and_close_drops_what_waits),
		cmocka_unit_test(two_servers_share_a_directory),
		cmocka_unit_test(a_read_only_place_loads_and_changes_nothing),
		cmocka_unit_test(many_requests_of_all_kinds_at_two_servers_never_give_a_wrong_byte),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
