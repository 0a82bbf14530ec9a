/* verify.c - recounts everything that is kept as a number, and compares. */
#include "mgmt/state.h"

#include <errno.h>

struct recount {
	uint64_t locks, pins, staged;
	uint32_t sessions, hashed, in_flight, transfers, larges, registrations;
};

static KVR_COLD int contradiction(const char *what, uint64_t have, uint64_t expected)
{
	log_error("management: %s: %llu, expected %llu", what, (unsigned long long)have, (unsigned long long)expected);
	return -EILSEQ;
}

static int verify_session(struct management *management, struct session *session, struct recount *recount)
{
	uint64_t locks = 0;
	bool holds;

	for (uint32_t chunk = 0; chunk < session->chunk_count; chunk++) {
		uint32_t entry;

		if (!lock_held(session, chunk, &entry))
			continue;
		locks += (uint64_t)__builtin_popcountll(chain_segment(session, chunk)->shares[chunk % SEGMENT_CHUNKS]);
		if (chunk >= session->locked_limit)
			return contradiction("a lock beyond the locked chunks, at", chunk, session->locked_limit);
		if (cache_find(management->cache, session->space, chain_digest(session, chunk)) != entry)
			return contradiction("entry of a locked chunk", entry, chunk);
	}
	if (locks != session->locks)
		return contradiction("locks of a session", session->locks, locks);
	holds = session->ended || locks || session->users || search_under_way(session) ||
		!list_empty(&session->waiters) || list_linked(&session->chore);
	if (holds == list_linked(&session->unheld))
		return contradiction("a session holds something", holds, !holds);
	if (session->ended && !session->users && !list_linked(&session->chore))
		return contradiction("sessions that ended and stayed", 1, 0);
	recount->locks += locks;
	recount->sessions++;
	return 0;
}

static int verify_sessions(struct management *management, struct recount *recount)
{
	uint32_t listed = 0;

	for (uint32_t n = 0; n < management->sessions_pool.count; n++) {
		struct session *session = pool_at(&management->sessions_pool, n);
		int error = session->in_use ? verify_session(management, session, recount) : 0;

		if (error)
			return error;
		listed += session->in_use && !session->ended;
	}
	for (uint64_t b = 0; b <= management->bucket_mask; b++)
		for (struct session *session = management->buckets[b]; session; session = session->next)
			recount->hashed++;
	if (listed != recount->hashed)
		return contradiction("sessions in the hash table", recount->hashed, listed);
	if (recount->sessions != pool_used(&management->sessions_pool))
		return contradiction("sessions in use", pool_used(&management->sessions_pool), recount->sessions);
	return 0;
}

static void recount_request(const struct request *request, struct recount *recount)
{
	recount->in_flight++;
	recount->larges += request->large != NULL;
	if (request->stage == STAGE_OUT || request->stage == STAGE_OUT_ABORTED)
		recount->transfers++;
	else if (request->stage != STAGE_RETRIEVE && request->stage != STAGE_STORE_LOOK &&
		request->stage != STAGE_STORE_RESERVE && request->stage != STAGE_FINISH &&
		request->stage != STAGE_PUBLISH_WAIT)
		return;
	for (uint32_t n = 0; n < request->message.transfer.chunk_count; n++) {
		const struct transfer_part *part = &request->transfer.parts[n];

		if (part->entry != CACHE_NONE)
			recount->pins++;
		else if (part->object)
			recount->staged++;
	}
}

static int verify_peers(struct management *management, struct recount *recount)
{
	list_for_each(node, &management->peers) {
		struct peer *peer = KVR_CONTAINER_OF(node, struct peer, node);
		uint32_t before = recount->in_flight, registrations = 0;

		for (unsigned b = 0; b < PEER_BUCKETS; b++)
			list_for_each(request, &peer->in_flight[b])
				recount_request(KVR_CONTAINER_OF(request, struct request, in_flight), recount);
		if (recount->in_flight - before != peer->in_flight_count)
			return contradiction(
				"requests of a connection", peer->in_flight_count, recount->in_flight - before);
		list_for_each(registration, &peer->connection->registrations)
			registrations++;
		if (registrations != peer->registration_count)
			return contradiction("registrations of a connection", peer->registration_count, registrations);
		recount->registrations += registrations;
	}
	if (recount->in_flight != management->in_flight)
		return contradiction("requests in flight", management->in_flight, recount->in_flight);
	if (recount->transfers != management->transfers)
		return contradiction("transfers with workers", management->transfers, recount->transfers);
	if (recount->registrations != management->registration_count)
		return contradiction("registrations", management->registration_count, recount->registrations);
	return 0;
}

static int verify_models(struct management *management)
{
	uint32_t sessions = 0, registrations = 0;

	list_for_each(node, &management->models) {
		struct model *model = KVR_CONTAINER_OF(node, struct model, node);

		sessions += model->session_count;
		registrations += model->registration_count;
		if (list_linked(&model->idle) !=
			(!model->session_count && !model->registration_count && !model->job_count))
			return contradiction("a model is idle", list_linked(&model->idle), !list_linked(&model->idle));
	}
	if (sessions != pool_used(&management->sessions_pool))
		return contradiction("sessions of all models", sessions, pool_used(&management->sessions_pool));
	if (registrations != management->registration_count)
		return contradiction("registrations of all models", registrations, management->registration_count);
	return 0;
}

static int verify_cache(struct management *management, const struct recount *recount)
{
	uint64_t pins = recount->pins + management->pinned_chunks;
	struct cache_stats stats;

	cache_get_stats(management->cache, &stats);
	/* An L2 engine pins, locks and stages on its own account. */
	if (management->engine.begin ? stats.pins < pins : stats.pins != pins)
		return contradiction("pins in the chunk table", stats.pins, pins);
	if (management->engine.begin ? stats.locks < recount->locks : stats.locks != recount->locks)
		return contradiction("locks in the chunk table", stats.locks, recount->locks);
	if (management->engine.begin ? stats.staged < recount->staged : stats.staged != recount->staged)
		return contradiction("staged objects in the chunk table", stats.staged, recount->staged);
	return 0;
}

int management_verify(struct management *management)
{
	struct recount recount = { .locks = 0 };
	int error = verify_sessions(management, &recount);

	if (!error)
		error = verify_peers(management, &recount);
	if (!error)
		error = verify_models(management);
	if (!error)
		error = verify_cache(management, &recount);
	if (!error && recount.larges > pool_used(&management->larges_pool))
		error = contradiction("large requests", pool_used(&management->larges_pool), recount.larges);
	return error;
}
