/* test_areas.c - L1 on two NUMA nodes that are made up: chunks lie near the worker that moves them, and elsewhere when that is full. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "world/slice.h"

#define AREA_BYTES (2 * L1_PAGE_BYTES)
#define AREA_OBJECTS ((uint32_t)(AREA_BYTES / SLICE_SLOT_BYTES))

static struct slice slice;
static struct slice_request request;
static struct l1_area areas[2];
static const uint16_t distances[] = { 10, 21, 21, 10 };

/* Two workers, each with an area of its own; clients are shared out between the workers in turn. */
static void begin(uint64_t seed)
{
	slice_prepare(&slice, seed, NULL, L1_PAGE_BYTES);
	for (unsigned i = 0; i < 2; i++) {
		areas[i].address = aligned_alloc(65536, AREA_BYTES);
		assert_non_null(areas[i].address);
		areas[i].bytes = AREA_BYTES;
		areas[i].numa_node = (int)i;
		slice.options.worker_areas[i] = i;
	}
	slice.options.worker_count = 2;
	slice.options.areas = areas;
	slice.options.area_count = 2;
	slice.options.area_distances = distances;
	slice_server_begin(&slice);
	for (unsigned i = 0; i < 2; i++)
		slice_join(&slice, i, "model", 1, 0);
}

static void end(void)
{
	assert_int_equal(server_verify(slice.server, false), 0);
	slice_stop(&slice);
	for (unsigned i = 0; i < 2; i++)
		free(areas[i].address);
}

static uint64_t objects_in(uint32_t area)
{
	struct l1_area_stats stats;

	l1_get_area_stats(server_l1(slice.server), area, &stats);
	return stats.used_bytes / SLICE_OBJECT_BYTES;
}

static void store(unsigned client, uint32_t document, uint32_t chunks)
{
	char id[16];
	struct kvr_session *session;

	snprintf(id, sizeof(id), "d%u", document);
	session = slice_session(&slice.clients[client], id, NULL, document, chunks);
	assert_int_equal(slice_store(&slice.clients[client], session, 0, chunks, 0, document, &request), 0);
	slice_outcomes_are(&request, KVR_STORED);
	assert_int_equal(slice_end(&slice.clients[client], session), 0);
	slice_forget(&session);
}

static void check(unsigned client, uint32_t document, uint32_t chunks)
{
	struct kvr_session *session = slice_session(&slice.clients[client], "check", NULL, document, chunks);

	assert_int_equal(slice_match(&slice.clients[client], session, 0), chunks);
	assert_int_equal(slice_retrieve(&slice.clients[client], session, 0, chunks, 128, &request), 0);
	for (uint32_t c = 0; c < chunks; c++)
		assert_true(slice_delivered(&slice.clients[client], &request, c, document));
	assert_int_equal(slice_end(&slice.clients[client], session), 0);
	slice_forget(&session);
}

static void chunks_lie_near_the_worker_that_moves_them(void **state)
{
	(void)state;
	begin(71);
	store(0, 1, 5);
	assert_true(objects_in(0) == 5 && objects_in(1) == 0);
	store(1, 2, 7);
	assert_true(objects_in(0) == 5 && objects_in(1) == 7);
	assert_int_equal(slice_counters(&slice)->store_far_chunks_total, 0);
	/* Each reads what the other wrote. */
	check(0, 2, 7);
	check(1, 1, 5);
	end();
}

static void a_full_near_area_spills_into_the_other_and_that_is_counted(void **state)
{
	(void)state;
	begin(72);
	for (uint32_t document = 1; document <= 3; document++)
		store(1, document, AREA_OBJECTS / 2);
	assert_int_equal(objects_in(1), AREA_OBJECTS);
	assert_int_equal(objects_in(0), AREA_OBJECTS / 2);
	assert_int_equal(slice_counters(&slice)->store_far_chunks_total, AREA_OBJECTS / 2);
	for (uint32_t document = 1; document <= 3; document++)
		check(0, document, AREA_OBJECTS / 2);
	/* Both are full: what comes takes the place of what is oldest, and all that is there is right. */
	for (uint32_t document = 4; document <= 12; document++) {
		store(document % 2, document, AREA_OBJECTS / 2);
		check((document + 1) % 2, document, AREA_OBJECTS / 2);
	}
	assert_true(objects_in(0) + objects_in(1) <= 2 * AREA_OBJECTS);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chunks_lie_near_the_worker_that_moves_them),
		cmocka_unit_test(a_full_near_area_spills_into_the_other_and_that_is_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
