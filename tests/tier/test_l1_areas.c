/* Several areas, as on several NUMA nodes: near first, the nearest of the others when that is full, and who makes room. */
#include "tier/l1_numa.h"
#include "tier/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cmocka_all.h"
#include "base/fault.h"
#include "base/log.h"
#include "tier/l1_map.h"

#define PAGE L1_PAGE_BYTES
#define AREAS 4
#define SLOTS 4 /* of an area, an object a page */

/* Nodes 0 and 1 on one socket, 2 and 3 on the other. */
static const uint16_t distances[AREAS * AREAS] = { 10, 12, 21, 21, 12, 10, 21, 21, 21, 21, 10, 12, 21, 21, 12, 10 };

static struct l1 *make(struct l1_area *areas, uint32_t count, uint32_t *object_class)
{
	struct l1 *l1;

	for (uint32_t i = 0; i < count; i++) {
		areas[i] = area_reserve(SLOTS * PAGE);
		areas[i].numa_node = (int)i;
	}
	assert_int_equal(l1_create(areas, count, &l1), 0);
	assert_int_equal(l1_class_acquire(l1, PAGE, object_class), 0);
	return l1;
}

static void give_back(struct l1 **l1, struct l1_area *areas, uint32_t count)
{
	assert_int_equal(l1_verify(*l1), 0);
	l1_destroy(l1);
	for (uint32_t i = 0; i < count; i++)
		area_release(&areas[i]);
}

/* The areas of the next `count` objects that prefer `area`, as digits. */
static void assert_areas(struct l1 *l1, uint32_t object_class, uint32_t area, const char *expected)
{
	char got[64] = "";

	for (size_t i = 0; i < strlen(expected); i++) {
		l1_ref object = l1_allocate(l1, object_class, area, 1);

		got[i] = object ? (char)('0' + l1_area_of(l1, object)) : '-';
	}
	assert_string_equal(got, expected);
}

static void objects_go_to_the_near_area_and_then_to_the_next_nearest(void **state)
{
	struct l1_area areas[AREAS];
	struct l1_area_stats stats;
	uint32_t object_class;
	struct l1 *l1 = make(areas, AREAS, &object_class);

	(void)state;
	l1_set_distances(l1, distances);
	assert_areas(l1, object_class, 3, "333322220000");
	assert_areas(l1, object_class, 0, "1111-");
	for (uint32_t i = 0; i < AREAS; i++) {
		l1_get_area_stats(l1, i, &stats);
		assert_int_equal(stats.numa_node, i);
		assert_true(stats.used_bytes == SLOTS * PAGE && stats.free_page_bytes == 0);
	}
	give_back(&l1, areas, AREAS);
	l1 = make(areas, AREAS, &object_class);
	l1_set_distances(l1, distances);
	assert_areas(l1, object_class, 1, "11110000222233");
	l1_get_area_stats(l1, 3, &stats);
	assert_true(stats.total_bytes == SLOTS * PAGE && stats.used_bytes == 2 * PAGE &&
		stats.free_page_bytes == (SLOTS - 2) * PAGE);
	give_back(&l1, areas, AREAS);
	/* Without distances in the order of their numbers; an area that there is not is the first. */
	l1 = make(areas, AREAS, &object_class);
	assert_int_equal(l1_area_count(l1), AREAS);
	assert_areas(l1, object_class, 2, "22220000");
	assert_areas(l1, object_class, 7, "1");
	give_back(&l1, areas, AREAS);
}

static void what_is_freed_in_the_near_area_is_used_again_first(void **state)
{
	struct l1_area areas[2];
	uint32_t object_class;
	struct l1 *l1 = make(areas, 2, &object_class);
	l1_ref near;

	(void)state;
	near = l1_allocate(l1, object_class, 1, 1);
	assert_areas(l1, object_class, 1, "11100");
	l1_free(l1, near);
	assert_areas(l1, object_class, 1, "100-");
	give_back(&l1, areas, 2);
}

struct cached {
	struct l1_area areas[2];
	struct store store;
};

static void open_cache(struct cached *cached)
{
	struct cache_options options = {
		.spaces_max = 8, .chunks_initial = 64, .high_permille = 1000, .low_permille = 1000
	};

	memset(cached, 0, sizeof(*cached));
	cached->store.l1 = make(cached->areas, 2, &cached->store.object_class);
	options.l1 = cached->store.l1;
	assert_int_equal(cache_create(&options, &cached->store.cache), 0);
	cached->store.space = store_space(&cached->store, 1, 0, 1);
}

static void close_cache(struct cached *cached)
{
	assert_int_equal(cache_verify(cached->store.cache, true), 0);
	cache_destroy(&cached->store.cache);
	give_back(&cached->store.l1, cached->areas, 2);
}

/* Published from an area; where it came to lie. */
static uint32_t put(struct cached *cached, uint64_t chunk, uint32_t area)
{
	l1_ref object = cache_reserve(cached->store.cache, 0, cached->store.object_class, area, 1);
	uint8_t digest[CACHE_DIGEST_BYTES];
	uint32_t entry;

	assert_true(object != 0);
	store_digest(chunk, digest);
	assert_int_equal(cache_publish(cached->store.cache, cached->store.space, digest, 0, object, &entry), 0);
	return l1_area_of(cached->store.l1, object);
}

static bool is_there(struct cached *cached, uint64_t chunk)
{
	return store_find(&cached->store, cached->store.space, chunk) != CACHE_NONE;
}

/* Of the eight oldest the oldest one near gives way: a store stays near, and order suffers little. */
static void room_is_made_in_the_near_area_among_the_oldest(void **state)
{
	struct cached cached;

	(void)state;
	open_cache(&cached);
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(put(&cached, i, 0), 0);
	for (uint64_t i = 4; i < 8; i++)
		assert_int_equal(put(&cached, i, 1), 1);
	assert_int_equal(put(&cached, 8, 1), 1);
	assert_true(is_there(&cached, 0) && !is_there(&cached, 4));
	assert_int_equal(put(&cached, 9, 0), 0);
	assert_false(is_there(&cached, 0));
	/* Those of the near area are in use: what is oldest elsewhere gives way. */
	for (uint64_t i = 5; i < 9; i++)
		cache_pin(cached.store.cache, store_find(&cached.store, cached.store.space, i));
	assert_int_equal(put(&cached, 10, 1), 0);
	assert_false(is_there(&cached, 1));
	for (uint64_t i = 5; i < 9; i++)
		cache_unpin(cached.store.cache, store_find(&cached.store, cached.store.space, i));
	close_cache(&cached);
}

/* pitfalls M07 */
static void available_memory_of_a_node_is_read_from_its_books(void **state)
{
	char root[] = "/tmp/kvrail-test-XXXXXX", path[256], command[64];
	FILE *file;

	(void)state;
	assert_non_null(mkdtemp(root));
	assert_true(l1_numa_available(root, 1) == UINT64_MAX);
	for (size_t i = 0; i < 5; i++) {
		static const char *const folders[] = { "sys", "sys/devices", "sys/devices/system",
			"sys/devices/system/node", "sys/devices/system/node/node1" };

		snprintf(path, sizeof(path), "%s/%s", root, folders[i]);
		assert_int_equal(mkdir(path, 0700), 0);
	}
	snprintf(path, sizeof(path), "%s/sys/devices/system/node/node1/meminfo", root);
	file = fopen(path, "we");
	assert_non_null(file);
	fputs("Node 1 MemTotal:       8000 kB\nNode 1 MemFree:        1000 kB\nNode 1 Inactive(anon):  700 kB\n"
	      "Node 1 Inactive(file):  200 kB\nNode 1 SReclaimable:     30 kB\n",
		file);
	fclose(file);
	assert_int_equal(l1_numa_available(root, 1), 1230 * 1024);
	snprintf(command, sizeof(command), "rm -r %s", root);
	assert_int_equal(system(command), 0);
}

static void keep_line(void *context, enum log_level level, const char *line)
{
	if (level <= LOG_WARN)
		snprintf(context, 512, "%s", line);
}

/* On this machine's first node, which every machine has; the kernel may refuse to tell (some containers), which is no failure. */
static void memory_is_bound_and_then_looked_at(void **state)
{
	struct l1_map_options options = { .bytes = 4U << 20, .numa_node = 0, .threads = 2 };
	struct l1_numa_sample sample;
	struct l1_mapping mapping;
	char line[512] = "";

	(void)state;
	log_set_sink(keep_line, line);
	assert_int_equal(l1_map_area(&options, &mapping), 0);
	if (mapping.numa_node < 0 || mapping.pages_sampled == 0) {
		l1_unmap(&mapping);
		log_set_sink(NULL, NULL);
		skip();
	}
	assert_int_equal(mapping.pages_sampled, mapping.pages_on_node);
	assert_true(mapping.touch_threads >= 1 && mapping.touch_threads <= 2);
	/* Asked about a node where they are not. */
	assert_int_equal(l1_numa_sample(mapping.address, mapping.bytes, 4096, 5, &sample), 0);
	assert_true(sample.sampled > 0 && sample.on_node == 0 && sample.elsewhere == sample.sampled);
	l1_unmap(&mapping);
	/* A refused binding is said, and the memory is there all the same. */
	line[0] = '\0';
	fault_arm_name("l1_numa/bind", 1);
	assert_int_equal(l1_map_area(&options, &mapping), 0);
	fault_arm(0);
	assert_int_equal(mapping.numa_node, -1);
	assert_non_null(strstr(line, "cannot be bound to NUMA node 0"));
	l1_unmap(&mapping);
	fault_arm_name("l1_numa/sample", 1);
	assert_int_equal(l1_map_area(&options, &mapping), 0);
	fault_arm(0);
	assert_int_equal(mapping.pages_sampled, 0);
	l1_unmap(&mapping);
	log_set_sink(NULL, NULL);
}

struct helpers {
	unsigned begun;
	unsigned told;
};

static void begin(void *context, unsigned thread)
{
	struct helpers *helpers = context;

	(void)thread;
	__atomic_fetch_add(&helpers->begun, 1, __ATOMIC_RELAXED);
}

static void threads_that_touch_are_told_where_to_go(void **state)
{
	struct helpers helpers = { 0, 0 };
	struct l1_map_options options = {
		.bytes = 8U << 20, .numa_node = -1, .threads = 3, .thread_begin = begin, .context = &helpers
	};
	struct l1_mapping mapping;
	unsigned char resident[2048];

	(void)state;
	assert_int_equal(l1_map_area(&options, &mapping), 0);
	assert_int_equal(helpers.begun, 3);
	assert_int_equal(mapping.touch_threads, 3);
	assert_true(mapping.huge_bytes <= mapping.bytes);
	assert_int_equal(mincore(mapping.address, 8U << 20, resident), 0);
	for (size_t i = 0; i < sizeof(resident); i++)
		assert_true(resident[i] & 1);
	l1_unmap(&mapping);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(objects_go_to_the_near_area_and_then_to_the_next_nearest),
		cmocka_unit_test(what_is_freed_in_the_near_area_is_used_again_first),
		cmocka_unit_test(room_is_made_in_the_near_area_among_the_oldest),
		cmocka_unit_test(available_memory_of_a_node_is_read_from_its_books),
		cmocka_unit_test(memory_is_bound_and_then_looked_at),
		cmocka_unit_test(threads_that_touch_are_told_where_to_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
