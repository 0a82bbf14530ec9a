#include "tier/place.h"

#include <dirent.h>
#include <ftw.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "tier/file_format.h"

#define GUARD 64

void place_make(struct place *place)
{
	const char *base = getenv("TMPDIR");

	snprintf(place->path, sizeof(place->path), "%.200s/kvrail-place-XXXXXX", base && *base ? base : "/tmp");
	assert_non_null(mkdtemp(place->path));
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *where)
{
	(void)about;
	(void)kind;
	(void)where;
	return remove(path);
}

void place_remove(struct place *place)
{
	nftw(place->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static uint32_t count_in(const char *path, const char *suffix, uint64_t *bytes)
{
	DIR *entries = opendir(path);
	const struct dirent *entry;
	uint32_t count = 0;
	struct stat about;

	if (!entries)
		return 0;
	while ((entry = readdir(entries)) != NULL) {
		char inner[4 * PLACE_PATH];
		size_t length = strlen(entry->d_name), wanted = strlen(suffix);

		if (entry->d_name[0] == '.')
			continue;
		snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name);
		if (lstat(inner, &about) != 0)
			continue;
		if (S_ISDIR(about.st_mode)) {
			count += count_in(inner, suffix, bytes);
		} else if (length >= wanted && strcmp(entry->d_name + length - wanted, suffix) == 0) {
			count++;
			if (bytes)
				*bytes += (uint64_t)about.st_size;
		}
	}
	closedir(entries);
	return count;
}

uint32_t place_count(const struct place *place, const char *suffix, uint64_t *bytes)
{
	if (bytes)
		*bytes = 0;
	return count_in(place->path, suffix, bytes);
}

void place_file(const struct place *place, const struct l2_identity *identity, char out[2 * PLACE_PATH])
{
	char path[FILE_PATH_BYTES];
	struct digester digester;
	struct file_name name;

	assert_int_equal(digester_init(&digester), 0);
	file_name_make(&digester, identity, &name);
	file_name_path(&name, path);
	digester_fini(&digester);
	snprintf(out, 2 * PLACE_PATH, "%s/%s", place->path, path);
}

struct l2_identity object_identity(uint32_t number, uint64_t bytes)
{
	struct l2_identity identity = { .part = number % 3, .bytes = bytes };

	for (int i = 0; i < 32; i += 8) {
		uint64_t word = random_mix((uint64_t)number << 8 | (uint64_t)i);

		memcpy(identity.digest + i, &word, 8);
		word = random_mix(word);
		memcpy(identity.model_key + i, &word, 8);
	}
	return identity;
}

void object_fill(uint32_t number, void *memory, uint64_t bytes)
{
	uint8_t *to = memory;

	for (uint64_t i = 0; i < bytes; i += 8) {
		uint64_t word = random_mix((uint64_t)number << 32 | i / 8);

		memcpy(to + i, &word, bytes - i < 8 ? bytes - i : 8);
	}
}

bool object_good(uint32_t number, const void *memory, uint64_t bytes)
{
	const uint8_t *from = memory;

	for (uint64_t i = 0; i < bytes; i += 8) {
		uint64_t word = random_mix((uint64_t)number << 32 | i / 8);

		if (memcmp(from + i, &word, bytes - i < 8 ? bytes - i : 8) != 0)
			return false;
	}
	return true;
}

struct l2_adapter *place_open(const struct place *place, struct file_adapter_options *options)
{
	struct l2_adapter *adapter;
	char error[512] = "";

	options->directory = place->path;
	if (file_adapter_open(options, &adapter, error, sizeof(error)) != 0)
		fail_msg("%s", error);
	return adapter;
}

int do_request(struct l2_adapter *adapter, struct l2_request *request)
{
	struct list_node ended;

	list_init(&ended);
	assert_int_equal(adapter->driver->submit(adapter, request), 0);
	while (adapter->driver->poll(adapter, &ended, 1) == 0)
		sched_yield();
	assert_ptr_equal(list_pop_first(&ended), &request->node);
	return request->status;
}

/* Not aligned to a block for odd numbers: as L1 is, at least to a cache line. */
static uint8_t *object_memory(uint32_t number, uint64_t bytes, void **whole)
{
	size_t size = kvr_round_up(bytes + 3 * GUARD, 4096) + 4096;

	*whole = aligned_alloc(4096, size);
	assert_non_null(*whole);
	memset(*whole, 0xa5, size);
	return (uint8_t *)*whole + (number % 2 ? GUARD : 4096);
}

int do_store(struct l2_adapter *adapter, uint32_t number, uint64_t bytes)
{
	struct l2_request request = { .operation = L2_STORE, .identity = object_identity(number, bytes) };
	void *whole;
	int status;

	request.memory = object_memory(number, bytes, &whole);
	object_fill(number, request.memory, bytes);
	status = do_request(adapter, &request);
	assert_true(object_good(number, request.memory, bytes));
	free(whole);
	return status;
}

int do_load(struct l2_adapter *adapter, uint32_t number, uint64_t bytes)
{
	struct l2_request request = { .operation = L2_LOAD, .identity = object_identity(number, bytes) };
	uint8_t *memory;
	void *whole;
	int status;

	memory = object_memory(number, bytes, &whole);
	request.memory = memory;
	status = do_request(adapter, &request);
	if (status == 0)
		assert_true(object_good(number, memory, bytes));
	for (int i = 1; i <= GUARD; i++) {
		assert_int_equal(memory[-i], 0xa5);
		assert_int_equal(memory[bytes + (uint64_t)i - 1], 0xa5);
	}
	free(whole);
	return status;
}

int do_contains(struct l2_adapter *adapter, uint32_t number, uint64_t bytes)
{
	struct l2_request request = { .operation = L2_CONTAINS, .identity = object_identity(number, bytes) };

	return do_request(adapter, &request);
}

int do_remove(struct l2_adapter *adapter, uint32_t number, uint64_t bytes)
{
	struct l2_request request = { .operation = L2_REMOVE, .identity = object_identity(number, bytes) };

	return do_request(adapter, &request);
}

struct l2_stats stats_of(struct l2_adapter *adapter)
{
	struct l2_stats stats;

	adapter->driver->get_stats(adapter, &stats);
	return stats;
}

void wait_scanned(struct l2_adapter *adapter)
{
	while (stats_of(adapter).scanning)
		sched_yield();
}

static void take_line(void *context, enum log_level level, const char *line)
{
	struct warnings *warnings = context;

	if (level > LOG_WARN)
		return;
	/* From I/O threads too: the reader looks after the request that caused it has ended. */
	__atomic_add_fetch(&warnings->count, 1, __ATOMIC_ACQ_REL);
	text_copy(warnings->last, sizeof(warnings->last), line);
}

void warnings_on(struct warnings *warnings)
{
	memset(warnings, 0, sizeof(*warnings));
	log_set_sink(take_line, warnings);
}

void warnings_off(void)
{
	log_set_sink(NULL, NULL);
}
