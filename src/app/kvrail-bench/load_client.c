/* load_client.c - one thread that keeps `depth` requests in flight until the round is over. */
#include "app/kvrail-bench/load_private.h"

#include <errno.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "protocol/status.h"

#define SPIN_NS (50 * KVR_US)
#define RETRY_NS (50 * KVR_US)
#define WAIT_NS (500 * KVR_US)
#define REPLY_LIMIT_NS (30 * KVR_SECOND)

static void fail(struct load_client *client, struct load_slot *slot, int error, const char *words)
{
	slot->stores = client->load->stores; /* its session has ended, one way or the other */
	complain(&client->load->complaints, "%s: %s", measure_op_names[slot->op], words[0] ? words : strerror(-error));
	kvr_counter_add(&client->counters.errors, 1);
	if (error == -ECONNRESET)
		kvr_store_release(&client->load->complaints.stop, 1);
}

/* ---- which request ---- */

static struct load_chain *choose_chain(struct load_client *client)
{
	uint32_t at = (uint32_t)random_below(&client->random, client->load->chains);

	/* Two requests of one session at once are good, but two LOOKUPs and an END between them are not what is
	 * measured. */
	for (uint32_t i = 0; i < client->load->chains; i++, at = at + 1 < client->load->chains ? at + 1 : 0) {
		if (!client->chains[at].busy)
			return &client->chains[at];
	}
	return NULL;
}

static enum measure_op choose_op(struct load_client *client)
{
	switch ((enum load_op)client->load->settings->op) {
	case LOAD_PING:
		return MEASURE_PING;
	case LOAD_LOOKUP:
		return MEASURE_LOOKUP;
	case LOAD_STORE:
		return MEASURE_STORE;
	case LOAD_RETRIEVE:
		return MEASURE_RETRIEVE;
	case LOAD_MIXED:
		break;
	}
	return random_chance(&client->random, client->load->settings->read_percent, 100) ? MEASURE_RETRIEVE
											 : MEASURE_STORE;
}

static int submit_transfer(struct load_client *client, struct load_slot *slot)
{
	struct kvr_transfer transfer = KVR_TRANSFER_INIT;
	struct kvr_blocks blocks = { slot->ids, client->load->chunks * client->load->shape.chunk_blocks };

	transfer.chunk_count = client->load->chunks;
	transfer.group_count = 1;
	transfer.groups = &blocks;
	transfer.outcomes = slot->outcomes;
	memset(slot->outcomes, 0, client->load->chunks);
	if (slot->op == MEASURE_STORE) {
		transfer.first_chunk = slot->stores * client->load->chunks;
		return kvr_submit_store(slot->session, &transfer, &slot->ticket);
	}
	return kvr_submit_retrieve(slot->chain->session, &transfer, &slot->ticket);
}

static int submit(struct load_client *client, struct load_slot *slot)
{
	switch (slot->op) {
	case MEASURE_PING:
		return kvr_submit_ping(client->endpoint.client, &slot->ticket);
	case MEASURE_LOOKUP:
		return kvr_submit_lookup(slot->chain->session, 0, &slot->ticket);
	case MEASURE_END:
		return kvr_submit_end(slot->session ? slot->session : slot->chain->session, &slot->ticket);
	default:
		return submit_transfer(client, slot);
	}
}

static void slot_free(struct load_client *client, struct load_slot *slot)
{
	if (slot->blocks_taken)
		fakegpu_give(&client->endpoint.gpu, client->load->chunks * client->load->shape.chunk_blocks, slot->ids,
			false);
	if (slot->session && slot->stores == client->load->stores)
		(void)kvr_session_destroy(&slot->session);
	if (slot->chain)
		slot->chain->busy = false;
	slot->blocks_taken = false;
	slot->chain = NULL;
	slot->in_use = false;
}

static void slot_submit(struct load_client *client, struct load_slot *slot)
{
	int error;

	slot->ticket = 0;
	error = submit(client, slot);
	if (error == -EBUSY) {
		kvr_counter_add(&client->counters.retries, 1);
		slot->ticket = 0;
		slot->retry_ns = clock_now_ns() + RETRY_NS;
	} else if (error) {
		fail(client, slot, error, kvr_error_text());
		slot_free(client, slot);
	}
}

static void slot_begin(struct load_client *client, struct load_slot *slot)
{
	uint32_t count = client->load->chunks * client->load->shape.chunk_blocks;
	int error = 0;

	slot->op = choose_op(client);
	slot->in_use = true;
	if (slot->op == MEASURE_LOOKUP || slot->op == MEASURE_RETRIEVE) {
		slot->chain = choose_chain(client);
		if (!slot->chain) {
			slot->in_use = false;
			return;
		}
		slot->chain->busy = true;
	} else if (slot->op == MEASURE_STORE && !slot->session) {
		slot->stores = 0;
		error = load_session(
			client, client->next_seed++, client->load->stores * client->load->chunks, &slot->session);
	}
	if (!error && (slot->op == MEASURE_RETRIEVE || slot->op == MEASURE_STORE)) {
		slot->blocks_taken = fakegpu_take(&client->endpoint.gpu, count, slot->ids);
		error = slot->blocks_taken ? 0 : -ENOBUFS;
	}
	if (error) {
		fail(client, slot, error, error == -ENOBUFS ? "no blocks" : kvr_error_text());
		slot_free(client, slot);
		return;
	}
	slot->begin_ns = clock_now_ns();
	slot_submit(client, slot);
}

/* ---- replies ---- */

static uint64_t transfer_result(struct load_client *client, struct load_slot *slot, const struct kvr_result *result)
{
	struct counters *counters = &client->counters;
	uint64_t of[KVR_CANCELED + 1] = { 0 }, moved;

	if (result->status == STATUS_NO_MEMORY)
		memset(slot->outcomes, KVR_NO_MEMORY, client->load->chunks);
	for (uint32_t i = 0; i < client->load->chunks; i++)
		of[slot->outcomes[i] <= KVR_CANCELED ? slot->outcomes[i] : 0]++;
	kvr_counter_add(&counters->chunks_stored, of[KVR_STORED]);
	kvr_counter_add(&counters->chunks_without_memory, of[KVR_NO_MEMORY]);
	kvr_counter_add(&counters->chunks_missing, of[KVR_MISSING]);
	if (of[0] + of[KVR_FAILED_CHUNK] + of[KVR_CANCELED] > 0)
		fail(client, slot, -EIO, "some chunks failed");
	moved = (of[KVR_STORED] + of[KVR_DELIVERED]) * client->load->shape.object_bytes;
	kvr_counter_add(slot->op == MEASURE_STORE ? &counters->bytes_stored : &counters->bytes_retrieved, moved);
	return moved;
}

static void slot_result(struct load_client *client, struct load_slot *slot, const struct kvr_result *result)
{
	uint64_t now_ns = clock_now_ns(), bytes = 0;
	bool full = slot->op == MEASURE_STORE && result->status == STATUS_NO_MEMORY;

	if (result->error == -EBUSY) {
		kvr_counter_add(&client->counters.retries, 1);
		slot->ticket = 0;
		slot->retry_ns = now_ns + RETRY_NS;
		return;
	}
	if (result->error && !full) {
		fail(client, slot, result->error, result->text);
		slot_free(client, slot);
		return;
	}
	if (slot->op == MEASURE_STORE || slot->op == MEASURE_RETRIEVE)
		bytes = transfer_result(client, slot, result);
	if (slot->op == MEASURE_LOOKUP && result->chunks != client->load->chunks)
		kvr_counter_add(&client->counters.chunks_missing, client->load->chunks - result->chunks);
	if (client->load->round > 0)
		measure_add(&client->measure, slot->op, slot->begin_ns, now_ns, bytes);
	if (slot->op != MEASURE_END)
		kvr_counter_add(&client->counters.requests, 1);
	if (slot->op == MEASURE_STORE)
		slot->stores++;
	if (slot->op == MEASURE_LOOKUP || (slot->op == MEASURE_STORE && slot->stores == client->load->stores)) {
		slot->op = MEASURE_END;
		slot->begin_ns = clock_now_ns();
		slot_submit(client, slot);
	} else {
		slot_free(client, slot);
	}
}

/* True when it has been answered. `wait`: up to WAIT_NS. */
static bool slot_look(struct load_client *client, struct load_slot *slot, bool wait)
{
	struct kvr_result result = { .error = 0 };
	int error;

	if (!slot->ticket) {
		if (clock_now_ns() >= slot->retry_ns)
			slot_submit(client, slot);
		return false;
	}
	if (wait)
		error = kvr_wait(client->endpoint.client, slot->ticket, WAIT_NS, &result);
	else
		error = kvr_poll(client->endpoint.client, slot->ticket, &result);
	if (endpoint_answered(error, &result)) {
		slot_result(client, slot, &result);
		return true;
	}
	if (wait && clock_now_ns() - slot->begin_ns > REPLY_LIMIT_NS) {
		fail(client, slot, -ETIMEDOUT, "no reply within 30 s");
		(void)kvr_cancel(client->endpoint.client, slot->ticket);
		slot->begin_ns = clock_now_ns();
		kvr_store_release(&client->load->complaints.stop, 1);
	}
	return false;
}

static void run_round(struct load_client *client)
{
	struct load *load = client->load;
	uint64_t idle_ns = 0;
	uint32_t active;

	do {
		bool may_begin = clock_now_ns() < load->round_end_ns && !kvr_load_acquire(&load->complaints.stop);
		struct load_slot *first = NULL;
		bool progress = false;

		active = 0;
		for (uint32_t i = 0; i < load->settings->depth; i++) {
			struct load_slot *slot = &client->slots[i];

			if (slot->in_use)
				progress |= slot_look(client, slot, false);
			if (!slot->in_use && may_begin)
				slot_begin(client, slot);
			active += slot->in_use;
			if (slot->in_use && !first)
				first = slot;
		}
		if (progress)
			idle_ns = 0;
		else if (idle_ns == 0)
			idle_ns = clock_now_ns();
		else if (first && clock_now_ns() - idle_ns > SPIN_NS)
			slot_look(client, first, true);
		active += may_begin;
	} while (active > 0);
}

void *load_client_main(void *context)
{
	struct load_client *client = context;
	struct load *load = client->load;

	for (;;) {
		gate_arrive(&load->gate, load_round_end, load);
		if (load->over)
			break;
		run_round(client);
	}
	return NULL;
}
