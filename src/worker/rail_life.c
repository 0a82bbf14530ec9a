/*
 * rail_life.c - a further rail from RAIL_OPEN to RAIL_CLOSED.
 *
 *   FREE ─RAIL_OPEN─> PROBING ─a WRITE of no bytes came through─> LIVE
 *                        └───────error, or RAIL_CLOSE───────┬──────┘
 *                                                         FAILED ─qp_idle─> IDLE ─RAIL_CLOSE, no part left─> FREE (RAIL_CLOSED)
 *
 * In FAILED the device may still touch memory, so parts wait. In IDLE they are planned again from where they began and posted by the
 * others. What such a rail had sent may still be in the network and reach the client's memory: every reply names the rails that are
 * out (rails_out), and the client ends no request before its own queue pair of such a rail takes nothing any more.
 */
#include <assert.h>

#include "verbs/blame.h"
#include "worker/internal.h"

#define LOG_INTERVAL_NS ((uint64_t)1000000000)

static void set_state(struct rail *rail, enum rail_state state)
{
	static const uint32_t shown[] = {
		[RAIL_FREE] = CONNECTION_RAIL_NONE,
		[RAIL_PROBING] = CONNECTION_RAIL_PROBING,
		[RAIL_LIVE] = CONNECTION_RAIL_LIVE,
		[RAIL_FAILED] = CONNECTION_RAIL_FAILED,
		[RAIL_IDLE] = CONNECTION_RAIL_FAILED,
	};

	rail->state = state;
	kvr_store_relaxed(&rail->endpoint->connection->rails[rail->number].state, shown[state]);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void probe(struct worker *worker, struct rail *rail)
{
	struct ibv_send_wr wr = {
		.wr_id = rail_next_id(rail), .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED
	};
	struct rail_mark mark = { .wrs = 1 };
	struct ibv_send_wr *bad;
	int error;

	rail_push_mark(worker, rail, &mark);
	error = ibv_post_send(rail->qp, &wr, &bad);
	if (error)
		rail_fail(worker, rail, "the device refused the probe, errno", (unsigned)(error < 0 ? -error : error));
}

void rail_open(struct worker *worker, struct connection *connection, uint32_t number)
{
	struct connection_rail *given = &connection->rails[number];
	struct endpoint *endpoint = connection->worker;
	struct rail *rail;
	const char *why;

	if (!endpoint || endpoint->state != ENDPOINT_LIVE)
		return; /* its queue pair goes with the connection */
	assert(given->device > 0 && given->device < worker->track_count);
	rail = &worker->rails[endpoint->index * (worker->track_count - 1) + given->device - 1];
	assert(rail->state == RAIL_FREE);
	rail->endpoint = endpoint;
	rail->qp = given->qp;
	rail->closing = false;
	rail->number = number;
	rail->track = given->device;
	rail->places_used = rail->reads_in_flight = 0;
	rail->bytes_in_flight = 0;
	rail->mark_first = rail->mark_count = rail->redo_left = 0;
	endpoint->rails[rail->track] = rail;
	given->worker = rail;
	set_state(rail, RAIL_PROBING);
	worker->probing++;
	worker_count(worker, rails_opened_total, 1);
	worker->tracks[rail->track].device->driver->qp_start(rail->qp);
	why = health_against(kvr_load_relaxed(&worker->tracks[rail->track].device->health));
	if (KVR_UNLIKELY(why != NULL)) {
		worker_count(worker, rails_told_total, 1);
		rail_fail(worker, rail, why, 0);
	} else {
		probe(worker, rail);
	}
}

/* ---- failing and closing ------------------------------------------------------------------------------------------ */

static void stop_working(struct worker *worker, struct rail *rail)
{
	struct endpoint *endpoint = rail->endpoint;

	if (rail->state == RAIL_PROBING)
		worker->probing--;
	else
		endpoint->rails_live--;
	set_state(rail, RAIL_FAILED);
	endpoint->rails_out |= 1u << rail->number;
	worker->tracks[rail->track].device->driver->qp_fail(rail->qp);
	list_add_last(&worker->rails_draining, &rail->draining);
}

void rail_fail(struct worker *worker, struct rail *rail, const char *why, unsigned number)
{
	const struct connection *connection = rail->endpoint->connection;
	uint64_t squashed;

	if (rail->state != RAIL_PROBING && rail->state != RAIL_LIVE)
		return;
	if (log_rate_pass(&worker->rail_rate, worker->now_ns, LOG_INTERVAL_NS, &squashed))
		log_warn("connection %u (%s): rail %u on %s is out%s: %s %u (%llu more not logged)", connection->number,
			connection->name, rail->number, worker->tracks[rail->track].device->name,
			rail->state == RAIL_PROBING ? ", no data came through" : "", why, number,
			(unsigned long long)squashed);
	if (rail->state == RAIL_PROBING)
		worker_count(worker, rail_probe_failures_total, 1);
	else
		worker_count(worker, rails_lost_total, 1);
	kvr_store_relaxed(&rail->endpoint->connection->rails[rail->number].why, why);
	stop_working(worker, rail);
}

/* Nothing of it touches memory any more: what it had is for the others. */
static void become_idle(struct worker *worker, struct rail *rail)
{
	struct endpoint *endpoint = rail->endpoint;
	struct track *track = &worker->tracks[rail->track];

	set_state(rail, RAIL_IDLE);
	track->outstanding -= rail->mark_count;
	track->bytes_in_flight -= kvr_min_u64(track->bytes_in_flight, rail->bytes_in_flight);
	worker->bytes_in_flight -= rail->bytes_in_flight;
	endpoint->rail_marks -= rail->mark_count;
	for (uint32_t i = 0; i < rail->mark_count; i++) {
		struct rail_mark *mark = rail_mark_at(rail, i);

		if (!mark->slot)
			continue;
		if (mark->slot->aborted) {
			mark->slot->torn = true;
			rail_part_over(worker, endpoint, mark->slot);
			continue;
		}
		list_add_last(&endpoint->redo, &mark->node);
		rail->redo_left++;
	}
	rail->mark_count = 0;
	send_activate(worker, endpoint);
	if (rail->closing && rail->redo_left == 0)
		rail_finish(worker, rail);
}

static void rail_free(struct worker *worker, struct rail *rail)
{
	struct endpoint *endpoint = rail->endpoint;

	worker->tracks[rail->track].device->driver->qp_stop(rail->qp);
	set_state(rail, RAIL_FREE);
	endpoint->rails[rail->track] = NULL;
	endpoint->connection->rails[rail->number].worker = NULL;
	rail->endpoint = NULL;
	rail->qp = NULL;
}

void rail_finish(struct worker *worker, struct rail *rail)
{
	struct endpoint *endpoint = rail->endpoint;
	uint32_t number = rail->number;

	if (endpoint->state != ENDPOINT_LIVE)
		return; /* CLOSED answers */
	rail_free(worker, rail);
	endpoint->rails_out &= ~(1u << number);
	worker_tell(worker, TO_MANAGEMENT_RAIL_CLOSED, endpoint->connection, number);
}

void rail_close(struct worker *worker, struct connection *connection, uint32_t number)
{
	struct rail *rail = connection->worker ? connection->rails[number].worker : NULL;

	if (!rail) {
		worker_tell(worker, TO_MANAGEMENT_RAIL_CLOSED, connection, number);
		return;
	}
	rail->closing = true;
	if (rail->state == RAIL_PROBING || rail->state == RAIL_LIVE)
		stop_working(worker, rail);
	else if (rail->state == RAIL_IDLE && rail->redo_left == 0)
		rail_finish(worker, rail);
}

/* ---- with the connection ------------------------------------------------------------------------------------------ */

void rails_fail_all(struct worker *worker, struct endpoint *endpoint)
{
	for (uint32_t i = 1; i < worker->track_count; i++) {
		struct rail *rail = endpoint->rails[i];

		if (rail && (rail->state == RAIL_PROBING || rail->state == RAIL_LIVE))
			stop_working(worker, rail);
	}
}

bool rails_idle(const struct endpoint *endpoint)
{
	for (uint32_t i = 1; i < WIRE_RAILS_MAX; i++) {
		if (endpoint->rails[i] && endpoint->rails[i]->state != RAIL_IDLE)
			return false;
	}
	return true;
}

void rails_give_up(struct endpoint *endpoint)
{
	struct list_node *node;

	while ((node = list_pop_first(&endpoint->redo)))
		KVR_CONTAINER_OF(node, struct rail_mark, node)->rail->redo_left = 0;
}

void rails_stop(struct worker *worker, struct endpoint *endpoint)
{
	for (uint32_t i = 1; i < worker->track_count; i++) {
		if (endpoint->rails[i])
			rail_free(worker, endpoint->rails[i]);
	}
}

/* ---- the step ----------------------------------------------------------------------------------------------------- */

static void probe_passed(struct worker *worker, struct rail *rail)
{
	worker->probing--;
	rail->endpoint->rails_live++;
	set_state(rail, RAIL_LIVE);
	kvr_store_relaxed(&rail->endpoint->connection->rails[rail->number].proved, 1);
	send_activate(worker, rail->endpoint);
}

static void completed(struct worker *worker, struct rail *rail)
{
	struct rail_mark mark = *rail_mark_at(rail, 0);
	struct endpoint *endpoint = rail->endpoint;

	rail->progress_ns = worker->now_ns;
	rail->mark_first = (rail->mark_first + 1) % WORKER_RAIL_MARKS;
	rail->mark_count--;
	rail->mark_sequence++;
	rail->places_used -= mark.wrs;
	rail->reads_in_flight -= mark.reads;
	rail->bytes_in_flight -= mark.bytes;
	endpoint->rail_marks--;
	worker->bytes_in_flight -= mark.bytes;
	worker->tracks[rail->track].outstanding--;
	track_completed(worker, &worker->tracks[rail->track], mark.bytes);
	worker_count(worker, rail_bytes_total, mark.bytes);
	kvr_counter_add(&endpoint->connection->rails[rail->number].bytes, mark.bytes);
	if (mark.slot)
		rail_part_over(worker, endpoint, mark.slot);
	else if (rail->state == RAIL_PROBING)
		probe_passed(worker, rail);
	send_activate(worker, endpoint);
}

static void completion(struct worker *worker, const struct ibv_wc *wc)
{
	uint64_t index = wc->wr_id >> 32;
	struct rail *rail = index < worker->rail_count ? &worker->rails[index] : NULL;

	if (!rail || rail->state == RAIL_FREE || rail->state == RAIL_IDLE || rail->qp->qp_num != wc->qp_num)
		worker_count(worker, unknown_queue_pair_total, 1);
	else if (wc->status != IBV_WC_SUCCESS)
		rail_fail(worker, rail, verbs_judge(wc->status)->words, (unsigned)wc->status);
	else if (rail->mark_count == 0 || (uint32_t)wc->wr_id != rail->mark_sequence)
		rail_fail(worker, rail, "a completion out of order, work request", (unsigned)wc->wr_id);
	else
		completed(worker, rail);
}

static bool poll_track(struct worker *worker, struct track *track)
{
	int count = ibv_poll_cq(track->cq, WORKER_POLL_MAX, worker->wcs);

	if (count <= 0)
		return false;
	worker_count(worker, completions_total, (uint32_t)count);
	for (int i = 0; i < count; i++)
		completion(worker, &worker->wcs[i]);
	return true;
}

/* A device that neither completes nor fails what it has would hold up requests for ever. */
static void look_for_stuck(struct worker *worker)
{
	worker->rails_look_ns = worker->now_ns + WORKER_RAIL_LOOK_NS;
	for (uint32_t i = 0; i < worker->rail_count; i++) {
		struct rail *rail = &worker->rails[i];

		if ((rail->state != RAIL_LIVE && rail->state != RAIL_PROBING) || rail->mark_count == 0)
			continue;
		if (worker->now_ns - rail->progress_ns >= rail_patience_ns(worker, rail))
			rail_fail(worker, rail, "nothing of it completes, parts", rail->mark_count);
	}
}

bool rails_step(struct worker *worker)
{
	bool draining = !list_empty(&worker->rails_draining), busy = false;
	struct list_node seen;

	for (uint32_t i = 1; i < worker->track_count; i++) {
		if (worker->tracks[i].outstanding > 0 || draining)
			busy |= poll_track(worker, &worker->tracks[i]);
	}
	if (worker->now_ns >= worker->rails_look_ns)
		look_for_stuck(worker);
	list_init(&seen);
	for (unsigned i = 0; i < WORKER_TURNS_MAX && !list_empty(&worker->rails_draining); i++)
		list_add_last(&seen, list_pop_first(&worker->rails_draining));
	while (!list_empty(&seen)) {
		struct rail *rail = KVR_CONTAINER_OF(list_pop_first(&seen), struct rail, draining);

		if (worker->tracks[rail->track].device->driver->qp_idle(rail->qp)) {
			become_idle(worker, rail);
			busy = true;
		} else {
			list_add_last(&worker->rails_draining, &rail->draining);
		}
	}
	return busy;
}
