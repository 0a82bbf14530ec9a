#include "worker/worker.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "worker/internal.h"

#define PAGE_BYTES ((uint64_t)4096)
#define SLOTS_SPARE_MIN \
	16 /* receive buffers beyond the credits: a client that oversteps them is answered, not stalled */
#define REPLY_BUFFERS_MAX 4096 /* who finds none waits */

/* ---- create and destroy ----------------------------------------------------------------------------------------- */

static int check_options(const struct worker_options *options)
{
	if (options->rail_count > WIRE_RAILS_MAX - 1 || (options->rail_count > 0 && !options->area_lkeys))
		return -EINVAL;
	if (!options->device || options->connections_max == 0 || options->credits == 0 || options->large_buffers == 0)
		return -EINVAL;
	if (options->message_bytes_max < WIRE_INLINE_BYTES || options->message_bytes_max > WIRE_MESSAGE_BYTES_MAX)
		return -EINVAL;
	if (options->send_depth < 64 || options->send_depth > options->device->limits.max_send_wr) {
		log_error("worker: send queues of %u, the device %s has 64 to %u", options->send_depth,
			options->device->name, options->device->limits.max_send_wr);
		return -EINVAL;
	}
	return 0;
}

/* How many of everything. The completion queue holds all that can complete at once: it can never overflow. */
static int set_sizes(struct worker *worker)
{
	const struct worker_options *options = &worker->options;
	const struct verbs_limits *limits = &worker->device->limits;
	uint64_t slots = (uint64_t)options->connections_max * options->credits +
		kvr_max_u64(options->connections_max, SLOTS_SPARE_MIN);
	uint64_t completions = slots + (uint64_t)options->connections_max * options->send_depth;

	if (slots > limits->max_recv_wr || completions > limits->max_cqe ||
		2 * slots + 6 * (uint64_t)options->connections_max + 16 > RING_CAPACITY_MAX) {
		log_error(
			"worker: %u connections with %u credits need %llu receives and %llu completions, the device %s "
			"has %u and %u: fewer clients, credits or send-depth",
			options->connections_max, options->credits, (unsigned long long)slots,
			(unsigned long long)completions, worker->device->name, limits->max_recv_wr, limits->max_cqe);
		return -EINVAL;
	}
	worker->slot_count = (uint32_t)slots;
	/* Each request that comes behind another one takes the place of one that had come by itself. */
	worker->spare_count = worker->device->driver->gathers ? (uint32_t)slots : 0;
	/* Half of what is beyond the credits: there is a receive buffer for whoever keeps to them, whatever is under way. */
	worker->early_max = (uint32_t)kvr_max_u64(options->connections_max, SLOTS_SPARE_MIN) / 2;
	worker->cq_depth = (uint32_t)completions;
	worker->inline_bytes = limits->max_inline_bytes < WORKER_INLINE_BYTES_WANTED ? limits->max_inline_bytes
										     : WORKER_INLINE_BYTES_WANTED;
	worker->limits.max_sge = limits->max_sge < WORKER_SGE_MAX ? limits->max_sge : WORKER_SGE_MAX;
	worker->limits.max_bytes = (uint32_t)kvr_min_u64(limits->max_message_bytes, WORKER_WR_BYTES_MAX);
	/* The same on all devices: a part of a transfer that one has failed to move is cut the same way for another. */
	for (uint32_t i = 0; i < options->rail_count; i++) {
		const struct verbs_limits *other = &options->rails[i]->limits;

		worker->limits.max_sge = (uint32_t)kvr_min_u64(worker->limits.max_sge, other->max_sge);
		worker->limits.max_bytes = (uint32_t)kvr_min_u64(worker->limits.max_bytes, other->max_message_bytes);
	}
	worker->large_share = (options->large_buffers + 1) / 2;
	return worker->limits.max_sge > 0 && worker->limits.max_bytes > 0 ? 0 : -EINVAL;
}

static uint32_t reply_buffer_count(const struct worker *worker)
{
	return worker->slot_count < REPLY_BUFFERS_MAX ? worker->slot_count : REPLY_BUFFERS_MAX;
}

static uint32_t request_count(const struct worker *worker)
{
	return worker->slot_count + worker->spare_count;
}

static int allocate(void **memory, uint64_t count, uint64_t bytes)
{
	uint64_t total = kvr_round_up(count * bytes, KVR_CACHE_LINE);

	*memory = fault_point("worker_create/memory") ? NULL : aligned_alloc(KVR_CACHE_LINE, total);
	if (!*memory)
		return -ENOMEM;
	memset(*memory, 0, total);
	return 0;
}

static int create_tables(struct worker *worker)
{
	uint64_t connections = worker->options.connections_max;
	uint64_t numbers = 4;

	while (numbers < 2 * connections) /* half empty at least: searches are short */
		numbers *= 2;
	worker->number_mask = (uint32_t)numbers - 1;

	struct {
		void **memory;
		uint64_t count, bytes;
	} tables[] = {
		{ (void **)&worker->counters, 1, sizeof(*worker->counters) },
		{ (void **)&worker->mailbox, 1, sizeof(*worker->mailbox) },
		{ (void **)&worker->slots, request_count(worker), sizeof(*worker->slots) },
		{ (void **)&worker->endpoints, connections, sizeof(*worker->endpoints) },
		{ (void **)&worker->marks, connections * worker->options.send_depth, sizeof(*worker->marks) },
		{ (void **)&worker->free_endpoints, connections, sizeof(*worker->free_endpoints) },
		{ (void **)&worker->by_number, numbers, sizeof(*worker->by_number) },
		{ (void **)&worker->reply_buffers, reply_buffer_count(worker), sizeof(*worker->reply_buffers) },
		{ (void **)&worker->free_larges, worker->options.large_buffers, sizeof(*worker->free_larges) },
	};
	for (size_t i = 0; i < KVR_COUNT_OF(tables); i++) {
		int error = allocate(tables[i].memory, tables[i].count, tables[i].bytes);

		if (error)
			return error;
	}
	return mailbox_init(worker->mailbox, worker->slot_count, worker->options.connections_max);
}

static void fill_tables(struct worker *worker)
{
	list_init(&worker->spare);
	list_init(&worker->unposted);
	list_init(&worker->words_due);
	list_init(&worker->unanswered);
	list_init(&worker->active);
	list_init(&worker->draining);
	list_init(&worker->large_waiters);
	list_init(&worker->rails_draining);
	for (uint32_t i = 0; i < request_count(worker); i++) {
		struct slot *slot = &worker->slots[i];

		slot->request.index = i;
		slot->large_buffer = POOL_NONE;
		list_init(&slot->node);
		list_init(&slot->request.node);
		if (i < worker->slot_count)
			continue;
		slot->stage = SLOT_SPARE;
		list_add_last(&worker->spare, &slot->node);
	}
	for (uint32_t i = 0; i < worker->options.connections_max; i++) {
		struct endpoint *endpoint = &worker->endpoints[i];

		endpoint->index = i;
		endpoint->marks = worker->marks + (uint64_t)i * worker->options.send_depth;
		list_init(&endpoint->active);
		list_init(&endpoint->drain);
		list_init(&endpoint->large);
		list_init(&endpoint->transfers);
		list_init(&endpoint->fetches);
		list_init(&endpoint->words);
		list_init(&endpoint->posted);
		list_init(&endpoint->waiting);
		list_init(&endpoint->redo);
		worker->free_endpoints[worker->free_endpoint_count++] = i;
	}
	worker->reply_free = POOL_NONE;
	for (uint32_t i = reply_buffer_count(worker); i > 0; i--) {
		worker->reply_buffers[i - 1].next = worker->reply_free;
		worker->reply_free = i - 1;
	}
	for (uint32_t i = worker->options.large_buffers; i > 0; i--)
		worker->free_larges[worker->free_large_count++] = i - 1;
}

/* One region for all that the device reads and writes of ours. Local access only: no client holds a key to it
 * (pitfalls F07). */
static int create_memory(struct worker *worker)
{
	uint64_t receives = (uint64_t)worker->slot_count * WIRE_INLINE_BYTES;
	uint64_t replies = kvr_round_up((uint64_t)reply_buffer_count(worker) * WORKER_REPLY_BYTES, PAGE_BYTES);
	uint64_t larges = (uint64_t)worker->options.large_buffers * worker->options.message_bytes_max;
	uint64_t words = (uint64_t)request_count(worker) * sizeof(uint32_t);
	uint64_t bytes = kvr_round_up(kvr_round_up(receives + replies + larges, KVR_CACHE_LINE) + words, PAGE_BYTES);

	worker->memory = fault_point("worker_create/buffers") ? NULL : aligned_alloc(PAGE_BYTES, bytes);
	if (!worker->memory)
		return -ENOMEM;
	memset(worker->memory, 0, bytes);
	worker->replies = worker->memory + receives;
	worker->larges = worker->replies + replies;
	worker->words = (uint32_t *)(void *)(worker->memory +
		kvr_round_up(receives + replies + larges, KVR_CACHE_LINE));
	return worker->device->driver->register_memory(
		worker->device, worker->memory, bytes, IBV_ACCESS_LOCAL_WRITE, &worker->mr);
}

static int post_receives(struct worker *worker)
{
	for (uint32_t i = 0; i < worker->slot_count; i++)
		if (!receive_post(worker, &worker->slots[i]))
			return -ENOMEM;
	return 0;
}

int worker_create(const struct worker_options *options, struct worker **result)
{
	struct worker *worker;
	int error = check_options(options);

	*result = NULL;
	if (error)
		return error;
	error = allocate((void **)&worker, 1, sizeof(*worker));
	if (error)
		return error;
	worker->options = *options;
	worker->device = options->device;
	error = set_sizes(worker);
	if (!error)
		error = create_tables(worker);
	if (!error) {
		fill_tables(worker);
		error = create_memory(worker);
	}
	if (!error)
		error = worker->device->driver->create_cq(worker->device, worker->cq_depth, &worker->cq);
	if (!error)
		error = worker->device->driver->create_srq(worker->device, worker->slot_count, &worker->srq);
	if (!error)
		error = post_receives(worker);
	if (!error)
		error = rails_init(worker);
	if (error)
		worker_destroy(&worker);
	*result = worker;
	return error;
}

/* Whatever worker_create got is there; the rest is NULL. */
void worker_destroy(struct worker **given)
{
	struct worker *worker = *given;

	if (!worker)
		return;
	*given = NULL;
	rails_fini(worker);
	if (worker->srq)
		worker->device->driver->destroy_srq(worker->srq);
	if (worker->cq)
		worker->device->driver->destroy_cq(worker->cq);
	if (worker->mr && worker->device->driver->deregister_memory(worker->mr))
		log_error("worker %u: its buffers could not be deregistered", worker->options.index);
	if (worker->mailbox)
		mailbox_fini(worker->mailbox);
	free(worker->memory);
	free(worker->mailbox);
	free(worker->counters);
	free(worker->slots);
	free(worker->endpoints);
	free(worker->marks);
	free(worker->free_endpoints);
	free(worker->by_number);
	free(worker->reply_buffers);
	free(worker->free_larges);
	free(worker);
}

/* ---- what others ask -------------------------------------------------------------------------------------------- */

void worker_qp_options(const struct worker *worker, struct verbs_qp_options *options)
{
	*options = (struct verbs_qp_options){
		.send_cq = worker->cq,
		.recv_cq = worker->cq,
		.srq = worker->srq,
		.max_send_wr = worker->options.send_depth,
		.max_sge = worker->limits.max_sge,
		.max_inline_bytes = worker->inline_bytes,
		.max_message_bytes = WIRE_INLINE_BYTES,
		.peer_recv_wr = worker->options.credits,
	};
}

struct mailbox *worker_mailbox(struct worker *worker)
{
	return worker->mailbox;
}

const struct worker_counters *worker_counters(const struct worker *worker)
{
	return worker->counters;
}

struct ibv_cq *worker_cq(const struct worker *worker)
{
	return worker->cq;
}

struct verbs_device *worker_device(const struct worker *worker)
{
	return worker->device;
}

/* ---- the step --------------------------------------------------------------------------------------------------- */

void worker_tell(struct worker *worker, enum to_management kind, void *object, uint64_t word)
{
	struct ring_message message = { .kind = kind };
	bool pushed;

	message.word[0] = (uint64_t)(uintptr_t)object;
	message.word[1] = word;
	pushed = ring_push(&worker->mailbox->to_management, &message);
	assert(pushed);
	(void)pushed;
}

static void completion(struct worker *worker, const struct ibv_wc *wc)
{
	struct endpoint *endpoint;

	if (wc->wr_id & WR_ID_RECEIVE) {
		receive_completion(worker, wc);
		return;
	}
	endpoint = endpoint_find(worker, wc->qp_num);
	if (!endpoint)
		worker_count(worker, unknown_queue_pair_total, 1);
	else if (KVR_LIKELY(wc->status == IBV_WC_SUCCESS))
		send_completion(worker, endpoint, wc->wr_id);
	else
		connection_fail_completion(worker, endpoint, wc->status);
}

static bool poll_completions(struct worker *worker)
{
	int count = ibv_poll_cq(worker->cq, WORKER_POLL_MAX, worker->wcs);

	worker->dry = count < WORKER_POLL_MAX;
	if (count <= 0) {
		if (KVR_UNLIKELY(worker->flushed))
			connection_fail_flushed(worker);
		return false;
	}
	worker->polled += (uint32_t)count;
	worker_count(worker, completions_total, (uint32_t)count);
	for (int i = 0; i < count; i++)
		completion(worker, &worker->wcs[i]);
	return true;
}

static void reply_given(struct worker *worker, struct slot *slot)
{
	if (slot->stage != SLOT_MANAGEMENT)
		return;
	if (slot->early)
		receive_recycle(worker, slot);
	else
		reply_send(worker, slot);
}

static void take_message(struct worker *worker, const struct ring_message *message)
{
	void *object = (void *)(uintptr_t)message->word[0];
	struct connection *connection = object;

	switch (message->kind) {
	case TO_WORKER_OPEN:
		connection_open(worker, connection);
		break;
	case TO_WORKER_CLOSE:
		connection_close(worker, connection);
		break;
	case TO_WORKER_REPLY:
		reply_given(worker, slot_of(object));
		break;
	case TO_WORKER_TRANSFER:
		transfer_begin(worker, slot_of(object));
		break;
	case TO_WORKER_ABORT:
		transfer_abort(worker, slot_of(object));
		break;
	case TO_WORKER_RAIL_OPEN:
		rail_open(worker, connection, (uint32_t)message->word[1]);
		break;
	case TO_WORKER_RAIL_CLOSE:
		rail_close(worker, connection, (uint32_t)message->word[1]);
		break;
	case TO_WORKER_FORGET:
		if (connection->worker)
			indirect_forget(worker, connection->worker, (uint32_t)message->word[1]);
		else
			worker_tell(worker, TO_MANAGEMENT_FORGOTTEN, connection, message->word[1]);
		break;
	default:
		assert(!"a message that the management core does not send");
		break;
	}
}

static bool read_mailbox(struct worker *worker)
{
	struct ring *ring = &worker->mailbox->to_worker;
	unsigned count = 0;

	for (; count < WORKER_POLL_MAX; count++) {
		const struct ring_message *slot = ring_pop_begin(ring);
		struct ring_message message;

		if (!slot)
			break;
		message = *slot;
		ring_pop_end(ring);
		take_message(worker, &message);
	}
	return count > 0;
}

bool worker_step(struct worker *worker, uint64_t now_ns)
{
	bool busy;

	worker->now_ns = now_ns;
	busy = poll_completions(worker);
	busy |= health_step(worker);
	if (worker->track_count > 1)
		busy |= rails_step(worker);
	busy |= read_mailbox(worker);
	busy |= receive_post_again(worker);
	busy |= order_step(worker);
	busy |= reply_send_waiting(worker);
	busy |= connection_drain(worker);
	busy |= send_turns(worker);
	if (busy)
		worker_count(worker, busy_turns_total, 1);
	else
		worker_count(worker, idle_turns_total, 1);
	return busy;
}

bool worker_arm(struct worker *worker)
{
	/* Who is draining waits for the device, of which no event tells; data may be moving because the queue is
	 * polled. */
	if (!list_empty(&worker->active) || !list_empty(&worker->draining) || !list_empty(&worker->unposted) ||
		!list_empty(&worker->unanswered) || !list_empty(&worker->words_due) || worker->bytes_in_flight > 0 ||
		worker->probing > 0 || !list_empty(&worker->rails_draining) || worker->home_down_ns > 0 ||
		!ring_empty(&worker->mailbox->to_worker))
		return false;
	if (ibv_req_notify_cq(worker->cq, 0) != 0)
		return false;
	/* What came between the last poll and the arming gives no event (pitfalls I13). */
	return !poll_completions(worker) && ring_empty(&worker->mailbox->to_worker);
}

void worker_slept(struct worker *worker)
{
	worker_count(worker, sleeps_total, 1);
	worker->device->driver->cq_clear_event(worker->cq);
}
