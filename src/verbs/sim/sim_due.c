#include <errno.h>
#include <stdlib.h>

#include "verbs/sim/sim.h"

/* ---- the heap ------------------------------------------------------------------------------------------------- */

/* One number for (time, sequence): compared without a branch, which no predictor could guess. */
static inline unsigned __int128 key_of(uint64_t at_ns, uint64_t sequence)
{
	return (unsigned __int128)at_ns << 64 | sequence;
}

static inline bool before(const struct sim_later *a, const struct sim_later *b)
{
	return key_of(a->at_ns, a->sequence) < key_of(b->at_ns, b->sequence);
}

/* The earliest of the children of `place`; `count` when it has none. */
static uint32_t earliest_child(const struct sim_due *due, uint32_t place)
{
	uint32_t least = place * 4 + 1;
	uint32_t end = (uint32_t)kvr_min_u64((uint64_t)least + 4, due->heap_count);

	for (uint32_t child = least + 1; child < end; child++)
		least = before(&due->heap[child], &due->heap[least]) ? child : least;
	return (uint32_t)kvr_min_u64(least, due->heap_count);
}

static void heap_push(struct sim_due *due, struct sim_event *event)
{
	struct sim_later later = { .at_ns = event->at_ns, .sequence = event->sequence, .event = event };
	uint32_t place = due->heap_count++;

	while (place > 0) {
		uint32_t parent = (place - 1) / 4;

		if (!before(&later, &due->heap[parent]))
			break;
		due->heap[place] = due->heap[parent];
		place = parent;
	}
	due->heap[place] = later;
}

static struct sim_event *heap_pop(struct sim_due *due)
{
	struct sim_event *event = due->heap[0].event;
	struct sim_later last = due->heap[--due->heap_count];
	uint32_t place = 0;

	for (;;) {
		uint32_t child = earliest_child(due, place);

		if (child == due->heap_count || !before(&due->heap[child], &last))
			break;
		due->heap[place] = due->heap[child];
		place = child;
	}
	due->heap[place] = last;
	return event;
}

int sim_due_reserve(struct sim_due *due, uint32_t count)
{
	struct sim_later *heap = realloc(due->heap, count * sizeof(*heap));

	if (!heap)
		return -ENOMEM;
	due->heap = heap;
	return 0;
}

void sim_due_fini(struct sim_due *due)
{
	free(due->heap);
}

/* ---- the wheel ------------------------------------------------------------------------------------------------ */

static inline uint32_t slot_of(uint64_t at_ns)
{
	return (uint32_t)(at_ns >> SIM_SLOT_SHIFT) % SIM_SLOTS;
}

/* Is it among the slots from now's on, once round? */
static inline bool on_wheel(uint64_t at_ns, uint64_t now_ns)
{
	return at_ns >= now_ns && (at_ns >> SIM_SLOT_SHIFT) - (now_ns >> SIM_SLOT_SHIFT) < SIM_SLOTS;
}

/* The first slot with events from now's on; SIM_SLOTS: there is none. */
static inline uint32_t first_slot(const struct sim_due *due, uint64_t now_ns)
{
	uint32_t slot = slot_of(now_ns), word = slot / 64;
	uint64_t bits = due->full[word] & ~(uint64_t)0 << slot % 64;
	uint64_t words;

	if (bits)
		return word * 64 + (uint32_t)__builtin_ctzll(bits);
	/* The words behind it, then those before it, and in the end what of its own lies before now's slot. */
	words = due->summary & (~(uint64_t)0 << word) << 1;
	if (!words)
		words = due->summary;
	if (!words)
		return SIM_SLOTS;
	word = (uint32_t)__builtin_ctzll(words);
	return word * 64 + (uint32_t)__builtin_ctzll(due->full[word]);
}

static void wheel_push(struct sim_due *due, struct sim_event *event)
{
	uint32_t slot = slot_of(event->at_ns);
	struct sim_event **place = &due->slots[slot];

	while (*place && key_of((*place)->at_ns, (*place)->sequence) < key_of(event->at_ns, event->sequence))
		place = &(*place)->next;
	event->next = *place;
	*place = event;
	due->full[slot / 64] |= (uint64_t)1 << slot % 64;
	due->summary |= (uint64_t)1 << slot / 64;
}

static struct sim_event *wheel_pop(struct sim_due *due, uint32_t slot)
{
	struct sim_event *event = due->slots[slot];

	due->slots[slot] = event->next;
	if (!event->next) {
		due->full[slot / 64] &= ~((uint64_t)1 << slot % 64);
		if (!due->full[slot / 64])
			due->summary &= ~((uint64_t)1 << slot / 64);
	}
	return event;
}

/* ---- both ------------------------------------------------------------------------------------------------------ */

void sim_due_push(struct sim_due *due, struct sim_event *event, uint64_t now_ns)
{
	if (on_wheel(event->at_ns, now_ns))
		wheel_push(due, event);
	else
		heap_push(due, event);
}

struct sim_event *sim_due_take(struct sim_due *due, uint64_t now_ns, uint64_t until_ns)
{
	uint32_t slot = first_slot(due, now_ns);
	const struct sim_event *event = slot < SIM_SLOTS ? due->slots[slot] : NULL;

	if (due->heap_count > 0) {
		const struct sim_later *later = &due->heap[0];

		if (!event || key_of(later->at_ns, later->sequence) < key_of(event->at_ns, event->sequence))
			return later->at_ns <= until_ns ? heap_pop(due) : NULL;
	}
	return event && event->at_ns <= until_ns ? wheel_pop(due, slot) : NULL;
}

uint64_t sim_due_next_ns(const struct sim_due *due, uint64_t now_ns)
{
	uint32_t slot = first_slot(due, now_ns);
	uint64_t next_ns = slot < SIM_SLOTS ? due->slots[slot]->at_ns : UINT64_MAX;

	return due->heap_count > 0 ? kvr_min_u64(next_ns, due->heap[0].at_ns) : next_ns;
}
