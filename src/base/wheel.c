#include "base/wheel.h"

#define WHEEL_LAST (WHEEL_LEVELS - 1)
#define WHEEL_LAST_SHIFT (WHEEL_LAST * WHEEL_SLOT_BITS)

KVR_STATIC_ASSERT(WHEEL_SLOTS == 1 << WHEEL_SLOT_BITS, "a digit names a slot");
KVR_STATIC_ASSERT(WHEEL_SLOTS == 64, "the slots of a level are the bits of one word");

static unsigned wheel_digit(uint64_t tick, unsigned level)
{
	return (unsigned)(tick >> (level * WHEEL_SLOT_BITS)) & (WHEEL_SLOTS - 1);
}

void wheel_init(struct wheel *wheel, uint64_t now_ns)
{
	wheel->tick = now_ns / WHEEL_TICK_NS;
	wheel->now_ns = now_ns;
	wheel->armed = 0;
	list_init(&wheel->due);
	list_init(&wheel->late);
	for (unsigned level = 0; level < WHEEL_LEVELS; level++) {
		wheel->busy[level] = 0;
		for (unsigned slot = 0; slot < WHEEL_SLOTS; slot++)
			list_init(&wheel->slot[level][slot]);
	}
}

void wheel_timer_init(struct wheel_timer *timer, void (*fire)(struct wheel_timer *timer, uint64_t now_ns))
{
	list_init(&timer->node);
	timer->at_tick = 0;
	timer->fire = fire;
}

/* Puts a timer that is on no list where it belongs, seen from the wheel's tick. */
static void wheel_place(struct wheel *wheel, struct wheel_timer *timer)
{
	uint64_t at = timer->at_tick;
	uint64_t distance = (at >> WHEEL_LAST_SHIFT) - (wheel->tick >> WHEEL_LAST_SHIFT);
	unsigned level, slot;

	if (at <= wheel->tick) {
		list_add_last(&wheel->due, &timer->node);
		return;
	}
	if (distance == 0) {
		/* at and tick differ, and in one of the lower levels' digits only. */
		level = (63 - (unsigned)__builtin_clzll(at ^ wheel->tick)) / WHEEL_SLOT_BITS;
		slot = wheel_digit(at, level);
	} else {
		/* The last level goes round: what lies further away than it reaches waits as far away as it does. */
		level = WHEEL_LAST;
		distance = kvr_min_u64(distance, WHEEL_SLOTS - 1);
		slot = (wheel_digit(wheel->tick, level) + (unsigned)distance) & (WHEEL_SLOTS - 1);
	}
	list_add_last(&wheel->slot[level][slot], &timer->node);
	wheel->busy[level] |= (uint64_t)1 << slot;
}

/* Takes an armed timer off its list, and notes when that leaves a slot empty. */
static void wheel_unlink(struct wheel *wheel, struct wheel_timer *timer)
{
	struct list_node *head = timer->node.prev;
	bool alone = head == timer->node.next;

	list_remove(&timer->node);
	if (alone && head >= &wheel->slot[0][0] && head <= &wheel->slot[WHEEL_LAST][WHEEL_SLOTS - 1]) {
		size_t index = (size_t)(head - &wheel->slot[0][0]);

		wheel->busy[index / WHEEL_SLOTS] &= ~((uint64_t)1 << (index % WHEEL_SLOTS));
	}
}

void wheel_arm(struct wheel *wheel, struct wheel_timer *timer, uint64_t at_ns)
{
	if (wheel_armed(timer))
		wheel_unlink(wheel, timer);
	else
		wheel->armed++;
	timer->at_tick = at_ns / WHEEL_TICK_NS + (at_ns % WHEEL_TICK_NS != 0);
	if (at_ns <= wheel->now_ns)
		list_add_last(&wheel->late, &timer->node);
	else
		wheel_place(wheel, timer);
}

void wheel_cancel(struct wheel *wheel, struct wheel_timer *timer)
{
	if (!wheel_armed(timer))
		return;
	wheel_unlink(wheel, timer);
	wheel->armed--;
}

/* The first tick after the wheel's at which a slot must be visited, UINT64_MAX when all are empty. */
static uint64_t wheel_next_tick(const struct wheel *wheel)
{
	unsigned digit;
	uint64_t ahead;

	for (unsigned level = 0; level < WHEEL_LAST; level++) {
		unsigned shift = level * WHEEL_SLOT_BITS;

		digit = wheel_digit(wheel->tick, level);
		ahead = digit == WHEEL_SLOTS - 1 ? 0 : wheel->busy[level] >> (digit + 1);
		if (ahead)
			return ((wheel->tick >> shift) + 1 + (unsigned)__builtin_ctzll(ahead)) << shift;
	}
	if (wheel->busy[WHEEL_LAST] == 0)
		return UINT64_MAX;
	digit = (wheel_digit(wheel->tick, WHEEL_LAST) + 1) & (WHEEL_SLOTS - 1);
	ahead = wheel->busy[WHEEL_LAST] >> digit;
	if (digit)
		ahead |= wheel->busy[WHEEL_LAST] << (WHEEL_SLOTS - digit);
	return ((wheel->tick >> WHEEL_LAST_SHIFT) + 1 + (unsigned)__builtin_ctzll(ahead)) << WHEEL_LAST_SHIFT;
}

/* True when a slot that the wheel's tick has entered still holds timers that belong on a lower level. */
static bool wheel_entered(const struct wheel *wheel, unsigned level)
{
	return wheel->busy[level] >> wheel_digit(wheel->tick, level) & 1;
}

/* Spreads the timers of the slots that were entered, upper levels first, over the levels below. False: cut short. */
static bool wheel_spread(struct wheel *wheel, unsigned *moves)
{
	for (unsigned level = WHEEL_LAST; level > 0; level--) {
		struct list_node *slot = &wheel->slot[level][wheel_digit(wheel->tick, level)];

		while (wheel_entered(wheel, level)) {
			struct wheel_timer *timer = KVR_CONTAINER_OF(slot->next, struct wheel_timer, node);

			if (*moves == 0)
				return false;
			--*moves;
			wheel_unlink(wheel, timer);
			wheel_place(wheel, timer);
		}
	}
	return true;
}

/* Moves the tick to the next slot to visit, at most to `target`. False when there is none up to then. */
static bool wheel_advance(struct wheel *wheel, uint64_t target)
{
	uint64_t next = wheel_next_tick(wheel);
	unsigned slot;

	if (next > target) {
		wheel->tick = target;
		return false;
	}
	wheel->tick = next;
	slot = wheel_digit(next, 0);
	list_splice_last(&wheel->due, &wheel->slot[0][slot]);
	wheel->busy[0] &= ~((uint64_t)1 << slot);
	return true;
}

static unsigned wheel_fire(struct wheel *wheel, unsigned limit)
{
	unsigned fired = 0;

	while (fired < limit && !list_empty(&wheel->due)) {
		struct wheel_timer *timer = KVR_CONTAINER_OF(wheel->due.next, struct wheel_timer, node);

		list_remove(&timer->node);
		wheel->armed--;
		fired++;
		timer->fire(timer, wheel->now_ns);
	}
	return fired;
}

unsigned wheel_step(struct wheel *wheel, uint64_t now_ns, unsigned limit)
{
	unsigned moves = limit, visits = limit, fired = 0;
	uint64_t target;

	wheel->now_ns = kvr_max_u64(wheel->now_ns, now_ns);
	target = wheel->now_ns / WHEEL_TICK_NS;
	list_splice_last(&wheel->due, &wheel->late);
	for (;;) {
		bool spread = wheel_spread(wheel, &moves);

		fired += wheel_fire(wheel, limit - fired);
		if (!spread || !list_empty(&wheel->due) || visits-- == 0)
			return fired;
		if (!wheel_advance(wheel, target))
			return fired;
	}
}

uint64_t wheel_next_ns(const struct wheel *wheel)
{
	uint64_t tick, ns;

	if (wheel->armed == 0)
		return UINT64_MAX;
	if (!list_empty(&wheel->due) || !list_empty(&wheel->late))
		return wheel->now_ns;
	for (unsigned level = WHEEL_LAST; level > 0; level--) {
		if (wheel_entered(wheel, level))
			return wheel->now_ns;
	}
	tick = wheel_next_tick(wheel);
	if (__builtin_mul_overflow(tick, WHEEL_TICK_NS, &ns))
		return UINT64_MAX;
	return ns;
}
