/*
 * test_no_syscalls.c - the thread that steps a worker and the management core makes no system call and no allocation,
 * whatever it is asked. The clock that its loop reads is the vDSO's. What it may do in one case, waking a client that
 * sleeps, is shown here too.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/cmocka_all.h"
#include "hot/guard.h"
#include "hot/lanes.h"
#include "hot/rig.h"

#if defined(GUARD_SANITIZED)
#define REQUESTS 10000 /* the code that runs is the same, and ten times as slow */
#else
#define REQUESTS 100000
#endif
#define WARM_UP 4000
#define L1_BYTES ((uint64_t)32 << 20)

static void skip_where_impossible(void)
{
	const char *reason = guard_unavailable();

	if (!reason)
		return;
	print_message("skipped: %s\n", reason);
	skip();
}

/* Server and lanes in a steady state, and the stepping thread guarded from then on. */
static void open_guarded(struct rig *rig, struct lanes *lanes)
{
	rig_open(rig, L1_BYTES);
	lanes_open(lanes, rig);
	lanes_run(lanes, WARM_UP);
	rig_guard(rig);
}

/* The connection's end is guarded, too, but for the wake-ups of a client that sleeps over it. */
static void close_guarded(struct rig *rig, struct lanes *lanes, struct rig_usage *usage)
{
	lanes_finish(lanes);
	guard_excuse(SYS_sendto);
	lanes_close(lanes);
	rig_stop(rig, usage);
	rig_close(rig);
}

static void requests_of_all_kinds_make_no_system_call_and_no_allocation(void **state)
{
	const struct cache_counters *counters;
	struct rig_usage usage;
	struct lanes lanes;
	struct rig rig;
	uint64_t evicted, retrieved;

	(void)state;
	skip_where_impossible();
	open_guarded(&rig, &lanes);
	counters = cache_get_counters(server_cache(rig.server));
	evicted = kvr_load_relaxed(&counters->evicted_chunks);
	retrieved = lanes.done[LANE_RETRIEVE_OLD];
	lanes_run(&lanes, REQUESTS);
	evicted = kvr_load_relaxed(&counters->evicted_chunks) - evicted;
	close_guarded(&rig, &lanes, &usage);
	print_message("%d requests, %llu of them RETRIEVE, %llu chunks evicted; page faults: %lu minor, %lu major\n",
		REQUESTS, (unsigned long long)(lanes.done[LANE_RETRIEVE_OLD] - retrieved), (unsigned long long)evicted,
		usage.minor_faults, usage.major_faults);
	guard_print("system calls", guard_system_calls());
	guard_print("allocations", guard_allocations());
	assert_int_equal(guard_system_calls()->count, 0);
	assert_int_equal(guard_allocations()->count, 0);
	assert_true(evicted > REQUESTS / 2);
}

/* ---- the test can fail ---- */

static void ask_the_kernel(void)
{
	syscall(SYS_getppid);
}

static void a_system_call_of_the_stepping_thread_is_caught(void **state)
{
	struct rig_usage usage;
	struct lanes lanes;
	struct rig rig;

	(void)state;
	skip_where_impossible();
	open_guarded(&rig, &lanes);
	rig_sabotage(&rig, ask_the_kernel);
	close_guarded(&rig, &lanes, &usage);
	assert_int_equal(guard_system_calls()->count, 1);
	assert_int_equal(guard_system_calls()->number, SYS_getppid);
	assert_true(guard_system_calls()->frame_count > 2);
	assert_int_equal(guard_allocations()->count, 0);
}

static void take_memory(void)
{
	void *volatile memory = malloc(100);

	free(memory);
}

/* Inside the C library. */
static void take_memory_secretly(void)
{
	char *volatile text = strdup("memory");

	free(text);
}

static void an_allocation_of_the_stepping_thread_is_caught(void **state)
{
	void (*const ways[])(void) = { take_memory, take_memory_secretly };

	(void)state;
	skip_where_impossible();
	for (unsigned i = 0; i < KVR_COUNT_OF(ways); i++) {
		struct rig_usage usage;
		struct lanes lanes;
		struct rig rig;

		open_guarded(&rig, &lanes);
		rig_sabotage(&rig, ways[i]);
		close_guarded(&rig, &lanes, &usage);
		assert_int_equal(guard_allocations()->count, 2); /* taken and given back */
		assert_string_equal(guard_allocations()->name, "malloc");
	}
}

/* ---- the one exception ---- */

/* So long that a client that waits goes to sleep, as far as it has the core to do so. */
static void stand_still(void)
{
	uint64_t until_ns = clock_now_ns() + 20 * KVR_MS;

	while (clock_now_ns() < until_ns)
		kvr_cpu_pause();
}

static void only_a_client_that_sleeps_costs_a_system_call(void **state)
{
	struct rig_usage usage;
	struct kvr_client *client;
	struct rig rig;

	(void)state;
	skip_where_impossible();
	rig_open(&rig, L1_BYTES);
	client = rig_client(&rig);
	assert_int_equal(kvr_ping(client, 0), 0);
	rig_guard(&rig);
	for (unsigned attempt = 0; attempt < 200 && !guard_seen(); attempt++) {
		struct kvr_result result;
		kvr_ticket ticket;

		kvr_store_release(&rig.sabotage, stand_still);
		assert_int_equal(kvr_submit_ping(client, &ticket), 0);
		assert_int_equal(kvr_wait(client, ticket, 60 * KVR_SECOND, &result), 0);
	}
	kvr_close(&client);
	rig_stop(&rig, &usage);
	rig_close(&rig);
	assert_true(guard_system_calls()->count >= 1);
	assert_int_equal(guard_system_calls()->number, SYS_sendto); /* a byte into the wake socket */
	assert_int_equal(guard_allocations()->count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests_of_all_kinds_make_no_system_call_and_no_allocation),
		cmocka_unit_test(a_system_call_of_the_stepping_thread_is_caught),
		cmocka_unit_test(an_allocation_of_the_stepping_thread_is_caught),
		cmocka_unit_test(only_a_client_that_sleeps_costs_a_system_call),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
