#include "base/clock.h"
#include "base/random.h"
#include "base/wheel.h"

#include <stdio.h>
#include <string.h>

#include "base/cmocka_all.h"

#define UNBOUNDED 1000000u

struct counted {
	struct wheel_timer timer;
	unsigned fired;
	uint64_t fired_ns;
};

static void count(struct wheel_timer *timer, uint64_t now_ns)
{
	struct counted *counted = KVR_CONTAINER_OF(timer, struct counted, timer);

	counted->fired++;
	counted->fired_ns = now_ns;
}

static void init_counted(struct counted *counted, unsigned how_many)
{
	memset(counted, 0, sizeof(*counted) * how_many);
	for (unsigned i = 0; i < how_many; i++)
		wheel_timer_init(&counted[i].timer, count);
}

static void a_timer_fires_not_early_and_within_a_tick(void **state)
{
	static const uint64_t after_ns[] = { 1, KVR_MS, KVR_MS + 1, 63 * KVR_MS, 64 * KVR_MS, 65 * KVR_MS,
		4095 * KVR_MS, 4096 * KVR_MS, 4097 * KVR_MS, 262143 * KVR_MS, 262144 * KVR_MS, 262145 * KVR_MS,
		3600 * KVR_SECOND, 16777215 * KVR_MS, 16777216 * KVR_MS, 16777217 * KVR_MS, 86400 * KVR_SECOND,
		400 * 86400 * KVR_SECOND };
	static const uint64_t starts_ns[] = { 0, 12345678, 16777215 * KVR_MS + 999999, UINT64_MAX / 2 };

	(void)state;
	for (size_t s = 0; s < KVR_COUNT_OF(starts_ns); s++) {
		for (size_t i = 0; i < KVR_COUNT_OF(after_ns); i++) {
			uint64_t at_ns = starts_ns[s] + after_ns[i];
			struct counted counted;
			struct wheel wheel;

			init_counted(&counted, 1);
			wheel_init(&wheel, starts_ns[s]);
			wheel_arm(&wheel, &counted.timer, at_ns);
			/* One jump to just before: over anything up to 400 days. */
			assert_int_equal(wheel_step(&wheel, at_ns - 1, UNBOUNDED), 0);
			assert_true(wheel_armed(&counted.timer));
			assert_int_equal(wheel_step(&wheel, at_ns + WHEEL_TICK_NS - 1, UNBOUNDED), 1);
			assert_int_equal(counted.fired, 1);
			assert_false(wheel_armed(&counted.timer));
			assert_int_equal(wheel.armed, 0);
			assert_int_equal(wheel_next_ns(&wheel), UINT64_MAX);
		}
	}
}

static void a_time_in_the_past_fires_in_the_next_step(void **state)
{
	struct counted counted;
	struct wheel wheel;
	uint64_t now_ns = 5 * KVR_SECOND + 700;

	(void)state;
	init_counted(&counted, 1);
	wheel_init(&wheel, now_ns);
	wheel_arm(&wheel, &counted.timer, now_ns);
	assert_int_equal(wheel_next_ns(&wheel), now_ns);
	assert_int_equal(wheel_step(&wheel, now_ns, UNBOUNDED), 1);
	wheel_arm(&wheel, &counted.timer, 0);
	assert_int_equal(wheel_step(&wheel, now_ns, UNBOUNDED), 1);
	assert_int_equal(counted.fired, 2);
}

static void a_cancelled_timer_does_not_fire_and_may_be_cancelled_again(void **state)
{
	struct counted counted[2];
	struct wheel wheel;

	(void)state;
	init_counted(counted, 2);
	wheel_init(&wheel, 0);
	wheel_cancel(&wheel, &counted[0].timer);
	wheel_arm(&wheel, &counted[0].timer, 5 * KVR_MS);
	wheel_arm(&wheel, &counted[1].timer, 5 * KVR_MS);
	wheel_cancel(&wheel, &counted[0].timer);
	wheel_cancel(&wheel, &counted[0].timer);
	assert_int_equal(wheel.armed, 1);
	assert_int_equal(wheel_step(&wheel, KVR_SECOND, UNBOUNDED), 1);
	assert_int_equal(counted[0].fired, 0);
	assert_int_equal(counted[1].fired, 1);
}

static void arming_again_moves_the_timer(void **state)
{
	struct counted counted;
	struct wheel wheel;

	(void)state;
	init_counted(&counted, 1);
	wheel_init(&wheel, 0);
	wheel_arm(&wheel, &counted.timer, 10 * KVR_MS);
	wheel_arm(&wheel, &counted.timer, 10 * KVR_SECOND);
	assert_int_equal(wheel.armed, 1);
	assert_int_equal(wheel_step(&wheel, 9 * KVR_SECOND, UNBOUNDED), 0);
	wheel_arm(&wheel, &counted.timer, 9 * KVR_SECOND + KVR_MS);
	assert_int_equal(wheel_step(&wheel, 9 * KVR_SECOND + KVR_MS, UNBOUNDED), 1);
	assert_int_equal(wheel_step(&wheel, 20 * KVR_SECOND, UNBOUNDED), 0);
}

static void a_clock_that_goes_back_changes_nothing(void **state)
{
	struct counted counted;
	struct wheel wheel;

	(void)state;
	init_counted(&counted, 1);
	wheel_init(&wheel, 0);
	assert_int_equal(wheel_step(&wheel, KVR_SECOND, UNBOUNDED), 0);
	wheel_arm(&wheel, &counted.timer, KVR_SECOND + KVR_MS);
	assert_int_equal(wheel_step(&wheel, 3, UNBOUNDED), 0);
	assert_int_equal(wheel_step(&wheel, KVR_SECOND / 2, UNBOUNDED), 0);
	assert_int_equal(wheel_next_ns(&wheel), KVR_SECOND + KVR_MS);
	assert_int_equal(wheel_step(&wheel, KVR_SECOND + KVR_MS, UNBOUNDED), 1);
	assert_int_equal(counted.fired_ns, KVR_SECOND + KVR_MS);
}

static void a_time_without_end_never_fires(void **state)
{
	struct counted counted;
	struct wheel wheel;

	(void)state;
	init_counted(&counted, 1);
	wheel_init(&wheel, 0);
	wheel_arm(&wheel, &counted.timer, UINT64_MAX);
	assert_int_equal(wheel_step(&wheel, UINT64_MAX - 2 * WHEEL_TICK_NS, UNBOUNDED), 0);
	assert_true(wheel_armed(&counted.timer));
	wheel_cancel(&wheel, &counted.timer);
	assert_int_equal(wheel_next_ns(&wheel), UINT64_MAX);
}

static unsigned length_of(const struct list_node *head)
{
	unsigned length = 0;

	for (const struct list_node *node = head->next; node != head; node = node->next)
		length++;
	return length;
}

static void a_step_moves_and_fires_no_more_than_its_limit_even_after_hours(void **state)
{
	enum { TIMERS = 1000, LIMIT = 10 };
	static struct counted counted[TIMERS];
	struct wheel wheel;
	uint64_t at_tick = 8 * 64 * 64; /* the start of a slot two levels up */
	unsigned steps = 0, fired = 0;

	(void)state;
	init_counted(counted, TIMERS);
	wheel_init(&wheel, 0);
	for (unsigned i = 0; i < TIMERS; i++)
		wheel_arm(&wheel, &counted[i].timer, (at_tick + i * 4) * WHEEL_TICK_NS);
	assert_int_equal(length_of(&wheel.slot[2][8]), TIMERS);

	/* Time has moved by five hours at once, and all are due. */
	while (fired < TIMERS) {
		unsigned waiting = length_of(&wheel.slot[2][8]);
		unsigned now = wheel_step(&wheel, 5 * 3600 * KVR_SECOND, LIMIT);

		assert_true(now <= LIMIT);
		assert_true(waiting - length_of(&wheel.slot[2][8]) <= LIMIT);
		if (fired + now < TIMERS)
			assert_true(wheel_next_ns(&wheel) <= 5 * 3600 * KVR_SECOND);
		fired += now;
		/* Each timer is moved down twice and fired once, and each of them at the limit's rate. */
		assert_true(++steps <= 4 * TIMERS / LIMIT);
	}
	for (unsigned i = 0; i < TIMERS; i++)
		assert_int_equal(counted[i].fired, 1);
	assert_int_equal(wheel_step(&wheel, 6 * 3600 * KVR_SECOND, LIMIT), 0);
}

static void a_single_timer_hours_away_is_reached_in_one_small_step(void **state)
{
	struct counted counted;
	struct wheel wheel;

	(void)state;
	init_counted(&counted, 1);
	wheel_init(&wheel, 0);
	wheel_arm(&wheel, &counted.timer, 3 * 3600 * KVR_SECOND + 123 * KVR_MS);
	assert_int_equal(wheel_step(&wheel, 5 * 3600 * KVR_SECOND, WHEEL_LEVELS), 1);
}

static void a_limit_of_nothing_does_nothing(void **state)
{
	struct counted counted;
	struct wheel wheel;

	(void)state;
	init_counted(&counted, 1);
	wheel_init(&wheel, 0);
	wheel_arm(&wheel, &counted.timer, 0);
	assert_int_equal(wheel_step(&wheel, KVR_SECOND, 0), 0);
	assert_int_equal(wheel_step(&wheel, KVR_SECOND, 1), 1);
}

struct meddler {
	struct wheel_timer timer;
	struct wheel *wheel;
	struct wheel_timer *cancels;
	uint64_t arms_again_after_ns;
	unsigned fired;
};

static void meddle(struct wheel_timer *timer, uint64_t now_ns)
{
	struct meddler *meddler = KVR_CONTAINER_OF(timer, struct meddler, timer);

	assert_false(wheel_armed(timer));
	meddler->fired++;
	if (meddler->cancels)
		wheel_cancel(meddler->wheel, meddler->cancels);
	wheel_arm(meddler->wheel, timer, now_ns + meddler->arms_again_after_ns);
}

static void a_callback_may_arm_itself_and_cancel_the_next_one(void **state)
{
	struct meddler meddler = { .cancels = NULL };
	struct counted victim;
	struct wheel wheel;

	(void)state;
	init_counted(&victim, 1);
	wheel_init(&wheel, 0);
	wheel_timer_init(&meddler.timer, meddle);
	meddler.wheel = &wheel;
	meddler.cancels = &victim.timer;
	wheel_arm(&wheel, &meddler.timer, KVR_MS);
	wheel_arm(&wheel, &victim.timer, KVR_MS);
	/* It arms itself for now again and again: each step sees it once. */
	assert_int_equal(wheel_step(&wheel, KVR_MS, UNBOUNDED), 1);
	assert_int_equal(wheel_step(&wheel, KVR_MS, UNBOUNDED), 1);
	assert_int_equal(meddler.fired, 2);
	assert_int_equal(victim.fired, 0);
	meddler.arms_again_after_ns = KVR_SECOND;
	assert_int_equal(wheel_step(&wheel, 2 * KVR_MS, UNBOUNDED), 1);
	assert_int_equal(wheel_step(&wheel, 500 * KVR_MS, UNBOUNDED), 0);
	assert_int_equal(wheel_step(&wheel, 1002 * KVR_MS, UNBOUNDED), 1);
}

/* ---- a random program against a plain table of times ------------------------------------------------------------ */

#define MODEL_TIMERS 200

struct model;

struct model_timer {
	struct wheel_timer timer;
	struct model *model;
	bool armed;
	bool eligible;    /* may fire in the step that runs */
	uint64_t from_ns; /* fires in a step at or after this time */
};

struct model {
	struct wheel wheel;
	struct random random;
	uint64_t now_ns;
	unsigned armed;
	unsigned fired_in_step;
	struct model_timer timers[MODEL_TIMERS];
};

/* Distances of every scale, with a liking for the edges of slots. */
static uint64_t random_distance(struct random *random)
{
	uint64_t ns = random_next(random) >> (14 + random_below(random, 50));

	switch (random_below(random, 4)) {
	case 0:
		return ns / WHEEL_TICK_NS * WHEEL_TICK_NS;
	case 1:
		return (WHEEL_TICK_NS << (6 * random_below(random, 5))) - random_below(random, 3);
	default:
		return ns;
	}
}

static void model_arm(struct model *model, struct model_timer *timer)
{
	uint64_t at_ns = model->now_ns + random_distance(&model->random);

	if (random_chance(&model->random, 1, 10))
		at_ns = random_below(&model->random, model->now_ns + 1);
	wheel_arm(&model->wheel, &timer->timer, at_ns);
	model->armed += !timer->armed;
	timer->armed = true;
	timer->eligible = false;
	timer->from_ns = at_ns;
	if (at_ns > model->now_ns)
		timer->from_ns = (at_ns + WHEEL_TICK_NS - 1) / WHEEL_TICK_NS * WHEEL_TICK_NS;
}

static void model_cancel(struct model *model, struct model_timer *timer)
{
	wheel_cancel(&model->wheel, &timer->timer);
	model->armed -= timer->armed;
	timer->armed = false;
}

static void model_fire(struct wheel_timer *wheel_timer, uint64_t now_ns)
{
	struct model_timer *timer = KVR_CONTAINER_OF(wheel_timer, struct model_timer, timer);
	struct model *model = timer->model;

	assert_true(timer->armed);
	assert_true(timer->eligible);
	assert_int_equal(now_ns, model->now_ns);
	timer->armed = false;
	model->armed--;
	model->fired_in_step++;
	if (random_chance(&model->random, 1, 4))
		model_arm(model, timer);
	if (random_chance(&model->random, 1, 8))
		model_arm(model, &model->timers[random_below(&model->random, MODEL_TIMERS)]);
	if (random_chance(&model->random, 1, 8))
		model_cancel(model, &model->timers[random_below(&model->random, MODEL_TIMERS)]);
}

static void model_check_next(struct model *model)
{
	uint64_t next_ns = wheel_next_ns(&model->wheel), first_ns = UINT64_MAX;

	for (unsigned i = 0; i < MODEL_TIMERS; i++) {
		assert_int_equal(wheel_armed(&model->timers[i].timer), model->timers[i].armed);
		if (model->timers[i].armed)
			first_ns = kvr_min_u64(first_ns, kvr_max_u64(model->timers[i].from_ns, model->now_ns));
	}
	assert_true(next_ns <= first_ns);
	assert_int_equal(next_ns == UINT64_MAX, model->armed == 0);
	assert_int_equal(model->wheel.armed, model->armed);
}

static void model_step(struct model *model, uint64_t now_ns, unsigned limit)
{
	unsigned eligible = 0, left = 0, fired;

	model->now_ns = now_ns;
	model->fired_in_step = 0;
	for (unsigned i = 0; i < MODEL_TIMERS; i++) {
		struct model_timer *timer = &model->timers[i];

		timer->eligible = timer->armed && timer->from_ns <= now_ns;
		eligible += timer->eligible;
	}
	fired = wheel_step(&model->wheel, now_ns, limit);
	assert_int_equal(fired, model->fired_in_step);
	assert_true(fired <= limit && fired <= eligible);
	for (unsigned i = 0; i < MODEL_TIMERS; i++)
		left += model->timers[i].armed && model->timers[i].eligible;
	/* A limit that does not bind leaves nothing that was due, and what is next lies ahead. */
	if (limit == UNBOUNDED)
		assert_int_equal(left, 0);
	model_check_next(model);
}

/* At one time, steps of a limit come to an end: all that is due fires in so many steps as there is work. */
static void model_drain(struct model *model)
{
	for (unsigned step = 0; step < 20 * MODEL_TIMERS; step++) {
		bool due = false;

		for (unsigned i = 0; i < MODEL_TIMERS; i++)
			due |= model->timers[i].armed && model->timers[i].from_ns <= model->now_ns;
		if (!due)
			return;
		model_step(model, model->now_ns, 3);
	}
	fail_msg("timers that are due do not fire");
}

static void model_operation(struct model *model)
{
	struct model_timer *timer = &model->timers[random_below(&model->random, MODEL_TIMERS)];
	uint64_t next_ns;

	switch (random_below(&model->random, 10)) {
	case 0:
		model_cancel(model, timer);
		break;
	case 1:
		model_step(model, model->now_ns + random_distance(&model->random), UNBOUNDED);
		break;
	case 2:
		model_step(model, model->now_ns + random_distance(&model->random) / 1000,
			(unsigned)random_below(&model->random, 8));
		break;
	case 3:
		next_ns = wheel_next_ns(&model->wheel);
		if (next_ns > model->now_ns && next_ns != UINT64_MAX) {
			/* Up to then nothing fires, however much a step may do. */
			model_step(model, next_ns - 1, UNBOUNDED);
			assert_int_equal(model->fired_in_step, 0);
			model_step(model, next_ns, UNBOUNDED);
		}
		break;
	case 4:
		model_drain(model);
		break;
	default:
		model_arm(model, timer);
		break;
	}
	model_check_next(model);
}

static void random_programs_agree_with_a_plain_table_of_times(void **state)
{
	static struct model model;

	(void)state;
	for (uint64_t seed = 1; seed <= 20; seed++) {
		memset(&model, 0, sizeof(model));
		random_init(&model.random, seed);
		model.now_ns = random_next(&model.random) >> (1 + random_below(&model.random, 60));
		wheel_init(&model.wheel, model.now_ns);
		for (unsigned i = 0; i < MODEL_TIMERS; i++) {
			wheel_timer_init(&model.timers[i].timer, model_fire);
			model.timers[i].model = &model;
		}
		print_message("seed %u\n", (unsigned)seed);
		/* Times stay under 2^63, so that no distance wraps. */
		for (unsigned i = 0; i < 2000 && model.now_ns < UINT64_MAX / 2; i++)
			model_operation(&model);
	}
}

/* A virtual clock that jumps from one wheel_next_ns to the next reaches every timer, in few jumps. */
static void a_clock_that_jumps_to_the_next_time_reaches_every_timer(void **state)
{
	enum { TIMERS = 300 };
	static struct counted counted[TIMERS];
	struct random random;
	struct wheel wheel;
	uint64_t now_ns = 77;
	unsigned fired = 0, jumps = 0;

	(void)state;
	random_init(&random, 5);
	init_counted(counted, TIMERS);
	wheel_init(&wheel, now_ns);
	for (unsigned i = 0; i < TIMERS; i++)
		wheel_arm(&wheel, &counted[i].timer, now_ns + random_below(&random, 100 * 3600 * KVR_SECOND));
	while (fired < TIMERS) {
		uint64_t next_ns = wheel_next_ns(&wheel);

		assert_true(next_ns > now_ns && next_ns != UINT64_MAX);
		now_ns = next_ns;
		fired += wheel_step(&wheel, now_ns, UNBOUNDED);
		/* A timer is passed on at most once a level, and once for each round of the last level. */
		assert_true(++jumps <= TIMERS * (WHEEL_LEVELS + 100 / 4));
	}
	assert_int_equal(wheel_next_ns(&wheel), UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_timer_fires_not_early_and_within_a_tick),
		cmocka_unit_test(a_time_in_the_past_fires_in_the_next_step),
		cmocka_unit_test(a_cancelled_timer_does_not_fire_and_may_be_cancelled_again),
		cmocka_unit_test(arming_again_moves_the_timer),
		cmocka_unit_test(a_clock_that_goes_back_changes_nothing),
		cmocka_unit_test(a_time_without_end_never_fires),
		cmocka_unit_test(a_step_moves_and_fires_no_more_than_its_limit_even_after_hours),
		cmocka_unit_test(a_single_timer_hours_away_is_reached_in_one_small_step),
		cmocka_unit_test(a_limit_of_nothing_does_nothing),
		cmocka_unit_test(a_callback_may_arm_itself_and_cancel_the_next_one),
		cmocka_unit_test(random_programs_agree_with_a_plain_table_of_times),
		cmocka_unit_test(a_clock_that_jumps_to_the_next_time_reaches_every_timer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
