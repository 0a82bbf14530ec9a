/* test_control_strangers.c - sockets that have not said who they are, in numbers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mgmt/control_rig.h"

#define STRANGERS 100u

static uint64_t own_address(void)
{
	static uint8_t memory[4096];

	return (uint64_t)(uintptr_t)memory;
}

static void sockets_that_say_nothing_keep_no_client_out(void **state)
{
	struct peer *strangers = calloc(STRANGERS, sizeof(*strangers)), client;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	for (unsigned i = 0; i < STRANGERS; i++) {
		assert_int_equal(peer_open(&rig, &strangers[i]), 0);
		rig_steps(&rig, 2);
	}
	assert_int_equal(rig_counters(&rig)->strangers_dropped_total, STRANGERS - 64);
	assert_int_equal(control_client_count(server_control(rig.server)), 64);
	/* The oldest went. */
	assert_int_equal(peer_reply(&strangers[0]), PEER_CLOSED);
	assert_int_equal(peer_hello(&strangers[STRANGERS - 1]), STATUS_OK);
	peer_join(&rig, &client);
	assert_int_equal(peer_memory(&client, own_address(), 64, NULL), STATUS_OK);
	peer_fini(&client);
	for (unsigned i = 0; i < STRANGERS; i++)
		peer_fini(&strangers[i]);
	rig_settle(&rig, 0);
	free(strangers);
	rig_stop(&rig);
}

static void strangers_that_introduce_themselves_all_at_once_are_no_more_than_the_maximum(void **state)
{
	struct peer peers[RIG_CLIENTS + 2];
	struct rig rig;

	(void)state;
	rig_make(&rig);
	for (unsigned i = 0; i < RIG_CLIENTS + 2; i++)
		assert_int_equal(peer_open(&rig, &peers[i]), 0);
	for (unsigned i = 0; i < RIG_CLIENTS + 2; i++)
		assert_int_equal(peer_hello(&peers[i]), i < RIG_CLIENTS ? STATUS_OK : STATUS_LIMIT);
	assert_non_null(strstr(peers[RIG_CLIENTS].text, "4 of 4"));
	assert_int_equal(peer_reply(&peers[RIG_CLIENTS]), PEER_CLOSED);
	assert_int_equal(rig_counters(&rig)->refused_total, 2);
	for (unsigned i = 0; i < RIG_CLIENTS + 2; i++)
		peer_fini(&peers[i]);
	rig_settle(&rig, 0);
	rig_stop(&rig);
}

static void a_flood_of_refusals_does_not_fill_the_log(void **state)
{
	struct peer peer;
	struct rig rig;
	unsigned lines;

	(void)state;
	rig_make(&rig);
	rig_forget_lines(&rig);
	for (unsigned i = 0; i < 200; i++) {
		assert_int_equal(peer_open(&rig, &peer), 0);
		peer_send(&peer, (const uint8_t *)"GET / HTTP/1.1\r\n\r\n", 18, NULL, 0);
		assert_int_equal(peer_reply(&peer), PEER_CLOSED);
		peer_fini(&peer);
	}
	lines = rig.line_count;
	assert_in_range(lines, 20, 150);
	rig_settle(&rig, 0);
	rig_stop(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sockets_that_say_nothing_keep_no_client_out),
		cmocka_unit_test(strangers_that_introduce_themselves_all_at_once_are_no_more_than_the_maximum),
		cmocka_unit_test(a_flood_of_refusals_does_not_fill_the_log),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
