/*
 * load_client.c - a thread that keeps `depth` requests of each of its clients in flight until the round is over, or begins them at
 * their times (--rate), with at most `depth` in flight: those that are due meanwhile wait, and their latency says so.
 */
#include "app/kvrail-bench/load_private.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "protocol/status.h"

#define RETRY_NS (50 * KVR_US)
#define WAIT_NS (500 * KVR_US)
#define WAIT_CROWDED_NS (10 * KVR_MS)
#define NAP_MIN_NS (200 * KVR_US) /* shorter ones end late */
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

/* The one at `at` of `count`. Several RETRIEVEs of one session at once are good, but two LOOKUPs and an END between them
 * are not what is measured: then the next one that nobody uses. */
static struct load_chain *free_chain(struct load_chain *chains, uint32_t count, uint32_t at, bool alone)
{
	for (uint32_t i = 0; i < count; i++, at = at + 1 < count ? at + 1 : 0) {
		if (!alone || !chains[at].users)
			return &chains[at];
	}
	return NULL;
}

static struct load_chain *choose_chain(struct load_client *client, enum measure_op op)
{
	struct load *load = client->load;

	if (load->strangers && !random_chance(&client->random, load->settings->hit_percent, 100))
		return free_chain(client->chains + load->chains, load->strangers,
			(uint32_t)random_below(&client->random, load->strangers), op == MEASURE_LOOKUP);
	return free_chain(
		client->chains, load->chains, skew_choose(&load->skew, &client->random), op == MEASURE_LOOKUP);
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
		slot->chain->users--;
	slot->blocks_taken = false;
	slot->chain = NULL;
	slot->ready = slot->begun = false;
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

static void slot_prepare(struct load_client *client, struct load_slot *slot)
{
	uint32_t count = client->load->chunks * client->load->shape.chunk_blocks;
	int error = 0;

	slot->op = choose_op(client);
	if (slot->op == MEASURE_LOOKUP || slot->op == MEASURE_RETRIEVE) {
		slot->chain = choose_chain(client, slot->op);
		if (!slot->chain)
			return;
		slot->chain->users++;
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
	slot->ready = true;
}

/* due_ns 0: now */
static void slot_begin(struct load_client *client, struct load_slot *slot, uint64_t due_ns)
{
	slot->ready = false;
	slot->begun = true;
	slot->begin_ns = due_ns ? due_ns : clock_now_ns();
	slot_submit(client, slot);
}

/* ---- replies ---- */

static uint64_t transfer_result(struct load_client *client, struct load_slot *slot, const struct kvr_result *result)
{
	struct counters *counters = &client->counters;
	uint64_t of[KVR_NO_QUOTA + 1] = { 0 }, moved;

	if (result->status == STATUS_NO_MEMORY || result->status == STATUS_NO_QUOTA)
		memset(slot->outcomes, KVR_NO_MEMORY, client->load->chunks);
	for (uint32_t i = 0; i < client->load->chunks; i++)
		of[slot->outcomes[i] <= KVR_NO_QUOTA ? slot->outcomes[i] : 0]++;
	kvr_counter_add(&counters->chunks_stored, of[KVR_STORED]);
	kvr_counter_add(&counters->chunks_without_memory, of[KVR_NO_MEMORY] + of[KVR_NO_QUOTA]);
	if (!slot->chain || slot->chain->stored)
		kvr_counter_add(&counters->chunks_missing, of[KVR_MISSING]);
	if (slot->op == MEASURE_RETRIEVE) {
		kvr_counter_add(&counters->tokens, client->load->chunks);
		kvr_counter_add(&counters->hit_tokens, of[KVR_DELIVERED]);
	}
	if (of[0] + of[KVR_FAILED_CHUNK] + of[KVR_CANCELED] > 0)
		fail(client, slot, -EIO, "some chunks failed");
	moved = (of[KVR_STORED] + of[KVR_DELIVERED]) * client->load->shape.object_bytes;
	kvr_counter_add(slot->op == MEASURE_STORE ? &counters->bytes_stored : &counters->bytes_retrieved, moved);
	return moved;
}

static void slot_result(struct load_client *client, struct load_slot *slot, const struct kvr_result *result)
{
	uint64_t now_ns = clock_now_ns(), bytes = 0;
	bool full = slot->op == MEASURE_STORE &&
		(result->status == STATUS_NO_MEMORY || result->status == STATUS_NO_QUOTA);

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
	if (slot->op == MEASURE_LOOKUP) {
		kvr_counter_add(&client->counters.tokens, client->load->chunks);
		kvr_counter_add(&client->counters.hit_tokens, result->chunks);
		if (slot->chain->stored)
			kvr_counter_add(&client->counters.chunks_missing, client->load->chunks - result->chunks);
	}
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

/* True when it has been answered. wait_ns: up to so long, 0: looks. */
static bool slot_look(struct load_client *client, struct load_slot *slot, uint64_t wait_ns)
{
	struct kvr_result result = { .error = 0 };
	int error;

	if (!slot->ticket) {
		if (clock_now_ns() >= slot->retry_ns)
			slot_submit(client, slot);
		return false;
	}
	if (wait_ns)
		error = kvr_wait(client->endpoint.client, slot->ticket, wait_ns, &result);
	else
		error = kvr_poll(client->endpoint.client, slot->ticket, &result);
	if (endpoint_answered(error, &result)) {
		slot_result(client, slot, &result);
		return true;
	}
	if (wait_ns && clock_now_ns() > slot->begin_ns + REPLY_LIMIT_NS) {
		fail(client, slot, -ETIMEDOUT, "no reply within 30 s");
		(void)kvr_cancel(client->endpoint.client, slot->ticket);
		slot->begin_ns = clock_now_ns();
		kvr_store_release(&client->load->complaints.stop, 1);
	}
	return false;
}

/* ---- the round ---- */

/* Begins what is due, of what is ready. */
static void begin_due(struct load_client *client, struct load_slot *slot)
{
	uint64_t due_ns, now_ns;

	if (!client->load->settings->rate) {
		slot_begin(client, slot, 0);
		return;
	}
	due_ns = pacing_due(&client->pacing);
	now_ns = clock_now_ns();
	if (due_ns > now_ns || due_ns >= client->load->round_end_ns)
		return;
	if (client->load->round > 0)
		histogram_add(&client->measure.lag, now_ns - due_ns);
	pacing_advance(&client->pacing);
	slot_begin(client, slot, due_ns);
}

/* What was due and not begun when the round ended: how long it had waited by then counts as its latency, which is less than
 * it would have been. */
static void count_backlog(struct load_client *client)
{
	const struct load *load = client->load;

	for (; pacing_due(&client->pacing) < load->round_end_ns; pacing_advance(&client->pacing)) {
		enum measure_op op = choose_op(client);

		if (load->round == 0)
			continue;
		measure_add(&client->measure, op, pacing_due(&client->pacing), load->round_end_ns, 0);
		kvr_counter_add(&client->counters.backlog, 1);
	}
}

/* Nothing happened: waits for the oldest request, or for the next one to be due, without being late for it. */
static void rest(struct load_client *client, struct load_slot *oldest, uint64_t idle_ns)
{
	const struct load *load = client->load;
	uint64_t now_ns = clock_now_ns(), wait_ns = load->crowded ? WAIT_CROWDED_NS : WAIT_NS;
	struct timespec nap;

	if (load->settings->rate) {
		uint64_t due_ns = pacing_due(&client->pacing);

		wait_ns = kvr_min_u64(wait_ns, due_ns > now_ns ? due_ns - now_ns : 0);
		if (wait_ns < NAP_MIN_NS) {
			if (load->crowded)
				sched_yield();
			return;
		}
		wait_ns -= NAP_MIN_NS / 2;
	}
	if (!load->crowded && now_ns - idle_ns < load->settings->server.spin_ns)
		return;
	if (oldest) {
		slot_look(client, oldest, wait_ns);
	} else if (load->settings->rate) {
		nap = (struct timespec){ 0, (long)wait_ns };
		nanosleep(&nap, NULL);
	}
}

/* One look at all slots. How many requests are under way; *oldest: the one that began first, NULL: none. */
static uint32_t look_around(struct load_client *client, bool may_begin, bool *progress, struct load_slot **oldest)
{
	bool several = client->load->depth > 1; /* begun in one look, they may share a message */
	uint32_t active = 0;

	*progress = false;
	if (several)
		(void)kvr_hold(client->endpoint.client);
	*oldest = NULL;
	for (uint32_t i = 0; i < client->load->depth; i++) {
		struct load_slot *slot = &client->slots[i];

		if (slot->begun)
			*progress |= slot_look(client, slot, 0);
		if (!slot->begun && !slot->ready && may_begin)
			slot_prepare(client, slot);
		if (slot->ready && may_begin)
			begin_due(client, slot);
		active += slot->begun;
		if (slot->begun && (!*oldest || slot->begin_ns < (*oldest)->begin_ns))
			*oldest = slot;
	}
	if (several)
		(void)kvr_release(client->endpoint.client);
	return active;
}

/* How many requests of its clients are under way. */
static uint32_t look_at_all(const struct load_thread *thread, bool may_begin, bool *progress, struct load_slot **oldest)
{
	uint32_t active = 0;

	*progress = false;
	*oldest = NULL;
	for (uint32_t i = 0; i < thread->count; i++) {
		bool found;

		active += look_around(&thread->clients[i], may_begin, &found, oldest);
		*progress |= found;
	}
	return active;
}

/* Nothing happened. Who has several clients cannot wait for one of them. */
static void rest_all(const struct load_thread *thread, struct load_slot *oldest, uint64_t idle_ns)
{
	if (thread->count == 1)
		rest(thread->clients, oldest, idle_ns);
	else if (thread->load->crowded)
		sched_yield();
}

static void end_round(struct load_client *client)
{
	if (client->load->settings->rate)
		count_backlog(client);
	for (uint32_t i = 0; i < client->load->depth; i++) {
		if (client->slots[i].ready)
			slot_free(client, &client->slots[i]);
	}
}

static void run_round(const struct load_thread *thread)
{
	struct load *load = thread->load;
	struct load_slot *oldest;
	uint64_t idle_ns = 0;
	uint32_t active;
	bool may_begin;

	for (uint32_t i = 0; load->settings->rate && i < thread->count; i++)
		pacing_start(&thread->clients[i].pacing, clock_now_ns());
	do {
		bool progress;

		may_begin = clock_now_ns() < load->round_end_ns && !kvr_load_acquire(&load->complaints.stop);
		active = look_at_all(thread, may_begin, &progress, &oldest);
		if (progress)
			idle_ns = 0;
		else if (idle_ns == 0)
			idle_ns = clock_now_ns();
		else
			rest_all(thread, oldest, idle_ns);
	} while (active > 0 || may_begin);
	for (uint32_t i = 0; i < thread->count; i++)
		end_round(&thread->clients[i]);
}

void *load_thread_main(void *context)
{
	struct load_thread *thread = context;
	struct load *load = thread->load;

	for (;;) {
		gate_arrive(&load->gate, load_round_end, load);
		if (load->over)
			break;
		run_round(thread);
	}
	return NULL;
}
