/* What can fail in the start of kvraild alone, and need not end it: each place fails once, and the server serves all the same. */
#include "app/process.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/cmocka_all.h"

#ifdef KVRAIL_FAULT_POINTS

static void start_without(const char *point, struct server_process *server)
{
	struct text page = { NULL, 0, 0, false };

	assert_int_equal(setenv("KVRAIL_FAULT_ARM", point, 1), 0);
	SERVER_START(server, "--log-level", "info");
	assert_int_equal(unsetenv("KVRAIL_FAULT_ARM"), 0);
	assert_int_equal(http_ask(server->port, "GET", "/readyz", "", &page), 200);
	text_fini(&page);
}

static void end(struct server_process *server)
{
	assert_int_equal(server_process_stop(server, SIGTERM), 0);
	assert_true(server_process_clean(server));
}

static void without_memory_for_the_plan_threads_go_where_they_may(void **state)
{
	struct server_process server;

	(void)state;
	start_without("kvraild/plan", &server);
	assert_int_equal(server_process_logged(&server, "warn: plan: out of memory: threads are"), 1);
	end(&server);
}

static void a_thread_without_an_arena_of_its_own_shares_one(void **state)
{
	struct server_process server;

	(void)state;
	start_without("heap/arena", &server);
	end(&server);
}

#else

static void skipped(void **state)
{
	(void)state;
	skip();
}

#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
#ifdef KVRAIL_FAULT_POINTS
		cmocka_unit_test(without_memory_for_the_plan_threads_go_where_they_may),
		cmocka_unit_test(a_thread_without_an_arena_of_its_own_shares_one),
#else
		cmocka_unit_test(skipped),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
