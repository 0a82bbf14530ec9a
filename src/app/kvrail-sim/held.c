/* held.c - locks that are held for certain, so that their chunks may not be evicted. */
#include "app/kvrail-sim/world_private.h"

uint32_t world_namespace(const struct engine *engine, uint32_t shape, uint32_t salt)
{
	return (engine->tenant * WORLD_SHAPES + shape) * WORLD_SALTS + salt;
}

void held_forget(struct world_session *session)
{
	session->held.since = 0;
}

bool held_valid(struct world *world, const struct world_session *session)
{
	const struct engine *engine = &world->engines[session->engine];
	const struct process *scheduler = &world->processes[engine->first_process];

	return session->held.since && world->now_ns < session->held.until_ns &&
		scheduler->disturbed < session->held.since;
}

static uint32_t share_bit(const struct world *world, const struct process *worker)
{
	return 1u << (worker->rank * world->shapes[worker->shape].readers + worker->reader);
}

bool held_share(struct world *world, const struct world_session *session, uint32_t chunk, const struct process *worker)
{
	/* One that died, or unregistered, shortly before the LOOKUP may have its share released after it. */
	return held_valid(world, session) && process_clean(worker) && worker->clean_since < session->held.since &&
		(session->held.shares[chunk] & share_bit(world, worker));
}

/* Somebody's share is certainly there. */
static bool held_chunk(struct world *world, const struct world_session *session, uint32_t chunk)
{
	const struct engine *engine = &world->engines[session->engine];

	for (uint32_t i = 1; i <= engine->worker_count; i++) {
		const struct process *worker = &world->processes[engine->first_process + i];

		if (worker->shape == engine->shape && held_share(world, session, chunk, worker))
			return true;
	}
	return false;
}

bool held_any(struct world *world, const struct world_session *session)
{
	for (uint32_t c = 0; c < session->length; c++)
		if (held_chunk(world, session, c))
			return true;
	return false;
}

const struct world_session *held_by(const struct action *action, uint32_t node)
{
	struct world *world = action->process->world;

	for (uint32_t e = 0; e < world->engine_count; e++) {
		struct engine *engine = &world->engines[e];

		if (&world->hosts[engine->host] != action->host)
			continue;
		for (uint32_t s = 0; s < WORLD_SESSIONS; s++) {
			const struct world_session *session = &engine->sessions[s];
			const struct document *document = &world->documents[session->document];

			if (!session->open || session->held.known > action->submitted || !held_valid(world, session) ||
				world_namespace(engine, engine->shape, session->salt) != action->namespace_index)
				continue;
			for (uint32_t c = 0; c < session->length; c++) {
				if (document->nodes[c] == node && held_chunk(world, session, c))
					return session;
			}
		}
	}
	return NULL;
}
