/*
 * Connections: OPEN, CLOSE, and what happens when a queue pair fails.
 *
 *   FREE ─OPEN─> LIVE ─error (LOST) or CLOSE─> FAILED ─qp_idle─> IDLE ─CLOSE, nothing out, queue dry─> FREE (CLOSED)
 *
 * In FAILED, transfers stay as they are: the device may still touch their memory. In IDLE nothing can, and they are
 * given back as failed. Only the first error is a cause; the flushes behind it are counted and no more.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "verbs/blame.h"
#include "worker/internal.h"

#define LOG_INTERVAL_NS ((uint64_t)1000000000)

/* ---- qp_num -> endpoint ----------------------------------------------------------------------------------------- */

static uint32_t home(const struct worker *worker, uint32_t qp_num)
{
	return (uint32_t)random_mix(qp_num) & worker->number_mask;
}

static struct endpoint *at(const struct worker *worker, uint32_t place)
{
	uint32_t number = worker->by_number[place];

	return number ? &worker->endpoints[number - 1] : NULL;
}

struct endpoint *endpoint_find(const struct worker *worker, uint32_t qp_num)
{
	for (uint32_t i = home(worker, qp_num);; i = (i + 1) & worker->number_mask) {
		struct endpoint *endpoint = at(worker, i);

		if (!endpoint || endpoint->qp_num == qp_num)
			return endpoint;
	}
}

static void number_add(struct worker *worker, const struct endpoint *endpoint)
{
	uint32_t i = home(worker, endpoint->qp_num);

	while (worker->by_number[i])
		i = (i + 1) & worker->number_mask;
	worker->by_number[i] = endpoint->index + 1;
}

/* Fills the gap with those behind it that may stand there, so that no search ends too early. */
static void number_remove(struct worker *worker, const struct endpoint *endpoint)
{
	uint32_t mask = worker->number_mask;
	uint32_t gap = home(worker, endpoint->qp_num);

	while (at(worker, gap) != endpoint)
		gap = (gap + 1) & mask;
	for (uint32_t i = (gap + 1) & mask; worker->by_number[i]; i = (i + 1) & mask) {
		uint32_t distance = (i - home(worker, at(worker, i)->qp_num)) & mask;

		if (distance < ((i - gap) & mask))
			continue;
		worker->by_number[gap] = worker->by_number[i];
		gap = i;
	}
	worker->by_number[gap] = 0;
}

/* ---- open ------------------------------------------------------------------------------------------------------- */

static void endpoint_init(struct worker *worker, struct endpoint *endpoint, struct connection *connection)
{
	const struct verbs_limits *limits = &worker->device->limits;
	uint32_t reads = limits->max_rd_atomic;

	if (connection->reads_max > 0 && connection->reads_max < reads)
		reads = connection->reads_max;
	endpoint->connection = connection;
	endpoint->qp = connection->qp;
	endpoint->qp_num = connection->qp->qp_num;
	endpoint->state = ENDPOINT_LIVE;
	endpoint->closing = false;
	endpoint->doomed = false;
	endpoint->flushed = false;
	endpoint->out = 0;
	endpoint->early = 0;
	endpoint->large_held = 0;
	endpoint->forgetting = POOL_NONE;
	endpoint->reply_first = POOL_NONE;
	endpoint->replies_waiting = 0;
	endpoint->gathered_bytes = 0;
	endpoint->places_used = 0;
	endpoint->reads_in_flight = 0;
	endpoint->reads_max = reads > 0 ? reads : 1;
	/* Half of them in one chain: the other half goes out before this one has completed. */
	endpoint->reads_signalled = endpoint->reads_max / 2;
	if (limits->reads_signalled > 0 && limits->reads_signalled < endpoint->reads_signalled)
		endpoint->reads_signalled = limits->reads_signalled;
	endpoint->read_window = limits->read_window_bytes ? limits->read_window_bytes : UINT32_MAX;
	endpoint->bytes_in_flight = 0;
	endpoint->read_bytes_in_flight = 0;
	endpoint->buffers_in_flight = 0;
	endpoint->refusals = 0;
	memset(&endpoint->open, 0, sizeof(endpoint->open));
	endpoint->open.buffers = POOL_NONE;
	endpoint->mark_first = 0;
	endpoint->mark_count = 0;
	endpoint->mark_sequence = 0;
	rails_reset(worker, endpoint);
}

void connection_open(struct worker *worker, struct connection *connection)
{
	struct endpoint *endpoint;

	if (worker->free_endpoint_count == 0) {
		log_error("connection %u (%s): refused, this worker has its %u connections", connection->number,
			connection->name, worker->options.connections_max);
		connection->worker = NULL;
		worker_tell(worker, TO_MANAGEMENT_LOST, connection, 0);
		return;
	}
	endpoint = &worker->endpoints[worker->free_endpoints[--worker->free_endpoint_count]];
	endpoint_init(worker, endpoint, connection);
	connection->worker = endpoint;
	kvr_store_relaxed(&connection->last_seen_ns, worker->now_ns);
	number_add(worker, endpoint);
	worker_count(worker, connections_opened_total, 1);
	worker->device->driver->qp_start(endpoint->qp);
	if (KVR_UNLIKELY(!verbs_is_up(worker->device)) && worker->home_down_ns == 0)
		worker->home_down_ns = worker->now_ns;
}

/* ---- failing and closing ---------------------------------------------------------------------------------------- */

static void drain(struct worker *worker, struct endpoint *endpoint)
{
	if (!list_linked(&endpoint->drain))
		list_add_last(&worker->draining, &endpoint->drain);
}

static void stop_working(struct worker *worker, struct endpoint *endpoint)
{
	endpoint->state = ENDPOINT_FAILED;
	list_remove(&endpoint->active);
	list_remove(&endpoint->large);
	rails_fail_all(worker, endpoint);
	worker->device->driver->qp_fail(endpoint->qp);
	drain(worker, endpoint);
}

void connection_fail(struct worker *worker, struct endpoint *endpoint, const char *why, unsigned number)
{
	const struct connection *connection = endpoint->connection;
	uint64_t squashed;

	if (endpoint->state != ENDPOINT_LIVE)
		return;
	if (log_rate_pass(&worker->loss_rate, worker->now_ns, LOG_INTERVAL_NS, &squashed))
		log_warn("connection %u (%s) failed, queue pair 0x%x: %s %u (%llu more not logged)", connection->number,
			connection->name, endpoint->qp_num, why, number, (unsigned long long)squashed);
	worker_count(worker, connections_lost_total, 1);
	stop_working(worker, endpoint);
	worker_tell(worker, TO_MANAGEMENT_LOST, endpoint->connection, 0);
}

void connection_fail_completion(struct worker *worker, struct endpoint *endpoint, enum ibv_wc_status status)
{
	const struct verbs_verdict *verdict = verbs_judge(status);
	char why[200];

	if (endpoint->state != ENDPOINT_LIVE)
		return;
	if (verdict->blame == VERBS_BLAME_NONE) {
		endpoint->flushed = worker->flushed = true;
		return;
	}
	worker_count(worker, completion_errors_total, 1);
	if (verdict->blame == VERBS_BLAME_LOCAL)
		worker_count(worker, errors_local_total, 1);
	else if (verdict->blame == VERBS_BLAME_PEER)
		worker_count(worker, errors_peer_total, 1);
	else if (verdict->blame == VERBS_BLAME_LINK)
		worker_count(worker, errors_link_total, 1);
	else
		worker_count(worker, errors_memory_total, 1);
	snprintf(why, sizeof(why), "%s (%s)%s%s, completion status", verdict->words, verbs_blame_text(verdict->blame),
		verdict->hint[0] ? ": " : "", verdict->hint);
	connection_fail(worker, endpoint, why, status);
}

void connection_fail_flushed(struct worker *worker)
{
	worker->flushed = false;
	for (uint32_t i = 0; i < worker->options.connections_max; i++) {
		struct endpoint *endpoint = &worker->endpoints[i];

		if (endpoint->flushed && endpoint->state == ENDPOINT_LIVE)
			connection_fail(worker, endpoint, "the device has taken it down, completion status",
				IBV_WC_WR_FLUSH_ERR);
		endpoint->flushed = false;
	}
}

void connection_close(struct worker *worker, struct connection *connection)
{
	struct endpoint *endpoint = connection->worker;

	if (!endpoint) {
		worker_tell(worker, TO_MANAGEMENT_CLOSED, connection, 0);
		return;
	}
	endpoint->closing = true;
	if (endpoint->state == ENDPOINT_LIVE)
		stop_working(worker, endpoint);
	else
		drain(worker, endpoint);
}

/* ---- draining --------------------------------------------------------------------------------------------------- */

static void give_up_slots(struct worker *worker, struct list_node *slots)
{
	struct list_node *node;

	while ((node = list_pop_first(slots))) {
		struct slot *slot = KVR_CONTAINER_OF(node, struct slot, node);

		if (slot->stage == SLOT_MOVING || slot->stage == SLOT_WORD)
			transfer_end(worker, slot, true);
		else
			receive_recycle(worker, slot);
	}
}

static void give_up_send_queue(struct worker *worker, struct endpoint *endpoint)
{
	for (; endpoint->mark_count > 0; endpoint->mark_count--) {
		reply_free_list(worker, endpoint->marks[endpoint->mark_first].buffers);
		endpoint->mark_first = endpoint->mark_first + 1 < worker->options.send_depth ? endpoint->mark_first + 1
											     : 0;
	}
	worker->bytes_in_flight -= endpoint->bytes_in_flight;
	worker->tracks[0].bytes_in_flight -= kvr_min_u64(worker->tracks[0].bytes_in_flight, endpoint->bytes_in_flight);
	reply_free_list(worker, endpoint->open.buffers);
	reply_free_list(worker, endpoint->reply_first);
	endpoint->open.buffers = POOL_NONE;
	endpoint->reply_first = POOL_NONE;
	endpoint->replies_waiting = 0;
}

/* Nothing of it touches memory any more: what was under way has failed. */
static void become_idle(struct worker *worker, struct endpoint *endpoint)
{
	endpoint->state = ENDPOINT_IDLE;
	endpoint->idle_at = worker->polled;
	give_up_send_queue(worker, endpoint);
	rails_give_up(endpoint);
	give_up_slots(worker, &endpoint->transfers);
	give_up_slots(worker, &endpoint->words);
	order_give_up(worker, endpoint);
	give_up_slots(worker, &endpoint->fetches);
	give_up_slots(worker, &endpoint->posted);
	give_up_slots(worker, &endpoint->waiting);
	if (!endpoint->closing)
		indirect_check_forget(worker, endpoint);
}

/* True when all its completions have been polled: they came before it was idle, so they are a queue's worth or fewer.
 * */
static bool is_dry(const struct worker *worker, const struct endpoint *endpoint)
{
	return worker->dry || worker->polled - endpoint->idle_at >= worker->cq_depth;
}

static void finish(struct worker *worker, struct endpoint *endpoint)
{
	struct connection *connection = endpoint->connection;

	worker->device->driver->qp_stop(endpoint->qp);
	rails_stop(worker, endpoint);
	number_remove(worker, endpoint);
	endpoint->state = ENDPOINT_FREE;
	endpoint->connection = NULL;
	endpoint->qp = NULL;
	worker->free_endpoints[worker->free_endpoint_count++] = endpoint->index;
	connection->worker = NULL;
	worker_tell(worker, TO_MANAGEMENT_CLOSED, connection, 0);
}

/* True when it did something. Puts the endpoint back on the list when it must be looked at again. */
static bool drain_one(struct worker *worker, struct endpoint *endpoint)
{
	if (endpoint->state == ENDPOINT_FAILED) {
		bool idle = worker->device->driver->qp_idle(endpoint->qp) && rails_idle(endpoint);

		if (idle)
			become_idle(worker, endpoint);
		drain(worker, endpoint);
		return idle;
	}
	if (!endpoint->closing || endpoint->out > 0)
		return false; /* CLOSE, or the last request, brings it back */
	if (!is_dry(worker, endpoint)) {
		drain(worker, endpoint);
		return false;
	}
	finish(worker, endpoint);
	return true;
}

bool connection_drain(struct worker *worker)
{
	bool busy = false;
	struct list_node seen;

	list_init(&seen);
	for (unsigned i = 0; i < WORKER_TURNS_MAX && !list_empty(&worker->draining); i++)
		list_add_last(&seen, list_pop_first(&worker->draining));
	while (!list_empty(&seen))
		busy |= drain_one(worker, KVR_CONTAINER_OF(list_pop_first(&seen), struct endpoint, drain));
	return busy;
}

void connection_request_back(struct worker *worker, struct endpoint *endpoint)
{
	assert(endpoint->out > 0);
	endpoint->out--;
	if (endpoint->state == ENDPOINT_IDLE && endpoint->out == 0)
		drain(worker, endpoint);
}
