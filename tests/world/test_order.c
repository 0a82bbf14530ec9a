/*
 * test_order.c - transfers in step with the engine: layers that are told of one after the other, transfers that wait for a mark, and
 * what becomes of both when something ends too early.
 */
#include <errno.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "client/client_private.h"
#include "protocol/status.h"
#include "world/slice.h"

#define CHUNKS 8u
#define BLOCKS (CHUNKS * SLICE_BLOCKS_PER_CHUNK)
#define LAYER_PLANES (SLICE_PLANES / SLICE_LAYERS)

static struct slice slice;
static struct slice_request request, other;
static struct slice_client *const first = &slice.clients[0], *const second = &slice.clients[1];

static struct kvr_session *begin(uint64_t seed, unsigned clients)
{
	struct kvr_session *session;

	memset(&request, 0, sizeof(request));
	memset(&other, 0, sizeof(other));
	slice_start(&slice, seed, NULL, 1u << 20);
	for (unsigned i = 0; i < clients; i++)
		slice_join(&slice, i, "model", 1, 0);
	session = slice_session(first, "request", NULL, 1, CHUNKS);
	assert_int_equal(slice_store(first, session, 0, CHUNKS, 0, 1, &other), 0);
	return session;
}

static void end(struct kvr_session *session)
{
	slice_forget(&session);
	slice_stop(&slice);
}

static int layer_state(uint32_t layer)
{
	struct client_word word;

	return client_layer(first->client, request.ticket, layer, &word);
}

static bool layer_holds(uint32_t layer, uint32_t mark)
{
	for (uint32_t p = layer * LAYER_PLANES; p < (layer + 1) * LAYER_PLANES; p++) {
		for (uint32_t i = 0; i < BLOCKS; i++) {
			if (!slice_plane_holds(first, p, request.ids[i], mark, i))
				return false;
		}
	}
	return true;
}

/* ---- layers ----------------------------------------------------------------------------------------------------- */

struct seen {
	uint32_t layers;    /* that were there, so far */
	bool before_others; /* some was there while a later one was not */
};

static void look_at_layers(struct slice *world, void *context)
{
	struct seen *seen = context;

	(void)world;
	while (seen->layers < SLICE_LAYERS && layer_state(seen->layers) == 0) {
		assert_true(layer_holds(seen->layers, 1));
		seen->layers++;
	}
	seen->before_others |= seen->layers > 0 && seen->layers < SLICE_LAYERS;
}

static void a_layer_is_told_of_when_its_data_is_there_and_before_the_others(void **state)
{
	unsigned early = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct kvr_session *session = begin(seed, 1);
		struct seen seen = { 0, false };

		slice.layers = SLICE_LAYERS;
		slice_submit_retrieve(first, session, 0, CHUNKS, 100, &request);
		slice.every_turn = look_at_layers;
		slice.context = &seen;
		while (seen.layers < SLICE_LAYERS)
			slice_run(&slice, 1);
		slice.every_turn = NULL;
		early += seen.before_others;
		assert_int_equal(slice_finish(first, &request), 0);
		slice_outcomes_are(&request, KVR_DELIVERED);
		end(session);
	}
	assert_true(early > 10);
}

static void words_are_used_again_and_a_ticket_that_was_taken_has_none(void **state)
{
	struct kvr_session *session = begin(3, 1);

	(void)state;
	slice.layers = 1;
	for (unsigned i = 0; i < 3 * CLIENT_LAYER_SETS; i++) {
		slice_submit_retrieve(first, session, 0, CHUNKS, 100, &request);
		assert_int_equal(layer_state(0), -EAGAIN);
		assert_int_equal(layer_state(1), -ERANGE);
		assert_int_equal(slice_finish(first, &request), 0);
		assert_int_equal(layer_state(0), -ENOENT);
	}
	end(session);
}

static void chunks_that_are_missing_or_skipped_hold_up_no_layer(void **state)
{
	struct kvr_session *session = begin(5, 1);
	struct kvr_session *longer = slice_session(first, "longer", NULL, 1, CHUNKS + 2);
	struct kvr_session *nothing = slice_session(first, "nothing", NULL, 7, CHUNKS);

	(void)state;
	slice.layers = SLICE_PLANES;
	slice_submit_retrieve(first, longer, 0, CHUNKS + 2, 100, &request);
	while (layer_state(SLICE_PLANES - 1) == -EAGAIN)
		slice_run(&slice, 1);
	assert_int_equal(slice_finish(first, &request), 0);
	assert_int_equal(request.result.status, STATUS_PARTIAL);
	slice_submit_retrieve(first, nothing, 0, CHUNKS, 100, &request);
	while (layer_state(SLICE_PLANES - 1) == -EAGAIN)
		slice_run(&slice, 1);
	assert_int_equal(slice_finish(first, &request), 0);
	slice_outcomes_are(&request, KVR_MISSING);
	slice_forget(&longer);
	slice_forget(&nothing);
	end(session);
}

static void who_waits_for_a_layer_of_a_lost_connection_is_let_through(void **state)
{
	struct kvr_session *session = begin(7, 1);
	struct client_word word;

	(void)state;
	slice.layers = SLICE_LAYERS;
	slice_submit_retrieve(first, session, 0, CHUNKS, 100, &request);
	assert_int_equal(client_layer(first->client, request.ticket, SLICE_LAYERS - 1, &word), -EAGAIN);
	slice_server_kill(&slice);
	assert_int_equal(slice_finish(first, &request), -ECONNRESET);
	assert_true(transfer_word_reached(*word.address, word.value)); /* a stream would go on */
	slice_server_begin(&slice);
	slice_await_ready(first);
	end(session);
}

static void what_cannot_be_layers_is_refused(void **state)
{
	struct kvr_session *session = begin(9, 1);
	struct kvr_blocks blocks = { request.ids, BLOCKS };
	struct kvr_transfer transfer = KVR_TRANSFER_INIT;
	kvr_ticket ticket, tickets[CLIENT_LAYER_SETS];
	struct kvr_result result;

	(void)state;
	for (uint32_t i = 0; i < BLOCKS; i++)
		request.ids[i] = i;
	transfer.chunk_count = CHUNKS;
	transfer.group_count = 1;
	transfer.groups = &blocks;
	transfer.layers = 4; /* of six planes */
	assert_int_equal(client_submit_transfer(session, false, &transfer, &ticket), -EINVAL);
	transfer.layers = CLIENT_LAYERS_MAX + 1;
	assert_int_equal(client_submit_transfer(session, false, &transfer, &ticket), -EINVAL);
	transfer.layers = 2;
	for (unsigned i = 0; i < CLIENT_LAYER_SETS; i++)
		assert_int_equal(client_submit_transfer(session, false, &transfer, &tickets[i]), 0);
	assert_int_equal(client_submit_transfer(session, false, &transfer, &ticket), -EBUSY);
	for (unsigned i = 0; i < CLIENT_LAYER_SETS; i++)
		assert_int_equal(slice_wait(&slice, first->client, tickets[i], &result), 0);
	/* A program that was built with the struct as it was before. */
	transfer.layers = 4;
	transfer.struct_bytes = offsetof(struct kvr_transfer, layers);
	assert_int_equal(client_submit_transfer(session, false, &transfer, &ticket), 0);
	assert_int_equal(slice_wait(&slice, first->client, ticket, &result), 0);
	/* A server that knows nothing of it. */
	transfer.struct_bytes = sizeof(transfer);
	transfer.layers = 2;
	first->client->server.features = 0;
	assert_int_equal(client_submit_transfer(session, false, &transfer, &ticket), -EOPNOTSUPP);
	end(session);
}

/* ---- marks ------------------------------------------------------------------------------------------------------ */

static void a_store_takes_what_is_there_when_its_mark_is_reached(void **state)
{
	struct kvr_session *session = begin(11, 2);
	struct kvr_session *stored = slice_session(first, "stored", NULL, 2, CHUNKS);
	struct kvr_session *read = slice_session(second, "read", NULL, 2, CHUNKS);

	(void)state;
	assert_int_equal(client_mark_new(first->client, &slice.after), 0);
	slice_submit_store(first, stored, 0, CHUNKS, 0, 8, &request);
	slice_pass(&slice, 5 * KVR_MS);
	assert_int_equal(slice_match(second, read, 0), 0);
	/* What a kernel would have written by now. */
	for (uint32_t i = 0; i < BLOCKS; i++)
		slice_fill(first, request.ids[i], 9, i);
	assert_int_equal(client_mark_reach(first->client, slice.after), 0);
	assert_int_equal(slice_finish(first, &request), 0);
	slice_outcomes_are(&request, KVR_STORED);
	slice.after = 0;
	assert_int_equal(slice_retrieve(second, read, 0, CHUNKS, 100, &other), 0);
	for (uint32_t c = 0; c < CHUNKS; c++)
		assert_true(slice_delivered(second, &other, c, 9));
	slice_forget(&stored);
	slice_forget(&read);
	end(session);
}

static void a_retrieve_leaves_its_blocks_alone_until_its_mark_is_reached(void **state)
{
	struct kvr_session *session = begin(13, 1);
	kvr_mark mark;

	(void)state;
	slice.layers = SLICE_LAYERS;
	assert_int_equal(client_mark_new(first->client, &slice.after), 0);
	slice_submit_retrieve(first, session, 0, CHUNKS, 100, &request);
	slice_pass(&slice, 5 * KVR_MS);
	for (uint32_t i = 0; i < BLOCKS; i++)
		assert_true(slice_poisoned(first, request.ids[i]));
	assert_int_equal(layer_state(0), -EAGAIN);
	/* Others are served meanwhile, over the same queue pair. */
	mark = slice.after;
	slice.after = 0;
	assert_int_equal(slice_retrieve(first, session, 0, CHUNKS, 0, &other), 0);
	slice.after = mark;
	assert_int_equal(client_mark_reach(first->client, mark), 0);
	assert_int_equal(slice_finish(first, &request), 0);
	for (uint32_t l = 0; l < SLICE_LAYERS; l++)
		assert_true(layer_holds(l, 1));
	/* One that was reached long ago. */
	slice_submit_retrieve(first, session, 0, CHUNKS, 100, &request);
	assert_int_equal(slice_finish(first, &request), 0);
	end(session);
}

static void many_transfers_wait_for_one_mark_and_none_for_another(void **state)
{
	struct kvr_session *session = begin(15, 1);
	static struct slice_request many[5];
	kvr_mark later;

	(void)state;
	memset(many, 0, sizeof(many));
	assert_int_equal(client_mark_new(first->client, &slice.after), 0);
	assert_int_equal(client_mark_new(first->client, &later), 0);
	assert_true(later != slice.after);
	for (unsigned i = 0; i < KVR_COUNT_OF(many); i++) {
		slice_submit_retrieve(first, session, 0, CHUNKS, i * BLOCKS, &many[i]);
	}
	slice_pass(&slice, KVR_MS);
	assert_int_equal(client_mark_reach(first->client, later), 0);
	slice_pass(&slice, KVR_MS);
	for (unsigned i = 0; i < KVR_COUNT_OF(many); i++)
		assert_true(slice_poisoned(first, many[i].ids[0]));
	assert_int_equal(client_mark_reach(first->client, slice.after), 0);
	for (unsigned i = 0; i < KVR_COUNT_OF(many); i++)
		assert_int_equal(slice_finish(first, &many[i]), 0);
	end(session);
}

static void a_transfer_that_waits_for_a_mark_can_be_canceled(void **state)
{
	struct kvr_session *session = begin(17, 1);

	(void)state;
	slice.layers = SLICE_LAYERS;
	for (unsigned turns = 0; turns < 200; turns += 7) {
		struct client_word word;

		assert_int_equal(client_mark_new(first->client, &slice.after), 0);
		slice_submit_retrieve(first, session, 0, CHUNKS, 100, &request);
		slice_run(&slice, turns);
		assert_int_equal(client_layer(first->client, request.ticket, 0, &word), -EAGAIN);
		assert_int_equal(client_submit_cancel(first->client, request.ticket), 0);
		assert_int_equal(slice_finish(first, &request), -ECANCELED);
		assert_true(transfer_word_reached(*word.address, word.value));
		for (uint32_t i = 0; i < BLOCKS; i++)
			assert_true(slice_poisoned(first, request.ids[i]));
	}
	assert_int_equal(slice_locks(&slice), 0);
	end(session);
}

static void a_client_that_dies_while_its_store_waits_leaves_nothing(void **state)
{
	struct kvr_session *session = begin(19, 2);
	struct kvr_session *stored = slice_session(second, "stored", NULL, 2, CHUNKS);
	struct status_snapshot status;

	(void)state;
	assert_int_equal(client_mark_new(second->client, &slice.after), 0);
	slice_submit_store(second, stored, 0, CHUNKS, 0, 8, &request);
	slice_pass(&slice, KVR_MS);
	slice_status(&slice, &status);
	assert_int_equal(status.cache.staged, CHUNKS);
	slice_kill(second);
	slice_pass(&slice, 5 * KVR_SECOND);
	slice_status(&slice, &status);
	assert_int_equal(status.cache.staged, 0);
	end(session);
}

static void a_server_that_goes_ends_what_waits(void **state)
{
	struct kvr_session *session = begin(21, 1);

	(void)state;
	assert_int_equal(client_mark_new(first->client, &slice.after), 0);
	slice_submit_retrieve(first, session, 0, CHUNKS, 100, &request);
	slice_pass(&slice, KVR_MS);
	slice_server_kill(&slice);
	assert_int_equal(slice_finish(first, &request), -ECONNRESET);
	slice_server_begin(&slice);
	slice_await_ready(first);
	end(session);
}

static void marks_are_given_out_again_once_they_were_reached(void **state)
{
	struct kvr_session *session = begin(23, 1);
	static kvr_mark marks[CLIENT_MARKS];
	kvr_mark more;

	(void)state;
	for (unsigned i = 0; i < CLIENT_MARKS; i++) {
		assert_int_equal(client_mark_new(first->client, &marks[i]), 0);
		assert_true(marks[i] != 0);
	}
	assert_int_equal(client_mark_new(first->client, &more), -EBUSY);
	assert_int_equal(client_mark_reach(first->client, marks[77]), 0);
	assert_int_equal(client_mark_new(first->client, &more), 0);
	assert_true(more != marks[77]);
	/* Reached twice, and late: the new one of that word is not reached by that. */
	assert_int_equal(client_mark_reach(first->client, marks[77]), 0);
	slice.after = more;
	slice_submit_retrieve(first, session, 0, CHUNKS, 100, &request);
	slice_pass(&slice, KVR_MS);
	assert_true(slice_poisoned(first, request.ids[0]));
	assert_int_equal(client_mark_reach(first->client, more), 0);
	assert_int_equal(slice_finish(first, &request), 0);
	end(session);
}

static void what_is_no_mark_is_refused(void **state)
{
	struct kvr_session *session = begin(25, 1);
	static const kvr_mark wrong[] = { 1, UINT64_MAX, UINT64_C(5) << 16, CLIENT_MARKS | UINT64_C(1) << 16 };
	struct kvr_blocks blocks = { request.ids, BLOCKS };
	struct kvr_transfer transfer = KVR_TRANSFER_INIT;
	kvr_ticket ticket;

	(void)state;
	transfer.chunk_count = CHUNKS;
	transfer.group_count = 1;
	transfer.groups = &blocks;
	assert_int_equal(client_mark_reach(first->client, 0), -EINVAL);
	for (unsigned i = 1; i < KVR_COUNT_OF(wrong); i++) {
		assert_int_equal(client_mark_reach(first->client, wrong[i]), -EINVAL);
		transfer.after = wrong[i];
		assert_int_equal(client_submit_transfer(session, true, &transfer, &ticket), -EINVAL);
	}
	end(session);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_layer_is_told_of_when_its_data_is_there_and_before_the_others),
		cmocka_unit_test(words_are_used_again_and_a_ticket_that_was_taken_has_none),
		cmocka_unit_test(chunks_that_are_missing_or_skipped_hold_up_no_layer),
		cmocka_unit_test(who_waits_for_a_layer_of_a_lost_connection_is_let_through),
		cmocka_unit_test(what_cannot_be_layers_is_refused),
		cmocka_unit_test(a_store_takes_what_is_there_when_its_mark_is_reached),
		cmocka_unit_test(a_retrieve_leaves_its_blocks_alone_until_its_mark_is_reached),
		cmocka_unit_test(many_transfers_wait_for_one_mark_and_none_for_another),
		cmocka_unit_test(a_transfer_that_waits_for_a_mark_can_be_canceled),
		cmocka_unit_test(a_client_that_dies_while_its_store_waits_leaves_nothing),
		cmocka_unit_test(a_server_that_goes_ends_what_waits),
		cmocka_unit_test(marks_are_given_out_again_once_they_were_reached),
		cmocka_unit_test(what_is_no_mark_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
