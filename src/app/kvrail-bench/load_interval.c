/* load_interval.c - the thread that watches: a line of figures every --interval, progress on a terminal; processor time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "app/kvrail-bench/load_private.h"
#include "base/atomic.h"
#include "base/clock.h"

double load_cpu(void)
{
	struct rusage usage;

	if (getrusage(RUSAGE_SELF, &usage))
		return 0;
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
		(double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

double load_server_cpu(const struct load *load)
{
	char path[48], line[512] = "", *at;
	uint64_t ticks = 0;
	FILE *file;

	if (!load->settings->server_pid)
		return 0;
	snprintf(path, sizeof(path), "/proc/%llu/stat", (unsigned long long)load->settings->server_pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	/* "pid (name) state ...": the name may hold anything. User and system time are the fields 14 and 15. */
	at = fgets(line, sizeof(line), file) ? strrchr(line, ')') : NULL;
	fclose(file);
	for (unsigned field = 3; at && field <= 15; field++) {
		at = strchr(at + 1, ' ');
		if (at && field >= 14)
			ticks += strtoull(at + 1, NULL, 10);
	}
	return (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

struct watcher {
	struct histogram seen, now, since;
	uint64_t bytes, operations, paused_ns, last_ns;
};

/* What was added to `now` since `before`; its largest sample is known to its bucket. */
static void subtract(struct histogram *since, const struct histogram *now, const struct histogram *before)
{
	histogram_init(since);
	for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
		since->bucket[i] = now->bucket[i] - before->bucket[i];
		since->count += since->bucket[i];
	}
	since->max = now->max;
}

static void gather(const struct load *load, struct watcher *watcher, uint64_t *bytes, uint64_t *operations)
{
	histogram_init(&watcher->now);
	*bytes = *operations = 0;
	for (uint32_t i = 0; i < load->settings->clients; i++) {
		const struct load_client *client = &load->clients[i];

		for (unsigned op = 0; op < MEASURE_OPS; op++) {
			if (op != MEASURE_END)
				histogram_merge(&watcher->now, &client->measure.latency[op]);
		}
		*bytes += kvr_load_relaxed(&client->counters.bytes_stored) +
			kvr_load_relaxed(&client->counters.bytes_retrieved);
		*operations += kvr_load_relaxed(&client->counters.requests);
	}
}

static void keep(struct load *load, const struct load_interval *interval)
{
	if (load->interval_count == load->interval_capacity) {
		size_t capacity = load->interval_capacity ? load->interval_capacity * 2 : 64;
		struct load_interval *grown = realloc(load->intervals, capacity * sizeof(*grown));

		if (!grown)
			return;
		load->intervals = grown;
		load->interval_capacity = capacity;
	}
	load->intervals[load->interval_count++] = *interval;
}

static void print(const struct load *load, const struct load_interval *interval)
{
	char p50[TEXT_SHORT], p99[TEXT_SHORT], p999[TEXT_SHORT], max[TEXT_SHORT];

	if (strcmp(load->settings->json, "-") == 0)
		return;
	fprintf(stderr, "%8.1f s %12.0f /s", interval->seconds, interval->operations);
	if (load_moves_bytes(load))
		fprintf(stderr, " %8.2f GB/s", interval->gbps);
	fprintf(stderr, "  p50 %s  p99 %s  p99.9 %s  max %s\n", text_time(p50, interval->p50_ns),
		text_time(p99, interval->p99_ns), text_time(p999, interval->p999_ns), text_time(max, interval->max_ns));
}

/* The gate's mutex is held: no pause for memcpy lies half in it. */
static bool look(struct load *load, struct watcher *watcher, struct load_interval *interval)
{
	uint64_t now_ns = clock_now_ns(), paused_ns = load->gate.paused_ns, bytes, operations, busy_ns;

	if (!load->first_round_ns)
		return false;
	if (watcher->last_ns == 0) {
		watcher->last_ns = load->first_round_ns;
		watcher->paused_ns = paused_ns;
		watcher->bytes = load->round_bytes;
		watcher->operations = load->round_operations;
	}
	busy_ns = now_ns - watcher->last_ns - (paused_ns - watcher->paused_ns);
	if (busy_ns < load->settings->interval_ns)
		return false;
	gather(load, watcher, &bytes, &operations);
	subtract(&watcher->since, &watcher->now, &watcher->seen);
	interval->seconds += (double)busy_ns / (double)KVR_SECOND;
	interval->operations = (double)(operations - watcher->operations) * 1e9 / (double)busy_ns;
	interval->gbps = (double)(bytes - watcher->bytes) / (double)busy_ns;
	interval->p50_ns = histogram_percentile(&watcher->since, 500000);
	interval->p99_ns = histogram_percentile(&watcher->since, 990000);
	interval->p999_ns = histogram_percentile(&watcher->since, 999000);
	interval->max_ns = histogram_percentile(&watcher->since, 1000000);
	watcher->seen = watcher->now;
	watcher->bytes = bytes;
	watcher->operations = operations;
	watcher->paused_ns = paused_ns;
	watcher->last_ns = now_ns;
	return true;
}

void load_watch(struct load *load, const int *interrupted)
{
	bool tty = isatty(STDERR_FILENO) && strcmp(load->settings->json, "-") != 0, over = false;
	struct timespec pause = { 0, (long)((load->settings->interval_ns ? 5 : 20) * KVR_MS) };
	struct watcher *watcher = calloc(1, sizeof(*watcher));
	struct load_interval interval = { 0 };

	while (!over) {
		bool line;

		nanosleep(&pause, NULL);
		if (interrupted && kvr_load_acquire(interrupted))
			kvr_store_release(&load->complaints.stop, 1);
		pthread_mutex_lock(&load->gate.mutex);
		over = load->over;
		line = load->settings->interval_ns && watcher && !over && look(load, watcher, &interval);
		if (tty && !load->settings->interval_ns && load->rounds_done > 0)
			fprintf(stderr, "\rround %u of %u: %.2f GB/s, %.0f a second\033[K", load->rounds_done,
				load->settings->rounds, load->rounds[load->rounds_done - 1].gbps,
				load->rounds[load->rounds_done - 1].operations);
		pthread_mutex_unlock(&load->gate.mutex);
		if (line) {
			keep(load, &interval);
			print(load, &interval);
		}
	}
	if (tty && !load->settings->interval_ns)
		fprintf(stderr, "\r\033[K");
	free(watcher);
}
