/* tiers.c - see tiers.h. */
#include <string.h>

#include "base/clock.h"
#include "base/cmocka_all.h"
#include "world/tiers.h"

static void tiers_begin(struct tiers *tiers)
{
	assert_int_equal(sim_adapter_open(&tiers->faults, tiers->place, &tiers->adapter), 0);
	tiers->l2.adapters[0] = tiers->adapter;
	tiers->l2.adapter_count = 1;
	slice_server_begin(&tiers->slice);
}

void tiers_init(struct tiers *tiers, uint64_t seed)
{
	struct slice_model model;

	memset(tiers, 0, sizeof(*tiers));
	tiers->faults.delay_min_ns = 1000;
	tiers->faults.delay_max_ns = 20 * KVR_US;
	assert_int_equal(sim_place_create(&tiers->place), 0);
	slice_prepare(&tiers->slice, seed, NULL, (uint64_t)ROOM * SLICE_SLOT_BYTES);
	tiers->l2.store_bytes_max = (uint64_t)ROOM * SLICE_OBJECT_BYTES;
	tiers->slice.options.l2 = &tiers->l2;
	tiers->slice.options.l2_deadline_ns = KVR_SECOND;
	tiers_begin(tiers);
	slice_model_default(&model);
	tiers->worker = &tiers->slice.clients[0];
	tiers->scheduler = &tiers->slice.clients[1];
	tiers->other = &tiers->slice.clients[2];
	slice_join_as(&tiers->slice, 0, 0, &model);
	model.scheduler = true;
	slice_join_as(&tiers->slice, 1, 0, &model);
	model.scheduler = false;
	slice_join_as(&tiers->slice, 2, 0, &model);
}

void tiers_rest(struct tiers *tiers)
{
	for (unsigned i = 0; i < 100000 && !l2_idle(server_l2(tiers->slice.server)); i++)
		slice_step(&tiers->slice);
	assert_true(l2_idle(server_l2(tiers->slice.server)));
}

void tiers_fini(struct tiers *tiers)
{
	slice_stop(&tiers->slice);
	assert_int_equal(sim_place_misuses(tiers->place), 0);
	sim_place_destroy(&tiers->place);
}

void tiers_store(struct tiers *tiers, uint32_t document, uint32_t mark)
{
	struct kvr_session *session = slice_session(tiers->worker, "store", NULL, document, DOCUMENT);
	struct slice_request request;

	assert_int_equal(slice_store(tiers->worker, session, 0, DOCUMENT, 0, mark, &request), 0);
	assert_int_equal(slice_end(tiers->worker, session), 0);
	slice_forget(&session);
	tiers_rest(tiers);
}

void tiers_read(struct tiers *tiers, uint32_t document, uint32_t mark, uint32_t expected)
{
	struct kvr_session *session = slice_session(tiers->worker, "read", NULL, document, DOCUMENT);
	struct slice_request request;

	assert_int_equal(slice_match(tiers->worker, session, 0), expected);
	if (expected) {
		assert_int_equal(slice_retrieve(tiers->worker, session, 0, expected, 0, &request), 0);
		for (uint32_t c = 0; c < expected; c++)
			assert_true(slice_delivered(tiers->worker, &request, c, mark));
	}
	assert_int_equal(slice_end(tiers->worker, session), 0);
	slice_forget(&session);
}

void tiers_delay(struct tiers *tiers, uint64_t min_ns, uint64_t max_ns)
{
	tiers->faults.delay_min_ns = min_ns;
	tiers->faults.delay_max_ns = max_ns;
	sim_adapter_set(tiers->adapter, &tiers->faults, false);
}

void tiers_restart(struct tiers *tiers)
{
	slice_server_kill(&tiers->slice);
	tiers_begin(tiers);
	slice_pass(&tiers->slice, 100 * KVR_MS);
	for (unsigned i = 0; i < 3; i++)
		slice_await_ready(&tiers->slice.clients[i]);
}

void tiers_limit(struct tiers *tiers, uint32_t store_queue, uint64_t store_bytes_max)
{
	tiers->l2.store_queue = store_queue;
	tiers->l2.store_bytes_max = store_bytes_max;
	tiers_restart(tiers);
}
