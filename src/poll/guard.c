#include "poll/guard.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"

void guard_init(struct guard *guard, bool insist)
{
	memset(guard, 0, sizeof(*guard));
	guard->insist = insist;
}

bool guard_add(struct guard *guard, struct loop *loop, uint64_t now_ns)
{
	struct guarded *guarded;

	if (loop_wanted_core(loop) < 0)
		return true;
	if (guard->count == GUARD_LOOPS_MAX)
		return false;
	guarded = &guard->guarded[guard->count++];
	memset(guarded, 0, sizeof(*guarded));
	guarded->loop = loop;
	guarded->look_ns = now_ns;
	guarded->waited_ns = loop_waited_ns(loop);
	guarded->back_off_ns = GUARD_RETRY_NS;
	return true;
}

/* Spinning is for threads that were made to spin and have a core of their own. */
static void let_wait(const struct guard *guard, struct guarded *guarded)
{
	enum loop_waiting wanted = loop_wanted_waiting(guarded->loop);

	loop_set_waiting(guarded->loop, guarded->state == GUARD_GOOD || guard->insist ? wanted : LOOP_ADAPTIVE);
}

static const char *consequence(const struct guard *guard, const struct guarded *guarded)
{
	if (loop_wanted_waiting(guarded->loop) != LOOP_BUSY)
		return "it is slower for it";
	return guard->insist ? "it spins on, as --wait busy says" : "it waits adaptively";
}

static void look_at_core(struct guard *guard, struct guarded *guarded, int hold)
{
	const char *name = loop_name(guarded->loop);
	int core = loop_wanted_core(guarded->loop);

	if (hold == 0 || hold == -ECANCELED) {
		if (guarded->state == GUARD_LOST) {
			log_warn("%s: is on core %d again", name, core);
			guarded->state = GUARD_GOOD;
		} else if (hold) {
			log_warn("%s: was taken off core %d, by a change of the cpuset or by taskset, and was put back",
				name, core);
			guard->corrected++;
		}
		return;
	}
	if (guarded->state == GUARD_LOST)
		return;
	guard->lost++;
	guarded->state = GUARD_LOST;
	log_warn(
		"%s: core %d is not this process' any more (%s), %s: give it back, or start with --cores of the cpuset",
		name, core, strerror(-hold), consequence(guard, guarded));
}

/* The share of the time since the last look that it waited for its core, in thousandths; 0 when that is not known. */
static uint64_t waited_permille(const struct guarded *guarded, uint64_t waited_ns, uint64_t now_ns)
{
	uint64_t elapsed = now_ns - guarded->look_ns;

	if (elapsed == 0 || waited_ns == UINT64_MAX || guarded->waited_ns == UINT64_MAX ||
		waited_ns < guarded->waited_ns)
		return 0;
	return (waited_ns - guarded->waited_ns) * 1000 / elapsed;
}

static void look_at_company(struct guard *guard, struct guarded *guarded, uint64_t permille, uint64_t now_ns)
{
	const char *name = loop_name(guarded->loop);
	int core = loop_wanted_core(guarded->loop);
	char time[TEXT_SHORT];

	if (guarded->state == GUARD_SHARED) {
		if (now_ns < guarded->retry_ns)
			return;
		guarded->state = GUARD_GOOD;
		guarded->bad_looks = 0;
		log_info("%s: tries core %d for itself again", name, core);
		return;
	}
	guarded->bad_looks = permille > GUARD_SHARED_PERMILLE ? guarded->bad_looks + 1 : 0;
	if (guarded->bad_looks < GUARD_SHARED_LOOKS)
		return;
	guard->shared++;
	guarded->state = GUARD_SHARED;
	guarded->retry_ns = now_ns + guarded->back_off_ns;
	log_warn(
		"%s: something else runs on core %d and had it for %llu %% of the time, %s, and it is looked at again in %s: "
		"keep others off (isolcpus, cpusets), or give other --cores",
		name, core, (unsigned long long)(permille / 10), consequence(guard, guarded),
		text_time(time, guarded->back_off_ns));
	guarded->back_off_ns = kvr_min_u64(2 * guarded->back_off_ns, GUARD_RETRY_MAX_NS);
}

void guard_look(struct guard *guard, struct guarded *guarded, int hold, uint64_t waited_ns, uint64_t now_ns)
{
	uint64_t permille = waited_permille(guarded, waited_ns, now_ns);

	look_at_core(guard, guarded, hold);
	/* A thread that sleeps waits for its core now and then: only one that spins must have it always. */
	if (guarded->state != GUARD_LOST && loop_wanted_waiting(guarded->loop) == LOOP_BUSY)
		look_at_company(guard, guarded, permille, now_ns);
	guarded->look_ns = now_ns;
	guarded->waited_ns = waited_ns;
	let_wait(guard, guarded);
}

void guard_step(struct guard *guard, uint64_t now_ns)
{
	if (now_ns < guard->next_ns)
		return;
	guard->next_ns = now_ns + GUARD_LOOK_NS;
	for (uint32_t i = 0; i < guard->count; i++) {
		struct guarded *guarded = &guard->guarded[i];

		guard_look(guard, guarded, loop_hold_core(guarded->loop), loop_waited_ns(guarded->loop), now_ns);
	}
}

const char *guard_state_text(enum guard_state state)
{
	return state == GUARD_GOOD ? "held" : state == GUARD_SHARED ? "shared" : "lost";
}
