#include "app/kvraild/watchdog.h"

#include <string.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/text.h"

void watchdog_init(struct watchdog *watchdog, uint64_t stall_ns)
{
	memset(watchdog, 0, sizeof(*watchdog));
	watchdog->stall_ns = stall_ns;
}

void watchdog_add(struct watchdog *watchdog, struct loop *loop, uint64_t now_ns)
{
	struct watched *watched = &watchdog->watched[watchdog->count++];

	watched->loop = loop;
	watched->turn_ns = kvr_load_relaxed(&loop_counters(loop)->turn_ns);
	watched->change_ns = now_ns;
}

static void watched_look(const struct watchdog *watchdog, struct watched *watched, uint64_t now_ns)
{
	uint64_t turn_ns = kvr_load_relaxed(&loop_counters(watched->loop)->turn_ns);
	bool stalled;
	char text[TEXT_SHORT];

	if (turn_ns != watched->turn_ns) {
		watched->turn_ns = turn_ns;
		watched->change_ns = now_ns;
	}
	stalled = now_ns - watched->change_ns >= watchdog->stall_ns;
	if (stalled && !watched->stalled)
		log_error("%s: no turn for %s: the thread hangs", loop_name(watched->loop),
			text_time(text, now_ns - watched->change_ns));
	else if (!stalled && watched->stalled)
		log_warn("%s: makes turns again", loop_name(watched->loop));
	watched->stalled = stalled;
	loop_wake(watched->loop);
}

void watchdog_step(struct watchdog *watchdog, uint64_t now_ns)
{
	if (now_ns < watchdog->next_ns)
		return;
	watchdog->next_ns = now_ns + kvr_min_u64(WATCHDOG_LOOK_NS, watchdog->stall_ns / 4);
	for (uint32_t i = 0; i < watchdog->count; i++)
		watched_look(watchdog, &watchdog->watched[i], now_ns);
}

const struct loop *watchdog_stalled(const struct watchdog *watchdog, uint64_t now_ns, uint64_t *for_ns)
{
	for (uint32_t i = 0; i < watchdog->count; i++) {
		if (!watchdog->watched[i].stalled)
			continue;
		*for_ns = now_ns - watchdog->watched[i].change_ns;
		return watchdog->watched[i].loop;
	}
	return NULL;
}
