/*
 * wheel.h - timers, hashed and hierarchical (Varghese and Lauck 1987): arm and cancel cost O(1), a turn is bounded.
 *
 * One owner thread. A timer is embedded in the object that it is about; it fires not earlier than its time and at most
 * one tick (1 ms) after the first step past it, unless the bound of that step put it off. Firing disarms it first, so
 * the callback may arm it again or free the object, and may arm and cancel any other timer.
 *
 * A time is cut into digits of six bits, in ticks. A timer waits on the level of the highest digit in which it differs
 * from the wheel's own tick, in the slot that this digit names. So every timer of a level is earlier than all of the
 * levels above, the next busy slot is one bit scan away, and the wheel jumps to it over any stretch of empty ticks.
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
#define WHEEL_SLOT_BITS 6
#define WHEEL_SLOTS \
	64 /* per level: 64 ms, 4 s, 262 s, 4.6 hours; later times wait in the last level and are re-armed */

struct wheel_timer {
	struct list_node node;
	uint64_t at_tick;
	void (*fire)(struct wheel_timer *timer, uint64_t now_ns);
};

struct wheel {
	uint64_t tick;   /* timers up to this tick have left their slots */
	uint64_t now_ns; /* of the last step */
	uint64_t armed;
	uint64_t busy[WHEEL_LEVELS]; /* one bit a slot: set exactly while its list is not empty */
	struct list_node due;  /* left their slots, fire next; more than one step's worth when the bound cut it short */
	struct list_node late; /* armed with a time in the past: due in the next step, not in this one */
	struct list_node slot[WHEEL_LEVELS][WHEEL_SLOTS];
};

void wheel_init(struct wheel *wheel, uint64_t now_ns);
/* Once for each timer object before any other call. */
void wheel_timer_init(struct wheel_timer *timer, void (*fire)(struct wheel_timer *timer, uint64_t now_ns));
/* Arms, or moves an armed timer. A time that is not after the last step's fires in the next step, never inside this
 * one. */
void wheel_arm(struct wheel *wheel, struct wheel_timer *timer, uint64_t at_ns);
/* Harmless when it is not armed. */
void wheel_cancel(struct wheel *wheel, struct wheel_timer *timer);
static inline bool wheel_armed(const struct wheel_timer *timer)
{
	return list_linked(&timer->node);
}
/*
 * Fires at most `limit` timers, visits at most `limit` busy slots and moves at most `limit` timers to a lower level;
 * returns how many fired. Empty stretches are skipped at no cost, however long. What is left goes on in the next step.
 * A now_ns before that of the last step counts as that one.
 */
unsigned wheel_step(struct wheel *wheel, uint64_t now_ns, unsigned limit);
/* A time before which nothing can fire (a lower bound), UINT64_MAX without timers. It lies after the last step's time
 * unless that step was cut short or a timer was armed for the past. For sleeping, and for virtual clocks. */
uint64_t wheel_next_ns(const struct wheel *wheel);

KVR_END_C

#endif
