/*
 * Each place where the file adapter acquires something or calls the kernel fails once, in turn: the request or the
 * opening ends with an error or as if nothing had been, no byte is ever wrong, nothing is left over, and the next
 * try succeeds (pitfalls H01, H09).
 */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/log.h"
#include "tier/place.h"

#define BYTES 10000
#define COUNT 2

/* Warnings of the adapter are what is to be expected here. */
static void quiet(void *context, enum log_level level, const char *line)
{
	(void)context;
	(void)level;
	(void)line;
}

static bool good_end(int status)
{
	return status == 0 || (status < 0 && status != -EBADMSG);
}

/* Some of everything. Returns how many calls failed. */
static uint32_t work(struct l2_adapter *adapter)
{
	uint32_t failed = 0;

	for (uint32_t i = 0; i < COUNT; i++) {
		int stored = do_store(adapter, i, BYTES);
		int loaded = do_load(adapter, i, BYTES);

		assert_true(good_end(stored) && good_end(loaded));
		/* H01: what was not stored is not there; H05: what was stored is. */
		if (stored)
			assert_int_equal(loaded, -ENOENT);
		else if (loaded)
			failed++;
		failed += stored != 0;
	}
	for (uint32_t i = 0; i < COUNT; i++) {
		int status = do_contains(adapter, i, BYTES);

		assert_true(good_end(status));
		failed += status != 0;
	}
	failed += do_remove(adapter, 0, BYTES) != 0;
	return failed;
}

static void with_nth_failure(struct file_adapter_options options, uint64_t nth, bool *fired)
{
	struct l2_adapter *adapter;
	struct place place;
	char error[512] = "";
	int result;

	place_make(&place);
	options.directory = place.path;
	options.check_interval_ns = 1; /* stores are on again at once */
	fault_arm(nth);
	result = file_adapter_open(&options, &adapter, error, sizeof(error));
	if (result) {
		assert_true(result < 0 && strlen(error) > 10);
		assert_null(adapter);
	} else {
		wait_scanned(adapter);
		work(adapter);
		adapter->driver->close(adapter);
	}
	*fired = fault_fired() != NULL;
	fault_arm(0);
	/* What is there is whole; what is missing can be stored. */
	adapter = place_open(&place, &options);
	wait_scanned(adapter);
	for (uint32_t i = 0; i < COUNT; i++) {
		assert_int_equal(do_store(adapter, i, BYTES), 0);
		assert_int_equal(do_load(adapter, i, BYTES), 0);
	}
	assert_int_equal(stats_of(adapter).corrupt, 0);
	adapter->driver->close(adapter);
	assert_int_equal(place_count(&place, "", NULL), COUNT);
	place_remove(&place);
}

static void sweep(struct file_adapter_options options)
{
	bool fired = true;
	uint32_t nth;

	log_set_sink(quiet, NULL);
	for (nth = 1; fired && nth < 2000; nth++)
		with_nth_failure(options, nth, &fired);
	log_set_sink(NULL, NULL);
	assert_true(nth > 50 && nth < 2000);
}

static void every_call_may_fail_once_with_io_uring(void **state)
{
	(void)state;
	sweep((struct file_adapter_options){ .queue_depth = 2, .sync = FILE_SYNC_ALL });
}

static void every_call_may_fail_once_with_threads(void **state)
{
	(void)state;
	sweep((struct file_adapter_options){ .queue_depth = 1, .no_uring = true, .exclusive = true });
}

static void short_transfers_are_continued(void **state)
{
	static const char *const points[] = { "file_io/write_short", "file_io/read_short" };
	struct file_adapter_options options = { .queue_depth = 0 };
	struct l2_adapter *adapter;
	struct place place;

	(void)state;
	place_make(&place);
	adapter = place_open(&place, &options);
	for (uint32_t i = 0; i < 8; i++) {
		fault_arm_name(points[0], 1 + i / 2);
		assert_int_equal(do_store(adapter, i, 600000 + i), 0); /* odd ones are copied in pieces */
		fault_arm_name(points[1], 1 + i / 2);
		assert_int_equal(do_load(adapter, i, 600000 + i), 0);
	}
	fault_arm(0);
	adapter->driver->close(adapter);
	place_remove(&place);
}

static void file_systems_that_lack_a_call_are_used_without(void **state)
{
	static const char *const points[] = { "file_io/allocate_unknown", "file_io/rename_flags" };
	struct file_adapter_options options = { .queue_depth = 0 };
	struct l2_adapter *adapter;
	struct place place;

	(void)state;
	place_make(&place);
	adapter = place_open(&place, &options);
	for (uint32_t i = 0; i < 2; i++) {
		fault_arm_name(points[i], 1);
		assert_int_equal(do_store(adapter, i, BYTES), 0);
		assert_int_equal(do_load(adapter, i, BYTES), 0);
		assert_string_equal(fault_fired(), points[i]);
		assert_int_equal(do_store(adapter, 10 + i, BYTES), 0);
	}
	assert_int_equal(stats_of(adapter).errors, 0);
	fault_arm(0);
	adapter->driver->close(adapter);
	place_remove(&place);
}

/* What the list of the directory has no memory for is found when it is asked for; a list that cannot grow is told in pieces. */
static void a_scan_without_memory_loses_nothing(void **state)
{
	static const struct {
		uint32_t objects, nth, known;
	} cases[] = { { 5, 1, 4 }, { 1030, 2, 1030 } };

	(void)state;
	log_set_sink(quiet, NULL);
	for (unsigned i = 0; i < KVR_COUNT_OF(cases); i++) {
		struct file_adapter_options options = { .io_threads = 1 };
		struct l2_adapter *adapter;
		struct place place;

		place_make(&place);
		adapter = place_open(&place, &options);
		wait_scanned(adapter);
		for (uint32_t k = 0; k < cases[i].objects; k++)
			assert_int_equal(do_store(adapter, k, 100), 0);
		adapter->driver->close(adapter);
		fault_arm_name("file_scan/entries", cases[i].nth);
		adapter = place_open(&place, &options);
		wait_scanned(adapter);
		assert_string_equal(fault_fired(), "file_scan/entries");
		fault_arm(0);
		assert_int_equal(stats_of(adapter).objects, cases[i].known);
		for (uint32_t k = 0; k < cases[i].objects; k++)
			assert_int_equal(do_load(adapter, k, 100), 0);
		assert_int_equal(stats_of(adapter).objects, cases[i].objects);
		adapter->driver->close(adapter);
		place_remove(&place);
	}
	log_set_sink(NULL, NULL);
}

static void an_eviction_that_fails_leaves_the_file_counted(void **state)
{
	struct file_adapter_options options = { .capacity_bytes = 4 * 16384, .check_interval_ns = 1 };
	struct l2_adapter *adapter;
	struct place place;
	uint64_t bytes;

	(void)state;
	place_make(&place);
	adapter = place_open(&place, &options);
	wait_scanned(adapter);
	log_set_sink(quiet, NULL);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(do_store(adapter, i, BYTES), 0);
	fault_arm_name("file_io/unlink", 1);
	assert_int_equal(do_store(adapter, 4, BYTES), 0);
	assert_int_equal(stats_of(adapter).errors, 1);
	place_count(&place, "", &bytes);
	assert_int_equal(bytes, 4 * 16384);
	assert_int_equal(do_load(adapter, 0, BYTES), 0);
	assert_int_equal(do_load(adapter, 1, BYTES), -ENOENT);
	log_set_sink(NULL, NULL);
	fault_arm(0);
	adapter->driver->close(adapter);
	place_remove(&place);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_call_may_fail_once_with_io_uring),
		cmocka_unit_test(every_call_may_fail_once_with_threads),
		cmocka_unit_test(short_transfers_are_continued),
		cmocka_unit_test(file_systems_that_lack_a_call_are_used_without),
		cmocka_unit_test(a_scan_without_memory_loses_nothing),
		cmocka_unit_test(an_eviction_that_fails_leaves_the_file_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
