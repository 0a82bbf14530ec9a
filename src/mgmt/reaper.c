/* reaper.c - connections that say nothing, or never register. */
#include "mgmt/state.h"

#define REAPER_AGAIN_NS (100 * KVR_MS)
/* Who looks so late has not run itself meanwhile: stopped, frozen, or with its machine. */
#define REAPER_LATE_NS KVR_SECOND

/* The last sign of life, read when it is needed and never kept (pitfalls B04). A client whose memory is being mapped may be unable
 * to say anything until that is done (pitfalls B03). */
static uint64_t last_seen(const struct peer *peer)
{
	const struct connection *connection = peer->connection;
	uint64_t control_ns = kvr_load_relaxed(&connection->control_seen_ns);

	return kvr_max_u64(kvr_max_u64(kvr_load_relaxed(&connection->last_seen_ns), control_ns), peer->attached_ns);
}

static uint64_t silent_at(const struct peer *peer)
{
	uint64_t limit = peer->management->options.silence_ns;

	return limit ? last_seen(peer) + limit : UINT64_MAX;
}

static uint64_t grace_ends(const struct peer *peer)
{
	uint64_t grace = peer->management->options.registration_grace_ns;

	return grace && !peer->registration_count ? peer->bare_since_ns + grace : UINT64_MAX;
}

void reaper_watch(struct management *management, struct peer *peer)
{
	uint64_t at = kvr_min_u64(silent_at(peer), grace_ends(peer));

	if (at != UINT64_MAX)
		wheel_arm(&management->wheel, &peer->connection->timer,
			kvr_max_u64(at, management->now_ns + WHEEL_TICK_NS));
}

static void reap(struct management *management, struct peer *peer, const char *why)
{
	uint64_t squashed;

	if (log_rate_pass(&management->reaper_log, management->now_ns, KVR_SECOND, &squashed))
		log_info("management: connection %u (%s) is closed: %s; %llu more like it", peer->connection->number,
			peer->connection->name, why, (unsigned long long)squashed);
	COUNT(management, reaped_connections_total, 1);
	peer->tell_lost = true;
	connection_shut(management, peer);
}

/* What the client said while nobody listened is still to be read, and it may have been stopped together with us. */
static bool second_look(struct management *management, struct peer *peer, uint64_t late_ns, uint64_t now_ns)
{
	bool late = !peer->looked_late && late_ns > REAPER_LATE_NS;

	peer->looked_late = late;
	if (late)
		wheel_arm(&management->wheel, &peer->connection->timer,
			now_ns + kvr_max_u64(management->options.silence_ns / 2, REAPER_AGAIN_NS));
	return late;
}

void reaper_fire(struct wheel_timer *timer, uint64_t now_ns)
{
	struct connection *connection = KVR_CONTAINER_OF(timer, struct connection, timer);
	struct peer *peer = peer_of(connection);
	struct management *management = peer->management;
	uint64_t due;

	if (peer->in_flight_count) {
		wheel_arm(
			&management->wheel, timer, now_ns + REAPER_AGAIN_NS); /* it waits for us: that is no silence */
		return;
	}
	due = kvr_min_u64(silent_at(peer), grace_ends(peer));
	if (now_ns < due) {
		peer->looked_late = false;
		reaper_watch(management, peer);
	} else if (!second_look(management, peer, now_ns - due, now_ns)) {
		reap(management, peer,
			now_ns >= silent_at(peer) ? "it has been silent for too long" : "it has registered nothing");
	}
}
