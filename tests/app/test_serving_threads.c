/*
 * kvraild with real clients, in both arrangements of its threads: what was stored comes back, and when the clients are gone, in
 * peace or killed, nothing is held for them. Under ThreadSanitizer the server is instrumented too, and its exit code tells.
 */
#include "app/process.h"
#include "kvrail.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cmocka_all.h"

#define BLOCK_TOKENS 16u
#define BLOCK_BYTES 4096u
#define BLOCKS 96u
#define CHUNKS 2u
#define CHUNK_TOKENS 256u
#define CHAIN_BLOCKS (CHUNKS * CHUNK_TOKENS / BLOCK_TOKENS)
#define ROUNDS 20u
#define SECOND 1000000000ull

struct worker {
	const char *socket;
	unsigned number;
	unsigned rounds;
	int told_fd; /* a byte a round is written here; -1: none */
	int failed;  /* line of the first check that failed */
	struct kvr_client *client;
	struct kvr_session *session;
};

/* Threads of clients may not use cmocka's checks. */
#define CHECK(worker, condition)                     \
	do {                                         \
		if (!(condition)) {                  \
			(worker)->failed = __LINE__; \
			return;                      \
		}                                    \
	} while (0)

static void fill(uint8_t *memory, const uint32_t *ids, uint32_t count, uint32_t seed)
{
	for (uint32_t i = 0; i < count; i++)
		memset(memory + (size_t)ids[i] * BLOCK_BYTES, (int)((seed * 31 + i * 7 + 1) & 0xff), BLOCK_BYTES);
}

static int holds(const uint8_t *memory, const uint32_t *ids, uint32_t count, uint32_t seed)
{
	for (uint32_t i = 0; i < count; i++) {
		const uint8_t *block = memory + (size_t)ids[i] * BLOCK_BYTES;

		for (uint32_t byte = 0; byte < BLOCK_BYTES; byte++) {
			if (block[byte] != ((seed * 31 + i * 7 + 1) & 0xff))
				return 0;
		}
	}
	return 1;
}

static void round_of(struct worker *worker, uint32_t registration, uint8_t *memory, unsigned round)
{
	uint32_t tokens[CHUNKS * CHUNK_TOKENS], from[CHAIN_BLOCKS], to[CHAIN_BLOCKS];
	struct kvr_transfer transfer = KVR_TRANSFER_INIT;
	struct kvr_blocks blocks = { from, CHAIN_BLOCKS };
	uint32_t seed = worker->number * 1000 + round;
	struct kvr_result result;
	char id[32];

	snprintf(id, sizeof(id), "request-%u-%u", worker->number, round);
	for (uint32_t i = 0; i < CHUNKS * CHUNK_TOKENS; i++)
		tokens[i] = seed * 100000 + i;
	for (uint32_t i = 0; i < CHAIN_BLOCKS; i++) {
		from[i] = (i * 5) % BLOCKS;
		to[i] = BLOCKS - 1 - i;
	}
	CHECK(worker, kvr_session_create(worker->client, registration, id, NULL, &worker->session) == 0);
	CHECK(worker, kvr_session_tokens(worker->session, tokens, CHUNKS * CHUNK_TOKENS) == 0);
	transfer.chunk_count = CHUNKS;
	transfer.group_count = 1;
	transfer.groups = &blocks;
	fill(memory, from, CHAIN_BLOCKS, seed);
	CHECK(worker, kvr_store(worker->session, &transfer, 60 * SECOND, &result) == 0 && result.chunks == CHUNKS);
	memset(memory, 0, (size_t)BLOCKS * BLOCK_BYTES);
	CHECK(worker, kvr_lookup(worker->session, 60 * SECOND, &result) == 0 && result.chunks == CHUNKS);
	blocks.ids = to;
	CHECK(worker, kvr_retrieve(worker->session, &transfer, 60 * SECOND, &result) == 0 && result.chunks == CHUNKS);
	CHECK(worker, holds(memory, to, CHAIN_BLOCKS, seed));
	CHECK(worker, kvr_end(worker->session, 60 * SECOND) == 0);
	CHECK(worker, kvr_session_destroy(&worker->session) == 0);
	if (worker->told_fd >= 0)
		CHECK(worker, write(worker->told_fd, "", 1) == 1);
}

static void work(struct worker *worker)
{
	struct kvr_options options = KVR_OPTIONS_INIT;
	struct kvr_model model = KVR_MODEL_INIT;
	struct kvr_layout layout;
	struct kvr_group group;
	struct kvr_plane plane;
	uint32_t registration;
	char url[128];
	void *memory;

	snprintf(url, sizeof(url), "unix:%s", worker->socket);
	options.url = url;
	options.name = "a test";
	model.name = "model-of-the-test";
	model.dtype = "bytes";
	CHECK(worker, kvr_open(&options, &worker->client) == 0);
	CHECK(worker, kvr_alloc(worker->client, (size_t)BLOCKS * BLOCK_BYTES, &memory) == 0);
	plane.address = memory;
	plane.block_stride = BLOCK_BYTES;
	plane.block_bytes = BLOCK_BYTES;
	group.tokens_per_block = BLOCK_TOKENS;
	group.window_tokens = KVR_WINDOW_FULL;
	group.block_count = BLOCKS;
	group.plane_count = 1;
	group.planes = &plane;
	layout.struct_bytes = sizeof(layout);
	layout.group_count = 1;
	layout.groups = &group;
	CHECK(worker, kvr_register(worker->client, &model, &layout, NULL, &registration) == 0);
	for (unsigned round = 0; round < worker->rounds && !worker->failed; round++)
		round_of(worker, registration, memory, round);
	if (worker->failed)
		return;
	CHECK(worker, kvr_unregister(worker->client, registration) == 0);
	CHECK(worker, kvr_free(worker->client, memory) == 0);
}

static void serve_worker(struct worker *worker)
{
	work(worker);
	if (worker->session)
		kvr_session_destroy(&worker->session);
	kvr_close(&worker->client);
}

static void *worker_thread(void *argument)
{
	serve_worker(argument);
	return NULL;
}

static json_t *status_of(const struct server_process *server)
{
	struct text page = { NULL, 0, 0, false };
	json_t *status;

	assert_int_equal(http_ask(server->port, "GET", "/status", "", &page), 200);
	status = json_loadb(page.bytes, page.length, 0, NULL);
	assert_non_null(status);
	text_fini(&page);
	return status;
}

static json_int_t number_in(const json_t *status, const char *part, const char *name)
{
	return json_integer_value(json_object_get(json_object_get(status, part), name));
}

/* Until no client is there any more; then nothing may be held. */
static void assert_nothing_is_held(const struct server_process *server)
{
	json_t *status = status_of(server);

	while (json_integer_value(json_object_get(status, "client_count")) > 0 ||
		number_in(status, "requests", "connections") > 0) {
		json_decref(status);
		sched_yield();
		status = status_of(server);
	}
	assert_int_equal(number_in(status, "sessions", "locks"), 0);
	assert_int_equal(number_in(status, "cache", "pins"), 0);
	assert_int_equal(number_in(status, "cache", "staged"), 0);
	assert_int_equal(number_in(status, "requests", "transfers"), 0);
	assert_int_equal(number_in(status, "requests", "registrations"), 0);
	json_decref(status);
}

/* pitfalls O09: what the page says of the model is what the layout says. */
static void assert_model_is_told(const struct server_process *server)
{
	json_t *status = status_of(server);
	const json_t *model = json_array_get(json_object_get(status, "models"), 0);

	assert_string_equal(json_string_value(json_object_get(model, "name")), "model-of-the-test");
	assert_int_equal(json_integer_value(json_object_get(model, "token_bytes")), BLOCK_BYTES / BLOCK_TOKENS);
	assert_int_equal(json_integer_value(json_object_get(model, "tokens_max")),
		number_in(status, "l1", "total_bytes") / (BLOCK_BYTES / BLOCK_TOKENS));
	assert_int_equal(json_integer_value(json_object_get(model, "chunks")), 2 * ROUNDS * CHUNKS);
	assert_int_equal(number_in(status, "l1", "used_bytes"),
		2 * ROUNDS * CHUNKS * (CHUNK_TOKENS / BLOCK_TOKENS) * BLOCK_BYTES);
	/* pitfalls O02, O03 */
	assert_int_equal(number_in(status, "counters", "lookup_hit_chunks_total"), 2 * ROUNDS * CHUNKS);
	assert_int_equal(number_in(status, "counters", "lookup_hit_tokens_total"), 2 * ROUNDS * CHUNKS * CHUNK_TOKENS);
	assert_int_equal(number_in(status, "counters", "lookup_tokens_total"), 2 * ROUNDS * CHUNKS * CHUNK_TOKENS);
	json_decref(status);
}

static void serve_two_clients(const char *const *arguments)
{
	struct server_process server;
	struct worker workers[2];
	pthread_t threads[2];

	server_process_start(&server, arguments);
	for (unsigned i = 0; i < 2; i++) {
		workers[i] = (struct worker){ server.socket, i, ROUNDS, -1, 0, NULL, NULL };
		assert_int_equal(pthread_create(&threads[i], NULL, worker_thread, &workers[i]), 0);
	}
	/* The operator looks on. */
	for (unsigned i = 0; i < 5; i++)
		json_decref(status_of(&server));
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_int_equal(workers[i].failed, 0);
	}
	assert_nothing_is_held(&server);
	assert_model_is_told(&server);
	assert_int_equal(server_process_stop(&server, SIGTERM), 0);
	assert_int_equal(server_process_logged(&server, "are cut off"), 0);
	assert_true(server_process_clean(&server));
}

static void two_clients_are_served_by_one_thread_of_worker_and_management(void **state)
{
	static const char *const arguments[] = { "--cores", "0", "--wait", "adaptive", NULL };

	(void)state;
	serve_two_clients(arguments);
}

static void two_clients_are_served_by_threads_apart(void **state)
{
	static const char *const arguments[] = { "--cores", "0,1", "--wait", "adaptive", NULL };

	(void)state;
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		skip();
	serve_two_clients(arguments);
}

/* pitfalls B07, C08: killed in whatever it was doing; what it held is free again, and others are served as before. */
static void a_killed_client_leaves_nothing_held(void **state)
{
	struct server_process server;
	struct worker other;

	(void)state;
	SERVER_START(&server, "--log-level", "info");
	for (unsigned n = 0; n < 5; n++) {
		struct worker worker = { server.socket, 10 + n, 1000000, -1, 0, NULL, NULL };
		int told[2], status;
		char byte;
		pid_t pid;

		assert_int_equal(pipe(told), 0);
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			worker.told_fd = told[1];
			serve_worker(&worker);
			_exit(1);
		}
		close(told[1]);
		for (unsigned i = 0; i <= n; i++)
			assert_int_equal(read(told[0], &byte, 1), 1);
		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		close(told[0]);
		assert_nothing_is_held(&server);
	}
	other = (struct worker){ server.socket, 99, 3, -1, 0, NULL, NULL };
	serve_worker(&other);
	assert_int_equal(other.failed, 0);
	assert_nothing_is_held(&server);
	assert_int_equal(server_process_stop(&server, SIGTERM), 0);
	assert_true(server_process_clean(&server));
}

/* pitfalls C18: SIGTERM while clients work: they are told, the server leaves in peace, and soon. */
static void sigterm_ends_clients_at_work_in_peace(void **state)
{
	struct server_process server;
	struct worker workers[2];
	pthread_t threads[2];
	int told[2];
	char byte;

	(void)state;
	SERVER_START(&server, "--drain-timeout", "60s");
	assert_int_equal(pipe(told), 0);
	for (unsigned i = 0; i < 2; i++) {
		workers[i] = (struct worker){ server.socket, i, 1000000, told[1], 0, NULL, NULL };
		assert_int_equal(pthread_create(&threads[i], NULL, worker_thread, &workers[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(read(told[0], &byte, 1), 1);
	assert_int_equal(server_process_stop(&server, SIGTERM), 0);
	assert_int_equal(server_process_logged(&server, "are cut off"), 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_int_not_equal(workers[i].failed, 0);
	}
	close(told[0]);
	close(told[1]);
	assert_true(server_process_clean(&server));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_clients_are_served_by_one_thread_of_worker_and_management),
		cmocka_unit_test(two_clients_are_served_by_threads_apart),
		cmocka_unit_test(a_killed_client_leaves_nothing_held),
		cmocka_unit_test(sigterm_ends_clients_at_work_in_peace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
