#include "app/kvrail-bench/bare.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"

#define LINE_ROUNDS 4096u
#define LINE_STOP UINT64_MAX
#define LINES_NS (100 * KVR_MS) /* when the other thread has no core, it may never answer */
#define EXCHANGES_NS (30 * KVR_MS)
#define GAPS_NS (10 * KVR_MS)

struct line {
	KVR_ALIGNED(128) uint64_t there;
	KVR_ALIGNED(128) uint64_t back;
	uint64_t sent;
};

static void *answer(void *context)
{
	struct line *line = context;
	uint64_t seen = 0;

	while (seen != LINE_STOP) {
		uint64_t now = kvr_load_acquire(&line->there);

		if (now != seen)
			kvr_store_release(&line->back, now);
		seen = now;
	}
	return NULL;
}

/* False: no answer before that time. */
static bool round_trip(struct line *line, uint64_t until_ns)
{
	kvr_store_release(&line->there, ++line->sent);
	for (unsigned turn = 1; kvr_load_acquire(&line->back) != line->sent; turn++) {
		kvr_cpu_pause();
		if (turn % 64 == 0 && clock_now_ns() >= until_ns)
			return false;
	}
	return true;
}

/* Median of this pause, ns; 0 when the other thread got a core for too few of them, which are not counted then. */
static uint64_t lines(struct bare *bare, struct line *line)
{
	uint64_t begin_ns = clock_now_ns(), until_ns = begin_ns + LINES_NS;
	struct histogram times;

	histogram_init(&times);
	while (times.count < LINE_ROUNDS && round_trip(line, until_ns)) {
		uint64_t end_ns = clock_now_ns();

		histogram_add(&times, end_ns - begin_ns);
		begin_ns = end_ns;
	}
	if (times.count < LINE_ROUNDS / 2)
		return 0;
	histogram_merge(&bare->line, &times);
	return kvr_max_u64(histogram_percentile(&times, 500000), 1);
}

static void exchanges(struct bare *bare, struct line *line, uint64_t line_ns, uint64_t target_ns)
{
	uint64_t trips = kvr_max_u64((target_ns + line_ns / 2) / line_ns, 1);
	uint64_t begin_ns = clock_now_ns(), until_ns = begin_ns + EXCHANGES_NS;

	while (begin_ns < until_ns) {
		uint64_t end_ns;

		for (uint64_t trip = 0; trip < trips; trip++) {
			if (!round_trip(line, until_ns + LINES_NS))
				return;
		}
		end_ns = clock_now_ns();
		histogram_add(&bare->exchange, end_ns - begin_ns);
		begin_ns = end_ns;
	}
}

static void gaps(struct bare *bare)
{
	uint64_t begin_ns = clock_now_ns(), last_ns = begin_ns;

	while (last_ns - begin_ns < GAPS_NS) {
		uint64_t now_ns = clock_now_ns();

		if (now_ns - last_ns > BARE_GAP_NS)
			histogram_add(&bare->gaps, now_ns - last_ns);
		last_ns = now_ns;
	}
	bare->spun_ns += last_ns - begin_ns;
}

void bare_init(struct bare *bare)
{
	memset(bare, 0, sizeof(*bare));
}

void bare_measure(struct bare *bare, uint64_t target_ns)
{
	struct line line = { .there = 0 };
	pthread_t thread;

	if (pthread_create(&thread, NULL, answer, &line) == 0) {
		uint64_t line_ns = lines(bare, &line);

		if (line_ns && target_ns > 0)
			exchanges(bare, &line, line_ns, target_ns);
		kvr_store_release(&line.there, LINE_STOP);
		pthread_join(thread, NULL);
	}
	gaps(bare);
}

double bare_gap_percent(const struct bare *bare)
{
	return bare->spun_ns ? 100.0 * (double)bare->gaps.sum / (double)bare->spun_ns : 0;
}

double bare_gap_rate(const struct bare *bare)
{
	return bare->spun_ns ? (double)bare->gaps.count * (double)KVR_SECOND / (double)bare->spun_ns : 0;
}
