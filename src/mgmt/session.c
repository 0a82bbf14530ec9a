#include "mgmt/state.h"

#include <string.h>

#include "base/random.h"

#define RECYCLE_FOR_SPACE 16

uint64_t session_hash(const struct management *management, const struct model *model, const struct session_ref *ref)
{
	uint64_t hash = management->hash_key[0] ^ model->number;
	uint32_t at = 0;
	uint64_t word;

	/* Keyed, so that no client can make chains of its own choice long. */
	while (at < ref->id.length) {
		uint32_t run = (uint32_t)kvr_min_u64(sizeof(word), ref->id.length - at);

		word = run;
		memcpy(&word, ref->id.bytes + at, run);
		hash = random_mix(hash ^ word) + management->hash_key[1];
		at += run;
	}
	memcpy(&word, ref->salt, sizeof(word));
	return random_mix(hash ^ word ^ ref->id.length);
}

static bool session_is(
	const struct session *session, const struct model *model, uint64_t hash, const struct session_ref *ref)
{
	return session->hash == hash && session->model == model && session->id_length == ref->id.length &&
		memcmp(session->id, ref->id.bytes, ref->id.length) == 0 &&
		memcmp(session->salt, ref->salt, sizeof(session->salt)) == 0;
}

static struct session *find_hashed(
	struct management *management, const struct model *model, uint64_t hash, const struct session_ref *ref)
{
	struct session *session = management->buckets[hash & management->bucket_mask];

	while (session && !session_is(session, model, hash, ref))
		session = session->next;
	if (session)
		session->last_used_ns = management->now_ns;
	return session;
}

struct session *session_find(struct management *management, const struct model *model, const struct session_ref *ref)
{
	return find_hashed(management, model, session_hash(management, model, ref), ref);
}

/* ---- end ---- */

static void session_unhash(struct session *session)
{
	struct session **link = &session->management->buckets[session->hash & session->management->bucket_mask];

	while (*link != session)
		link = &(*link)->next;
	*link = session->next;
	session->next = NULL;
}

static void session_unlink(struct session *session)
{
	struct wheel *wheel = &session->management->wheel;

	session_unhash(session);
	session->ended = true;
	session_own(session, NULL);
	list_remove(&session->unheld);
	wheel_cancel(wheel, &session->life);
	wheel_cancel(wheel, &session->limit);
	wheel_cancel(wheel, &session->deadline);
}

static void session_free(struct session *session)
{
	struct management *management = session->management;
	struct model *model = session->model;

	list_remove(&session->chore);
	chain_free(session);
	cache_space_release(management->cache, session->space);
	session->in_use = false;
	pool_give(&management->sessions_pool, session);
	model->session_count--;
	model_settle(management, model);
}

bool session_recycle(struct management *management)
{
	struct list_node *node = management->unheld.next;
	struct session *session;

	if (node == &management->unheld)
		return false;
	session = KVR_CONTAINER_OF(node, struct session, unheld);
	COUNT(management, sessions_recycled_total, 1);
	session_unlink(session);
	session_free(session);
	return true;
}

void session_end(struct session *session, bool touch, const char *why)
{
	session_unlink(session);
	session->touch_at = touch ? session->chunk_count : 0;
	if (search_under_way(session))
		search_abandon(session, STATUS_CANCELED, why);
	query_answer_all(session, STATUS_CANCELED, why);
	lock_release_begin(session, 0, session->release_expired);
	session_go(session);
}

/* Of one segment. Nearly always all are there: they are found together, and those behind a gap one by one. */
static void touch_run(struct session *session, uint32_t first, uint32_t count)
{
	struct cache *cache = session->management->cache;
	uint32_t entries[SEGMENT_CHUNKS];
	uint32_t found = cache_match(cache, session->space, chain_digest(session, first), count, entries);

	for (uint32_t n = found; n < count; n++)
		entries[n] = cache_find(cache, session->space, chain_digest(session, first + n));
	for (uint32_t n = count; n > 0; n--)
		if (entries[n - 1] != CACHE_NONE)
			cache_touch(cache, entries[n - 1]);
}

/* Last chunks first, so that they are evicted first. Once all transfers have ended, since publishing counts as use
 * too. */
static void touch_slice(struct session *session)
{
	uint32_t stop = session->touch_at > SLICE_CHUNKS ? session->touch_at - SLICE_CHUNKS : 0;

	session->management->budget -= session->touch_at - stop;
	while (session->touch_at > stop) {
		uint32_t first = (session->touch_at - 1) / SEGMENT_CHUNKS * SEGMENT_CHUNKS;
		uint32_t from = first > stop ? first : stop;

		touch_run(session, from, session->touch_at - from);
		session->touch_at = from;
	}
}

/* One slice. Returns true when there is more; the session may be gone when there is not. */
static bool session_slice(struct session *session)
{
	if (lock_releasing(session))
		lock_release_slice(session);
	else if (session->ended && session->users == 0 && session->touch_at > 0)
		touch_slice(session);
	else if (!session->ended && session->search.state == SEARCH_RUNNING)
		search_slice(session);

	if (lock_releasing(session))
		return true;
	if (!session->ended)
		return session->search.state == SEARCH_RUNNING;
	if (session->users > 0)
		return false;
	if (session->touch_at > 0)
		return true;
	session_free(session);
	return false;
}

void session_go(struct session *session)
{
	struct management *management = session->management;
	bool ended = session->ended;

	/* On the list while it is at it: a search that ends may put it there again, and it is freed from there. */
	list_remove(&session->unheld);
	list_remove(&session->chore);
	list_add_last(&management->chores, &session->chore);
	if (management->budget <= 0)
		return;
	while (session_slice(session))
		if (management->budget <= 0 || !ended)
			return;
	if (session->in_use) {
		list_remove(&session->chore);
		session_settle(session);
	}
}

bool session_run_all(struct management *management, int64_t reserve)
{
	bool busy = false;

	for (unsigned n = 0; n < STEP_CHORES && management->budget > reserve; n++) {
		struct list_node *node = management->chores.next;
		struct session *session;

		if (node == &management->chores)
			break;
		busy = true;
		session = KVR_CONTAINER_OF(node, struct session, chore);
		list_remove(node);
		list_add_last(&management->chores, node);
		if (!session_slice(session) && session->in_use) {
			list_remove(&session->chore);
			session_settle(session);
		}
	}
	return busy;
}

/* ---- time ---- */

static void life_fire(struct wheel_timer *timer, uint64_t now_ns)
{
	struct session *session = KVR_CONTAINER_OF(timer, struct session, life);
	struct management *management = session->management;
	uint64_t ttl = management->options.session_ttl_ns;

	if (session->users || search_under_way(session) || !list_empty(&session->waiters))
		session->last_used_ns = now_ns;
	if (session->last_used_ns + ttl > now_ns) {
		wheel_arm(&management->wheel, timer, session->last_used_ns + ttl);
		return;
	}
	COUNT(management, sessions_expired_total, 1);
	session->release_expired = true;
	session_end(session, false, "the session was not used for too long");
}

static void limit_fire(struct wheel_timer *timer, uint64_t now_ns)
{
	struct session *session = KVR_CONTAINER_OF(timer, struct session, limit);

	(void)now_ns;
	if (session->locks) {
		lock_release_begin(session, 0, true);
		session_go(session);
	}
}

static void deadline_fire(struct wheel_timer *timer, uint64_t now_ns)
{
	(void)now_ns;
	search_deadline(KVR_CONTAINER_OF(timer, struct session, deadline));
}

/* ---- beginning ---- */

/* The space of (model, salt). Sessions that hold nothing may keep spaces of salts that nobody uses any more. */
static uint32_t take_space(struct management *management, const struct model *model, const struct session_ref *ref)
{
	uint32_t space = cache_space_acquire(management->cache, model->number, ref->salt, model->world_size);

	for (unsigned n = 0; n < RECYCLE_FOR_SPACE && space == CACHE_NONE && session_recycle(management); n++)
		space = cache_space_acquire(management->cache, model->number, ref->salt, model->world_size);
	return space;
}

static struct session *session_take(struct management *management, struct model *model, const struct session_ref *ref)
{
	uint32_t space = take_space(management, model, ref);
	struct session *session;

	if (space == CACHE_NONE)
		return NULL;
	session = pool_take(&management->sessions_pool);
	if (!session && session_recycle(management))
		session = pool_take(&management->sessions_pool);
	if (!session) {
		cache_space_release(management->cache, space);
		return NULL;
	}
	memset(session, 0, offsetof(struct session, salt));
	session->management = management;
	session->model = model;
	session->space = space;
	return session;
}

static struct session *session_make(
	struct management *management, struct model *model, uint64_t hash, const struct session_ref *ref)
{
	struct session *session = session_take(management, model, ref);

	if (!session)
		return NULL;
	list_init(&session->unheld);
	list_init(&session->chore);
	list_init(&session->owner_node);
	list_init(&session->waiters);
	wheel_timer_init(&session->life, life_fire);
	wheel_timer_init(&session->limit, limit_fire);
	wheel_timer_init(&session->deadline, deadline_fire);
	session->hash = hash;
	session->id_length = ref->id.length;
	memcpy(session->id, ref->id.bytes, ref->id.length);
	memcpy(session->salt, ref->salt, sizeof(session->salt));
	session->in_use = true;
	session->last_used_ns = management->now_ns;
	session->begun_ns = management->now_ns;
	session->next = management->buckets[hash & management->bucket_mask];
	management->buckets[hash & management->bucket_mask] = session;
	if (management->options.session_ttl_ns)
		wheel_arm(&management->wheel, &session->life, management->now_ns + management->options.session_ttl_ns);
	model->session_count++;
	model_settle(management, model);
	return session;
}

static KVR_COLD struct session *unknown(const struct session_ref *ref, struct request_reply *reply)
{
	reply_set(reply, STATUS_UNKNOWN_SESSION,
		"no session \"%.*s\" of this model and salt, and no chain in the request: send the chain",
		(int)kvr_min_u64(ref->id.length, 40), ref->id.bytes);
	return NULL;
}

struct session *session_open(
	struct management *management, struct model *model, const struct session_ref *ref, struct request_reply *reply)
{
	uint64_t hash = session_hash(management, model, ref);
	struct session *session = find_hashed(management, model, hash, ref);

	if (session) {
		if (!chain_extend(session, ref, reply))
			return NULL;
		session_settle(session);
		return session;
	}
	if (!ref->digest_count)
		return unknown(ref, reply);
	if (ref->first_chunk > 0) {
		reply_set(reply, STATUS_INVALID_RANGE,
			"a new session's chain must be sent from chunk 0, not from chunk %u", ref->first_chunk);
		return NULL;
	}
	session = session_make(management, model, hash, ref);
	if (!session) {
		reply_set(reply, STATUS_BUSY,
			"the server keeps its maximum of sessions, or of salts: end some, or retry after a while");
		return NULL;
	}
	if (!chain_extend(session, ref, reply)) {
		session_unlink(session);
		session_free(session);
		return NULL;
	}
	COUNT(management, sessions_opened_total, 1);
	session_settle(session);
	return session;
}

struct session *session_attach(
	struct management *management, struct model *model, const struct session_ref *ref, struct request_reply *reply)
{
	struct session *session = session_find(management, model, ref);

	if (!session)
		return unknown(ref, reply);
	return chain_agrees(session, ref, reply) ? session : NULL;
}

void session_own(struct session *session, struct connection *connection)
{
	list_remove(&session->owner_node);
	session->owner = connection;
	if (connection)
		list_add_last(&connection->sessions, &session->owner_node);
}

void session_settle(struct session *session)
{
	list_remove(&session->unheld);
	if (session->ended || session->locks || session->users || search_under_way(session) ||
		!list_empty(&session->waiters) || list_linked(&session->chore))
		return;
	list_add_last(&session->management->unheld, &session->unheld);
}

void session_leave(struct session *session)
{
	session->users--;
	if (session->ended && session->users == 0)
		session_go(session);
	else
		session_settle(session);
}
