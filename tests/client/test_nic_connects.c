/*
 * test_nic_connects.c - clients that come and go, as many as some seconds allow, over a real device: tests/nic/end_to_end starts the server
 * and compares what the kernel holds before and after (pitfalls C13). Without a server to go to it is skipped.
 *
 *   KVRAIL_CONNECTS_URL   the server's    KVRAIL_CONNECTS_DEVICE   the client's device    KVRAIL_CONNECTS_SECONDS   for how long
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cmocka_all.h"
#include "kvrail.h"

#define CONNECTS_MAX 5000u
#define DIES_EVERY 8u

static int come(struct kvr_client **client)
{
	struct kvr_options options = KVR_OPTIONS_INIT;

	options.url = getenv("KVRAIL_CONNECTS_URL");
	options.device = getenv("KVRAIL_CONNECTS_DEVICE");
	options.name = "passer-by";
	return kvr_open(&options, client);
}

/* In a process of its own, which ends without a word. */
static void die_connected(void)
{
	struct kvr_client *client = NULL;
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (child == 0)
		_exit(come(&client) == 0 && kvr_ping(client, 0) == 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
}

static void clients_come_and_go(void **state)
{
	const char *seconds = getenv("KVRAIL_CONNECTS_SECONDS");
	uint64_t until_ns;
	uint32_t count = 0, served = 0;

	(void)state;
	if (!getenv("KVRAIL_CONNECTS_URL") || !seconds)
		skip();
	until_ns = clock_now_ns() + strtoul(seconds, NULL, 10) * KVR_SECOND;
	while (count < CONNECTS_MAX && clock_now_ns() < until_ns) {
		struct kvr_client *client = NULL;

		if (count++ % DIES_EVERY == DIES_EVERY - 1) {
			die_connected();
			continue;
		}
		/* In an emulated machine that is short of time a handshake may take longer than a server waits: that leaves nothing
		 * behind either. */
		if (come(&client)) {
			printf("client %u: %s\n", count, kvr_error_text());
			continue;
		}
		served += kvr_ping(client, 0) == 0;
		kvr_close(&client);
	}
	printf("%u clients came and went, %u of them were served\n", count, served);
	assert_true(served > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(clients_come_and_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
