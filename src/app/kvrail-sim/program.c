/*
 * program.c - the random program. Each step is a function of (seed, number) alone, so that a program can be made shorter by leaving steps
 * out; what a step's numbers mean depends on what is there when it is run.
 */
#include <string.h>

#include "app/kvrail-sim/world_private.h"

#define IN_FLIGHT_MAX 10u /* of a process: more than some servers grant */

struct step {
	struct world *world;
	struct random random;
	struct engine *engine;
	struct world_session *session;
};

static uint32_t draw(struct step *step, uint64_t bound)
{
	return (uint32_t)random_below(&step->random, bound);
}

static struct process *scheduler_of(struct step *step)
{
	return &step->world->processes[step->engine->first_process];
}

static struct process *worker_of(struct step *step)
{
	return scheduler_of(step) + 1 + draw(step, step->engine->worker_count);
}

/* Workers use sessions as schedulers do, now and then. */
static struct process *anybody_of(struct step *step)
{
	return draw(step, 4) ? scheduler_of(step) : worker_of(step);
}

static bool busy(const struct process *process)
{
	return process->in_flight >= IN_FLIGHT_MAX;
}

static void choose_range(struct step *step, uint32_t *first, uint32_t *count)
{
	uint32_t length = step->session->length;

	*first = draw(step, 3) ? 0 : draw(step, length);
	*count = draw(step, 2) ? length - *first : 1 + draw(step, length - *first);
}

static void step_transfer(struct step *step, struct process *worker, bool store)
{
	struct world *world = step->world;
	struct transfer_choice choice;
	uint32_t tokens;

	memset(&choice, 0, sizeof(choice));
	choose_range(step, &choice.first, &choice.count);
	tokens = choice.count * WORLD_CHUNK_TOKENS;
	choice.scattered = draw(step, 2);
	if (!draw(step, 6))
		choice.nulls = 1 + draw(step, 4);
	if (!store && !draw(step, 4)) {
		choice.skip = draw(step, tokens + (draw(step, 8) ? 0 : tokens));
		choice.garbage = draw(step, 2);
	}
	if (world_has(world, WORLD_BAD) && !draw(step, 40)) {
		choice.bad_block = true;
		choice.nulls = choice.skip = 0;
	}
	if (!busy(worker))
		action_transfer(worker, step->session, store, &choice);
}

/* All workers of an engine store the same chunks, each its own part, as engines do. */
static void step_store_all(struct step *step)
{
	struct process *workers = scheduler_of(step) + 1;
	struct transfer_choice choice;

	memset(&choice, 0, sizeof(choice));
	choose_range(step, &choice.first, &choice.count);
	choice.scattered = draw(step, 2);
	for (uint32_t i = 0; i < step->engine->worker_count; i++) {
		if (workers[i].reader == 0 && !busy(&workers[i]))
			action_transfer(&workers[i], step->session, true, &choice);
	}
}

static void step_retrieve_all(struct step *step)
{
	struct process *workers = scheduler_of(step) + 1;
	struct transfer_choice choice;

	memset(&choice, 0, sizeof(choice));
	choice.count = step->session->matched_known && step->session->matched > 0 ? step->session->matched
										  : step->session->length;
	choice.scattered = draw(step, 2);
	for (uint32_t i = 0; i < step->engine->worker_count; i++) {
		if (!busy(&workers[i]))
			action_transfer(&workers[i], step->session, false, &choice);
	}
}

static void step_lookup(struct step *step)
{
	uint32_t flags = 0;
	struct process *process = draw(step, 12) ? scheduler_of(step) : worker_of(step);

	if (!draw(step, 6))
		flags |= KVR_LOOKUP_NO_WAIT;
	if (!draw(step, 6))
		flags |= KVR_LOOKUP_NO_LOCK;
	/* Who looked it up owns it; that only schedulers do is what the model of held locks believes. */
	if (!process->scheduler)
		flags |= KVR_LOOKUP_NO_LOCK;
	if (!busy(process))
		action_lookup(process, step->session, flags);
}

static void step_free(struct step *step)
{
	uint32_t first, count;
	struct process *process = draw(step, 2) ? worker_of(step) : scheduler_of(step);

	choose_range(step, &first, &count);
	if (!busy(process))
		action_free(process, step->session, first, count, process->scheduler || !draw(step, 6));
}

static void step_grow(struct step *step)
{
	struct world_session *session = step->session;

	if (session->length < step->world->documents[session->document].length)
		session->length++;
}

static void step_cancel(struct step *step)
{
	struct process *process = scheduler_of(step) + draw(step, 1 + step->engine->worker_count);
	uint32_t which = draw(step, 8);

	if (!world_has(step->world, WORLD_CANCEL) || process->state != PROCESS_STANDING)
		return;
	list_for_each(node, &process->actions) {
		if (which-- == 0) {
			action_cancel(KVR_CONTAINER_OF(node, struct action, node));
			return;
		}
	}
}

static void step_end(struct step *step)
{
	struct process *process = anybody_of(step);

	if (busy(process))
		return;
	action_end(process, step->session);
	if (!draw(step, 4)) /* twice (pitfalls A02) */
		action_end(process, step->session);
}

static void step_query(struct step *step)
{
	struct process *process = anybody_of(step);

	if (!busy(process))
		action_query(process, step->session, draw(step, 2) ? 0 : draw(step, 1000000), draw(step, 2));
}

static void step_clear(struct step *step)
{
	if (world_has(step->world, WORLD_CLEAR) && !draw(step, 8))
		action_clear(scheduler_of(step), draw(step, 2));
}

static void step_ping(struct step *step)
{
	struct process *process = anybody_of(step);

	if (!busy(process))
		action_ping(process);
}

static void step_open(struct step *step)
{
	uint32_t a = draw(step, UINT32_MAX), b = draw(step, UINT32_MAX);

	world_session_open(step->world, step->engine, a, b);
}

static void step_close(struct step *step)
{
	world_session_close(step->world, step->session);
}

static void step_store_one(struct step *step)
{
	step_transfer(step, worker_of(step), true);
}

static void step_retrieve_one(struct step *step)
{
	step_transfer(step, worker_of(step), false);
}

static void step_trouble(struct step *step)
{
	uint64_t kind = random_next(&step->random), a = random_next(&step->random), b = random_next(&step->random);

	trouble_step(step->world, kind, a, b);
}

static const struct {
	uint32_t weight;
	void (*run)(struct step *step);
	bool on_session;
} kinds[] = {
	{ 10, step_lookup, true },
	{ 8, step_retrieve_all, true },
	{ 8, step_retrieve_one, true },
	{ 9, step_store_all, true },
	{ 5, step_store_one, true },
	{ 3, step_query, true },
	{ 4, step_free, true },
	{ 5, step_end, true },
	{ 3, step_grow, true },
	{ 5, step_close, true },
	{ 8, step_open, false },
	{ 2, step_cancel, false },
	{ 2, step_ping, false },
	{ 1, step_clear, false },
	{ 1, step_trouble, false },
};

/* Sometimes many requests at once, sometimes one after the other. */
static void let_run(struct step *step)
{
	uint32_t how = draw(step, 20);
	uint32_t turns = how < 9 ? draw(step, 2) : how < 15 ? draw(step, 8) : how < 19 ? draw(step, 30) : 0;

	for (uint32_t i = 0; i < turns && !world_stopped(step->world); i++)
		world_turn(step->world);
	if (how == 19)
		world_settle(step->world);
}

void program_step(struct world *world, uint32_t number)
{
	struct step step = { .world = world };
	uint32_t total = 0, which;
	size_t kind = 0;

	random_init(&step.random, random_mix(world->options.seed * 0x9e3779b97f4a7c15u + number));
	for (size_t i = 0; i < KVR_COUNT_OF(kinds); i++)
		total += kinds[i].weight;
	which = draw(&step, total);
	while (which >= kinds[kind].weight)
		which -= kinds[kind++].weight;
	step.engine = &world->engines[draw(&step, world->engine_count)];
	step.session = session_pick(world, step.engine, draw(&step, WORLD_SESSIONS), true);
	if (!kinds[kind].on_session || step.session)
		kinds[kind].run(&step);
	else
		step_open(&step);
	if (!world_stopped(world))
		let_run(&step);
}
