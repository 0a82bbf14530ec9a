/* What may lie in the directory besides whole objects of ours, and what becomes of the directory itself. */
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
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "tier/place.h"

#define BYTES 10000 /* three blocks, the last with padding */
#define FILE_LENGTH 16384

struct fixture {
	struct place place;
	struct file_adapter_options options;
	struct l2_adapter *adapter;
};

static int setup(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));

	assert_non_null(fixture);
	place_make(&fixture->place);
	fixture->options.check_interval_ns = 1; /* looks with each request */
	fixture->adapter = place_open(&fixture->place, &fixture->options);
	wait_scanned(fixture->adapter);
	*state = fixture;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fixture = *state;

	if (fixture->adapter)
		fixture->adapter->driver->close(fixture->adapter);
	place_remove(&fixture->place);
	fault_arm(0);
	free(fixture);
	return 0;
}

static void path_of(const struct fixture *fixture, uint32_t number, char out[2 * PLACE_PATH])
{
	struct l2_identity identity = object_identity(number, BYTES);

	place_file(&fixture->place, &identity, out);
}

static bool exists(const char *path)
{
	struct stat about;

	return lstat(path, &about) == 0;
}

static void write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void flip_bit(const char *path, uint64_t offset, unsigned bit)
{
	int fd = open(path, O_RDWR);
	uint8_t byte;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, (off_t)offset), 1);
	byte ^= (uint8_t)(1u << bit);
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)offset), 1);
	close(fd);
}

/* A load finds the damage, the file goes, a counter says so, and the next store is as good as new. */
static void damaged(struct fixture *fixture, uint32_t number)
{
	uint64_t before = stats_of(fixture->adapter).corrupt;
	char path[2 * PLACE_PATH];

	path_of(fixture, number, path);
	assert_int_equal(do_load(fixture->adapter, number, BYTES), -EBADMSG);
	assert_int_equal(stats_of(fixture->adapter).corrupt, before + 1);
	assert_false(exists(path));
	assert_int_equal(do_contains(fixture->adapter, number, BYTES), -ENOENT);
	assert_int_equal(do_load(fixture->adapter, number, BYTES), -ENOENT);
	assert_int_equal(do_store(fixture->adapter, number, BYTES), 0);
	assert_int_equal(do_load(fixture->adapter, number, BYTES), 0);
}

/* pitfalls H05 */
static void one_flipped_bit_anywhere_in_a_file_is_a_miss(void **state)
{
	static const uint64_t offsets[] = { 0, 9, 100, 128, 151, 152, 4087, 4088, 4095, 4096, 8191, 8192, 14095, 14096,
		FILE_LENGTH - 1 };
	struct fixture *fixture = *state;
	char path[2 * PLACE_PATH];

	path_of(fixture, 1, path);
	assert_int_equal(do_store(fixture->adapter, 1, BYTES), 0);
	for (size_t i = 0; i < KVR_COUNT_OF(offsets); i++) {
		flip_bit(path, offsets[i], (unsigned)(i % 8));
		damaged(fixture, 1);
	}
}

/* pitfalls H05 */
static void a_file_that_is_too_short_or_too_long_is_a_miss(void **state)
{
	static const off_t lengths[] = { 0, 1, 4096, 8192, FILE_LENGTH - 4096, FILE_LENGTH - 1, FILE_LENGTH + 1,
		FILE_LENGTH + 4096 };
	struct fixture *fixture = *state;
	char path[2 * PLACE_PATH];

	path_of(fixture, 2, path);
	assert_int_equal(do_store(fixture->adapter, 2, BYTES), 0);
	for (size_t i = 0; i < KVR_COUNT_OF(lengths); i++) {
		assert_int_equal(truncate(path, lengths[i]), 0);
		damaged(fixture, 2);
	}
}

/* pitfalls H05 */
static void two_files_that_were_swapped_are_both_misses(void **state)
{
	struct fixture *fixture = *state;
	char first[2 * PLACE_PATH], second[2 * PLACE_PATH], third[3 * PLACE_PATH];

	assert_int_equal(do_store(fixture->adapter, 3, BYTES), 0);
	assert_int_equal(do_store(fixture->adapter, 4, BYTES), 0);
	path_of(fixture, 3, first);
	path_of(fixture, 4, second);
	snprintf(third, sizeof(third), "%s-aside", first);
	assert_int_equal(rename(first, third), 0);
	assert_int_equal(rename(second, first), 0);
	assert_int_equal(rename(third, second), 0);
	damaged(fixture, 3);
	damaged(fixture, 4);
}

static void a_damaged_file_that_a_store_meets_makes_place(void **state)
{
	struct fixture *fixture = *state;
	char path[2 * PLACE_PATH];

	assert_int_equal(do_store(fixture->adapter, 5, BYTES), 0);
	path_of(fixture, 5, path);
	fixture->adapter->driver->close(fixture->adapter);
	assert_int_equal(truncate(path, 5000), 0);
	fixture->options.exclusive = false;
	fixture->adapter = place_open(&fixture->place, &fixture->options);
	wait_scanned(fixture->adapter);
	assert_int_equal(do_contains(fixture->adapter, 5, BYTES), -ENOENT);
	assert_int_equal(do_load(fixture->adapter, 5, BYTES), -EBADMSG);
	assert_int_equal(do_store(fixture->adapter, 5, BYTES), 0);
	assert_int_equal(do_load(fixture->adapter, 5, BYTES), 0);
}

static void files_that_are_not_ours_are_left_alone(void **state)
{
	static const char *const names[] = { "README", "lock-0123", "lock-zzzzzzzzzzzzzzzz", "abc", "tmp-x" };
	struct fixture *fixture = *state;
	char path[4 * PLACE_PATH], inner[2 * PLACE_PATH];

	assert_int_equal(do_store(fixture->adapter, 6, BYTES), 0);
	path_of(fixture, 6, inner);
	*strrchr(inner, '/') = '\0';
	for (size_t i = 0; i < KVR_COUNT_OF(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", fixture->place.path, names[i]);
		write_file(path, "not ours");
		snprintf(path, sizeof(path), "%s/%s.kvo", inner, names[i]);
		write_file(path, "not ours");
	}
	fixture->adapter->driver->close(fixture->adapter);
	fixture->options.capacity_bytes = 2 * FILE_LENGTH;
	fixture->adapter = place_open(&fixture->place, &fixture->options);
	wait_scanned(fixture->adapter);
	assert_int_equal(stats_of(fixture->adapter).objects, 1);
	/* all that is ours is evicted */
	for (uint32_t i = 10; i < 14; i++)
		assert_int_equal(do_store(fixture->adapter, i, BYTES), 0);
	assert_int_equal(do_load(fixture->adapter, 6, BYTES), -ENOENT);
	for (size_t i = 0; i < KVR_COUNT_OF(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", fixture->place.path, names[i]);
		assert_true(exists(path));
		snprintf(path, sizeof(path), "%s/%s.kvo", inner, names[i]);
		assert_true(exists(path));
	}
}

/* The object's name is taken by something else: a miss, and neither a load nor a store nor a removal touches it. */
static void name_is_taken(struct fixture *fixture, uint32_t number)
{
	char path[2 * PLACE_PATH];

	path_of(fixture, number, path);
	assert_int_equal(do_contains(fixture->adapter, number, BYTES), -ENOENT);
	assert_int_equal(do_load(fixture->adapter, number, BYTES), -ENOENT);
	assert_int_equal(do_store(fixture->adapter, number, BYTES), 0);
	assert_int_equal(do_remove(fixture->adapter, number, BYTES), 0);
	assert_int_equal(do_load(fixture->adapter, number, BYTES), -ENOENT);
	assert_true(exists(path));
	assert_int_equal(stats_of(fixture->adapter).corrupt, 0);
}

static void a_link_a_pipe_or_a_folder_in_an_objects_place_is_a_miss(void **state)
{
	struct fixture *fixture = *state;
	char path[2 * PLACE_PATH], target[2 * PLACE_PATH];

	/* a link to a good file of the same object */
	assert_int_equal(do_store(fixture->adapter, 20, BYTES), 0);
	path_of(fixture, 20, path);
	snprintf(target, sizeof(target), "%s/elsewhere", fixture->place.path);
	assert_int_equal(rename(path, target), 0);
	assert_int_equal(symlink(target, path), 0);
	assert_int_equal(do_load(fixture->adapter, 20, BYTES), -ENOENT);
	name_is_taken(fixture, 20);
	assert_true(exists(target));

	for (uint32_t i = 21; i <= 22; i++) {
		assert_int_equal(do_store(fixture->adapter, i, BYTES), 0);
		path_of(fixture, i, path);
		assert_int_equal(unlink(path), 0);
		assert_int_equal(do_load(fixture->adapter, i, BYTES), -ENOENT);
		assert_int_equal(i == 21 ? mkfifo(path, 0600) : mkdir(path, 0700), 0);
		name_is_taken(fixture, i);
	}
}

static void a_folder_that_is_a_link_is_not_followed(void **state)
{
	struct fixture *fixture = *state;
	char path[2 * PLACE_PATH], target[2 * PLACE_PATH];

	snprintf(target, sizeof(target), "%s/elsewhere", fixture->place.path);
	assert_int_equal(mkdir(target, 0700), 0);
	path_of(fixture, 30, path);
	*strrchr(path, '/') = '\0';
	assert_int_equal(symlink(target, path), 0);
	assert_int_equal(do_load(fixture->adapter, 30, BYTES), -ENOENT);
	assert_int_equal(do_store(fixture->adapter, 30, BYTES), -ENOTDIR);
	assert_int_equal(rmdir(target), 0); /* still empty */
	assert_int_equal(do_store(fixture->adapter, 31, BYTES), 0);
	assert_int_equal(place_count(&fixture->place, ".kvo", NULL), 1);
}

static void a_directory_that_is_replaced_is_left_until_it_is_back(void **state)
{
	struct fixture *fixture = *state;
	char aside[2 * PLACE_PATH];

	assert_int_equal(do_store(fixture->adapter, 40, BYTES), 0);
	snprintf(aside, sizeof(aside), "%s-aside", fixture->place.path);
	assert_int_equal(rename(fixture->place.path, aside), 0);
	assert_int_equal(do_load(fixture->adapter, 40, BYTES), -ENOENT);
	assert_int_equal(mkdir(fixture->place.path, 0700), 0);
	assert_int_equal(do_load(fixture->adapter, 40, BYTES), -ENOENT);
	assert_int_equal(do_store(fixture->adapter, 41, BYTES), -EIO);
	assert_non_null(strstr(stats_of(fixture->adapter).condition, "replaced"));
	assert_int_equal(place_count(&fixture->place, "", NULL), 0);
	assert_int_equal(rmdir(fixture->place.path), 0);
	assert_int_equal(rename(aside, fixture->place.path), 0);
	assert_int_equal(do_store(fixture->adapter, 41, BYTES), 0);
	assert_int_equal(do_load(fixture->adapter, 40, BYTES), 0);
	assert_string_equal(stats_of(fixture->adapter).condition, "");
}

static void folders_that_were_removed_come_again(void **state)
{
	struct fixture *fixture = *state;
	char path[2 * PLACE_PATH];

	assert_int_equal(do_store(fixture->adapter, 50, BYTES), 0);
	path_of(fixture, 50, path);
	assert_int_equal(unlink(path), 0);
	*strrchr(path, '/') = '\0';
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(do_load(fixture->adapter, 50, BYTES), -ENOENT);
	assert_int_equal(do_store(fixture->adapter, 50, BYTES), 0);
	assert_int_equal(do_load(fixture->adapter, 50, BYTES), 0);
}

static int try_open(const char *directory, bool read_only, char error[512])
{
	struct file_adapter_options options = { .directory = directory, .read_only = read_only };
	struct l2_adapter *adapter;
	int result = file_adapter_open(&options, &adapter, error, 512);

	if (!result)
		adapter->driver->close(adapter);
	else
		assert_null(adapter);
	return result;
}

static void a_directory_that_cannot_be_used_is_refused_with_the_reason(void **state)
{
	struct fixture *fixture = *state;
	char path[2 * PLACE_PATH], error[512];

	snprintf(path, sizeof(path), "%s/a/b", fixture->place.path);
	assert_int_equal(try_open(path, false, error), -ENOENT);
	assert_non_null(strstr(error, path));
	assert_non_null(strstr(error, "make the directory"));
	snprintf(path, sizeof(path), "%s/new", fixture->place.path);
	assert_int_equal(try_open(path, true, error), -ENOENT);
	assert_int_equal(try_open(path, false, error), 0); /* the last one is made */
	snprintf(path, sizeof(path), "%s/file", fixture->place.path);
	write_file(path, "x");
	assert_int_equal(try_open(path, false, error), -ENOTDIR);
	assert_int_equal(try_open("", false, error), -EINVAL);
	assert_int_equal(try_open(NULL, false, error), -EINVAL);
}

/* In a process of its own, that is not root. */
static void a_directory_without_rights_is_refused_with_the_reason(void **state)
{
	struct fixture *fixture = *state;
	char path[2 * PLACE_PATH], error[512] = "";
	int status;
	pid_t pid;

	snprintf(path, sizeof(path), "%s/other", fixture->place.path);
	assert_int_equal(mkdir(path, 0555), 0);
	assert_int_equal(chmod(fixture->place.path, 0755), 0);
	fixture->adapter->driver->close(fixture->adapter);
	fixture->adapter = NULL;
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (getuid() == 0 && setuid(65534) != 0)
			_exit(77);
		_exit(try_open(path, false, error) == -EACCES && strstr(error, "the right to") ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void options_that_make_no_sense_are_refused(void **state)
{
	struct fixture *fixture = *state;
	struct file_adapter_options options[5] = { { .queue_depth = 1025 }, { .request_limit = 65537 },
		{ .io_threads = 17 }, { .object_limit = UINT32_MAX } };
	struct l2_adapter *adapter;
	char error[512];

	for (int i = 0; i < 4; i++) {
		options[i].directory = fixture->place.path;
		assert_int_equal(file_adapter_open(&options[i], &adapter, error, sizeof(error)), -EINVAL);
		assert_true(strlen(error) > 20);
	}
}

/* pitfalls H04 */
static void without_o_direct_the_page_cache_is_used_with_one_warning(void **state)
{
	struct fixture *fixture = *state;
	struct warnings warnings;

	fixture->adapter->driver->close(fixture->adapter);
	warnings_on(&warnings);
	fault_arm_name("file_place/no_direct", 1);
	fixture->adapter = place_open(&fixture->place, &fixture->options);
	warnings_off();
	assert_int_equal(warnings.count, 1);
	assert_non_null(strstr(warnings.last, "O_DIRECT"));
	assert_non_null(strstr(file_adapter_mode(fixture->adapter), "buffered"));
	assert_int_equal(do_store(fixture->adapter, 1, BYTES), 0);
	assert_int_equal(do_load(fixture->adapter, 1, BYTES), 0);
}

static void o_direct_that_is_refused_later_is_given_up_with_one_warning(void **state)
{
	struct fixture *fixture = *state;
	struct warnings warnings;

	if (!strstr(file_adapter_mode(fixture->adapter), "direct"))
		skip();
	assert_int_equal(do_store(fixture->adapter, 1, BYTES), 0);
	warnings_on(&warnings);
	fault_arm_name("file_io/open_no_direct", 1);
	assert_int_equal(do_load(fixture->adapter, 1, BYTES), 0);
	assert_int_equal(do_store(fixture->adapter, 2, BYTES), 0);
	warnings_off();
	assert_int_equal(warnings.count, 1);
	assert_non_null(strstr(file_adapter_mode(fixture->adapter), "buffered"));
}

static void without_io_uring_threads_do_the_work_with_one_warning(void **state)
{
	struct fixture *fixture = *state;
	struct warnings warnings;

	fixture->adapter->driver->close(fixture->adapter);
	warnings_on(&warnings);
	fault_arm_name("file_io/uring", 1);
	fixture->adapter = place_open(&fixture->place, &fixture->options);
	warnings_off();
#ifdef KVRAIL_HAVE_URING
	assert_int_equal(warnings.count, 1);
	assert_non_null(strstr(warnings.last, "io_uring"));
#endif
	assert_non_null(strstr(file_adapter_mode(fixture->adapter), "threads"));
	assert_int_equal(do_store(fixture->adapter, 1, BYTES), 0);
	assert_int_equal(do_load(fixture->adapter, 1, BYTES), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* What lies there is served. A group may be other servers' of the same tenants. */
static void a_directory_that_everybody_may_write_to_is_warned_of(void **state)
{
	struct file_adapter_options options = { 0 };
	struct l2_adapter *adapter;
	struct warnings warnings;
	struct place place;

	(void)state;
	for (unsigned open_to_all = 0; open_to_all < 2; open_to_all++) {
		place_make(&place);
		assert_int_equal(chmod(place.path, open_to_all ? 0777 : 0770), 0);
		warnings_on(&warnings);
		adapter = place_open(&place, &options);
		wait_scanned(adapter);
		warnings_off();
		assert_int_equal(warnings.last[0] && strstr(warnings.last, "everybody may write"), open_to_all);
		adapter->driver->close(adapter);
		place_remove(&place);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_directory_that_everybody_may_write_to_is_warned_of),
		CASE(one_flipped_bit_anywhere_in_a_file_is_a_miss),
		CASE(a_file_that_is_too_short_or_too_long_is_a_miss),
		CASE(two_files_that_were_swapped_are_both_misses),
		CASE(a_damaged_file_that_a_store_meets_makes_place),
		CASE(files_that_are_not_ours_are_left_alone),
		CASE(a_link_a_pipe_or_a_folder_in_an_objects_place_is_a_miss),
		CASE(a_folder_that_is_a_link_is_not_followed),
		CASE(a_directory_that_is_replaced_is_left_until_it_is_back),
		CASE(folders_that_were_removed_come_again),
		CASE(a_directory_that_cannot_be_used_is_refused_with_the_reason),
		CASE(a_directory_without_rights_is_refused_with_the_reason),
		CASE(options_that_make_no_sense_are_refused),
		CASE(without_o_direct_the_page_cache_is_used_with_one_warning),
		CASE(o_direct_that_is_refused_later_is_given_up_with_one_warning),
		CASE(without_io_uring_threads_do_the_work_with_one_warning),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
