#include "verbs/sim/fabric.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "verbs/sim/sim.h"

/* Events come in slabs, which stay until the fabric goes. */
#define SLAB_EVENTS 256u
KVR_STATIC_ASSERT(sizeof(struct sim_event) <= KVR_CACHE_LINE, "an event is in one cache line");
struct sim_slab {
	KVR_ALIGNED(KVR_CACHE_LINE) struct sim_event events[SLAB_EVENTS]; /* each in a cache line of its own */
	struct list_node in_fabric;
};

const struct verbs_driver verbs_sim = {
	.name = "sim",
	.gathers = true,
	.several_rails = true,
	.match = sim_match,
	.open = sim_open,
	.close = sim_close,
	.create_cq = sim_create_cq,
	.destroy_cq = sim_destroy_cq,
	.cq_event_fd = sim_cq_event_fd,
	.cq_clear_event = sim_cq_clear_event,
	.create_srq = sim_create_srq,
	.destroy_srq = sim_destroy_srq,
	.create_qp = sim_create_qp,
	.qp_address = sim_qp_address,
	.qp_connect = sim_qp_connect,
	.qp_start = sim_qp_start,
	.qp_fail = sim_qp_fail,
	.qp_idle = sim_qp_idle,
	.qp_stop = sim_qp_stop,
	.destroy_qp = sim_destroy_qp,
	.register_memory = sim_register_memory,
	.deregister_memory = sim_deregister_memory,
	.allocate = sim_allocate,
	.release = sim_release,
	.export_memory = sim_export_memory,
	.import_memory = sim_import_memory,
	.forget_memory = sim_forget_memory,
};

void sim_options_default(struct sim_options *options)
{
	memset(options, 0, sizeof(*options));
	options->delay_min_ns = 1000;
	options->delay_max_ns = 5000;
	options->completion_max_ns = 1000;
	options->pieces_max = 4;
	options->rnr_retries = 7;
	options->stream_chunk_max = 4096;
}

int sim_fabric_create(uint64_t seed, const struct sim_options *options, struct sim_fabric **fabric)
{
	struct sim_fabric *new = fault_point("sim_fabric_create") ? NULL : calloc(1, sizeof(*new));

	*fabric = NULL;
	if (!new)
		return -ENOMEM;
	random_init(&new->random, seed);
	list_init(&new->slabs);
	list_init(&new->devices);
	list_init(&new->ghosts);
	list_init(&new->streams);
	sim_fabric_set_options(new, options);
	*fabric = new;
	return 0;
}

void sim_fabric_set_options(struct sim_fabric *fabric, const struct sim_options *options)
{
	if (options)
		fabric->options = *options;
	else
		sim_options_default(&fabric->options);
}

void sim_fabric_destroy(struct sim_fabric **fabric)
{
	struct sim_fabric *old = *fabric;

	*fabric = NULL;
	if (!old)
		return;
	list_for_each_safe(node, &old->devices)
		sim_device_free(KVR_CONTAINER_OF(node, struct sim_device, in_fabric));
	list_for_each_safe(node, &old->ghosts)
		sim_qp_free(KVR_CONTAINER_OF(node, struct sim_qp, in_device));
	sim_streams_free(old);
	list_for_each_safe(node, &old->slabs)
		free(KVR_CONTAINER_OF(node, struct sim_slab, in_fabric));
	sim_table_fini(&old->keys);
	sim_table_fini(&old->numbers);
	sim_due_fini(&old->due);
	free(old);
}

/* ---- events ----------------------------------------------------------------------------------------------------- */

static int events_grow(struct sim_fabric *fabric)
{
	struct sim_slab *slab = fault_point("sim_reserve") ? NULL : aligned_alloc(KVR_CACHE_LINE, sizeof(*slab));

	if (!slab)
		return -ENOMEM;
	if (sim_due_reserve(&fabric->due, fabric->event_count + SLAB_EVENTS)) {
		free(slab);
		return -ENOMEM;
	}
	fabric->event_count += SLAB_EVENTS;
	list_add_last(&fabric->slabs, &slab->in_fabric);
	for (uint32_t i = 0; i < SLAB_EVENTS; i++) {
		slab->events[i].next = fabric->free_events;
		fabric->free_events = &slab->events[i];
	}
	return 0;
}

int sim_reserve(struct sim_fabric *fabric, uint32_t count)
{
	while (fabric->event_count - fabric->reserved < count) {
		int error = events_grow(fabric);

		if (error)
			return error;
	}
	fabric->reserved += count;
	return 0;
}

void sim_unreserve(struct sim_fabric *fabric, uint32_t count)
{
	fabric->reserved -= count;
}

static void schedule(struct sim_fabric *fabric, struct sim_event *event, uint64_t at_ns)
{
	event->at_ns = kvr_max_u64(at_ns, fabric->now_ns);
	event->sequence = fabric->sequence++;
	sim_due_push(&fabric->due, event, fabric->now_ns);
}

static struct sim_event *take_event(struct sim_fabric *fabric)
{
	struct sim_event *event = fabric->free_events;

	fabric->free_events = event->next;
	memset(event, 0, sizeof(*event));
	return event;
}

struct sim_event *sim_schedule(struct sim_qp *qp, struct sim_wr *wr, enum sim_event_kind kind, uint64_t at_ns)
{
	struct sim_event *event = take_event(qp->fabric);

	event->kind = kind;
	event->qp = qp;
	event->wr = wr;
	qp->events++;
	if (wr)
		wr->events++;
	schedule(qp->fabric, event, at_ns);
	return event;
}

void sim_schedule_stream(struct sim_fabric *fabric, struct sim_stream *stream, uint64_t at_ns)
{
	struct sim_event *event = take_event(fabric);

	event->kind = SIM_STREAM;
	event->stream = stream;
	schedule(fabric, event, at_ns);
}

/* ---- steps ---------------------------------------------------------------------------------------------------- */

/* A stalled link keeps what passes it, unless a side has failed meanwhile: then the rest runs out. */
static bool stalls(const struct sim_event *event)
{
	const struct sim_qp *qp = event->qp;

	if (event->kind == SIM_LOST || event->kind == SIM_LOOK || event->kind == SIM_RECEIVED || !qp->peer)
		return false;
	return (qp->stalled || qp->peer->stalled) && !qp->gone && !sim_link_cut(qp) && qp->state == SIM_QP_READY &&
		qp->peer->state == SIM_QP_READY;
}

static void park(struct sim_event *event)
{
	struct sim_qp *qp = event->qp;

	event->next = NULL;
	*qp->parked_end = event;
	qp->parked_end = &event->next;
}

void sim_unpark(struct sim_qp *qp)
{
	struct sim_event *event = qp->parked;

	qp->parked = NULL;
	qp->parked_end = &qp->parked;
	while (event) {
		struct sim_event *next = event->next;

		sim_due_push(&qp->fabric->due, event,
			qp->fabric->now_ns); /* at its old place: what must not overtake it still does not */
		event = next;
	}
}

static void deliver(struct sim_fabric *fabric, struct sim_event *event)
{
	struct sim_event copy = *event;

	event->next = fabric->free_events;
	fabric->free_events = event;
	if (copy.kind == SIM_STREAM) {
		sim_stream_arrive(copy.stream);
		return;
	}
	sim_dispatch(&copy);
	copy.qp->events--;
	if (copy.wr) {
		copy.wr->events--;
		sim_wr_retire(copy.qp, copy.wr);
	}
	if (copy.qp->gone && copy.qp->events == 0)
		sim_qp_settle(copy.qp);
}

unsigned sim_fabric_step(struct sim_fabric *fabric, uint64_t now_ns, unsigned limit)
{
	unsigned delivered = 0;

	for (;;) {
		struct sim_event *event;

		if (delivered == limit && sim_fabric_next_ns(fabric) <= now_ns)
			return delivered;
		event = sim_due_take(&fabric->due, fabric->now_ns, now_ns);
		if (!event)
			break;
		fabric->now_ns = kvr_max_u64(fabric->now_ns, event->at_ns);
		if (event->kind != SIM_STREAM && stalls(event))
			park(event);
		else
			deliver(fabric, event);
		delivered++;
		fabric->counters.events++;
	}
	fabric->now_ns = kvr_max_u64(fabric->now_ns, now_ns);
	return delivered;
}

uint64_t sim_fabric_next_ns(const struct sim_fabric *fabric)
{
	return sim_due_next_ns(&fabric->due, fabric->now_ns);
}

/* ---- what a test does to the world ---------------------------------------------------------------------------- */

/* The queue pair at the other end, as far as it is known. */
static struct sim_qp *other_end(const struct sim_qp *qp)
{
	struct sim_qp *peer = qp->peer ? qp->peer : sim_table_find(&qp->fabric->numbers, qp->peer_number);

	return peer && peer->peer_number == qp->base.qp_num ? peer : NULL;
}

void sim_cut_link(struct sim_qp *qp)
{
	struct sim_qp *peer = other_end(qp);

	if (qp->cut)
		return;
	qp->cut = true;
	qp->fabric->counters.cuts++;
	sim_unpark(qp);
	if (peer) {
		peer->cut = true;
		sim_unpark(peer);
	}
}

void sim_fabric_cut(struct sim_fabric *fabric, uint32_t qp_num)
{
	struct sim_qp *qp = sim_table_find(&fabric->numbers, qp_num);

	if (qp)
		sim_cut_link(qp);
}

void sim_fabric_stall(struct sim_fabric *fabric, uint32_t qp_num, bool stalled)
{
	struct sim_qp *qp = sim_table_find(&fabric->numbers, qp_num);
	struct sim_qp *peer;

	if (!qp)
		return;
	qp->stalled = stalled;
	if (stalled)
		return;
	sim_unpark(qp);
	peer = other_end(qp);
	if (peer)
		sim_unpark(peer);
}

void sim_fabric_cut_device(struct sim_fabric *fabric, struct verbs_device *device)
{
	(void)fabric;
	list_for_each(node, &KVR_CONTAINER_OF(device, struct sim_device, base)->qps)
		sim_cut_link(KVR_CONTAINER_OF(node, struct sim_qp, in_device));
}

void sim_fabric_tell_device(struct sim_fabric *fabric, struct verbs_device *device, enum verbs_health health)
{
	(void)fabric;
	verbs_set_health(device, health);
}

void sim_fabric_link_device(struct sim_fabric *fabric, struct verbs_device *device, bool up)
{
	KVR_CONTAINER_OF(device, struct sim_device, base)->down = !up;
	if (!up)
		sim_fabric_cut_device(fabric, device);
}

void sim_fabric_stall_device(struct sim_fabric *fabric, struct verbs_device *device, bool stalled)
{
	list_for_each(node, &KVR_CONTAINER_OF(device, struct sim_device, base)->qps)
		sim_fabric_stall(fabric, KVR_CONTAINER_OF(node, struct sim_qp, in_device)->base.qp_num, stalled);
}

void sim_fabric_withhold_flush(struct sim_fabric *fabric, struct verbs_device *device, bool withheld)
{
	(void)fabric;
	list_for_each(node, &KVR_CONTAINER_OF(device, struct sim_device, base)->qps)
		KVR_CONTAINER_OF(node, struct sim_qp, in_device)->withheld = withheld;
}

void sim_fabric_counters(const struct sim_fabric *fabric, struct sim_counters *counters)
{
	*counters = fabric->counters;
}

uint64_t sim_draw(struct sim_fabric *fabric, uint64_t least, uint64_t most)
{
	return most > least ? least + random_below(&fabric->random, most - least + 1) : least;
}
