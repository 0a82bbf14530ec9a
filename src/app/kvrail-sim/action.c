/* action.c - requests: submitted with all that is needed to judge their answers, and taken when they are answered. */
#include <errno.h>
#include <string.h>

#include "app/kvrail-sim/world_private.h"

struct action *action_begin(struct process *process, enum action_kind kind, struct world_session *session)
{
	struct world *world = process->world;
	struct list_node *node;
	struct action *action;

	if (process->state != PROCESS_STANDING)
		return NULL;
	node = list_pop_first(&world->free_actions);
	if (!node)
		return NULL;
	action = KVR_CONTAINER_OF(node, struct action, node);
	action->kind = kind;
	action->process = process;
	action->session = session;
	action->submitted = ++world->sequence;
	action->submitted_ns = world->now_ns;
	action->host = process_host(process);
	action->epoch = action->host->model.epoch;
	action->namespace_index = session ? world_namespace(process_engine(process), process->shape, session->salt) : 0;
	action->flags = 0;
	action->canceled = action->crossed = action->overtaken = action->bad = action->all_ranks = false;
	action->first = action->count = action->skip = 0;
	action->expected = UINT32_MAX;
	action->block_count = 0;
	return action;
}

static void action_free_slot(struct action *action)
{
	list_remove(&action->node);
	list_add_first(&action->process->world->free_actions, &action->node);
}

void action_undo(struct action *action)
{
	blocks_give(action->process, action->blocks, action->block_count);
	if (action->kind == ACTION_STORE)
		for (uint32_t c = 0; c < action->count; c++)
			if (action->generations[c])
				model_never(&action->host->model, action->generations[c]);
	action_free_slot(action);
}

static bool action_releases(enum action_kind kind)
{
	return kind == ACTION_RETRIEVE || kind == ACTION_FREE || kind == ACTION_END || kind == ACTION_LOOKUP;
}

/* Other requests of the session whose results this one may change. */
static void action_cross(struct action *action)
{
	struct world *world = action->process->world;

	if (action->kind != ACTION_LOOKUP && action->kind != ACTION_END)
		return;
	for (uint32_t i = 0; i < WORLD_ACTIONS; i++) {
		struct action *other = &world->actions[i];

		if (other == action || other->session != action->session || !list_linked(&other->node) ||
			other->submitted >= action->submitted)
			continue;
		other->crossed = true;
		/* On another connection it may come later all the same. */
		action->overtaken |= other->kind == ACTION_LOOKUP || other->kind == ACTION_END;
	}
}

void action_sent(struct action *action)
{
	struct world_session *session = action->session;
	struct process *process = action->process;

	list_add_last(&process->actions, &action->node);
	process->in_flight++;
	process->spoke_ns = process->world->now_ns;
	if (!session)
		return;
	session->in_flight++;
	action_cross(action);
	if (action->kind == ACTION_LOOKUP) {
		session->lookups++;
		session->looked_up = action->submitted;
		session->matched_known = false;
	}
	if (action->kind == ACTION_END)
		session->ended = action->submitted;
	if (action_releases(action->kind)) {
		session->releasers++;
		session->released = action->submitted;
	}
}

static void action_finish(struct action *action)
{
	struct world_session *session = action->session;

	action->process->in_flight--;
	if (session) {
		session->in_flight--;
		session->lookups -= action->kind == ACTION_LOOKUP;
		session->releasers -= action_releases(action->kind);
	}
	action->session = NULL;
	action_free_slot(action);
}

bool action_collect(struct process *process)
{
	struct world *world = process->world;
	bool busy = false;

	list_for_each_safe(node, &process->actions) {
		struct action *action = KVR_CONTAINER_OF(node, struct action, node);
		struct kvr_result result;
		int error = client_take(process->client, action->ticket, &result);

		if (error == -EAGAIN)
			continue;
		busy = true;
		world->sequence++;
		world->report->requests++;
		if (error)
			world_violated(world, "process %u: a ticket is gone that nobody took", process->number);
		world_watch_server(world);
		if (!world_stopped(world))
			answer_check(action, &result);
		action_finish(action);
		if (world_stopped(world))
			return true;
	}
	return busy;
}

void action_lose_all(struct process *process)
{
	list_for_each_safe(node, &process->actions) {
		struct action *action = KVR_CONTAINER_OF(node, struct action, node);

		answer_lost(action);
		action_finish(action);
	}
}

/* ---- the kinds ------------------------------------------------------------------------------------------------ */

/* A worker of this model that is certainly registered: without any, a LOOKUP matches nothing. */
static const struct process *find_witness(struct world *world, const struct process *scheduler)
{
	for (uint32_t i = 0; i < world->process_count; i++) {
		const struct process *process = &world->processes[i];

		if (!process->scheduler && process->state == PROCESS_STANDING && process_clean(process) &&
			process->shape == scheduler->shape && process_host(process) == process_host(scheduler) &&
			process_engine(process)->tenant == process_engine(scheduler)->tenant)
			return process;
	}
	return NULL;
}

/* How many chunks of the session are there for certain now, for all ranks. */
static uint32_t certain_prefix(struct world *world, const struct process *process, const struct world_session *session)
{
	uint32_t namespace_index = world_namespace(process_engine(process), process->shape, session->salt);
	const uint32_t *nodes = world->documents[session->document].nodes;
	uint32_t ranks = world->shapes[process->shape].world_size;
	const struct world_model *model = &process_host(process)->model;

	for (uint32_t c = 0; c < session->length; c++) {
		for (uint32_t rank = 0; rank < ranks; rank++) {
			uint32_t object = model_object_index(model, namespace_index, nodes[c], rank);

			if (!model_certain(model, object, world->sequence))
				return c;
		}
	}
	return session->length;
}

bool action_lookup(struct process *scheduler, struct world_session *session, uint32_t flags)
{
	struct world *world = scheduler->world;
	struct kvr_session *own = process_session(scheduler, session);
	struct action *action = own ? action_begin(scheduler, ACTION_LOOKUP, session) : NULL;

	if (!action)
		return false;
	action->flags = flags;
	action->count = session->length;
	memcpy(action->nodes, world->documents[session->document].nodes, session->length * sizeof(uint32_t));
	action->witness = find_witness(world, scheduler);
	if (action->witness)
		action->expected = certain_prefix(world, scheduler, session);
	action->all_ranks = session->releasers == 0; /* nothing under way that would take its locks */
	if (client_submit_lookup(own, flags, &action->ticket)) {
		action_undo(action);
		return false;
	}
	if (!(flags & KVR_LOOKUP_NO_LOCK) || session->lookups > 0)
		held_forget(session);
	action_sent(action);
	NOTE(world, "process %llu: LOOKUP of session %llu, %llu chunks, flags %llu, %llu for certain",
		scheduler->number, session->slot, session->length, flags, action->expected);
	return true;
}

bool action_query(struct process *process, struct world_session *session, uint64_t wait_ns, bool early)
{
	struct kvr_session *own = process_session(process, session);
	struct action *action = own ? action_begin(process, ACTION_QUERY, session) : NULL;

	if (!action)
		return false;
	if (session->lookups == 0 && session->matched_known)
		action->expected = session->matched;
	if (client_submit_query(own, wait_ns, early, &action->ticket)) {
		action_undo(action);
		return false;
	}
	action_sent(action);
	NOTE(process->world, "process %llu: QUERY of session %llu, waits %llu ns", process->number, session->slot,
		wait_ns);
	return true;
}

bool action_end(struct process *process, struct world_session *session)
{
	struct kvr_session *own = process_session(process, session);
	struct action *action = own ? action_begin(process, ACTION_END, session) : NULL;

	if (!action)
		return false;
	if (client_submit_end(own, &action->ticket)) {
		action_undo(action);
		return false;
	}
	held_forget(session);
	session->matched_known = false;
	action_sent(action);
	NOTE(process->world, "process %llu: END of session %llu", process->number, session->slot);
	return true;
}

/* What FREE must release: known only when all of it is certainly held, and nothing else is under way. */
static uint32_t free_expected(const struct action *action)
{
	struct process *process = action->process;
	struct world *world = process->world;
	const struct world_session *session = action->session;
	uint32_t count = 0;

	if (session->releasers > 0 || process->shape != process_engine(process)->shape || action->all_ranks ||
		process->scheduler)
		return UINT32_MAX;
	for (uint32_t c = action->first; c < action->first + action->count; c++)
		count += held_share(world, session, c, process);
	return count ? count : UINT32_MAX;
}

bool action_free(struct process *process, struct world_session *session, uint32_t first, uint32_t count, bool all_ranks)
{
	struct kvr_session *own = process_session(process, session);
	struct action *action = own ? action_begin(process, ACTION_FREE, session) : NULL;
	const struct shape *shape = &process->world->shapes[process->shape];

	if (!action)
		return false;
	action->first = first;
	action->count = count;
	action->all_ranks = all_ranks;
	action->expected = free_expected(action);
	if (client_submit_free_locks(own, first, count, all_ranks, &action->ticket)) {
		action_undo(action);
		return false;
	}
	for (uint32_t c = first; c < first + count && process->shape == process_engine(process)->shape; c++) {
		if (all_ranks)
			session->held.shares[c] = 0;
		else
			session->held.shares[c] &= ~(1u << (process->rank * shape->readers + process->reader));
	}
	action_sent(action);
	NOTE(process->world, "process %llu: FREE of session %llu, chunks %llu + %llu, all %llu, %llu for certain",
		process->number, session->slot, first, count, all_ranks, action->expected);
	return true;
}

bool action_clear(struct process *process, bool everything)
{
	struct world *world = process->world;
	struct action *action = process_ready(process) ? action_begin(process, ACTION_CLEAR, NULL) : NULL;

	if (!action)
		return false;
	if (client_submit_clear(process->client, everything ? UINT32_MAX : process->registration, &action->ticket)) {
		action_undo(action);
		return false;
	}
	action_sent(action);
	NOTE(world, "process %llu: CLEAR, everything %llu", process->number, everything);
	return true;
}

bool action_ping(struct process *process)
{
	struct action *action = process_ready(process) ? action_begin(process, ACTION_PING, NULL) : NULL;

	if (!action)
		return false;
	if (client_submit_ping(process->client, &action->ticket)) {
		action_undo(action);
		return false;
	}
	action_sent(action);
	return true;
}

bool action_cancel(struct action *action)
{
	static const char *const formats[ACTION_KINDS] = {
		[ACTION_LOOKUP] = "process %llu: CANCEL of LOOKUP of session %llu",
		[ACTION_QUERY] = "process %llu: CANCEL of QUERY of session %llu",
		[ACTION_RETRIEVE] = "process %llu: CANCEL of RETRIEVE of session %llu",
		[ACTION_STORE] = "process %llu: CANCEL of STORE of session %llu",
		[ACTION_FREE] = "process %llu: CANCEL of FREE of session %llu",
		[ACTION_END] = "process %llu: CANCEL of END of session %llu",
		[ACTION_CLEAR] = "process %llu: CANCEL of CLEAR",
		[ACTION_PING] = "process %llu: CANCEL of PING",
	};
	struct process *process = action->process;

	if (client_submit_cancel(process->client, action->ticket))
		return false;
	action->canceled = true;
	if (action->kind == ACTION_LOOKUP && action->session)
		action->session->lookup_canceled = true;
	/* A LOOKUP that is canceled lets go of what it had locked; FREE and RETRIEVE may or may not have. */
	if (action->session && action->kind == ACTION_LOOKUP)
		held_forget(action->session);
	NOTE(process->world, formats[action->kind], process->number, action->session ? action->session->slot : 0);
	return true;
}
