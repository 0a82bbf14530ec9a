#include "app/kvraild/l2_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tier/file_adapter.h"

struct file_settings {
	uint64_t size, reserve;
	uint64_t load_rate, store_rate;
	uint32_t threads, depth;
	uint32_t sync;
	bool buffered, uring, read_only, exclusive;
};

#define AT(field) offsetof(struct file_settings, field)

static const struct option_spec specs[] = {
	{ "size", OPTION_SIZE, AT(size), 0, "0", "0", "16384TiB", "Place",
		"bytes that its files may take, the oldest go first; 0: what the file system has room for" },
	{ "reserve", OPTION_SIZE, AT(reserve), 0, "1GiB", "0", "16384TiB", "Place",
		"free space of the file system that is left to others" },
	{ "sync", OPTION_CHOICE, AT(sync), 0, "none", "none|data|all", NULL, "Place",
		"what is on the medium when an object counts as stored: nothing, its bytes, its name as well" },
	{ "threads", OPTION_U32, AT(threads), 0, "1", "1", "16", "Place", "threads that read and write" },
	{ "depth", OPTION_U32, AT(depth), 0, "32", "1", "1024", "Place", "requests that each has under way" },
	{ "load-rate", OPTION_SIZE, AT(load_rate), 0, "0", "0", "1024TiB", "Place",
		"bytes a second read at most; 0: no limit" },
	{ "store-rate", OPTION_SIZE, AT(store_rate), 0, "0", "0", "1024TiB", "Place",
		"bytes a second written at most; 0: no limit" },
	{ "buffered", OPTION_BOOL, AT(buffered), 0, "no", NULL, NULL, "Place",
		"through the page cache instead of O_DIRECT" },
	{ "uring", OPTION_BOOL, AT(uring), 0, "yes", NULL, NULL, "Place", "io_uring, where it is there" },
	{ "read-only", OPTION_BOOL, AT(read_only), 0, "no", NULL, NULL, "Place", "nothing is written or removed" },
	{ "exclusive", OPTION_BOOL, AT(exclusive), 0, "no", NULL, NULL, "Place",
		"no other server uses the directory: no file is looked for that is not known" },
};

static const struct option_table table = { "kvraild --l2 file:DIRECTORY", "a directory", "?name=value&...", specs,
	KVR_COUNT_OF(specs) };

static int file_check(const struct place *place, const void *settings, struct option_error *error)
{
	(void)settings;
	if (place->where[0] == '/')
		return 0;
	snprintf(error->text, sizeof(error->text), "--l2 file:%.200s: the directory is not named from / on",
		place->where);
	return -EINVAL;
}

static int file_open(const struct place *place, const void *opaque, const struct l1_area *areas, uint32_t area_count,
	struct l2_adapter **adapter, char *error, size_t error_size)
{
	const struct file_settings *settings = opaque;
	struct file_adapter_options options;

	(void)areas;
	(void)area_count;
	memset(&options, 0, sizeof(options));
	options.directory = place->where;
	options.capacity_bytes = settings->size;
	options.reserved_bytes = settings->reserve;
	options.load_bytes_per_second = settings->load_rate;
	options.store_bytes_per_second = settings->store_rate;
	options.queue_depth = settings->depth;
	options.io_threads = settings->threads;
	options.sync = (enum file_sync)settings->sync;
	options.buffered = settings->buffered;
	options.no_uring = !settings->uring;
	options.read_only = settings->read_only;
	options.exclusive = settings->exclusive;
	return file_adapter_open(&options, adapter, error, error_size);
}

const struct l2_kind l2_file_kind = { "file", &table, sizeof(struct file_settings), file_check, file_open };
