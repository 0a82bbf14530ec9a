/* How much the file adapter keeps: its capacity, the order of eviction, the space that belongs to others. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/random.h"
#include "tier/place.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define BYTES (60 * KIB) /* a file of 64 KiB */
#define FILE_LENGTH (64 * KIB)

static struct l2_adapter *open_scanned(const struct place *place, struct file_adapter_options options)
{
	struct l2_adapter *adapter = place_open(place, &options);

	wait_scanned(adapter);
	return adapter;
}

static void the_capacity_holds_at_every_moment_and_the_least_used_goes(void **state)
{
	struct l2_adapter *adapter;
	struct l2_stats stats;
	struct place place;
	uint64_t bytes;

	(void)state;
	place_make(&place);
	adapter = open_scanned(&place, (struct file_adapter_options){ .capacity_bytes = 10 * FILE_LENGTH });
	for (uint32_t i = 0; i < 10; i++)
		assert_int_equal(do_store(adapter, i, BYTES), 0);
	assert_int_equal(do_load(adapter, 0, BYTES), 0);
	assert_int_equal(do_contains(adapter, 2, BYTES), 0);
	for (uint32_t i = 10; i < 15; i++) {
		assert_int_equal(do_store(adapter, i, BYTES), 0);
		place_count(&place, "", &bytes);
		assert_true(bytes <= 10 * FILE_LENGTH);
	}
	/* 1, 3, 4, 5, 6 are gone */
	for (uint32_t i = 0; i < 15; i++)
		assert_int_equal(do_load(adapter, i, BYTES), i == 1 || (i >= 3 && i <= 6) ? -ENOENT : 0);
	stats = stats_of(adapter);
	assert_int_equal(stats.evicted, 5);
	assert_int_equal(stats.evicted_bytes, 5 * FILE_LENGTH);
	assert_int_equal(stats.bytes, 10 * FILE_LENGTH);
	assert_int_equal(stats.capacity_bytes, 10 * FILE_LENGTH);
	/* what can never have room is refused, and costs nobody anything */
	assert_int_equal(do_store(adapter, 99, 11 * FILE_LENGTH), -ENOSPC);
	assert_int_equal(do_store(adapter, 16, BYTES), 0);
	assert_int_equal(stats_of(adapter).evicted, 6);
	adapter->driver->close(adapter);
	place_remove(&place);
}

/* Many at once: files under way count, too. */
static void stores_under_way_count_against_the_capacity(void **state)
{
	static struct l2_request requests[64];
	struct l2_adapter *adapter;
	struct list_node ended;
	struct place place;
	uint32_t count = 0;
	uint64_t bytes;
	void *memory = aligned_alloc(4096, FILE_LENGTH);

	(void)state;
	place_make(&place);
	memset(memory, 1, FILE_LENGTH);
	adapter = open_scanned(
		&place, (struct file_adapter_options){ .capacity_bytes = 5 * FILE_LENGTH, .queue_depth = 32 });
	list_init(&ended);
	for (uint32_t i = 0; i < 64; i++) {
		requests[i] = (struct l2_request){ .operation = L2_STORE, .identity = object_identity(i, BYTES) };
		requests[i].memory = memory;
		assert_int_equal(adapter->driver->submit(adapter, &requests[i]), 0);
	}
	while (count < 64) {
		count += adapter->driver->poll(adapter, &ended, 64);
		sched_yield();
	}
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(requests[i].status, 0);
	assert_int_equal(stats_of(adapter).objects, 5);
	assert_int_equal(stats_of(adapter).evicted, 59);
	place_count(&place, "", &bytes);
	assert_int_equal(bytes, 5 * FILE_LENGTH);
	adapter->driver->close(adapter);
	free(memory);
	place_remove(&place);
}

static void the_number_of_objects_is_bounded_too(void **state)
{
	struct l2_adapter *adapter;
	struct place place;

	(void)state;
	place_make(&place);
	adapter = open_scanned(&place, (struct file_adapter_options){ .object_limit = 4 });
	for (uint32_t i = 0; i < 9; i++)
		assert_int_equal(do_store(adapter, i, 100), 0);
	assert_int_equal(stats_of(adapter).objects, 4);
	assert_int_equal(place_count(&place, ".kvo", NULL), 4);
	adapter->driver->close(adapter);
	/* A place with more than the next start may know: the oldest go. */
	adapter = open_scanned(&place, (struct file_adapter_options){ .object_limit = 2 });
	while (stats_of(adapter).evicted < 2)
		sched_yield();
	assert_int_equal(stats_of(adapter).objects, 2);
	adapter->driver->close(adapter);
	assert_int_equal(place_count(&place, ".kvo", NULL), 2);
	place_remove(&place);
}

static void set_age(const struct place *place, uint32_t number, int64_t seconds)
{
	struct l2_identity identity = object_identity(number, BYTES);
	struct timespec times[2] = { { .tv_sec = 2000000000 - seconds }, { .tv_sec = 2000000000 - seconds } };
	char path[2 * PLACE_PATH];

	place_file(place, &identity, path);
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* pitfalls H03 */
static void after_a_restart_what_is_there_counts_and_the_oldest_goes_first(void **state)
{
	static const uint32_t ages[9] = { 50, 10, 90, 20, 80, 30, 70, 40, 60 };
	struct file_adapter_options options = { .capacity_bytes = 10 * FILE_LENGTH };
	struct l2_adapter *adapter;
	struct place place;
	uint64_t bytes;

	(void)state;
	place_make(&place);
	adapter = open_scanned(&place, options);
	for (uint32_t i = 0; i < 9; i++)
		assert_int_equal(do_store(adapter, i, BYTES), 0);
	adapter->driver->close(adapter);
	for (uint32_t i = 0; i < 9; i++)
		set_age(&place, i, ages[i]);

	adapter = place_open(&place, &options);
	/* At once, while nobody knows yet what is there: stored or not, never above the capacity. */
	for (uint32_t i = 9; i < 12; i++) {
		int status = do_store(adapter, i, BYTES);

		assert_true(status == 0 || status == -ENOSPC);
		place_count(&place, "", &bytes);
		assert_true(bytes <= options.capacity_bytes);
	}
	wait_scanned(adapter);
	for (uint32_t i = 9; i < 12; i++)
		assert_int_equal(do_store(adapter, i, BYTES), 0);
	place_count(&place, "", &bytes);
	assert_true(bytes <= options.capacity_bytes);
	for (uint32_t i = 0; i < 12; i++)
		assert_int_equal(do_contains(adapter, i, BYTES), i == 2 || i == 4 ? -ENOENT : 0);
	adapter->driver->close(adapter);

	/* A smaller capacity is kept as soon as everything is known. */
	options.capacity_bytes = 3 * FILE_LENGTH;
	adapter = open_scanned(&place, options);
	while (stats_of(adapter).bytes > options.capacity_bytes || stats_of(adapter).evicted < 7)
		sched_yield();
	assert_int_equal(stats_of(adapter).objects, 3);
	adapter->driver->close(adapter);
	place_remove(&place);
}

static void load_of_chain(struct l2_adapter *adapter, uint32_t number, uint64_t used_ns)
{
	void *memory = aligned_alloc(4096, FILE_LENGTH);
	struct l2_request request = { .operation = L2_LOAD,
		.identity = object_identity(number, BYTES),
		.memory = memory,
		.used_ns = used_ns,
		.position = number };

	assert_non_null(memory);
	assert_int_equal(do_request(adapter, &request), 0);
	free(memory);
}

static int64_t microseconds(const struct place *place, uint32_t number)
{
	struct l2_identity identity = object_identity(number, BYTES);
	char path[2 * PLACE_PATH];
	struct stat about;

	place_file(place, &identity, path);
	assert_int_equal(stat(path, &about), 0);
	return about.st_mtim.tv_sec * INT64_C(1000000) + about.st_mtim.tv_nsec / 1000;
}

/* What the next start puts them in order by. */
static void the_times_of_files_that_were_loaded_say_which_chunks_came_late(void **state)
{
	uint64_t used_ns = clock_now_ns();
	struct l2_adapter *adapter;
	struct place place;

	(void)state;
	place_make(&place);
	adapter = open_scanned(&place, (struct file_adapter_options){ .io_threads = 2 });
	for (uint32_t i = 0; i < 8; i++) {
		assert_int_equal(do_store(adapter, i, BYTES), 0);
		set_age(&place, i, 1000000000);
	}
	for (uint32_t i = 0; i < 8; i++)
		load_of_chain(adapter, i, used_ns);
	for (uint32_t i = 1; i < 8; i++)
		assert_int_equal(microseconds(&place, i), microseconds(&place, i - 1) - 1);
	adapter->driver->close(adapter);
	place_remove(&place);
}

static void a_full_disk_turns_stores_off_and_loads_go_on(void **state)
{
	struct file_adapter_options options = { .check_interval_ns = UINT64_C(3600000000000) };
	struct l2_adapter *adapter;
	struct place place;

	(void)state;
	place_make(&place);
	adapter = open_scanned(&place, options);
	assert_int_equal(do_store(adapter, 1, BYTES), 0);
	fault_arm_name("file_io/write_full", 1);
	assert_int_equal(do_store(adapter, 2, BYTES), -ENOSPC);
	assert_int_equal(do_store(adapter, 3, BYTES), -ENOSPC); /* without trying */
	assert_int_equal(stats_of(adapter).errors, 2);
	assert_true(stats_of(adapter).read_only);
	assert_non_null(strstr(stats_of(adapter).condition, "loads go on"));
	assert_int_equal(do_load(adapter, 1, BYTES), 0);
	assert_int_equal(place_count(&place, ".kvo", NULL), 1);
	adapter->driver->close(adapter);
	fault_arm(0);
	assert_int_equal(place_count(&place, "", NULL), 1);
	place_remove(&place);
}

/* Stores may be tried again at once, and rarely are: who looks between them must see it all the same. */
static void what_keeps_stores_out_is_told_until_one_is_good(void **state)
{
	struct file_adapter_options options = { .check_interval_ns = 1, .capacity_bytes = 8 * FILE_LENGTH };
	struct l2_adapter *adapter;
	struct place place;

	(void)state;
	place_make(&place);
	adapter = open_scanned(&place, options);
	assert_string_equal(stats_of(adapter).condition, "");
	fault_arm_name("file_io/write_full", 1);
	assert_int_equal(do_store(adapter, 1, BYTES), -ENOSPC);
	fault_arm(0);
	assert_non_null(strstr(stats_of(adapter).condition, "no room"));
	assert_int_equal(do_store(adapter, 2, BYTES), 0);
	assert_string_equal(stats_of(adapter).condition, "");
	adapter->driver->close(adapter);

	/* Nothing could be evicted that makes room for it. */
	options.capacity_bytes = FILE_LENGTH - 1;
	adapter = open_scanned(&place, options);
	assert_int_equal(do_store(adapter, 3, BYTES), -ENOSPC);
	assert_non_null(strstr(stats_of(adapter).condition, "no room"));
	adapter->driver->close(adapter);
	place_remove(&place);
}

/* A file system of our own; false where that is not allowed. */
static bool mount_small(const struct place *place, const char *options)
{
	return mount("kvrail-test", place->path, "tmpfs", 0, options) == 0;
}

static void fill(const struct place *place, uint64_t leave_bytes)
{
	char path[2 * PLACE_PATH];
	struct statvfs about;
	uint64_t available;
	int fd;

	assert_int_equal(statvfs(place->path, &about), 0);
	available = (uint64_t)about.f_bavail * about.f_frsize;
	snprintf(path, sizeof(path), "%s/others", place->path);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	assert_true(fd >= 0);
	if (available > leave_bytes)
		assert_int_equal(posix_fallocate(fd, lseek(fd, 0, SEEK_END), (off_t)(available - leave_bytes)), 0);
	close(fd);
}

/* pitfalls H02 */
static void a_small_file_system_is_neither_filled_nor_kept_from_others(void **state)
{
	struct l2_adapter *adapter;
	struct place place;
	uint64_t bytes;

	(void)state;
	place_make(&place);
	if (!mount_small(&place, "size=20m")) {
		place_remove(&place);
		skip();
	}
	adapter = open_scanned(
		&place, (struct file_adapter_options){ .capacity_bytes = 16 * MIB, .reserved_bytes = MIB });
	for (uint32_t i = 0; i < 600; i++) {
		assert_int_equal(do_store(adapter, i, BYTES), 0);
		place_count(&place, ".kvo", &bytes);
		assert_true(bytes <= 16 * MIB);
	}
	assert_int_equal(stats_of(adapter).objects, 256);
	/* Others take the rest, and more than we want to leave them: we give way, and what is left is served. */
	fill(&place, 0);
	for (uint32_t i = 600; i < 620; i++) {
		int status = do_store(adapter, i, BYTES);

		assert_true(status == 0 || status == -ENOSPC);
	}
	assert_true(stats_of(adapter).objects > 200);
	assert_int_equal(do_load(adapter, 599, BYTES), 0);
	adapter->driver->close(adapter);
	umount(place.path);
	place_remove(&place);
}

static void a_file_system_that_others_have_filled_gives_no_room_but_what_we_free(void **state)
{
	struct l2_adapter *adapter;
	struct place place;
	uint32_t stored = 0;

	(void)state;
	place_make(&place);
	if (!mount_small(&place, "size=4m")) {
		place_remove(&place);
		skip();
	}
	adapter = open_scanned(&place, (struct file_adapter_options){ .check_interval_ns = 1 });
	for (uint32_t i = 0; i < 10; i++)
		assert_int_equal(do_store(adapter, i, BYTES), 0);
	fill(&place, 0);
	for (uint32_t i = 10; i < 40; i++)
		stored += do_store(adapter, i, BYTES) == 0;
	assert_true(stored > 0);
	assert_true(stats_of(adapter).objects > 0);
	assert_int_equal(stats_of(adapter).corrupt, 0);
	adapter->driver->close(adapter);
	umount(place.path);
	place_remove(&place);
}

/* pitfalls H04 */
static void a_read_only_file_system_is_refused_unless_it_was_meant(void **state)
{
	struct file_adapter_options options = { .queue_depth = 0 };
	struct l2_adapter *adapter;
	struct place place;
	char error[512];

	(void)state;
	place_make(&place);
	if (!mount_small(&place, "size=4m")) {
		place_remove(&place);
		skip();
	}
	adapter = open_scanned(&place, options);
	assert_int_equal(do_store(adapter, 1, BYTES), 0);
	adapter->driver->close(adapter);
	assert_int_equal(mount(NULL, place.path, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	options.directory = place.path;
	assert_int_equal(file_adapter_open(&options, &adapter, error, sizeof(error)), -EROFS);
	assert_non_null(strstr(error, place.path));
	assert_non_null(strstr(error, "read_only"));
	options.read_only = true;
	adapter = open_scanned(&place, options);
	assert_int_equal(do_load(adapter, 1, BYTES), 0);
	assert_int_equal(do_store(adapter, 2, BYTES), -EROFS);
	adapter->driver->close(adapter);

	umount(place.path);
	place_remove(&place);
}

static void a_file_system_that_becomes_read_only_loses_its_stores_alone(void **state)
{
	struct file_adapter_options options = { .check_interval_ns = UINT64_C(3600000000000) };
	struct l2_adapter *adapter;
	struct place place;

	(void)state;
	place_make(&place);
	adapter = open_scanned(&place, options);
	assert_int_equal(do_store(adapter, 1, BYTES), 0);
	fault_arm_name("file_io/write_read_only", 1);
	assert_int_equal(do_store(adapter, 2, BYTES), -EROFS);
	assert_int_equal(do_store(adapter, 3, BYTES), -EROFS);
	assert_non_null(strstr(stats_of(adapter).condition, "Read-only"));
	assert_int_equal(do_load(adapter, 1, BYTES), 0);
	adapter->driver->close(adapter);
	fault_arm(0);
	place_remove(&place);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_capacity_holds_at_every_moment_and_the_least_used_goes),
		cmocka_unit_test(stores_under_way_count_against_the_capacity),
		cmocka_unit_test(the_number_of_objects_is_bounded_too),
		cmocka_unit_test(after_a_restart_what_is_there_counts_and_the_oldest_goes_first),
		cmocka_unit_test(the_times_of_files_that_were_loaded_say_which_chunks_came_late),
		cmocka_unit_test(a_full_disk_turns_stores_off_and_loads_go_on),
		cmocka_unit_test(what_keeps_stores_out_is_told_until_one_is_good),
		cmocka_unit_test(a_small_file_system_is_neither_filled_nor_kept_from_others),
		cmocka_unit_test(a_file_system_that_others_have_filled_gives_no_room_but_what_we_free),
		cmocka_unit_test(a_read_only_file_system_is_refused_unless_it_was_meant),
		cmocka_unit_test(a_file_system_that_becomes_read_only_loses_its_stores_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
