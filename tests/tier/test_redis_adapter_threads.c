/* The redis adapter at a real redis-server of this machine. */
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
#include "base/random.h"
#include "tier/checksum.h"
#include "tier/object_body.h"
#include "tier/redis_protocol.h"
#include "tier/redis_server.h"

#define MIB (UINT64_C(1) << 20)

static const uint64_t sizes[] = { 1, 64, 4095, 4096, 4097, 16384, 65536, 100000, MIB, 3 * MIB + 17 };

static void store_and_load_all(const struct redis_server *server, struct redis_adapter_options options)
{
	struct l2_adapter *adapter = redis_open(server, options);
	struct l2_stats stats;
	uint64_t bytes = 0;

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
	assert_int_equal(stats.stores, 2 * KVR_COUNT_OF(sizes)); /* what is there is not written again */
	assert_int_equal(stats.loads, 2 * KVR_COUNT_OF(sizes));
	assert_int_equal(stats.load_bytes, bytes);
	assert_int_equal(stats.store_bytes, bytes);
	assert_int_equal(stats.misses, 4 * KVR_COUNT_OF(sizes));
	assert_int_equal(stats.errors + stats.corrupt + stats.in_flight, 0);
	assert_true(stats.uncounted);
	assert_string_equal(stats.condition, "");
	adapter->driver->close(adapter);

	adapter = redis_open(server, options);
	for (uint32_t i = 0; i < 2 * KVR_COUNT_OF(sizes); i++) {
		assert_int_equal(do_load(adapter, i, sizes[i / 2]), 0);
		assert_int_equal(do_remove(adapter, i, sizes[i / 2]), 0);
		assert_int_equal(do_remove(adapter, i, sizes[i / 2]), 0);
		assert_int_equal(do_load(adapter, i, sizes[i / 2]), -ENOENT);
	}
	adapter->driver->close(adapter);
}

static void what_is_stored_is_loaded(void **state)
{
	struct redis_server server;
	char where[64];

	(void)state;
	redis_server_start(&server, "");
	store_and_load_all(&server, (struct redis_adapter_options){ 0 });
	store_and_load_all(&server, (struct redis_adapter_options){ .connections = 1, .depth = 1 });
	snprintf(where, sizeof(where), "127.0.0.1:%u", server.port);
	store_and_load_all(&server, (struct redis_adapter_options){ .where = where, .prefix = "other{x}" });
	snprintf(where, sizeof(where), "localhost:%u", server.port); /* ::1 refuses, 127.0.0.1 does not */
	store_and_load_all(&server, (struct redis_adapter_options){ .where = where });
	redis_says(&server, "0", "DBSIZE");
	redis_server_stop(&server);
}

static void another_identity_is_another_object(void **state)
{
	struct l2_request request = { .operation = L2_LOAD };
	struct redis_server server;
	struct l2_adapter *adapter;
	uint8_t memory[5000];

	(void)state;
	redis_server_start(&server, "");
	adapter = redis_open(&server, (struct redis_adapter_options){ 0 });
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
	request.operation = L2_STORE;
	request.identity = object_identity(1, 0);
	assert_int_equal(do_request(adapter, &request), -EINVAL);
	request.identity.bytes = UINT64_C(512) << 20; /* with the header it is more than a server takes */
	assert_int_equal(do_request(adapter, &request), -ENOSPC);
	adapter->driver->close(adapter);
	redis_server_stop(&server);
}

static void checksums_go_with_the_object(void **state)
{
	struct l2_request request = { .operation = L2_STORE, .has_checksum = true };
	struct redis_server server;
	struct l2_adapter *adapter;
	uint8_t memory[5000];

	(void)state;
	redis_server_start(&server, "");
	adapter = redis_open(&server, (struct redis_adapter_options){ 0 });
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
	redis_server_stop(&server);
}

/* pitfalls H05 */
static void what_is_damaged_is_a_miss_and_goes(void **state)
{
	static const char *const damages[] = { "SETRANGE %s 20 X", "SETRANGE %s 4095 X", "SETRANGE %s 4096 XX",
		"SETRANGE %s 9000 XX", "SET %s short", "APPEND %s X", "COPY other %s REPLACE", "SET %s ''" };
	struct redis_server server;
	struct l2_adapter *adapter;
	char key[128], other[128], out[256], command[300];

	(void)state;
	redis_server_start(&server, "");
	adapter = redis_open(&server, (struct redis_adapter_options){ 0 });
	redis_key_of(&(struct l2_identity){ 0 }, key);
	assert_int_equal(do_store(adapter, 4, 5000), 0);
	{
		struct l2_identity identity = object_identity(4, 5000);

		redis_key_of(&identity, other);
		redis_says(&server, "1", "COPY %s other", other);
		identity = object_identity(1, 5000);
		redis_key_of(&identity, key);
	}
	for (uint32_t i = 0; i < KVR_COUNT_OF(damages); i++) {
		assert_int_equal(do_store(adapter, 1, 5000), 0);
		snprintf(command, sizeof(command), damages[i], key);
		redis_cli(&server, out, "%s", command);
		assert_int_equal(do_load(adapter, 1, 5000), -EBADMSG);
		assert_int_equal(stats_of(adapter).corrupt, i + 1);
		redis_says(&server, "0", "EXISTS %s", key);
		assert_int_equal(do_load(adapter, 1, 5000), -ENOENT);
	}
	/* One of a wrong length would keep the right one out: asking for it removes it, too. */
	assert_int_equal(do_store(adapter, 1, 5000), 0);
	redis_cli(&server, out, "APPEND %s X", key);
	assert_int_equal(do_contains(adapter, 1, 5000), -ENOENT);
	redis_says(&server, "0", "EXISTS %s", key);
	/* Another program's key of this name is left alone. */
	redis_cli(&server, out, "HSET %s a b", key);
	assert_int_equal(do_load(adapter, 1, 5000), -ENOENT);
	assert_int_equal(do_contains(adapter, 1, 5000), -ENOENT);
	redis_says(&server, "hash", "TYPE %s", key);
	assert_int_equal(do_load(adapter, 4, 5000), 0);
	adapter->driver->close(adapter);
	redis_server_stop(&server);
}

static void a_wrong_password_is_told_and_a_right_one_opens(void **state)
{
	struct redis_server server;
	struct l2_adapter *adapter;
	char out[256];

	(void)state;
	redis_server_start(&server, "--requirepass sesame");
	adapter = redis_open(&server, (struct redis_adapter_options){ 0 });
	assert_int_equal(do_store(adapter, 1, 100), -EACCES);
	assert_non_null(strstr(stats_of(adapter).condition, "check user and password"));
	adapter->driver->close(adapter);
	adapter = redis_open(&server, (struct redis_adapter_options){ .password = "wrong" });
	assert_int_equal(do_load(adapter, 1, 100), -EACCES);
	assert_int_equal(do_contains(adapter, 1, 100), -EACCES);
	assert_non_null(strstr(stats_of(adapter).condition, "check user and password"));
	assert_true(stats_of(adapter).errors >= 2);
	adapter->driver->close(adapter);
	adapter = redis_open(&server, (struct redis_adapter_options){ .password = "sesame" });
	assert_int_equal(do_store(adapter, 1, 100), 0);
	adapter->driver->close(adapter);
	redis_cli(&server, out, "-a sesame ACL SETUSER kv on '>pw' '~kvrail:*' +get +set +strlen");
	adapter = redis_open(&server, (struct redis_adapter_options){ .user = "kv", .password = "pw" });
	assert_int_equal(do_load(adapter, 1, 100), 0);
	assert_int_equal(do_store(adapter, 2, 100), 0);
	assert_int_equal(do_remove(adapter, 2, 100), -EACCES);
	assert_non_null(strstr(stats_of(adapter).condition, "lacks a right"));
	adapter->driver->close(adapter);
	redis_server_stop(&server);
}

static void a_full_server_takes_no_store_and_answers_loads(void **state)
{
	struct redis_server server;
	struct l2_adapter *adapter;
	char out[256];

	(void)state;
	redis_server_start(&server, "");
	adapter = redis_open(&server, (struct redis_adapter_options){ 0 });
	assert_int_equal(do_store(adapter, 1, MIB), 0);
	redis_cli(&server, out, "CONFIG SET maxmemory 1mb");
	assert_int_equal(do_store(adapter, 2, MIB), -ENOSPC);
	assert_true(stats_of(adapter).read_only);
	assert_int_equal(do_load(adapter, 1, MIB), 0);
	assert_non_null(strstr(stats_of(adapter).condition, "no memory left"));
	redis_cli(&server, out, "CONFIG SET maxmemory 0");
	assert_int_equal(do_store(adapter, 2, MIB), 0);
	assert_string_equal(stats_of(adapter).condition, "");
	assert_false(stats_of(adapter).read_only);
	adapter->driver->close(adapter);
	redis_server_stop(&server);
}

static void a_replica_takes_no_store_until_it_is_the_primary(void **state)
{
	struct redis_server server;
	struct l2_adapter *adapter;
	char out[256];

	(void)state;
	redis_server_start(&server, "");
	adapter = redis_open(&server, (struct redis_adapter_options){ 0 });
	assert_int_equal(do_store(adapter, 1, 5000), 0);
	redis_cli(&server, out, "REPLICAOF 127.0.0.1 1");
	assert_int_equal(do_store(adapter, 2, 5000), -EROFS);
	assert_non_null(strstr(stats_of(adapter).condition, "replica"));
	assert_int_equal(do_load(adapter, 1, 5000), 0);
	redis_cli(&server, out, "REPLICAOF NO ONE");
	assert_int_equal(do_store(adapter, 2, 5000), 0);
	assert_string_equal(stats_of(adapter).condition, "");
	adapter->driver->close(adapter);
	redis_server_stop(&server);
}

static void a_server_that_goes_and_comes_back_is_found_again(void **state)
{
	struct redis_server server;
	struct l2_adapter *adapter;

	(void)state;
	redis_server_start(&server, "");
	adapter = redis_open(&server, (struct redis_adapter_options){ .retry_ns = KVR_MS });
	assert_int_equal(do_store(adapter, 1, 5000), 0);
	redis_server_kill(&server);
	assert_int_not_equal(do_load(adapter, 1, 5000), 0);
	assert_int_not_equal(do_store(adapter, 1, 5000), 0);
	assert_int_not_equal(do_contains(adapter, 1, 5000), 0);
	assert_true(stats_of(adapter).errors >= 3);
	assert_true(stats_of(adapter).condition[0] != '\0');
	redis_server_again(&server);
	while (do_store(adapter, 1, 5000) != 0)
		sched_yield();
	assert_int_equal(do_load(adapter, 1, 5000), 0);
	assert_string_equal(stats_of(adapter).condition, "");
	/* What the server closes while nothing is under way costs nothing. */
	{
		uint64_t errors = stats_of(adapter).errors;
		char out[256];

		redis_cli(&server, out, "CLIENT KILL TYPE normal");
		assert_int_equal(do_load(adapter, 1, 5000), 0);
		assert_int_equal(do_contains(adapter, 1, 5000), 0);
		assert_int_equal(stats_of(adapter).errors, errors);
	}
	adapter->driver->close(adapter);
	redis_server_stop(&server);
}

static void database_time_to_live_and_read_only_are_as_configured(void **state)
{
	struct redis_server server;
	struct l2_adapter *adapter;
	struct l2_identity identity = object_identity(1, 5000);
	char key[128], out[256];

	(void)state;
	redis_server_start(&server, "");
	redis_key_of(&identity, key);
	adapter = redis_open(&server, (struct redis_adapter_options){ .database = 3, .expire_ns = 3600 * KVR_SECOND });
	assert_int_equal(do_store(adapter, 1, 5000), 0);
	redis_cli(&server, out, "-n 3 PTTL %s", key);
	assert_in_range(atol(out), 1, 3600000);
	redis_says(&server, "9096", "-n 3 STRLEN %s", key);
	redis_says(&server, "0", "DBSIZE");
	adapter->driver->close(adapter);
	adapter = redis_open(&server, (struct redis_adapter_options){ .database = 3, .read_only = true });
	assert_int_equal(do_load(adapter, 1, 5000), 0);
	assert_int_equal(do_store(adapter, 2, 5000), -EROFS);
	assert_int_equal(do_remove(adapter, 1, 5000), -EROFS);
	assert_true(stats_of(adapter).read_only);
	assert_non_null(strstr(stats_of(adapter).condition, "read only"));
	redis_cli(&server, out, "-n 3 SETRANGE %s 5000 XX", key);
	assert_int_equal(do_load(adapter, 1, 5000), -EBADMSG);
	redis_says(&server, "1", "-n 3 EXISTS %s", key);
	adapter->driver->close(adapter);
	adapter = redis_open(&server, (struct redis_adapter_options){ .database = 99 });
	assert_int_equal(do_store(adapter, 1, 5000), -EINVAL);
	assert_non_null(strstr(stats_of(adapter).condition, "no such database"));
	adapter->driver->close(adapter);
	redis_server_stop(&server);
}

#define NODES REDIS_CLUSTER_NODES
#define SPREAD 60

/* Moves the slot of the object from one node to another: first its key alone, as while a migration goes on. */
static void migrate(struct redis_server *from, struct redis_server *to, const char *key, const char *slot)
{
	char from_id[256], to_id[256];

	redis_cli(from, from_id, "CLUSTER MYID");
	redis_cli(to, to_id, "CLUSTER MYID");
	redis_says(to, "OK", "CLUSTER SETSLOT %s IMPORTING %s", slot, from_id);
	redis_says(from, "OK", "CLUSTER SETSLOT %s MIGRATING %s", slot, to_id);
	redis_says(from, "OK", "MIGRATE 127.0.0.1 %u %s 0 5000", to->port, key);
}

static void a_cluster_is_found_and_followed(void **state)
{
	struct redis_server servers[NODES];
	struct l2_adapter *adapter;
	char where[64], key[128], slot[256], out[256], id[256];
	struct l2_identity identity = object_identity(7, 30000);
	int from, to, failed = 0;

	(void)state;
	redis_cluster_start(servers);
	snprintf(where, sizeof(where), "127.0.0.1:%u", servers[0].port);
	adapter = redis_open(NULL, (struct redis_adapter_options){ .where = where, .cluster = true, .connections = 2 });
	for (uint32_t i = 0; i < SPREAD; i++)
		assert_int_equal(do_store(adapter, i, 30000), 0);
	for (uint32_t i = 0; i < SPREAD; i++) {
		assert_int_equal(do_contains(adapter, i, 30000), 0);
		assert_int_equal(do_load(adapter, i, 30000), 0);
	}
	for (int i = 0; i < NODES; i++) {
		redis_cli(&servers[i], out, "DBSIZE");
		assert_in_range(atol(out), 1, SPREAD - 2);
	}
	/* A slot that moves: ASK while it does, MOVED when it has. */
	redis_key_of(&identity, key);
	redis_cli(&servers[0], slot, "CLUSTER KEYSLOT %s", key);
	assert_int_equal(atol(slot), redis_slot(key, strlen(key)));
	from = atol(slot) <= 5460 ? 0 : atol(slot) <= 10922 ? 1 : 2;
	to = (from + 1) % NODES;
	migrate(&servers[from], &servers[to], key, slot);
	assert_int_equal(do_load(adapter, 7, 30000), 0);
	assert_int_equal(do_contains(adapter, 7, 30000), 0);
	assert_int_equal(do_remove(adapter, 7, 30000), 0);
	assert_int_equal(do_store(adapter, 7, 30000), 0);
	redis_cli(&servers[to], id, "CLUSTER MYID");
	redis_says(&servers[to], "OK", "CLUSTER SETSLOT %s NODE %s", slot, id);
	redis_says(&servers[from], "OK", "CLUSTER SETSLOT %s NODE %s", slot, id);
	assert_int_equal(do_load(adapter, 7, 30000), 0);
	assert_int_equal(do_contains(adapter, 7, 30000), 0);
	assert_int_equal(stats_of(adapter).errors + stats_of(adapter).corrupt, 0);
	assert_string_equal(stats_of(adapter).condition, "");
	/* Without one of them what the others have is found. */
	redis_server_kill(&servers[2]);
	for (uint32_t i = 0; i < SPREAD; i++)
		failed += do_load(adapter, i, 30000) != 0;
	assert_in_range(failed, 1, SPREAD - 2);
	adapter->driver->close(adapter);
	/* A server of a cluster that is used as one alone. */
	adapter = redis_open(NULL, (struct redis_adapter_options){ .where = where });
	failed = 0;
	for (uint32_t i = 0; i < SPREAD; i++)
		failed += do_load(adapter, i, 30000) == -EIO;
	assert_in_range(failed, 1, SPREAD - 1);
	assert_non_null(strstr(stats_of(adapter).condition, "cluster"));
	adapter->driver->close(adapter);
	redis_server_stop(&servers[0]);
	redis_server_stop(&servers[1]);
	place_remove(&servers[2].place);
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

static void compressed_objects_are_smaller_and_loaded_by_everybody(void **state)
{
	static uint8_t memory[NUMBERS], back[NUMBERS];
	struct redis_server server;
	struct l2_adapter *adapter;
	struct l2_request request;
	char key[128], out[256];

	(void)state;
	if (!object_pack_available())
		skip();
	redis_server_start(&server, "");
	store_and_load_all(&server, (struct redis_adapter_options){ .compress_level = 1 });
	adapter = redis_open(&server, (struct redis_adapter_options){ .compress_level = 1 });
	store_numbers(adapter, &request, memory, NUMBERS);
	adapter->driver->close(adapter);
	redis_key_of(&request.identity, key);
	redis_cli(&server, out, "STRLEN %s", key);
	assert_in_range(atol(out), 4097, NUMBERS * 3 / 4);
	adapter = redis_open(&server, (struct redis_adapter_options){ 0 });
	assert_int_equal(do_contains(adapter, 5, NUMBERS), 0);
	request.operation = L2_LOAD;
	request.memory = back;
	assert_int_equal(do_request(adapter, &request), 0);
	assert_memory_equal(memory, back, NUMBERS);
	redis_cli(&server, out, "SETRANGE %s 20000 XXXX", key);
	assert_int_equal(do_request(adapter, &request), -EBADMSG);
	redis_says(&server, "0", "EXISTS %s", key);
	adapter->driver->close(adapter);
	redis_server_stop(&server);
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

static void many_requests_of_two_servers_never_give_a_wrong_byte(void **state)
{
	static struct flight flights[2][MANY];
	struct l2_adapter *adapters[2];
	struct redis_server server;
	struct random random;

	(void)state;
	random_init(&random, 4711);
	redis_server_start(&server, "");
	for (int i = 0; i < 2; i++) {
		adapters[i] = redis_open(
			&server, (struct redis_adapter_options){ .depth = i ? 8 : 64, .connections = i ? 1 : 3 });
		for (int j = 0; j < MANY; j++)
			flights[i][j].memory = aligned_alloc(64, 61440);
	}
	for (uint32_t round = 0; round < 20000; round++) {
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
		assert_int_equal(stats_of(adapters[i]).errors + stats_of(adapters[i]).corrupt, 0);
		adapters[i]->driver->close(adapters[i]); /* with requests under way */
		for (int j = 0; j < MANY; j++) {
			free(flights[i][j].memory);
			flights[i][j].busy = false;
		}
	}
	redis_server_stop(&server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_stored_is_loaded),
		cmocka_unit_test(another_identity_is_another_object),
		cmocka_unit_test(checksums_go_with_the_object),
		cmocka_unit_test(what_is_damaged_is_a_miss_and_goes),
		cmocka_unit_test(a_wrong_password_is_told_and_a_right_one_opens),
		cmocka_unit_test(a_full_server_takes_no_store_and_answers_loads),
		cmocka_unit_test(a_replica_takes_no_store_until_it_is_the_primary),
		cmocka_unit_test(a_server_that_goes_and_comes_back_is_found_again),
		cmocka_unit_test(database_time_to_live_and_read_only_are_as_configured),
		cmocka_unit_test(compressed_objects_are_smaller_and_loaded_by_everybody),
		cmocka_unit_test(a_cluster_is_found_and_followed),
		cmocka_unit_test(many_requests_of_two_servers_never_give_a_wrong_byte),
	};

	return redis_run_tests(tests, KVR_COUNT_OF(tests));
}
