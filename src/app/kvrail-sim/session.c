/* session.c - the engines' sessions: opened on a prompt, grown, forgotten. */
#include <stdio.h>
#include <string.h>

#include "app/kvrail-sim/world_private.h"

struct world_session *session_pick(struct world *world, struct engine *engine, uint32_t number, bool opened)
{
	(void)world;
	for (uint32_t i = 0; i < WORLD_SESSIONS; i++) {
		struct world_session *session = &engine->sessions[(number + i) % WORLD_SESSIONS];

		if (session->open == opened)
			return session;
	}
	return NULL;
}

/* It gets the id of the one before, which may live on in the server and here, with another chain. */
static void share_id(struct engine *engine, struct world_session *session)
{
	session->reused_id = true;
	for (uint32_t i = 0; i < WORLD_SESSIONS; i++) {
		struct world_session *other = &engine->sessions[i];

		if (other->open && other->request == engine->next_id) {
			other->reused_id = true;
			held_forget(other);
		}
	}
}

bool world_session_open(struct world *world, struct engine *engine, uint32_t a, uint32_t b)
{
	struct world_session *session = session_pick(world, engine, a, false);
	struct held_locks held;
	uint32_t engine_number, slot;

	if (!session)
		return false;
	held = session->held;
	engine_number = session->engine;
	slot = session->slot;
	memset(session, 0, sizeof(*session));
	session->held.shares = held.shares;
	session->engine = engine_number;
	session->slot = slot;
	session->open = true;
	session->salt = b % 8 < 5 ? 0 : b % 8 < 7 ? 1 : 2;
	session->document = (b >> 4) % world->document_count;
	session->length = 1 + (b >> 12) % world->documents[session->document].length;
	if (world_has(world, WORLD_BAD) && engine->next_id > 0 && a % 16 == 0)
		share_id(engine, session);
	else
		engine->next_id++;
	session->request = engine->next_id;
	snprintf(session->id, sizeof(session->id), "engine %u request %u", session->engine, engine->next_id);
	NOTE(world, "engine %llu: session %llu is request %llu, document %llu, %llu chunks, salt %llu", session->engine,
		session->slot, engine->next_id, session->document, session->length, session->salt);
	return true;
}

void world_session_close(struct world *world, struct world_session *session)
{
	const struct engine *engine = &world->engines[session->engine];

	if (!session->open || session->in_flight > 0)
		return;
	for (uint32_t i = 0; i <= engine->worker_count; i++)
		process_drop_session(&world->processes[engine->first_process + i], session->slot);
	session->open = false;
	held_forget(session);
	NOTE(world, "engine %llu: session %llu is forgotten", session->engine, session->slot);
}
