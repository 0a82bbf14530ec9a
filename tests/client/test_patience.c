/* test_patience.c - servers that are stopped or killed in the middle, event loops, and long requests, through kvrail.h. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cmocka_all.h"
#include "client/house.h"

#define CHUNKS 6
#define BLOCKS (CHUNKS * HOUSE_BLOCKS_PER_CHUNK)

struct guest {
	struct house house;
	struct kvr_client *client;
	struct kvr_session *session;
	uint8_t *pool;
	uint32_t registration;
	uint32_t ids[BLOCKS];
	uint8_t outcomes[CHUNKS];
	struct kvr_blocks blocks;
	struct kvr_transfer transfer;
};

/* A client with CHUNKS chunks stored. */
static void guest_open(struct guest *guest)
{
	struct kvr_result result;
	void *pool;

	memset(guest, 0, sizeof(*guest));
	house_open(&guest->house);
	guest->client = house_client(&guest->house, "guest");
	assert_int_equal(kvr_alloc(guest->client, HOUSE_POOL_BYTES, &pool), 0);
	guest->pool = pool;
	guest->registration = house_register(guest->client, pool);
	guest->session = house_session(guest->client, guest->registration, "guest", 3, CHUNKS);
	guest->transfer = house_transfer(&guest->blocks, guest->ids, 0, CHUNKS, guest->outcomes);
	for (uint32_t i = 0; i < BLOCKS; i++)
		house_fill(guest->pool, guest->ids[i], 3, i);
	assert_int_equal(kvr_store(guest->session, &guest->transfer, 0, &result), 0);
}

static void guest_close(struct guest *guest)
{
	assert_int_equal(kvr_session_destroy(&guest->session), 0);
	kvr_close(&guest->client);
	house_close(&guest->house);
}

static void guest_check(struct guest *guest)
{
	struct kvr_result result;

	memset(guest->pool, 0xee, HOUSE_POOL_BYTES);
	assert_int_equal(kvr_retrieve(guest->session, &guest->transfer, 0, &result), 0);
	for (uint32_t i = 0; i < BLOCKS; i++)
		assert_true(house_holds(guest->pool, guest->ids[i], 3, i));
}

static void stop(const struct guest *guest)
{
	int status;

	assert_int_equal(kill(guest->house.server, SIGSTOP), 0);
	assert_int_equal(waitpid(guest->house.server, &status, WUNTRACED), guest->house.server);
	assert_true(WIFSTOPPED(status));
}

/* After so many milliseconds; 0: now. */
static void go_on(const struct guest *guest, unsigned milliseconds)
{
	struct timespec pause = { 0, (long)milliseconds * 1000000 };
	pid_t child = milliseconds ? fork() : 0;

	assert_true(child >= 0);
	if (milliseconds && child == 0) {
		nanosleep(&pause, NULL);
		kill(guest->house.server, SIGCONT);
		_exit(0);
	}
	if (!milliseconds)
		assert_int_equal(kill(guest->house.server, SIGCONT), 0);
}

static void a_wait_that_times_out_gives_nothing_back(void **state)
{
	struct kvr_result result;
	struct guest guest;
	kvr_ticket ticket;

	(void)state;
	guest_open(&guest);
	stop(&guest);
	memset(guest.pool, 0xee, HOUSE_POOL_BYTES);
	assert_int_equal(kvr_submit_retrieve(guest.session, &guest.transfer, &ticket), 0);
	assert_int_equal(kvr_poll(guest.client, ticket, &result), -EAGAIN);
	assert_int_equal(result.error, -EAGAIN);
	assert_int_equal(result.status, 0);
	assert_int_equal(kvr_wait(guest.client, ticket, 20 * KVR_MS, &result), -ETIMEDOUT);
	assert_int_equal(result.status, 0); /* not done */
	assert_non_null(strstr(result.text, "still the server's"));
	assert_int_equal(kvr_session_destroy(&guest.session), -EBUSY);
	go_on(&guest, 0);
	assert_int_equal(kvr_wait(guest.client, ticket, 30 * KVR_SECOND, &result), 0);
	for (uint32_t i = 0; i < BLOCKS; i++)
		assert_true(house_holds(guest.pool, guest.ids[i], 3, i));
	assert_int_equal(kvr_wait(guest.client, ticket, 0, &result), -ENOENT);
	assert_int_equal(result.status, 0);
	guest_close(&guest);
}

static void calls_that_move_no_data_time_out_at_once_and_the_client_goes_on(void **state)
{
	struct kvr_result result;
	struct guest guest;

	(void)state;
	guest_open(&guest);
	stop(&guest);
	assert_int_equal(kvr_ping(guest.client, 20 * KVR_MS), -ETIMEDOUT);
	assert_non_null(strstr(kvr_error_text(), "in time"));
	assert_int_equal(kvr_lookup(guest.session, 20 * KVR_MS, &result), -ETIMEDOUT);
	assert_int_equal(result.error, -ETIMEDOUT);
	assert_int_equal(kvr_free_locks(guest.session, 0, 1, 0, 20 * KVR_MS, &result), -ETIMEDOUT);
	assert_int_equal(kvr_clear(guest.client, guest.registration, 20 * KVR_MS, &result), -ETIMEDOUT);
	assert_int_equal(kvr_session_destroy(&guest.session), 0); /* nothing of it is under way for us */
	go_on(&guest, 0);
	assert_int_equal(kvr_ping(guest.client, 0), 0);
	guest.session = house_session(guest.client, guest.registration, "next", 3, CHUNKS);
	assert_int_equal(kvr_lookup(guest.session, 0, &result), 0);
	assert_int_equal(kvr_end(guest.session, 0), 0);
	guest_close(&guest);
}

static void a_transfer_that_times_out_returns_when_the_server_has_let_go(void **state)
{
	struct kvr_result result;
	struct guest guest;
	int error;

	(void)state;
	guest_open(&guest);
	stop(&guest);
	go_on(&guest, 100);
	error = kvr_retrieve(guest.session, &guest.transfer, 10 * KVR_MS, &result);
	/* The server may have been done before it saw the CANCEL. */
	assert_true(error == -ETIMEDOUT || error == 0);
	assert_int_equal(result.error, error);
	memset(guest.pool, 0x11, HOUSE_POOL_BYTES);
	assert_int_equal(kvr_ping(guest.client, 0), 0);
	for (size_t i = 0; i < HOUSE_POOL_BYTES; i++)
		assert_int_equal(guest.pool[i], 0x11);
	guest_check(&guest);
	while (wait(NULL) < 0 && errno == EINTR)
		;
	guest_close(&guest);
}

static void cancel_ends_a_lookup_and_a_transfer(void **state)
{
	struct kvr_result result;
	kvr_ticket lookup, store;
	struct guest guest;

	(void)state;
	guest_open(&guest);
	stop(&guest);
	assert_int_equal(kvr_submit_lookup(guest.session, 0, &lookup), 0);
	assert_int_equal(kvr_submit_store(guest.session, &guest.transfer, &store), 0);
	assert_int_equal(kvr_cancel(guest.client, lookup), 0);
	assert_int_equal(kvr_cancel(guest.client, store), 0);
	assert_int_equal(kvr_cancel(guest.client, store), 0); /* twice is harmless */
	go_on(&guest, 0);
	kvr_wait(guest.client, lookup, 30 * KVR_SECOND, &result);
	assert_true(result.error == 0 || result.error == -ECANCELED);
	kvr_wait(guest.client, store, 30 * KVR_SECOND, &result);
	assert_true(result.error == 0 || result.error == -ECANCELED);
	assert_int_equal(kvr_cancel(guest.client, store), -ENOENT);
	assert_int_equal(kvr_end(guest.session, 0), 0);
	guest_check(&guest);
	assert_int_equal(kvr_end(guest.session, 0), 0);
	guest_close(&guest);
}

/* pitfalls C18 */
static void closing_ends_although_the_server_does_not_answer(void **state)
{
	uint64_t begin_ns;
	kvr_ticket ticket;
	struct guest guest;

	(void)state;
	guest_open(&guest);
	stop(&guest);
	assert_int_equal(kvr_submit_lookup(guest.session, 0, &ticket), 0);
	begin_ns = clock_now_ns();
	kvr_close(&guest.client); /* with a session and a ticket */
	assert_null(guest.client);
	assert_true(clock_now_ns() - begin_ns < 10 * KVR_SECOND);
	go_on(&guest, 0);
	guest.client = house_client(&guest.house, "another");
	assert_int_equal(kvr_ping(guest.client, 0), 0);
	kvr_close(&guest.client);
	house_close(&guest.house);
}

static void opening_times_out_when_the_server_does_not_answer(void **state)
{
	struct kvr_options options = KVR_OPTIONS_INIT;
	struct kvr_client *client = NULL;
	struct guest guest;

	(void)state;
	guest_open(&guest);
	stop(&guest);
	options.url = guest.house.url;
	options.connect_timeout_ns = 50 * KVR_MS;
	assert_int_equal(kvr_open(&options, &client), -ETIMEDOUT);
	assert_non_null(strstr(kvr_error_text(), guest.house.url));
	assert_null(client);
	go_on(&guest, 0);
	guest_check(&guest);
	guest_close(&guest);
}

/* pitfalls C05: when the ticket has ended nothing writes to the blocks any more. */
static void blocks_are_quiet_after_the_server_was_killed_in_the_middle(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 4; round++) {
		struct timespec pause = { 0, 20000000 };
		struct kvr_result result;
		kvr_ticket tickets[8];
		struct guest guest;

		guest_open(&guest);
		for (unsigned i = 0; i < 8; i++)
			assert_int_equal(kvr_submit_retrieve(guest.session, &guest.transfer, &tickets[i]), 0);
		if (round > 1)
			kvr_poll(guest.client, tickets[round], &result);
		house_kill_server(&guest.house);
		for (unsigned i = 0; i < 8; i++) {
			int error = kvr_wait(guest.client, tickets[i], 30 * KVR_SECOND, &result);

			assert_true(error == 0 || error == -ECONNRESET || error == -ENOENT);
		}
		memset(guest.pool, 0x22, HOUSE_POOL_BYTES);
		nanosleep(&pause, NULL);
		for (size_t i = 0; i < HOUSE_POOL_BYTES; i++)
			assert_int_equal(guest.pool[i], 0x22);
		assert_int_equal(kvr_session_destroy(&guest.session), 0);
		kvr_close(&guest.client);
		house_start_server(&guest.house);
		guest.client = house_client(&guest.house, "so that it stands");
		kvr_close(&guest.client);
		house_close(&guest.house);
	}
}

/* ---- event loops ---- */

static int poll_until_done(struct kvr_client *client, int fd, kvr_ticket ticket, struct kvr_result *result)
{
	int error;

	while ((error = kvr_poll(client, ticket, result)) == -EAGAIN && result->status == 0) {
		struct pollfd event = { fd, POLLIN, 0 };

		assert_int_equal(poll(&event, 1, 30000), 1);
	}
	return error;
}

static void an_event_loop_hears_of_results_losses_and_returns(void **state)
{
	struct kvr_result result;
	struct pollfd event;
	kvr_ticket tickets[20];
	struct guest guest;
	int fd, error;

	(void)state;
	guest_open(&guest);
	fd = kvr_event_fd(guest.client);
	assert_true(fd >= 0);
	assert_int_equal(kvr_event_fd(guest.client), fd);
	event.fd = fd;
	event.events = POLLIN;
	assert_int_equal(poll(&event, 1, 0), 0); /* nothing under way: quiet */
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(kvr_submit_lookup(guest.session, 0, &tickets[i]), 0);
	for (unsigned i = 20; i-- > 0;)
		assert_int_equal(poll_until_done(guest.client, fd, tickets[i], &result), 0);
	assert_int_equal(poll(&event, 1, 0), 0);
	/* A result that another call has brought in wakes the loop too. */
	assert_int_equal(kvr_submit_ping(guest.client, &tickets[0]), 0);
	assert_int_equal(kvr_ping(guest.client, 0), 0);
	assert_int_equal(poll(&event, 1, 30000), 1);
	assert_int_equal(poll_until_done(guest.client, fd, tickets[0], &result), 0);
	assert_int_equal(kvr_end(guest.session, 0), 0);
	/* The server's death, and its coming back. */
	stop(&guest);
	assert_int_equal(kvr_submit_lookup(guest.session, 0, &tickets[0]), 0);
	house_kill_server(&guest.house);
	assert_int_equal(poll_until_done(guest.client, fd, tickets[0], &result), -ECONNRESET);
	house_start_server(&guest.house);
	while ((error = kvr_submit_ping(guest.client, &tickets[0])) == -ECONNRESET)
		assert_int_equal(poll(&event, 1, 30000), 1);
	assert_int_equal(error, 0);
	assert_int_equal(poll_until_done(guest.client, fd, tickets[0], &result), 0);
	assert_int_equal(kvr_health(guest.client), KVR_HEALTHY);
	guest_close(&guest);
}

/* Messages cost nothing there, so there is no reason to wait; the calls are good all the same. */
static void what_is_held_goes_out_at_once_on_the_same_host(void **state)
{
	struct kvr_result result;
	kvr_ticket tickets[3];
	struct guest guest;
	int fd;

	(void)state;
	guest_open(&guest);
	fd = kvr_event_fd(guest.client);
	assert_int_equal(kvr_hold(guest.client), 0);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(kvr_submit_ping(guest.client, &tickets[i]), 0);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(poll_until_done(guest.client, fd, tickets[i], &result), 0);
	assert_int_equal(kvr_ping(guest.client, 0), 0);
	assert_int_equal(kvr_release(guest.client), 0);
	assert_int_equal(kvr_release(guest.client), 0);
	guest_close(&guest);
}

/* ---- long requests ---- */

static void long_chains_and_long_block_lists_are_served(void **state)
{
	const uint32_t stored = 200, chunks = 4096;
	uint32_t *tokens = calloc((size_t)chunks, HOUSE_CHUNK_TOKENS * sizeof(*tokens));
	uint32_t *ids = calloc((size_t)stored, HOUSE_BLOCKS_PER_CHUNK * sizeof(*ids));
	struct kvr_transfer transfer = KVR_TRANSFER_INIT;
	struct kvr_blocks blocks = { ids, stored * HOUSE_BLOCKS_PER_CHUNK };
	struct kvr_session *session;
	struct kvr_result result;
	struct guest guest;

	(void)state;
	assert_true(tokens && ids);
	for (uint32_t i = 0; i < chunks * HOUSE_CHUNK_TOKENS; i++)
		tokens[i] = 7 * i;
	for (uint32_t i = 0; i < blocks.count; i++)
		ids[i] = (i * 5) % HOUSE_BLOCKS; /* no two are neighbours */
	guest_open(&guest);
	assert_int_equal(kvr_session_create(guest.client, guest.registration, "long", "salt", &session), 0);
	assert_int_equal(kvr_session_tokens(session, tokens, (size_t)chunks * HOUSE_CHUNK_TOKENS), 0);
	assert_int_equal(kvr_session_chunks(session), chunks);
	assert_int_equal(kvr_lookup(session, 0, &result), 0);
	assert_int_equal(result.chunks, 0);
	transfer.chunk_count = stored;
	transfer.group_count = 1;
	transfer.groups = &blocks;
	if (kvr_store(session, &transfer, 0, &result))
		fail_msg("kvr_store: %s", result.text);
	assert_int_equal(result.chunks, stored);
	assert_int_equal(kvr_lookup(session, 0, &result), 0);
	assert_int_equal(result.chunks, stored);
	if (kvr_retrieve(session, &transfer, 0, &result))
		fail_msg("kvr_retrieve: %s", result.text);
	assert_int_equal(result.chunks, stored);
	assert_int_equal(kvr_end(session, 0), 0);
	assert_int_equal(kvr_session_destroy(&session), 0);
	free(tokens);
	free(ids);
	guest_close(&guest);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_wait_that_times_out_gives_nothing_back),
		cmocka_unit_test(calls_that_move_no_data_time_out_at_once_and_the_client_goes_on),
		cmocka_unit_test(a_transfer_that_times_out_returns_when_the_server_has_let_go),
		cmocka_unit_test(cancel_ends_a_lookup_and_a_transfer),
		cmocka_unit_test(closing_ends_although_the_server_does_not_answer),
		cmocka_unit_test(opening_times_out_when_the_server_does_not_answer),
		cmocka_unit_test(blocks_are_quiet_after_the_server_was_killed_in_the_middle),
		cmocka_unit_test(an_event_loop_hears_of_results_losses_and_returns),
		cmocka_unit_test(what_is_held_goes_out_at_once_on_the_same_host),
		cmocka_unit_test(long_chains_and_long_block_lists_are_served),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
