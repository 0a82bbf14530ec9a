/*
 * health.c - what devices say of themselves: a port that goes down, an address that changes, a device that is lost.
 *
 * Of what comes through a further rail nothing is lost when it is taken out: its parts are done again by the others. So it goes at once,
 * before its retries would tell, and comes back when the client asks for it again, with its back-off. Home has no such stand-in: a
 * connection outlives a port that is down for a short time, by the device's own retries. If it lasts, or the device cannot come back, the
 * connection fails, and the client returns through another of its devices.
 */
#include "worker/internal.h"

const char *health_against(uint32_t word)
{
	switch (verbs_health_of(word)) {
	case VERBS_PORT_DOWN:
		return "its port is down";
	case VERBS_LOST:
		return "the device is lost";
	default:
		return NULL;
	}
}

static void fail_rails(struct worker *worker, uint32_t track, const char *why, uint32_t change)
{
	for (uint32_t i = 0; i < worker->rail_count; i++) {
		struct rail *rail = &worker->rails[i];

		if ((rail->state != RAIL_LIVE && rail->state != RAIL_PROBING) || rail->track != track)
			continue;
		worker_count(worker, rails_told_total, 1);
		rail_fail(worker, rail, why, change);
	}
}

static void fail_connections(struct worker *worker, const char *why, uint32_t change)
{
	worker->home_down_ns = 0;
	for (uint32_t i = 0; i < worker->options.connections_max; i++) {
		if (worker->endpoints[i].state == ENDPOINT_LIVE)
			connection_fail(worker, &worker->endpoints[i], why, change);
	}
}

/* It has changed since it was last looked at. */
static void look(struct worker *worker, uint32_t index, uint32_t word)
{
	const char *why = health_against(word);
	enum verbs_health health = verbs_health_of(word);

	worker->tracks[index].health = word;
	if (health == VERBS_MOVED)
		why = "its address has changed";
	if (index > 0 && why)
		fail_rails(worker, index, why, word >> 8);
	else if (index == 0 && (health == VERBS_MOVED || health == VERBS_LOST))
		fail_connections(worker, why, word >> 8);
	else if (index == 0)
		worker->home_down_ns = health == VERBS_PORT_DOWN ? worker->now_ns : 0;
}

bool health_step(struct worker *worker)
{
	const char *why;
	bool changed = false;

	for (uint32_t i = 0; i < worker->track_count; i++) {
		uint32_t word = kvr_load_relaxed(&worker->tracks[i].device->health);

		if (KVR_LIKELY(word == worker->tracks[i].health))
			continue;
		look(worker, i, word);
		changed = true;
	}
	if (KVR_LIKELY(worker->home_down_ns == 0) || worker->now_ns - worker->home_down_ns < WORKER_HOME_PATIENCE_NS)
		return changed;
	why = health_against(worker->tracks[0].health);
	fail_connections(worker, why ? why : "its device was out", worker->tracks[0].health >> 8);
	return true;
}
