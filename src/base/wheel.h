/*
 * wheel.h - timers, hashed and hierarchical (Varghese and Lauck 1987): arm and cancel cost O(1), a turn is bounded.
 *
 * One owner thread. A timer is embedded in the object that it is about; it fires not earlier than its time and at most one
 * tick (1 ms) after the first step past it. Firing disarms it first, so the callback may arm it again or free the object.
 */
#ifndef KVRAIL_BASE_WHEEL_H
#define KVRAIL_BASE_WHEEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/list.h"

KVR_BEGIN_C

#define WHEEL_TICK_NS ((uint64_t)1000000)
#define WHEEL_LEVELS 4
#define WHEEL_SLOTS 64 /* per level: 64 ms, 4 s, 262 s, 4.6 hours; later times wait in the last level and are re-armed */

struct wheel_timer {
	struct list_node node;
	uint64_t at_tick;
	void (*fire)(struct wheel_timer *timer, uint64_t now_ns);
};

struct wheel {
	uint64_t tick; /* ticks up to this one have fired */
	struct list_node slot[WHEEL_LEVELS][WHEEL_SLOTS];
	struct list_node due; /* of the current tick, when the bound of a step cut it short */
	uint64_t armed;
};

void wheel_init(struct wheel *wheel, uint64_t now_ns);
/* Once for each timer object before any other call. */
void wheel_timer_init(struct wheel_timer *timer, void (*fire)(struct wheel_timer *timer, uint64_t now_ns));
/* Arms, or moves an armed timer. A time in the past fires in the next step. */
void wheel_arm(struct wheel *wheel, struct wheel_timer *timer, uint64_t at_ns);
/* Harmless when it is not armed. */
void wheel_cancel(struct wheel *wheel, struct wheel_timer *timer);
static inline bool wheel_armed(const struct wheel_timer *timer)
{
	return list_linked(&timer->node);
}
/* Fires at most `limit` timers and crosses at most `limit` ticks; returns how many fired. Empty stretches are skipped in bounded work. */
unsigned wheel_step(struct wheel *wheel, uint64_t now_ns, unsigned limit);
/* A time before which nothing can fire (a lower bound), UINT64_MAX without timers. For sleeping, and for virtual clocks. */
uint64_t wheel_next_ns(const struct wheel *wheel);

KVR_END_C

#endif
