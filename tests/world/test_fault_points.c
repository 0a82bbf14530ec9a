/*
 * test_fault_points.c - the n-th failure sweep: a whole life of a server and its clients, once for each place that can fail, until no
 * place is left. The failure is told, nothing leaks (AddressSanitizer), and the second try succeeds.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/cmocka_all.h"
#include "base/fault.h"
#include "base/log.h"
#include "world/slice.h"

#define CHUNKS 5u
#define POINTS_MAX 128u

static struct slice slice;
static struct slice_request request;

#ifdef KVRAIL_FAULT_POINTS

/* Names that fired, each once. */
static const char *points[POINTS_MAX];
static unsigned point_count;

static void note_point(void)
{
	for (unsigned i = 0; i < point_count; i++) {
		if (strcmp(points[i], fault_fired()) == 0)
			return;
	}
	assert_true(point_count < POINTS_MAX);
	points[point_count++] = fault_fired();
}

static void begin_server(void)
{
	if (slice_server_try(&slice)) {
		assert_non_null(fault_fired());
		slice_server_begin(&slice);
	}
}

/* A client process that is there in the end, whatever failed on the way. */
static void join(unsigned index)
{
	struct slice_model model;
	int error;

	slice_model_default(&model);
	if (slice_try_client(&slice, index, 0)) {
		assert_non_null(fault_fired());
		slice_create_client(&slice, index, 0);
	}
	slice_await_ready(&slice.clients[index]);
	error = slice_register(&slice.clients[index], &model);
	if (error) {
		assert_non_null(fault_fired());
		slice_await_ready(&slice.clients[index]);
		error = slice_register(&slice.clients[index], &model);
	}
	assert_int_equal(error, 0);
}

/* Each request succeeds, or fails once with the failure that was made, and succeeds then. */
static void use(unsigned index, uint32_t document)
{
	struct slice_client *client = &slice.clients[index];
	struct kvr_session *session = slice_session(client, index ? "one" : "two", NULL, document, CHUNKS);
	struct kvr_result result;
	int error = slice_store(client, session, 0, CHUNKS, 0, document, &request);

	if (error || request.result.chunks < CHUNKS) {
		assert_non_null(fault_fired());
		slice_await_ready(client);
		assert_int_equal(slice_store(client, session, 0, CHUNKS, 0, document, &request), 0);
	}
	error = slice_lookup(client, session, 0, &result);
	if (error) {
		assert_non_null(fault_fired());
		slice_await_ready(client);
		assert_int_equal(slice_lookup(client, session, 0, &result), 0);
	}
	assert_int_equal(result.chunks, CHUNKS);
	error = slice_retrieve(client, session, 0, CHUNKS, 100, &request);
	if (error) {
		assert_non_null(fault_fired());
		slice_await_ready(client);
		assert_int_equal(slice_retrieve(client, session, 0, CHUNKS, 100, &request), 0);
	}
	slice_outcomes_are(&request, KVR_DELIVERED);
	for (uint32_t c = 0; c < CHUNKS; c++)
		assert_true(slice_delivered(client, &request, c, document));
	slice_forget(&session);
}

static void leave_in_order(unsigned index)
{
	struct slice_client *client = &slice.clients[index];
	struct kvr_result result;
	kvr_ticket ticket;

	if (!client_submit_unregister(client->client, client->registration, &ticket))
		(void)slice_wait(&slice, client->client, ticket, &result);
	slice_run(&slice, 100);
	slice_leave(client);
}

static void drop_line(void *context, enum log_level level, const char *line)
{
	(void)context;
	(void)level;
	(void)line;
}

/* True when a point failed. */
static bool life(uint64_t nth)
{
	bool fired;

	slice_prepare(&slice, 500, NULL, 4 * L1_PAGE_BYTES);
	slice.options.connections_max = 3;
	slice.options.credits = 4;
	slice.options.sessions_max = 16;
	slice.options.chain_chunks_max = 1024;
	slice.options.large_requests = 1;
	slice.options.large_buffers = 1;
	fault_arm(nth);
	begin_server();
	join(0);
	use(0, 1);
	join(1);
	use(1, 1);
	slice_kill(&slice.clients[1]);
	join(1);
	use(1, 2);
	slice_server_kill(&slice);
	slice_run(&slice, 100); /* until the client knows */
	begin_server();
	slice_await_ready(&slice.clients[0]);
	use(0, 1);
	leave_in_order(0);
	slice_leave(&slice.clients[1]);
	fired = fault_fired() != NULL;
	if (fired)
		note_point();
	fault_arm(0);
	slice_stop(&slice);
	return fired;
}

static void every_place_that_can_fail_fails_once_and_is_survived(void **state)
{
	uint64_t nth = 1;

	(void)state;
	log_set_sink(drop_line, NULL); /* failures are what this is about */
	while (life(nth))
		nth++;
	log_set_sink(NULL, NULL);
	print_message("%llu failures, %u places:", (unsigned long long)nth - 1, point_count);
	for (unsigned i = 0; i < point_count; i++)
		print_message(" %s", points[i]);
	print_message("\n");
	assert_true(nth > 100);
	assert_true(point_count >= 20);
}

/* The table is asked to grow, there is no memory, and it grows later: nothing is refused. */
static void a_table_that_gets_no_memory_grows_later(void **state)
{
	const uint32_t documents = 24;
	struct cache_stats stats;

	(void)state;
	log_set_sink(drop_line, NULL);
	slice_start(&slice, 501, NULL, 64 * L1_PAGE_BYTES);
	join(0);
	fault_arm_name("control/table_memory", 1);
	for (uint32_t d = 0; d < documents; d++) {
		struct kvr_session *session = slice_session(&slice.clients[0], "grow", NULL, d, CHUNKS);

		assert_int_equal(slice_store(&slice.clients[0], session, 0, CHUNKS, 0, d, &request), 0);
		slice_outcomes_are(&request, KVR_STORED);
		assert_int_equal(slice_end(&slice.clients[0], session), 0);
		slice_forget(&session);
	}
	assert_string_equal(fault_fired(), "control/table_memory");
	fault_arm(0);
	slice_pass(&slice, 2 * KVR_SECOND);
	cache_get_stats(server_cache(slice.server), &stats);
	assert_int_equal(stats.chunks, documents * CHUNKS);
	for (uint32_t d = 0; d < documents; d++) {
		struct kvr_session *session = slice_session(&slice.clients[0], "find", NULL, d, CHUNKS);

		assert_int_equal(slice_match(&slice.clients[0], session, KVR_LOOKUP_NO_LOCK), CHUNKS);
		assert_int_equal(slice_end(&slice.clients[0], session), 0);
		slice_forget(&session);
	}
	slice_stop(&slice);
	log_set_sink(NULL, NULL);
}

#else

static void a_table_that_gets_no_memory_grows_later(void **state)
{
	(void)state;
	skip();
}

static void every_place_that_can_fail_fails_once_and_is_survived(void **state)
{
	(void)state;
	(void)slice;
	(void)request;
	skip();
}

#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_place_that_can_fail_fails_once_and_is_survived),
		cmocka_unit_test(a_table_that_gets_no_memory_grows_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
