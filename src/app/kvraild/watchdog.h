/*
 * watchdog.h - tells whether threads still make turns (pitfalls O04): each is looked at every second, and woken when it sleeps, so
 * that a living thread has made a turn by the next time.
 */
#ifndef KVRAIL_APP_KVRAILD_WATCHDOG_H
#define KVRAIL_APP_KVRAILD_WATCHDOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "mgmt/status_page.h"
#include "poll/loop.h"

KVR_BEGIN_C

#define WATCHDOG_LOOK_NS KVR_SECOND

struct watchdog {
	uint64_t stall_ns;
	uint64_t next_ns; /* of the next look */
	uint32_t count;
	struct watched {
		struct loop *loop;
		uint64_t turn_ns;   /* of its newest turn, when last looked */
		uint64_t change_ns; /* when that was last seen to change */
		bool stalled;
	} watched[STATUS_LOOPS_MAX];
};

void watchdog_init(struct watchdog *watchdog, uint64_t stall_ns);
void watchdog_add(struct watchdog *watchdog, struct loop *loop, uint64_t now_ns);
/* Any number of times; works at most once in WATCHDOG_LOOK_NS, or a quarter of stall_ns where that is less. */
void watchdog_step(struct watchdog *watchdog, uint64_t now_ns);
/* The first loop that stalls, NULL: none. *for_ns: since when. */
const struct loop *watchdog_stalled(const struct watchdog *watchdog, uint64_t now_ns, uint64_t *for_ns);

KVR_END_C

#endif
