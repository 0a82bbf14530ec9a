/*
 * rails.c - the further rails of connections: queue pairs on other devices that carry parts of transfers, and nothing else.
 *
 * A connection's home poll core owns them all. A part is a few neighbouring work requests of a transfer's plan; whichever device is
 * predicted to be done with it first takes it, home included. Home's part needs no completion of its own, since the reply goes out
 * behind it; the reply of a transfer that another rail has parts of waits until those have completed.
 *
 * Parts that a rail had when it failed are planned again from where they began, and posted by the others, once its queue pair is idle.
 * What it had sent may still be in the network then, and reach the client's memory: every reply names the rails that are out
 * (rails_out), and the client reads none before its own queue pair of such a rail takes nothing any more.
 */
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "worker/internal.h"

#define COST_NEAR 1000u
#define SAMPLE_BYTES 16384u /* fewer say more about the round trip than about the rate */
#define AGE_SHIFT 10 /* a rail that is slow, and so not used, is thought a little faster with each sample of home's */

/* ---- made and freed --------------------------------------------------------------------------------------------- */

static int track_init(struct worker *worker, struct track *track, struct verbs_device *device)
{
	uint32_t depth = worker->options.send_depth;

	track->device = device;
	track->health = kvr_load_relaxed(&device->health);
	track->places = (uint32_t)kvr_min_u64(depth, device->limits.max_send_wr);
	if (track == worker->tracks) {
		track->cq = worker->cq;
		return 0;
	}
	if (device->driver != worker->device->driver || !device->driver->several_rails)
		return -EINVAL;
	return device->driver->create_cq(device,
		(uint32_t)kvr_min_u64(
			(uint64_t)worker->options.connections_max * track->places, device->limits.max_cqe),
		&track->cq);
}

int rails_init(struct worker *worker)
{
	const struct worker_options *options = &worker->options;
	uint64_t count = (uint64_t)options->connections_max * options->rail_count;
	int error = track_init(worker, &worker->tracks[0], worker->device);

	worker->track_count = 1;
	if (error || options->rail_count == 0)
		return error;
	worker->rails = fault_point("worker_create/rails") ? NULL : calloc(count, sizeof(*worker->rails));
	if (!worker->rails)
		return -ENOMEM;
	worker->rail_count = (uint32_t)count;
	for (uint32_t i = 0; i < count; i++) {
		worker->rails[i].index = i;
		list_init(&worker->rails[i].draining);
	}
	for (uint32_t i = 0; !error && i < options->rail_count; i++) {
		error = track_init(worker, &worker->tracks[1 + i], options->rails[i]);
		worker->track_count += error ? 0 : 1;
	}
	return error;
}

void rails_fini(struct worker *worker)
{
	for (uint32_t i = 1; i < worker->track_count; i++)
		worker->tracks[i].device->driver->destroy_cq(worker->tracks[i].cq);
	worker->track_count = 0;
	free(worker->rails);
}

void worker_rail_options(const struct worker *worker, uint32_t device, struct verbs_qp_options *options)
{
	const struct track *track = &worker->tracks[device];

	*options = (struct verbs_qp_options){
		.send_cq = track->cq,
		.recv_cq = track->cq,
		.max_send_wr = track->places,
		.max_recv_wr = 1,
		.max_sge = worker->limits.max_sge,
	};
}

struct verbs_device *worker_rail_device(const struct worker *worker, uint32_t device)
{
	return device < worker->track_count ? worker->tracks[device].device : NULL;
}

void rails_reset(struct worker *worker, struct endpoint *endpoint)
{
	(void)worker;
	endpoint->rails_live = 0;
	endpoint->rails_out = 0;
	endpoint->rail_marks = 0;
	memset(endpoint->rails, 0, sizeof(endpoint->rails));
}

/* ---- prediction ------------------------------------------------------------------------------------------------- */

/* Which row of area_lkeys: the area that home knows by this key. */
static uint32_t area_of(const struct worker *worker, uint32_t lkey)
{
	uint32_t area = 0;

	while (area + 1 < worker->options.area_count && worker->options.area_lkeys[area] != lkey)
		area++;
	return area;
}

/* A device that was not measured is thought to be as fast as home. */
static uint64_t rate_of(const struct worker *worker, const struct track *track)
{
	uint64_t home = worker->tracks[0].ps_per_byte ? worker->tracks[0].ps_per_byte : WORKER_RAIL_PS_PER_BYTE;

	return track->ps_per_byte ? track->ps_per_byte : home;
}

/* Of scattered small blocks a part is as many work requests as a turn has, whatever they add up to. */
static uint64_t part_bytes(const struct plan *plan)
{
	return plan->left < WORKER_RAIL_BYTES / WORKER_TURN_WRS_MAX ? plan->left * WORKER_TURN_WRS_MAX
								    : WORKER_RAIL_BYTES;
}

static uint64_t predict_ns(const struct worker *worker, uint32_t index, uint32_t area, uint64_t bytes)
{
	const struct track *track = &worker->tracks[index];
	const uint16_t *costs = worker->options.area_costs;
	uint64_t ns = (track->bytes_in_flight + bytes) * rate_of(worker, track) / 1000;

	if (costs)
		ns = ns * costs[index * worker->options.area_count + area] / COST_NEAR;
	return ns + (index ? WORKER_RAIL_EXTRA_NS : 0);
}

/* One part is enough to measure it by. */
static bool is_being_measured(const struct track *track)
{
	return !track->ps_per_byte && track->bytes_in_flight > 0;
}

/* NULL: home. */
static struct rail *first_done(const struct worker *worker, const struct endpoint *endpoint, const struct plan *plan)
{
	uint32_t area = area_of(worker, plan->lkey);
	uint64_t bytes = part_bytes(plan);
	uint64_t best_ns = predict_ns(worker, 0, area, bytes);
	struct rail *best = NULL;

	for (uint32_t i = 1; i < worker->track_count; i++) {
		struct rail *rail = endpoint->rails[i];
		uint64_t ns;

		if (!rail || rail->state != RAIL_LIVE || is_being_measured(&worker->tracks[i]))
			continue;
		ns = predict_ns(worker, i, area, bytes);
		if (ns < best_ns) {
			best_ns = ns;
			best = rail;
		}
	}
	return best;
}

/* Who was too slow to be used is tried again some time. */
static void age_others(struct worker *worker, const struct track *track)
{
	for (uint32_t i = 1; i < worker->track_count; i++) {
		struct track *other = &worker->tracks[i];

		if (other != track && other->bytes_in_flight == 0 && other->ps_per_byte > track->ps_per_byte)
			other->ps_per_byte -= other->ps_per_byte >> AGE_SHIFT;
	}
}

void track_completed(struct worker *worker, struct track *track, uint64_t bytes)
{
	uint64_t sample;

	track->bytes_in_flight -= kvr_min_u64(track->bytes_in_flight, bytes);
	if (bytes == 0)
		return;
	track->sample_ns += worker->now_ns - track->busy_since_ns;
	track->sample_bytes += bytes;
	track->busy_since_ns = worker->now_ns;
	if (track->sample_bytes < SAMPLE_BYTES)
		return;
	sample = kvr_max_u64(track->sample_ns * 1000 / track->sample_bytes, 1);
	sample = kvr_min_u64(sample, WORKER_RAIL_PS_PER_BYTE_MAX);
	track->ps_per_byte = track->ps_per_byte ? (7 * track->ps_per_byte + sample) / 8 : sample;
	track->sample_ns = track->sample_bytes = 0;
	age_others(worker, track);
}

/* ---- posting ---------------------------------------------------------------------------------------------------- */

static bool has_read_room(const struct rail *rail, const struct verbs_limits *limits)
{
	return rail->reads_in_flight < kvr_max_u64(limits->max_rd_atomic, 1) &&
		(limits->read_window_bytes == 0 || rail->reads_in_flight < 2 ||
			rail->bytes_in_flight < limits->read_window_bytes);
}

static bool has_room(const struct worker *worker, const struct rail *rail, bool read)
{
	const struct track *track = &worker->tracks[rail->track];

	return rail->mark_count < WORKER_RAIL_MARKS && rail->places_used < track->places &&
		rail->bytes_in_flight < send_window(rail->endpoint) &&
		(!read || has_read_room(rail, &track->device->limits));
}

bool rails_home_first(
	const struct worker *worker, const struct endpoint *endpoint, const struct rail_work *work, bool *wait)
{
	const struct rail *rail = first_done(worker, endpoint, work->plan);

	*wait = rail && !has_room(worker, rail, !work->slot->request.transfer.to_client);
	return !rail;
}

uint64_t rail_patience_ns(const struct worker *worker, const struct rail *rail)
{
	const struct track *track = &worker->tracks[rail->track];

	return kvr_max_u64(
		WORKER_RAIL_PATIENCE_NS, track->bytes_in_flight * rate_of(worker, track) / 1000 * WORKER_RAIL_PATIENCE);
}

void rail_push_mark(struct worker *worker, struct rail *rail, const struct rail_mark *mark)
{
	struct rail_mark *place = rail_mark_at(rail, rail->mark_count++);

	*place = *mark;
	place->rail = rail;
	if (rail->mark_count == 1)
		rail->progress_ns = worker->now_ns;
	list_init(&place->node);
	rail->places_used += mark->wrs;
	rail->reads_in_flight += mark->reads;
	rail->bytes_in_flight += mark->bytes;
	rail->endpoint->rail_marks++;
	worker->tracks[rail->track].outstanding++;
	worker->bytes_in_flight += mark->bytes;
	track_posted(worker, &worker->tracks[rail->track], mark->bytes);
}

/* Keys of the rail's device in place of home's. */
static void use_keys(const struct worker *worker, const struct rail *rail, uint32_t region, struct ibv_send_wr *wr)
{
	const uint32_t *lkeys = &worker->options.area_lkeys[(size_t)rail->track * worker->options.area_count];

	wr->wr.rdma.rkey = rail->endpoint->connection->regions[region].rkeys[rail->number];
	for (int i = 0; i < wr->num_sge; i++)
		wr->sg_list[i].lkey = lkeys[area_of(worker, wr->sg_list[i].lkey)];
}

/* Chains up one part; the plan is behind it then. */
static void build_part(struct worker *worker, struct rail *rail, const struct rail_work *work, struct rail_mark *mark)
{
	struct chain *chain = &worker->chain;
	const struct track *track = &worker->tracks[rail->track];
	bool read = !work->slot->request.transfer.to_client;
	const struct verbs_limits *limits = &track->device->limits;
	uint64_t reads = kvr_max_u64(limits->max_rd_atomic, 1) - rail->reads_in_flight;
	uint64_t most = kvr_min_u64(WORKER_TURN_WRS_MAX, track->places - rail->places_used);

	if (read)
		most = kvr_min_u64(most, kvr_max_u64(reads / 2, 1));
	if (read && limits->reads_signalled > 0)
		most = kvr_min_u64(most, limits->reads_signalled);
	if (work->redo)
		most = kvr_min_u64(most, work->redo->wrs);
	*mark = (struct rail_mark){ .slot = work->slot, .plan = *work->plan };
	while (mark->wrs < most && mark->bytes < WORKER_RAIL_BYTES && !plan_done(work->plan)) {
		struct ibv_send_wr *wr = &chain->wrs[mark->wrs];
		uint32_t region = work->plan->plane->region;

		wr->wr_id = rail_next_id(rail);
		wr->next = NULL;
		wr->send_flags = 0;
		mark->bytes += plan_next(work->plan, &worker->limits, wr, chain->sges[mark->wrs]);
		use_keys(worker, rail, region, wr);
		if (mark->wrs > 0)
			chain->wrs[mark->wrs - 1].next = wr;
		mark->wrs++;
	}
	mark->reads = read ? mark->wrs : 0;
	chain->wrs[mark->wrs - 1].send_flags = IBV_SEND_SIGNALED;
}

static void post_part(struct worker *worker, struct rail *rail, const struct rail_work *work)
{
	struct endpoint *endpoint = rail->endpoint;
	struct ibv_send_wr *bad = NULL;
	struct rail_mark mark;
	int error;

	build_part(worker, rail, work, &mark);
	rail_push_mark(worker, rail, &mark);
	work->slot->shares++;
	work->slot->posted_bytes += work->redo ? 0 : mark.bytes;
	worker_count(worker, rail_jobs_total, 1);
	worker_count(worker, work_requests_total, mark.wrs);
	worker_count(worker, doorbells_total, 1);
	if (work->redo)
		rails_redone(worker, work->redo, mark.wrs);
	error = ibv_post_send(rail->qp, worker->chain.wrs, &bad);
	send_move_on(worker, endpoint, work->slot);
	/* There was a place for each: who refuses one is broken. What it took flushes, and the whole part is done again. */
	if (KVR_UNLIKELY(error))
		rail_fail(worker, rail, "the device refused a post, errno", (unsigned)(error < 0 ? -error : error));
}

void rails_share(struct worker *worker, struct endpoint *endpoint)
{
	for (unsigned n = 0; n < WORKER_RAIL_TURNS && endpoint->rails_live > 0; n++) {
		struct rail_work work;
		struct rail *rail;

		if (!rails_next_work(endpoint, &work) || !rails_may_share(work.slot))
			return;
		rail = first_done(worker, endpoint, work.plan);
		if (!rail || !has_room(worker, rail, !work.slot->request.transfer.to_client))
			return; /* it is home's, or waits for the completion that makes room */
		post_part(worker, rail, &work);
	}
}

/* ---- the end of a part ------------------------------------------------------------------------------------------- */

void rails_redone(struct worker *worker, struct rail_mark *redo, uint32_t wrs)
{
	struct rail *rail = redo->rail;

	redo->wrs -= wrs;
	if (redo->wrs > 0)
		return;
	list_remove(&redo->node);
	redo->slot->shares--;
	worker_count(worker, rail_jobs_repeated_total, 1);
	if (--rail->redo_left == 0 && rail->closing && rail->state == RAIL_IDLE)
		rail_finish(worker, rail);
}

/* A part has completed, or is not to be repeated. */
void rail_part_over(struct worker *worker, struct endpoint *endpoint, struct slot *slot)
{
	slot->shares--;
	if (slot->shares > 0 || !(transfer_posted(slot) || slot->aborted))
		return;
	if (!slot->aborted && endpoint->state == ENDPOINT_LIVE)
		reply_early(worker, slot); /* behind what home has posted of it */
	if (slot->outstanding == 0)
		transfer_end(worker, slot, false);
	send_activate(worker, endpoint);
}

static void tear(struct worker *worker, struct rail_mark *mark)
{
	struct rail *rail = mark->rail;

	list_remove(&mark->node);
	mark->slot->torn = true;
	mark->slot->shares--;
	if (--rail->redo_left == 0 && rail->closing && rail->state == RAIL_IDLE)
		rail_finish(worker, rail);
}

void rails_drop(struct worker *worker, struct endpoint *endpoint, struct slot *slot)
{
	list_for_each_safe(node, &endpoint->redo) {
		struct rail_mark *mark = KVR_CONTAINER_OF(node, struct rail_mark, node);

		if (mark->slot == slot)
			tear(worker, mark);
	}
}
