/* How connections begin and end: whatever was under way comes back once, and nothing touches memory afterwards. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "worker/rig.h"

static void no_line(void *context, enum log_level level, const char *line)
{
	(void)context;
	(void)level;
	(void)line;
}

static struct rig *start(uint64_t seed)
{
	struct rig_options options;

	log_set_sink(no_line, NULL);
	rig_options_default(&options);
	options.seed = seed;
	options.gathers = seed % 2;
	options.sim.pieces_max = 8;
	return rig_start(&options);
}

static struct request *begin_big(struct rig *rig, struct rig_client *client, uint16_t type, uint32_t chunks)
{
	static uint32_t blocks[RIG_BLOCKS];
	uint8_t *bytes = malloc(RIG_MESSAGE_MAX);
	struct request *request;

	for (uint32_t i = 0; i < RIG_BLOCKS; i++)
		blocks[i] = (i * 1367) % RIG_BLOCKS;
	rig->auto_answer = false;
	rig_send_indirect(client, bytes, rig_scattered(bytes, RIG_MESSAGE_MAX, type, 1, 0, chunks, blocks), 1, 0);
	request = rig_take_request(rig);
	rig_begin_transfer(rig, request);
	free(bytes);
	return request;
}

static void assert_filled(const uint8_t *bytes, uint64_t length, uint8_t with)
{
	for (uint64_t i = 0; i < length; i++)
		if (bytes[i] != with)
			fail_msg("byte %llu was written to", (unsigned long long)i);
}

enum ending { ENDING_CUT, ENDING_CLOSE, ENDING_KILL, ENDING_KEY, ENDINGS };

static void bring_to_an_end(struct rig_client *client, enum ending ending)
{
	struct rig *rig = client->rig;

	switch (ending) {
	case ENDING_CUT:
		sim_fabric_cut(rig->fabric, client->server_qp->qp_num);
		break;
	case ENDING_CLOSE:
		rig_close(client);
		break;
	case ENDING_KILL:
		sim_fabric_kill_device(rig->fabric, client->device);
		client->killed = true;
		break;
	default: /* the client takes its memory's registration away under the transfer */
		assert_int_equal(verbs_sim.deregister_memory(client->mr), 0);
		client->mr = NULL;
		break;
	}
}

/*
 * pitfalls C05, C08: in mid-transfer the link is cut, the connection closed, the client killed, or its memory
 * withdrawn. The transfer comes back failed, once; what it moved into L1 may be used again at that moment, and the
 * client's memory after CLOSED.
 */
static void a_connection_that_ends_in_mid_transfer_touches_nothing_afterwards(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 120; seed++) {
		enum ending ending = seed % ENDINGS;
		struct rig *rig = start(seed);
		struct rig_client *client = rig_join(rig, 0);
		struct rig_client *bystander = rig_join(rig, 1);
		uint64_t pool_bytes = (uint64_t)RIG_PLANES * RIG_BLOCKS * rig->options.block_stride;
		uint64_t after = random_mix(seed) % 2000;
		struct request *request;
		uint8_t bytes[64];

		request = begin_big(rig, client, seed / ENDINGS % 2 ? WIRE_RETRIEVE : WIRE_STORE, 400);
		RIG_UNTIL(rig, RIG_COUNT(rig, work_requests_total) >= after);
		bring_to_an_end(client, ending);
		assert_ptr_equal(rig_take_done(rig), request);
		for (uint32_t i = 0; i < 400; i++)
			assert_int_equal(request->transfer.outcomes[i], CHUNK_FAILED);
		assert_int_equal(request->transfer.moved_bytes, 0);
		memset(rig->l1, 0x11, rig->l1_bytes);
		assert_int_equal(client->lost_count, ending == ENDING_CLOSE ? 0 : 1);
		rig_steps(rig, 100);
		assert_false(client->closed); /* the request is still with management */
		rig_reply(rig, request, STATUS_OK);
		RIG_UNTIL(rig, client->closed);
		if (!client->killed)
			memset(rig_block(client, 0, 0), 0x22, pool_bytes);
		rig_send(bystander, bytes, rig_ping(bytes, 1));
		rig_reply_of(bystander, 1);
		rig_steps(rig, 1000);
		assert_filled(rig->l1, rig->l1_bytes, 0x11);
		if (!client->killed)
			assert_filled(rig_block(client, 0, 0), pool_bytes, 0x22);
		assert_int_equal(client->reply_count, 0);
		assert_int_equal(client->lost_count, ending == ENDING_CLOSE ? 0 : 1);
		if (!client->mr)
			assert_int_equal(verbs_sim.register_memory(
						 client->device, client->memory, client->memory_bytes, 0, &client->mr),
				0);
		rig_stop(rig);
	}
}

/* Only the first error is a cause; flushes behind it are counted as completions, and no more. */
static void a_lost_connection_is_one_error_however_much_was_under_way(void **state)
{
	struct rig *rig = start(3);
	struct rig_client *client = rig_join(rig, 0);
	struct request *request = begin_big(rig, client, WIRE_RETRIEVE, 400);

	(void)state;
	RIG_UNTIL(rig, RIG_COUNT(rig, work_requests_total) > 60);
	sim_fabric_cut(rig->fabric, client->server_qp->qp_num);
	rig_take_done(rig);
	assert_int_equal(RIG_COUNT(rig, completion_errors_total), 1);
	assert_int_equal(RIG_COUNT(rig, connections_lost_total), 1);
	assert_int_equal(RIG_COUNT(rig, transfer_failures_total), 1);
	rig_reply(rig, request, STATUS_OK);
	RIG_UNTIL(rig, client->closed);
	assert_int_equal(RIG_COUNT(rig, completion_errors_total), 1);
	rig_stop(rig);
}

/* pitfalls C08: everything that can be outstanding is, on all connections; each request comes back once. */
static void all_requests_of_lost_connections_come_back_once(void **state)
{
	uint8_t bytes[WIRE_INLINE_BYTES];

	(void)state;
	for (uint64_t seed = 1; seed <= 30; seed++) {
		struct rig *rig = start(seed);
		uint32_t all = RIG_CLIENTS * rig->options.credits;

		rig->auto_answer = false;
		rig->auto_close = seed % 2;
		for (unsigned c = 0; c < RIG_CLIENTS; c++) {
			struct rig_client *client = rig_join(rig, c);

			for (uint64_t id = 1; id <= rig->options.credits; id++)
				rig_send(client, bytes,
					id % 2 ? rig_lookup(bytes, sizeof(bytes), id, 4)
					       : rig_transfer(bytes, WIRE_STORE, id, c * 100 + (uint32_t)id * 8, 8,
							 (uint32_t)id * 32));
		}
		RIG_UNTIL(rig, rig->inbox_count == all);
		for (uint32_t i = 0; i < all; i++)
			if (rig->inbox[i]->header.type == WIRE_STORE)
				rig_begin_transfer(rig, rig->inbox[i]);
		rig_steps(rig, (unsigned)random_below(&rig->random, 40));
		for (unsigned c = 0; c < RIG_CLIENTS; c++)
			sim_fabric_cut(rig->fabric, rig->clients[c].server_qp->qp_num);
		RIG_UNTIL(rig, rig->done_count == all / 2);
		for (unsigned c = 0; c < RIG_CLIENTS; c++)
			rig_close(&rig->clients[c]);
		rig_steps(rig, 100);
		for (uint32_t i = 0; i < all; i++)
			rig_reply(rig, rig->inbox[i], STATUS_OK);
		rig->inbox_count = 0;
		rig->done_count = 0;
		for (unsigned c = 0; c < RIG_CLIENTS; c++)
			RIG_UNTIL(rig, rig->clients[c].closed);
		assert_int_equal(rig->transfers_done, all / 2);
		rig_stop(rig);
	}
}

static void a_transfer_for_a_failed_connection_comes_back_at_once(void **state)
{
	struct rig *rig = start(1);
	struct rig_client *client = rig_join(rig, 0);
	uint8_t bytes[WIRE_INLINE_BYTES];
	struct request *request;
	uint64_t posts;

	(void)state;
	rig->auto_answer = false;
	rig->auto_close = false;
	rig_send(client, bytes, rig_transfer(bytes, WIRE_RETRIEVE, 1, 0, 3, 0));
	request = rig_take_request(rig);
	rig_send(client, "nonsense", 8);
	RIG_UNTIL(rig, client->lost);
	posts = rig->posts;
	rig_begin_transfer(rig, request);
	rig_take_done(rig);
	assert_int_equal(request->transfer.outcomes[0], CHUNK_FAILED);
	assert_int_equal(request->transfer.outcomes[2], CHUNK_FAILED);
	assert_int_equal(rig->posts, posts);
	rig_abort(rig, request); /* crosses its TRANSFER_DONE */
	rig_steps(rig, 50);
	assert_int_equal(rig->done_count, 0);
	rig_reply(rig, request, STATUS_OK);
	rig_steps(rig, 100);
	assert_int_equal(rig->posts, posts);
	assert_false(client->closed);
	rig_close(client);
	RIG_UNTIL(rig, client->closed);
	rig_stop(rig);
}

/* Completions that no real device makes: of a queue pair that is gone, of a receive that is not ours, twice, out of
 * order. */
static struct ibv_wc injected[4];
static int injected_count;
static int (*real_poll_cq)(struct ibv_cq *cq, int capacity, struct ibv_wc *wcs);

static int injecting_poll_cq(struct ibv_cq *cq, int capacity, struct ibv_wc *wcs)
{
	int count = injected_count;

	if (count == 0)
		return real_poll_cq(cq, capacity, wcs);
	memcpy(wcs, injected, (size_t)count * sizeof(*wcs));
	injected_count = 0;
	return count;
}

/* pitfalls C09 */
static void completions_of_unknown_queue_pairs_are_counted_and_ignored(void **state)
{
	struct rig *rig = start(1);
	struct rig_client *client = rig_join(rig, 0);
	uint8_t bytes[64];

	(void)state;
	real_poll_cq = rig->device->context->ops.poll_cq;
	rig->device->context->ops.poll_cq = injecting_poll_cq;
	memset(injected, 0, sizeof(injected));
	injected[0] = (struct ibv_wc){ .qp_num = 0xffffff, .wr_id = 5, .status = IBV_WC_SUCCESS };
	injected[1] = (struct ibv_wc){ .qp_num = 0xffffff, .wr_id = 5, .status = IBV_WC_WR_FLUSH_ERR };
	injected[2] = (struct ibv_wc){ .qp_num = 0xffffff, .wr_id = WR_ID_RECEIVE | 1000000, .status = IBV_WC_SUCCESS };
	injected[3] = (struct ibv_wc){ .qp_num = 0xffffff, .wr_id = UINT64_MAX, .status = IBV_WC_GENERAL_ERR };
	injected_count = 4;
	RIG_UNTIL(rig, injected_count == 0);
	rig_step(rig);
	assert_int_equal(RIG_COUNT(rig, unknown_queue_pair_total), 4);
	assert_int_equal(RIG_COUNT(rig, completion_errors_total), 0);
	rig_send(client, bytes, rig_ping(bytes, 1));
	rig_reply_of(client, 1);

	/* A send completion that nothing was posted for: ignored. Everything that was is waited for. */
	injected[0] = (struct ibv_wc){ .qp_num = client->server_qp->qp_num, .wr_id = 99, .status = IBV_WC_SUCCESS };
	injected_count = 1;
	RIG_UNTIL(rig, injected_count == 0);
	rig_send(client, bytes, rig_ping(bytes, 2));
	rig_reply_of(client, 2);
	rig->device->context->ops.poll_cq = real_poll_cq;
	rig_stop(rig);
}

static void a_completion_out_of_order_ends_the_connection(void **state)
{
	struct rig *rig = start(1);
	struct rig_client *client = rig_join(rig, 0);
	struct request *request = begin_big(rig, client, WIRE_RETRIEVE, 400);

	(void)state;
	RIG_UNTIL(rig, RIG_COUNT(rig, work_requests_total) > 60);
	real_poll_cq = rig->device->context->ops.poll_cq;
	rig->device->context->ops.poll_cq = injecting_poll_cq;
	injected[0] = (struct ibv_wc){
		.qp_num = client->server_qp->qp_num, .wr_id = UINT64_C(1) << 40, .status = IBV_WC_SUCCESS
	};
	injected_count = 1;
	RIG_UNTIL(rig, client->lost);
	rig->device->context->ops.poll_cq = real_poll_cq;
	assert_ptr_equal(rig_take_done(rig), request);
	assert_int_equal(request->transfer.outcomes[0], CHUNK_FAILED);
	rig_reply(rig, request, STATUS_OK);
	RIG_UNTIL(rig, client->closed);
	rig_stop(rig);
}

static void one_connection_too_many_is_lost_at_once(void **state)
{
	struct rig_options options;
	struct rig *rig;
	struct rig_client *client;
	struct ring_message forget = { .kind = TO_WORKER_FORGET };
	uint8_t bytes[64];

	(void)state;
	log_set_sink(no_line, NULL);
	rig_options_default(&options);
	options.connections_max = 2;
	rig = rig_start(&options);
	rig->auto_close = false;
	rig_join(rig, 0);
	rig_join(rig, 1);
	client = rig_join(rig, 2);
	RIG_UNTIL(rig, client->lost);
	forget.word[0] = (uint64_t)(uintptr_t)&client->connection;
	forget.word[1] = 1;
	assert_true(ring_push(&rig->mailbox->to_worker, &forget));
	RIG_UNTIL(rig, client->forgotten == 1);
	rig_leave(client);
	rig_leave(&rig->clients[0]);
	client = rig_join(rig, 2);
	rig_send(client, bytes, rig_ping(bytes, 1));
	rig_reply_of(client, 1);
	rig_stop(rig);
}

/* pitfalls C12: both sides end it at once, in any order of events. */
static void both_sides_may_end_it_at_the_same_time(void **state)
{
	uint8_t bytes[64];

	(void)state;
	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct rig *rig = start(seed);
		struct rig_client *client = rig_join(rig, 0);

		rig->auto_close = seed % 2;
		for (uint64_t id = 1; id <= 4; id++)
			rig_send(client, bytes, rig_ping(bytes, id));
		rig_steps(rig, (unsigned)random_below(&rig->random, 60));
		verbs_sim.qp_fail(client->qp);
		rig_steps(rig, (unsigned)random_below(&rig->random, 20));
		rig_close(client);
		RIG_UNTIL(rig, client->closed);
		assert_true(client->lost_count <= 1);
		rig_stop(rig);
	}
}

static void connections_come_and_go_and_leave_nothing(void **state)
{
	struct rig *rig = start(9);
	uint8_t bytes[64];
	uint64_t opened = 0;

	(void)state;
	for (unsigned round = 0; round < 600; round++) {
		struct rig_client *client = &rig->clients[random_below(&rig->random, RIG_CLIENTS)];

		if (!client->open) {
			client = rig_join(rig, (unsigned)(client - rig->clients));
			opened++;
		} else if (random_chance(&rig->random, 1, 3)) {
			rig_leave(client);
			continue;
		}
		rig_send(client, bytes, rig_ping(bytes, round + 1));
		if (random_chance(&rig->random, 1, 2))
			rig_reply_of(client, round + 1);
	}
	assert_true(opened > 100);
	RIG_UNTIL(rig, RIG_COUNT(rig, connections_opened_total) == opened);
	assert_int_equal(RIG_COUNT(rig, connections_lost_total), 0);
	rig_stop(rig);
}

/* pitfalls C09: what the completion queue still holds of a connection has been polled before it is stopped. The
 * receive buffers in it would be lost else (rig_stop counts them). */
static void a_full_completion_queue_is_polled_dry_before_the_end(void **state)
{
	struct rig_options options;
	struct rig *rig;
	struct rig_client *client;
	uint8_t bytes[64];

	(void)state;
	log_set_sink(no_line, NULL);
	rig_options_default(&options);
	options.credits = 300;
	options.connections_max = 1;
	rig = rig_start(&options);
	client = rig_join(rig, 0);
	RIG_UNTIL(rig, client->connection.worker);
	for (uint64_t id = 1; id <= options.credits; id++)
		rig_send(client, bytes, rig_ping(bytes, id));
	/* All of it has arrived when the worker looks again, and finds CLOSE as well. */
	while (sim_fabric_step(rig->fabric, rig->now += 1000, 64) > 0 ||
		sim_fabric_next_ns(rig->fabric) < rig->now + 1000000)
		;
	rig_close(client);
	RIG_UNTIL(rig, client->closed);
	assert_true(RIG_COUNT(rig, completions_total) >= options.credits);
	rig_stop(rig);
}

static void send_something(struct rig *rig, struct rig_client *client, uint64_t id)
{
	uint8_t bytes[4096];
	uint32_t chunks = 1 + (uint32_t)random_below(&rig->random, 100);
	uint32_t block = (uint32_t)random_below(&rig->random, RIG_BLOCKS - chunks * RIG_CHUNK_BLOCKS);
	uint16_t type = random_chance(&rig->random, 1, 2) ? WIRE_STORE : WIRE_RETRIEVE;

	switch (random_below(&rig->random, 5)) {
	case 0:
		rig_send(client, bytes, rig_ping(bytes, id));
		break;
	case 1:
		rig_send(client, bytes, rig_lookup(bytes, sizeof(bytes), id, 5));
		break;
	case 2:
		rig_send_indirect(client, bytes, rig_lookup(bytes, sizeof(bytes), id, 50), id, id % RIG_PLACES);
		break;
	default:
		rig_send(client, bytes, rig_transfer(bytes, type, id, chunks, chunks, block));
		break;
	}
}

/* Links that break, keys that are refused, posts that are refused, replies late: whatever happens, everything comes
 * back. */
static void a_world_of_faults_leaves_nothing_behind(void **state)
{
	uint64_t gathered = 0, replies_gathered = 0;
	uint32_t deaths = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 25; seed++) {
		struct rig *rig = start(seed);
		struct sim_options faults = rig->options.sim;
		uint64_t next[RIG_CLIENTS] = { 0 };

		faults.cut_per_million = 5000;
		faults.access_error_per_million = 5000;
		sim_fabric_set_options(rig->fabric, &faults);
		rig->refuse_per_thousand = seed % 3 ? 0 : 10;
		for (unsigned i = 0; i < 10000; i++) {
			unsigned c = (unsigned)random_below(&rig->random, RIG_CLIENTS);
			struct rig_client *client = &rig->clients[c];

			if (client->open && client->closed) {
				rig_leave(client);
				deaths++;
			} else if (!client->open) {
				rig_join(rig, c);
				next[c] = 0;
			} else if (!client->lost && client->qp->state == IBV_QPS_RTS &&
				next[c] - client->reply_count < rig->options.credits) {
				if (rig->options.gathers && !client->holds && random_chance(&rig->random, 1, 3))
					rig_hold(client);
				send_something(rig, client, ++next[c]);
				if (client->holds && random_chance(&rig->random, 1, 3))
					rig_release(client);
			} else if (client->qp->state == IBV_QPS_ERR && !client->lost) {
				rig_close(client); /* its control socket would have told */
			}
			rig_step(rig);
		}
		gathered += RIG_COUNT(rig, requests_gathered_total);
		replies_gathered += RIG_COUNT(rig, replies_gathered_total);
		sim_fabric_set_options(rig->fabric, &rig->options.sim);
		rig_stop(rig);
	}
	assert_true(deaths > 150);
	assert_true(gathered > 1000 && replies_gathered > 300);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_connection_that_ends_in_mid_transfer_touches_nothing_afterwards),
		cmocka_unit_test(a_lost_connection_is_one_error_however_much_was_under_way),
		cmocka_unit_test(all_requests_of_lost_connections_come_back_once),
		cmocka_unit_test(a_transfer_for_a_failed_connection_comes_back_at_once),
		cmocka_unit_test(completions_of_unknown_queue_pairs_are_counted_and_ignored),
		cmocka_unit_test(a_completion_out_of_order_ends_the_connection),
		cmocka_unit_test(one_connection_too_many_is_lost_at_once),
		cmocka_unit_test(both_sides_may_end_it_at_the_same_time),
		cmocka_unit_test(connections_come_and_go_and_leave_nothing),
		cmocka_unit_test(a_full_completion_queue_is_polled_dry_before_the_end),
		cmocka_unit_test(a_world_of_faults_leaves_nothing_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
