/*
 * l2_health.c - how a place does: what its answers say, taking it out, probing it, taking it in again.
 *
 *              L2_FAILURES in a row        sick_after in a row, or no answer for timeout_ns
 *   good ----------------------> paused ----------------------> out ---probe: store, load, remove---> good
 *     ^                            |   twice as long each time    ^                |
 *     +-----------success----------+                              +---- failed ----+  pauses grow, with jitter
 *
 * Reads and writes are judged apart: a disk that turned read-only is still read. What cannot be read is not written.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "tier/l2_internal.h"

#define LOG_NS KVR_SECOND

const char *l2_health_text(enum l2_health_state state)
{
	static const char *const texts[] = { "good", "read-only", "out" };

	return texts[state];
}

void l2_get_health(const struct l2 *l2, uint32_t index, struct l2_health *health)
{
	const struct l2_health *from = &l2->places[index].health;

	health->state = kvr_load_relaxed(&from->state);
	health->error = kvr_load_relaxed(&from->error);
	health->since_ns = kvr_load_relaxed(&from->since_ns);
	health->probe_ns = kvr_load_relaxed(&from->probe_ns);
	health->outages = kvr_load_relaxed(&from->outages);
	health->timeouts = kvr_load_relaxed(&from->timeouts);
	health->probes = kvr_load_relaxed(&from->probes);
	health->dropped = kvr_load_relaxed(&from->dropped);
	health->unanswered = kvr_load_relaxed(&from->unanswered);
}

/* ---- what an answer says ---- */

enum verdict { WELL, NOTHING, FULL, BAD };

static enum verdict verdict_of(const struct l2 *l2, enum l2_way_kind kind, const struct l2_request *request)
{
	switch (request->status) {
	case 0:
		return WELL;
	case -ENOENT:
		return kind == L2_READS ? WELL : BAD;
	case -ENOSPC:
		return FULL;
	case -EBADMSG: /* one object is wrong, which is another matter */
	case -ECANCELED:
		return NOTHING;
	case -ETIMEDOUT: /* a lookup's own limit, which says little */
		return request->deadline_ns && l2->now_ns >= request->deadline_ns ? NOTHING : BAD;
	default:
		return BAD;
	}
}

static uint64_t pause_of(const struct l2 *l2, uint32_t doublings)
{
	uint64_t pause = l2->options.backoff_ns;

	while (doublings-- > 0 && pause < l2->options.backoff_max_ns)
		pause *= 2;
	return kvr_min_u64(pause, l2->options.backoff_max_ns);
}

bool l2_health_answer(struct l2 *l2, uint32_t place, enum l2_way_kind kind, const struct l2_request *request)
{
	struct l2_way *way = &l2->places[place].ways[kind];
	enum verdict verdict = verdict_of(l2, kind, request);

	if (verdict == WELL && !way->out) {
		way->failures = way->bad = 0;
		way->until_ns = 0;
	}
	/* What was under way with the one that failed says no more than that one. */
	if (verdict < FULL || way->out || l2->now_ns < way->until_ns)
		return verdict == BAD;
	way->bad = verdict == BAD ? way->bad + 1 : 0;
	way->error = request->status;
	if (++way->failures >= L2_FAILURES)
		way->until_ns = l2->now_ns + pause_of(l2, way->failures - L2_FAILURES);
	return verdict == BAD;
}

/* ---- in and out ---- */

static enum l2_health_state state_of(const struct l2_place *place)
{
	if (place->ways[L2_READS].out)
		return L2_HEALTH_OUT;
	return place->ways[L2_WRITES].out ? L2_HEALTH_READ_ONLY : L2_HEALTH_GOOD;
}

static void show_state(struct l2 *l2, struct l2_place *place, int error)
{
	kvr_store_relaxed(&place->health.state, state_of(place));
	kvr_store_relaxed(&place->health.error, error);
	kvr_store_relaxed(&place->health.since_ns, l2->now_ns);
}

/* Between half of the pause and all of it, so that servers that share a place do not come together. */
static void plan_probe(struct l2 *l2, struct l2_place *place)
{
	uint64_t pause = pause_of(l2, place->probe.level);

	place->probe.at_ns = l2->now_ns + pause / 2 + random_below(&l2->random, pause / 2 + 1);
	kvr_store_relaxed(&place->health.probe_ns, place->probe.at_ns);
}

static void take_out(struct l2 *l2, uint32_t number, enum l2_way_kind kind)
{
	struct l2_place *place = &l2->places[number];
	struct l2_probe *probe = &place->probe;
	bool first = state_of(place) == L2_HEALTH_GOOD;

	place->ways[kind].out = true;
	kvr_counter_add(&place->health.dropped, l2_store_drop_queue(l2, place));
	if (kind == L2_READS)
		l2_fetch_lose(l2, number);
	else
		l2_store_lose(l2, number);
	kvr_counter_add(&place->health.outages, 1);
	show_state(l2, place, place->ways[kind].error);
	if (!first)
		return;
	/* One that has not been well for long goes on with the pauses that it had. */
	if (!probe->well_since_ns || l2->now_ns - probe->well_since_ns > L2_CALM * l2->options.backoff_max_ns)
		probe->level = 0;
	plan_probe(l2, place);
}

void l2_health_clear_lost(struct l2 *l2, uint32_t number)
{
	for (unsigned kind = 0; kind < L2_WAYS; kind++) {
		struct l2_way *way = &l2->places[number].ways[kind];

		way->error = -ETIMEDOUT;
		if (!way->out)
			take_out(l2, number, kind);
	}
	kvr_counter_add(&l2->places[number].health.timeouts, 1);
}

static void take_in(struct l2_way *way)
{
	way->out = false;
	way->failures = way->bad = 0;
	way->until_ns = 0;
}

/* True when it is sick. */
static bool judge(struct l2 *l2, struct l2_place *place, enum l2_way_kind kind)
{
	struct l2_way *way = &place->ways[kind];
	uint32_t has = kind == L2_READS ? place->reading : place->storing;

	if (way->out)
		return false;
	if (has > way->lost && l2->now_ns - way->answered_ns >= l2->options.timeout_ns) {
		way->error = -ETIMEDOUT;
		kvr_counter_add(&place->health.timeouts, 1);
		return true;
	}
	return way->bad >= l2->options.sick_after;
}

/* ---- probes ---- */

static void submit_probe(struct l2 *l2, struct l2_place *place)
{
	struct l2_probe *probe = &place->probe;

	list_init(&probe->slot.request.node);
	probe->slot.sent = place->adapter->driver->submit(place->adapter, &probe->slot.request) == 0;
	if (!probe->slot.sent)
		probe->at_ns = l2->now_ns + L2_LOST_POLL_NS;
}

static void send_probe(struct l2 *l2, struct l2_place *place, enum l2_probe_step step)
{
	static const enum l2_operation operations[] = { L2_REMOVE, L2_STORE, L2_LOAD, L2_REMOVE };
	struct l2_probe *probe = &place->probe;

	probe->step = step;
	probe->slot.request.operation = operations[step];
	if (step == L2_PROBE_LOAD)
		memset(probe->memory, 0, L2_PROBE_BYTES);
	submit_probe(l2, place);
}

static void begin_probe(struct l2 *l2, uint32_t number)
{
	static const char name[] = "kvrail L2 probe";
	struct l2_place *place = &l2->places[number];
	struct l2_probe *probe = &place->probe;
	struct l2_identity *identity = &probe->slot.request.identity;
	bool stores = l2->options.policy != L2_STORE_NONE && place->ways[L2_WRITES].lost == 0;

	memset(&probe->slot, 0, sizeof(probe->slot));
	probe->slot.adapter = number;
	probe->slot.request.memory = probe->memory;
	memcpy(identity->model_key, name, sizeof(name));
	/* One that nobody has stored: a STORE of what is there may write nothing. */
	for (uint32_t i = 0; i < sizeof(identity->digest); i += sizeof(uint64_t)) {
		uint64_t word = random_next(&l2->random);

		memcpy(identity->digest + i, &word, sizeof(word));
	}
	identity->bytes = L2_PROBE_BYTES;
	probe->serial = random_next(&l2->random);
	memset(probe->memory, (int)(probe->serial & 0xff), L2_PROBE_BYTES);
	probe->reads = probe->stored = false;
	probe->writes = l2->options.policy == L2_STORE_NONE;
	kvr_counter_add(&place->health.probes, 1);
	kvr_store_relaxed(&place->health.probe_ns, (uint64_t)0);
	send_probe(l2, place, stores ? L2_PROBE_STORE : L2_PROBE_LOAD);
}

static void end_probe(struct l2 *l2, struct l2_place *place)
{
	struct l2_probe *probe = &place->probe;
	enum l2_health_state before = state_of(place);

	probe->step = L2_PROBE_REST;
	if (probe->reads)
		take_in(&place->ways[L2_READS]);
	if (probe->writes)
		take_in(&place->ways[L2_WRITES]);
	if (state_of(place) != before)
		show_state(l2, place, state_of(place) == L2_HEALTH_GOOD ? 0 : place->ways[L2_WRITES].error);
	if (state_of(place) == L2_HEALTH_GOOD) {
		probe->well_since_ns = l2->now_ns;
		return;
	}
	probe->level++;
	plan_probe(l2, place);
}

static bool probe_came_back(const struct l2_probe *probe)
{
	for (uint32_t i = 0; i < L2_PROBE_BYTES; i++)
		if (probe->memory[i] != (uint8_t)(probe->serial & 0xff))
			return false;
	return true;
}

static void probe_stored(struct l2 *l2, struct l2_place *place, int status)
{
	struct l2_probe *probe = &place->probe;

	if (status && status != -ENOSPC)
		place->ways[L2_WRITES].error = status;
	probe->stored = status == 0;
	probe->writes = status == 0 || status == -ENOSPC; /* full is not sick */
	if (place->ways[L2_READS].lost == 0)
		send_probe(l2, place, L2_PROBE_LOAD);
	else if (probe->stored)
		send_probe(l2, place, L2_PROBE_REMOVE);
	else
		end_probe(l2, place);
}

static void probe_loaded(struct l2 *l2, struct l2_place *place, int status)
{
	struct l2_probe *probe = &place->probe;

	if (probe->stored)
		probe->reads = status == 0 && probe_came_back(probe);
	else
		probe->reads = status == -ENOENT;
	if (!probe->reads && status && status != -ENOENT)
		place->ways[L2_READS].error = status;
	if (probe->stored)
		send_probe(l2, place, L2_PROBE_REMOVE);
	else
		end_probe(l2, place);
}

void l2_probe_ended(struct l2 *l2, struct l2_slot *slot)
{
	struct l2_place *place = &l2->places[slot->adapter];

	slot->sent = false;
	if (place->probe.step == L2_PROBE_STORE)
		probe_stored(l2, place, slot->request.status);
	else if (place->probe.step == L2_PROBE_LOAD)
		probe_loaded(l2, place, slot->request.status);
	else
		end_probe(l2, place);
}

/* Not while it still has what it was taken out with: ending that would be the first sign of life. */
static bool probe_due(const struct l2 *l2, const struct l2_place *place)
{
	const struct l2_way *reads = &place->ways[L2_READS], *writes = &place->ways[L2_WRITES];

	if (place->probe.slot.sent || place->clear.sent || l2->leaving)
		return false;
	if (place->probe.step != L2_PROBE_REST)
		return true;
	if (l2_closed(l2))
		return false;
	return (reads->out && reads->lost == 0) || (writes->out && writes->lost == 0);
}

/* ---- the turn ---- */

static void tell(struct l2 *l2, struct l2_place *place)
{
	enum l2_health_state state = state_of(place);
	const char *name = place->adapter->name;
	uint64_t squashed;
	int error = -place->health.error;
	const char *why = error == ETIMEDOUT ? "it does not answer" : strerror(error);

	if (state == place->told || !log_rate_pass(&place->log, l2->now_ns, LOG_NS, &squashed))
		return;
	place->told = state;
	if (state == L2_HEALTH_OUT)
		log_warn("L2: %s is taken out (%s): its objects are misses and nothing is written there; it is tried "
			 "again by itself, at least every %llu s. Look at the disk, mount or server behind it",
			name, why, (unsigned long long)((l2->options.backoff_max_ns + KVR_SECOND - 1) / KVR_SECOND));
	else if (state == L2_HEALTH_READ_ONLY)
		log_warn("L2: %s is read only (%s): nothing is written there; it is tried again by itself, at least "
			 "every %llu s. Look at its rights, its mount and its free space",
			name, why, (unsigned long long)((l2->options.backoff_max_ns + KVR_SECOND - 1) / KVR_SECOND));
	else
		log_info("L2: %s is well again, after %llu probes", name, (unsigned long long)place->health.probes);
}

bool l2_health_step(struct l2 *l2, uint32_t number)
{
	struct l2_place *place = &l2->places[number];
	bool busy = false;

	for (unsigned kind = 0; kind < L2_WAYS; kind++) {
		if (!judge(l2, place, kind))
			continue;
		take_out(l2, number, kind);
		busy = true;
	}
	if (KVR_LIKELY(state_of(place) == L2_HEALTH_GOOD && place->told == L2_HEALTH_GOOD))
		return busy;
	kvr_store_relaxed(
		&place->health.unanswered, (uint64_t)place->ways[L2_READS].lost + place->ways[L2_WRITES].lost);
	tell(l2, place);
	if (!probe_due(l2, place) || l2->now_ns < place->probe.at_ns)
		return busy;
	if (place->probe.step == L2_PROBE_REST)
		begin_probe(l2, number);
	else
		submit_probe(l2, place);
	return true;
}

uint64_t l2_health_next_ns(const struct l2 *l2, uint32_t number)
{
	const struct l2_place *place = &l2->places[number];

	return probe_due(l2, place) ? place->probe.at_ns : UINT64_MAX;
}
