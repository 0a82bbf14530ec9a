/* The files of an L1 that is kept: whatever of them cannot be had is said, and leaves nothing half made. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "tier/keep_file.h"

#define AREA_BYTES (16 * L1_PAGE_BYTES)

struct place {
	char folder[64];
	struct l1_map_options areas[2];
	struct keep_file_options options;
};

static void place_make(struct place *place)
{
	memset(place, 0, sizeof(*place));
	strcpy(place->folder, "/tmp/kvrail-keep-XXXXXX");
	assert_non_null(mkdtemp(place->folder));
	for (unsigned i = 0; i < 2; i++) {
		place->areas[i].bytes = AREA_BYTES;
		place->areas[i].numa_node = -1;
		place->areas[i].threads = 1;
	}
	place->options.directory = place->folder;
	place->options.areas = place->areas;
	place->options.area_count = 2;
	place->options.chunk_tokens = 256;
	place->options.any_file_system = true;
}

static void place_remove(struct place *place)
{
	static const char *const names[] = { "index", "l1.0", "l1.1" };
	char path[96];

	for (unsigned i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%s", place->folder, names[i]);
		unlink(path);
	}
	assert_int_equal(rmdir(place->folder), 0);
}

static void each_call_that_fails_once_is_an_error_and_the_next_start_is_good(void **state)
{
	struct keep_file file;
	struct place place;
	unsigned failures = 0;

	(void)state;
	for (uint64_t nth = 1;; nth++) {
		bool passed;
		int error;

		place_make(&place);
		fault_arm(nth);
		error = keep_file_open(&place.options, &file);
		passed = fault_fired() == NULL;
		fault_arm(0);
		if (!error) {
			keep_file_close(&file);
			place_remove(&place);
			/* Memory that cannot be locked is only a warning. */
			if (passed)
				break;
			continue;
		}
		failures++;
		assert_int_equal(file.index_fd, -1);
		assert_int_equal(keep_file_open(&place.options, &file), 0);
		assert_int_equal(keep_objects(file.keep), 0);
		keep_file_close(&file);
		place_remove(&place);
	}
	assert_true(failures >= 6);
}

static void a_link_in_the_place_of_a_file_is_not_followed(void **state)
{
	struct keep_file file;
	struct place place;
	char path[96];

	(void)state;
	place_make(&place);
	snprintf(path, sizeof(path), "%s/index", place.folder);
	assert_int_equal(symlink("/tmp/kvrail-keep-elsewhere", path), 0);
	assert_int_equal(keep_file_open(&place.options, &file), -ELOOP);
	unlink(path);
	snprintf(path, sizeof(path), "%s/l1.1", place.folder);
	assert_int_equal(symlink("/tmp/kvrail-keep-elsewhere", path), 0);
	assert_int_equal(keep_file_open(&place.options, &file), -ELOOP);
	place_remove(&place);
	assert_int_not_equal(access("/tmp/kvrail-keep-elsewhere", F_OK), 0);
}

static void a_file_of_l1_that_was_cut_is_refused(void **state)
{
	struct keep_file file;
	struct place place;
	char path[96];

	(void)state;
	place_make(&place);
	assert_int_equal(keep_file_open(&place.options, &file), 0);
	keep_file_close(&file);
	snprintf(path, sizeof(path), "%s/l1.1", place.folder);
	assert_int_equal(truncate(path, AREA_BYTES / 2), 0);
	assert_int_equal(keep_file_open(&place.options, &file), -ESTALE);
	place.areas[1].bytes = AREA_BYTES / 2;
	assert_int_equal(keep_file_open(&place.options, &file), -ESTALE);
	place_remove(&place);
}

static off_t size_of(const struct place *place, const char *name)
{
	struct stat status;
	char path[96];

	snprintf(path, sizeof(path), "%s/%s", place->folder, name);
	return stat(path, &status) == 0 ? status.st_size : -1;
}

static void a_first_start_that_failed_takes_no_memory_and_another_size_can_follow(void **state)
{
	struct keep_file file;
	struct place place;
	unsigned failures = 0;

	(void)state;
	for (uint64_t nth = 1;; nth++) {
		const char *fired;
		int error;

		place_make(&place);
		fault_arm(nth);
		error = keep_file_open(&place.options, &file);
		fired = fault_fired();
		fault_arm(0);
		if (!error) {
			keep_file_close(&file);
			place_remove(&place);
			if (!fired)
				break;
			continue;
		}
		failures++;
		assert_true(size_of(&place, "index") <= 0);
		assert_true(size_of(&place, "l1.0") <= 0);
		assert_true(size_of(&place, "l1.1") <= 0);
		place.areas[0].bytes = place.areas[1].bytes = AREA_BYTES / 2;
		assert_int_equal(keep_file_open(&place.options, &file), 0);
		keep_file_close(&file);
		place_remove(&place);
	}
	assert_true(failures >= 6);
}

/* A control group without room kills who takes more; so does a machine. */
static void more_than_the_memory_there_is_is_refused_before_any_is_taken(void **state)
{
	struct keep_file file;
	struct place place;

	(void)state;
	place_make(&place);
	place.areas[1].bytes = UINT64_C(8) << 40;
	assert_int_equal(keep_file_open(&place.options, &file), -ENOMEM);
	assert_true(size_of(&place, "index") <= 0);
	assert_true(size_of(&place, "l1.0") <= 0);
	place.areas[1].bytes = AREA_BYTES;
	assert_int_equal(keep_file_open(&place.options, &file), 0);
	keep_file_close(&file);
	place_remove(&place);
}

/* As a server leaves it that is killed while it allocates: an index of its size without a head. */
static void an_index_without_a_head_is_none_whatever_its_size(void **state)
{
	struct keep_file file;
	struct place place;
	char path[96];

	(void)state;
	place_make(&place);
	snprintf(path, sizeof(path), "%s/index", place.folder);
	fclose(fopen(path, "w"));
	assert_int_equal(truncate(path, 1 << 20), 0);
	assert_int_equal(keep_file_open(&place.options, &file), 0);
	assert_int_equal(keep_objects(file.keep), 0);
	keep_file_close(&file);
	assert_int_equal(keep_file_open(&place.options, &file), 0);
	keep_file_close(&file);
	place_remove(&place);
}

static void a_file_of_somebody_else_is_refused_and_left_alone(void **state)
{
	struct keep_file file;
	struct place place;
	char path[96], line[16] = "";
	FILE *index;

	(void)state;
	place_make(&place);
	snprintf(path, sizeof(path), "%s/index", place.folder);
	index = fopen(path, "w");
	assert_non_null(index);
	fputs("of a library", index);
	fclose(index);
	assert_int_equal(keep_file_open(&place.options, &file), -ESTALE);
	assert_int_equal(truncate(path, 1 << 20), 0);
	assert_int_equal(keep_file_open(&place.options, &file), -ESTALE);
	index = fopen(path, "r");
	assert_non_null(index);
	assert_non_null(fgets(line, sizeof(line), index));
	fclose(index);
	assert_memory_equal(line, "of a library", 12);
	place_remove(&place);
}

static void an_allocation_that_a_signal_interrupts_goes_on_unless_the_server_leaves(void **state)
{
	struct keep_file file;
	struct place place;
	unsigned interrupted = 0;
	int stop = 0;

	(void)state;
	for (uint64_t nth = 1; nth < 200; nth++) {
		const char *fired;
		int error;

		for (stop = 0; stop < 2; stop++) {
			place_make(&place);
			place.areas[0].stop = place.areas[1].stop = &stop;
			fault_arm(nth);
			error = keep_file_open(&place.options, &file);
			fired = fault_fired();
			fault_arm(0);
			if (!error)
				keep_file_close(&file);
			if (fired && strcmp(fired, "keep_file/interrupted") == 0) {
				interrupted++;
				assert_int_equal(error, stop ? -EINTR : 0);
			}
			place_remove(&place);
		}
	}
	assert_true(interrupted >= 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_first_start_that_failed_takes_no_memory_and_another_size_can_follow),
		cmocka_unit_test(more_than_the_memory_there_is_is_refused_before_any_is_taken),
		cmocka_unit_test(an_index_without_a_head_is_none_whatever_its_size),
		cmocka_unit_test(a_file_of_somebody_else_is_refused_and_left_alone),
		cmocka_unit_test(an_allocation_that_a_signal_interrupts_goes_on_unless_the_server_leaves),
		cmocka_unit_test(each_call_that_fails_once_is_an_error_and_the_next_start_is_good),
		cmocka_unit_test(a_link_in_the_place_of_a_file_is_not_followed),
		cmocka_unit_test(a_file_of_l1_that_was_cut_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
