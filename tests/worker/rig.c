#include "worker/rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "verbs/sim/sim.h"

#define GUARD 0xa5
#define GUARD_BYTES 64

/* The shim has no context of its own. One rig at a time. */
static struct rig *shim_rig;
static int (*real_post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);

/* ---- the shim --------------------------------------------------------------------------------------------------- */

static void look_at(struct rig *rig, const struct ibv_send_wr *wr)
{
	rig->work_requests++;
	rig->signalled += (wr->send_flags & IBV_SEND_SIGNALED) != 0;
	if ((uint64_t)wr->num_sge > rig->widest)
		rig->widest = (uint64_t)wr->num_sge;
}

/* Posts a chain up to the work request that it refuses, as a device does. */
static int shim_post_send(struct ibv_qp *qp, struct ibv_send_wr *first, struct ibv_send_wr **bad)
{
	struct rig *rig = shim_rig;
	struct ibv_send_wr *last = NULL;
	int error = 0;

	rig->posts++;
	for (struct ibv_send_wr *wr = first; wr; last = wr, wr = wr->next) {
		look_at(rig, wr);
		if (!random_chance(&rig->random, rig->refuse_per_thousand, 1000))
			continue;
		rig->refused++;
		if (last) {
			last->next = NULL;
			error = real_post_send(qp, first, bad);
			last->next = wr;
		}
		rig->device_errors += error != 0;
		if (error)
			return error;
		*bad = wr;
		return rig->refuse_error;
	}
	error = real_post_send(qp, first, bad);
	rig->device_errors += error != 0;
	return error;
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

static uint8_t pattern(uint8_t salt, uint32_t plane, uint32_t position, uint32_t i)
{
	return (uint8_t)random_mix(salt + ((uint64_t)plane << 8) + ((uint64_t)position << 16) + ((uint64_t)i << 32));
}

uint8_t *rig_object(const struct rig *rig, uint32_t chunk)
{
	return rig->l1 + chunk * rig->object_distance;
}

uint8_t *rig_block(const struct rig_client *client, uint32_t plane, uint32_t block)
{
	return client->memory + RIG_PLACES * RIG_MESSAGE_MAX +
		((uint64_t)plane * RIG_BLOCKS + block) * client->rig->options.block_stride;
}

void rig_fill_object(struct rig *rig, uint32_t chunk, uint8_t salt)
{
	uint32_t bytes = rig->options.block_bytes;

	for (uint32_t plane = 0; plane < RIG_PLANES; plane++)
		for (uint32_t b = 0; b < RIG_CHUNK_BLOCKS; b++)
			for (uint32_t i = 0; i < bytes; i++)
				rig_object(rig, chunk)[(plane * RIG_CHUNK_BLOCKS + b) * bytes + i] = pattern(
					salt, plane, b, i);
}

void rig_fill_block(struct rig_client *client, uint32_t block, uint32_t position, uint8_t salt)
{
	for (uint32_t plane = 0; plane < RIG_PLANES; plane++)
		for (uint32_t i = 0; i < client->rig->options.block_bytes; i++)
			rig_block(client, plane, block)[i] = pattern(salt, plane, position, i);
}

void rig_assert_block(const struct rig_client *client, uint32_t block, uint32_t position, uint8_t salt)
{
	for (uint32_t plane = 0; plane < RIG_PLANES; plane++)
		for (uint32_t i = 0; i < client->rig->options.block_bytes; i++)
			if (rig_block(client, plane, block)[i] != pattern(salt, plane, position, i))
				fail_msg("block %u, plane %u, byte %u differs", block, plane, i);
}

void rig_assert_object(const struct rig *rig, uint32_t chunk, uint8_t salt)
{
	uint32_t bytes = rig->options.block_bytes;

	for (uint32_t plane = 0; plane < RIG_PLANES; plane++)
		for (uint32_t b = 0; b < RIG_CHUNK_BLOCKS; b++)
			for (uint32_t i = 0; i < bytes; i++)
				if (rig_object(rig, chunk)[(plane * RIG_CHUNK_BLOCKS + b) * bytes + i] !=
					pattern(salt, plane, b, i))
					fail_msg("object %u, plane %u, block %u, byte %u differs", chunk, plane, b, i);
}

void rig_assert_guards(const struct rig *rig)
{
	for (uint32_t chunk = 0; chunk < RIG_CHUNKS; chunk++)
		for (uint32_t i = 0; i < GUARD_BYTES; i++)
			if (rig_object(rig, chunk)[rig->object_bytes + i] != GUARD)
				fail_msg("the guard behind object %u was written to", chunk);
	for (unsigned c = 0; c < RIG_CLIENTS; c++) {
		const struct rig_client *client = &rig->clients[c];
		uint32_t gap = rig->options.block_stride - rig->options.block_bytes;

		for (uint32_t block = 0; client->open && !client->killed && block < RIG_PLANES * RIG_BLOCKS; block++)
			for (uint32_t i = 0; i < gap; i++)
				if (rig_block(client, 0, block)[rig->options.block_bytes + i] != RIG_POISON)
					fail_msg("the gap behind block %u was written to", block);
	}
}

/* ---- start and stop --------------------------------------------------------------------------------------------- */

void rig_options_default(struct rig_options *options)
{
	memset(options, 0, sizeof(*options));
	options->seed = 1;
	options->credits = 8;
	options->connections_max = RIG_CLIENTS;
	options->large_buffers = 2;
	options->send_depth = 64;
	options->block_bytes = options->block_stride = 64;
	sim_options_default(&options->sim);
}

static const char *tenant_name(void *context, uint32_t tenant)
{
	(void)context;
	return tenant == 3 ? "tenant three" : "tenant";
}

static void start_worker(struct rig *rig)
{
	struct worker_options options = {
		.device = rig->device,
		.connections_max = rig->options.connections_max,
		.credits = rig->options.credits,
		.large_buffers = rig->options.large_buffers,
		.message_bytes_max = RIG_MESSAGE_MAX,
		.send_depth = rig->options.send_depth,
		.boot_id = RIG_BOOT,
		.info = {
			.version = 1,
			.chunk_tokens = 64,
			.chunks_max = WIRE_CHUNKS_MAX,
			.message_bytes_max = RIG_MESSAGE_MAX,
			.inline_bytes = WIRE_INLINE_BYTES,
			.credits = 1,
			.lock_seconds = 60,
			.server = { "rig", 3 },
		},
		.tenant_name = tenant_name,
	};

	assert_int_equal(worker_create(&options, &rig->worker), 0);
	rig->mailbox = worker_mailbox(rig->worker);
}

struct rig *rig_start(const struct rig_options *options)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	struct verbs_open open = { 0 };

	rig->options = *options;
	rig->auto_answer = true;
	rig->auto_close = true;
	rig->refuse_error = ENOMEM;
	random_init(&rig->random, options->seed);
	assert_int_equal(sim_fabric_create(options->seed, &options->sim, &rig->fabric), 0);
	open.fabric = rig->fabric;
	assert_int_equal(verbs_sim.open(&open, &rig->device), 0);
	if (options->max_rd_atomic)
		rig->device->limits.max_rd_atomic = options->max_rd_atomic;
	if (options->max_sge)
		rig->device->limits.max_sge = options->max_sge;
	if (options->no_inline)
		rig->device->limits.max_inline_bytes = 0;
	shim_rig = rig;
	real_post_send = rig->device->context->ops.post_send;
	rig->device->context->ops.post_send = shim_post_send;

	rig->object_bytes = (uint64_t)RIG_PLANES * RIG_CHUNK_BLOCKS * options->block_bytes;
	rig->object_distance = kvr_round_up(rig->object_bytes + GUARD_BYTES, 64);
	rig->l1_bytes = rig->object_distance * RIG_CHUNKS;
	rig->l1 = aligned_alloc(64, rig->l1_bytes);
	memset(rig->l1, GUARD, rig->l1_bytes);
	assert_int_equal(
		verbs_sim.register_memory(rig->device, rig->l1, rig->l1_bytes, IBV_ACCESS_LOCAL_WRITE, &rig->l1_mr), 0);
	start_worker(rig);
	return rig;
}

/* Everything that a worker lends has come back. */
static void assert_nothing_is_out(struct rig *rig)
{
	const struct worker *worker = rig->worker;
	const struct sim_srq *srq = KVR_CONTAINER_OF(worker->srq, struct sim_srq, base);
	uint32_t replies = 0, receives = 0, spare = 0;

	for (uint32_t i = 0; i < worker->slot_count; i++)
		assert_int_equal(worker->slots[i].stage, SLOT_POSTED);
	list_for_each(node, &srq->queue.posted)
		receives++;
	assert_int_equal(receives, worker->slot_count); /* pitfalls I11: the device has them all, not only the book */
	for (uint32_t i = 0; i < worker->slot_count; i++)
		assert_int_equal(worker->slots[i].riders, 0);
	list_for_each(node, &worker->spare)
		spare++;
	assert_int_equal(spare, worker->spare_count);
	for (uint32_t i = worker->reply_free; i != POOL_NONE; i = worker->reply_buffers[i].next)
		replies++;
	assert_int_equal(replies, worker->slot_count);
	assert_int_equal(worker->free_large_count, worker->options.large_buffers);
	assert_int_equal(worker->free_endpoint_count, worker->options.connections_max);
	for (uint32_t i = 0; i <= worker->number_mask; i++)
		assert_null(worker->by_number[i]);
	assert_true(list_empty(&worker->active) && list_empty(&worker->draining) && list_empty(&worker->large_waiters));
	assert_true(ring_empty(&rig->mailbox->to_management) && ring_empty(&rig->mailbox->to_worker));
	assert_int_equal(worker->bytes_in_flight, 0);
	assert_int_equal(rig->inbox_count, 0);
	assert_int_equal(rig->done_count, 0);
}

void rig_stop(struct rig *rig)
{
	struct sim_counters counters;

	rig->auto_answer = true;
	rig->auto_close = true;
	while (rig->inbox_count > 0)
		rig_reply(rig, rig->inbox[--rig->inbox_count], STATUS_SHUTTING_DOWN);
	while (rig->done_count > 0)
		rig_reply(rig, rig->done[--rig->done_count], STATUS_OK);
	for (unsigned i = 0; i < RIG_CLIENTS; i++)
		if (rig->clients[i].open)
			rig_leave(&rig->clients[i]);
	assert_nothing_is_out(rig);
	sim_fabric_counters(rig->fabric, &counters);
	assert_int_equal(counters.misuses, 0);
	assert_int_equal(counters.cq_overflows, 0);
	assert_int_equal(rig->device_errors, 0); /* pitfalls I16: no queue was ever full */
	worker_destroy(&rig->worker);
	assert_null(rig->worker);
	assert_int_equal(verbs_sim.deregister_memory(rig->l1_mr), 0);
	rig->device->context->ops.post_send = real_post_send;
	verbs_sim.close(rig->device);
	sim_fabric_destroy(&rig->fabric);
	free(rig->l1);
	free(rig);
}

/* ---- time ------------------------------------------------------------------------------------------------------- */

void rig_step(struct rig *rig)
{
	uint64_t next;
	bool busy;

	rig->steps++;
	rig->now += 50 + random_below(&rig->random, 200);
	busy = sim_fabric_step(rig->fabric, rig->now, 64) > 0;
	busy |= worker_step(rig->worker, rig->now);
	if (random_chance(&rig->random, 3, 4))
		rig_management_step(rig);
	for (unsigned i = 0; i < RIG_CLIENTS; i++)
		if (rig->clients[i].open)
			rig_client_step(&rig->clients[i]);
	next = sim_fabric_next_ns(rig->fabric);
	if (!busy && next != UINT64_MAX && next > rig->now)
		rig->now = next;
}

void rig_steps(struct rig *rig, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		rig_step(rig);
}
