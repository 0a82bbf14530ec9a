/* CLEAR of a directory: all, or the objects of some models; what is not ours stays. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cmocka_all.h"
#include "base/fault.h"
#include "tier/place.h"

#define OBJECTS 40u
#define BYTES 70000u

static int do_clear(struct l2_adapter *adapter, uint8_t (*keys)[32], uint32_t count)
{
	struct l2_request request;

	memset(&request, 0, sizeof(request));
	request.operation = L2_CLEAR;
	request.memory = keys;
	request.identity.bytes = (uint64_t)count * sizeof(*keys);
	return do_request(adapter, &request);
}

static void store_all(struct l2_adapter *adapter)
{
	for (uint32_t i = 0; i < OBJECTS; i++)
		assert_int_equal(do_store(adapter, i, BYTES), 0);
}

static void everything_goes_and_can_be_stored_again(void **state)
{
	struct file_adapter_options options = { .io_threads = 3, .exclusive = true };
	struct l2_adapter *adapter;
	struct place place;
	char foreign[PLACE_PATH + 32];
	int fd;

	(void)state;
	place_make(&place);
	adapter = place_open(&place, &options);
	wait_scanned(adapter);
	store_all(adapter);
	snprintf(foreign, sizeof(foreign), "%s/notes.txt", place.path);
	fd = open(foreign, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
	for (unsigned round = 0; round < 2; round++) {
		assert_int_equal(do_clear(adapter, NULL, 0), 0);
		assert_int_equal(place_count(&place, ".kvo", NULL), 0);
		assert_int_equal(stats_of(adapter).objects, 0);
		assert_int_equal(stats_of(adapter).bytes, 0);
		for (uint32_t i = 0; i < OBJECTS; i++)
			assert_int_equal(do_contains(adapter, i, BYTES), -ENOENT);
		store_all(adapter);
		for (uint32_t i = 0; i < OBJECTS; i++)
			assert_int_equal(do_load(adapter, i, BYTES), 0);
	}
	assert_int_equal(place_count(&place, "notes.txt", NULL), 1);
	adapter->driver->close(adapter);
	place_remove(&place);
}

/* Also those that another server has written. */
static void of_some_models_only(void **state)
{
	struct file_adapter_options options = { 0 };
	struct l2_adapter *adapter, *other;
	uint8_t keys[2][32];
	struct place place;

	(void)state;
	place_make(&place);
	adapter = place_open(&place, &options);
	wait_scanned(adapter);
	other = place_open(&place, &options);
	store_all(other);
	for (uint32_t i = 0; i < 2; i++) {
		struct l2_identity identity = object_identity(10 + i, BYTES);

		memcpy(keys[i], identity.model_key, sizeof(keys[i]));
	}
	keys[1][31] ^= 1;
	assert_int_equal(do_clear(adapter, keys, 2), 0);
	for (uint32_t i = 0; i < OBJECTS; i++) {
		struct l2_identity identity = object_identity(i, BYTES);
		bool goes = memcmp(identity.model_key, keys[0], sizeof(keys[0])) == 0;

		assert_int_equal(do_load(adapter, i, BYTES), goes ? -ENOENT : 0);
	}
	assert_true(place_count(&place, ".kvo", NULL) < OBJECTS);
	adapter->driver->close(adapter);
	other->driver->close(other);
	place_remove(&place);
}

static void what_cannot_be_removed_is_an_error(void **state)
{
	struct file_adapter_options options = { 0 };
	struct l2_adapter *adapter;
	struct warnings warnings;
	struct place place;

	(void)state;
	place_make(&place);
	adapter = place_open(&place, &options);
	wait_scanned(adapter);
	store_all(adapter);
	warnings_on(&warnings);
	fault_arm_name("file_clear/unlink", 3);
	assert_int_equal(do_clear(adapter, NULL, 0), -EIO);
	fault_arm(0);
	warnings_off();
	assert_int_equal(warnings.count, 2);
	assert_int_equal(place_count(&place, ".kvo", NULL), 1);
	assert_int_equal(stats_of(adapter).objects, 1);
	adapter->driver->close(adapter);
	options.read_only = true;
	adapter = place_open(&place, &options);
	wait_scanned(adapter);
	assert_int_equal(do_clear(adapter, NULL, 0), -EROFS);
	adapter->driver->close(adapter);
	place_remove(&place);
}

/* It is cut short, and neither waited for nor lost. */
static void closing_ends_it(void **state)
{
	struct file_adapter_options options = { .io_threads = 2 };
	struct l2_adapter *adapter;
	struct l2_request request;
	struct place place;

	(void)state;
	place_make(&place);
	adapter = place_open(&place, &options);
	wait_scanned(adapter);
	store_all(adapter);
	memset(&request, 0, sizeof(request));
	request.operation = L2_CLEAR;
	assert_int_equal(adapter->driver->submit(adapter, &request), 0);
	adapter->driver->close(adapter);
	place_remove(&place);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everything_goes_and_can_be_stored_again),
		cmocka_unit_test(of_some_models_only),
		cmocka_unit_test(what_cannot_be_removed_is_an_error),
		cmocka_unit_test(closing_ends_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
