#include "verbs/conformance_world.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/random.h"
#include "protocol/message.h"

#define GUARD_VALUE 0xa5

/* ---- the world ------------------------------------------------------------------------------------------------ */

struct verbs_device *world_device(struct world *world, enum side side)
{
	return side == SERVER ? world->base.server : world->base.client;
}

struct world *world_open(const struct conformance_harness *harness)
{
	struct world *world = calloc(1, sizeof(*world));

	assert_non_null(world);
	world->harness = harness;
	world->driver = harness->driver;
	world->base.harness = harness;
	if (harness->open(&world->base)) {
		free(world);
		return NULL;
	}
	for (enum side side = SERVER; side < SIDES; side++) {
		if (world->driver->create_cq(world_device(world, side), CQ_DEPTH, &world->cq[side]))
			return NULL;
	}
	return world;
}

int world_setup(void **state)
{
	*state = world_open(*state);
	return *state ? 0 : -1;
}

static void log_add(struct completions *log, const struct ibv_wc *wc)
{
	if (log->count == log->capacity) {
		log->capacity = log->capacity ? log->capacity * 2 : 256;
		log->wcs = realloc(log->wcs, log->capacity * sizeof(*log->wcs));
		assert_non_null(log->wcs);
	}
	log->wcs[log->count++] = *wc;
}

unsigned world_poll(struct world *world, enum side side)
{
	struct ibv_wc wcs[16];
	unsigned total = 0;
	int count;

	do {
		count = ibv_poll_cq(world->cq[side], (int)KVR_COUNT_OF(wcs), wcs);
		assert_true(count >= 0);
		for (int i = 0; i < count; i++)
			log_add(&world->log[side], &wcs[i]);
		total += (unsigned)count;
	} while (count == (int)KVR_COUNT_OF(wcs));
	return total;
}

/* *goes_on: more will happen by itself. */
static unsigned turn(struct world *world, bool *goes_on)
{
	unsigned count = 0;

	*goes_on = world->harness->step && world->harness->step(&world->base);
	for (enum side side = SERVER; side < SIDES; side++) {
		if (!world->held[side])
			count += world_poll(world, side);
	}
	return count;
}

unsigned world_round(struct world *world)
{
	bool goes_on;

	return turn(world, &goes_on);
}

void world_wait(struct world *world, enum side side, uint32_t count)
{
	for (uint32_t rounds = 0; world->log[side].count < count; rounds++) {
		if (rounds == world->harness->patience_rounds)
			fail_msg("%s has %u completions, waited for %u", side == SERVER ? "server" : "client",
				world->log[side].count, count);
		world_round(world);
	}
}

void world_settle(struct world *world)
{
	uint32_t quiet = 0;

	for (uint32_t rounds = 0; quiet <= world->harness->quiet_rounds; rounds++) {
		bool goes_on;
		unsigned count = turn(world, &goes_on);

		quiet = count > 0 || goes_on ? 0 : quiet + 1;
		if (rounds == world->harness->patience_rounds)
			fail_msg("the world does not come to rest");
	}
}

/* ---- pairs ---------------------------------------------------------------------------------------------------- */

void pair_defaults(struct pair_options *options)
{
	memset(options, 0, sizeof(*options));
	options->send_wr = 64;
	options->recv_wr = 64;
	options->max_sge = 4;
	options->inline_bytes = 64;
	options->message_bytes = 8192;
}

struct ibv_qp *qp_make(struct world *world, enum side side, const struct pair_options *from)
{
	struct verbs_qp_options options = { 0 };
	struct ibv_qp *qp = NULL;

	options.send_cq = world->cq[side];
	options.recv_cq = world->cq[side];
	options.srq = side == SERVER ? from->server_srq : NULL;
	options.max_send_wr = from->send_wr;
	options.max_recv_wr = from->recv_wr;
	options.max_sge = from->max_sge;
	options.max_inline_bytes = from->inline_bytes;
	options.max_message_bytes = from->message_bytes;
	options.peer_recv_wr = from->recv_wr;
	assert_int_equal(world->driver->create_qp(world_device(world, side), &options, &qp), 0);
	assert_non_null(qp);
	return qp;
}

/* What the control sockets do: `from` tells its address, `to` connects to it. */
static void introduce(struct pair *pair, enum side from, enum side to)
{
	const struct verbs_driver *driver = pair->world->driver;
	struct stream_peer peer = { .pid = getpid(), .uid = getuid(), .gid = getgid() };
	uint8_t bytes[WIRE_ADDRESS_MAX];
	int fds[STREAM_FDS_MAX];
	unsigned fd_count = 0;
	uint32_t length = 0;

	assert_int_equal(driver->qp_address(pair->qp[from], bytes, sizeof(bytes), &length, fds, &fd_count), 0);
	assert_in_range(length, 1, sizeof(bytes));
	assert_in_range(fd_count, 0, STREAM_FDS_MAX);
	assert_int_equal(driver->qp_connect(pair->qp[to], bytes, length, fds, fd_count, &peer), 0);
}

/* The client's address goes to the server with its CONNECT, the server's comes back with the reply. */
void pair_connect(struct pair *pair)
{
	introduce(pair, CLIENT, SERVER);
	introduce(pair, SERVER, CLIENT);
	pair->world->driver->qp_start(pair->qp[SERVER]);
	pair->started[SERVER] = true;
	pair->world->driver->qp_start(pair->qp[CLIENT]);
	pair->started[CLIENT] = true;
}

struct pair *pair_make(struct world *world, const struct pair_options *options)
{
	struct pair_options defaults;
	struct pair *pair = calloc(1, sizeof(*pair));

	assert_non_null(pair);
	pair_defaults(&defaults);
	pair->world = world;
	pair->next = world->pairs;
	world->pairs = pair;
	for (enum side side = SERVER; side < SIDES; side++)
		pair->qp[side] = qp_make(world, side, options ? options : &defaults);
	pair_connect(pair);
	return pair;
}

void pair_wait_idle(struct pair *pair, enum side side)
{
	struct world *world = pair->world;

	for (uint32_t rounds = 0; !world->driver->qp_idle(pair->qp[side]); rounds++) {
		if (rounds == world->harness->patience_rounds)
			fail_msg("the queue pair does not become idle");
		world_round(world);
	}
}

/* Forgets what this queue pair's server side had imported; its work requests are all done. */
static void forget_imports(struct world *world, const struct pair *pair)
{
	for (struct memory *memory = world->memories; memory; memory = memory->next) {
		if (memory->importer && memory->importer == pair->qp[SERVER]) {
			world->driver->forget_memory(memory->importer, memory->rkey);
			memory->importer = NULL;
		}
	}
}

void pair_end(struct pair *pair, enum side side)
{
	const struct verbs_driver *driver = pair->world->driver;

	if (!pair->qp[side])
		return;
	if (pair->started[side]) {
		driver->qp_fail(pair->qp[side]);
		pair_wait_idle(pair, side);
		driver->qp_stop(pair->qp[side]);
	}
	if (side == SERVER)
		forget_imports(pair->world, pair);
	driver->destroy_qp(pair->qp[side]);
	pair->qp[side] = NULL;
}

/* ---- memory --------------------------------------------------------------------------------------------------- */

/* Of the server: its own. Of a client: what the driver says the peer reaches best. */
static uint8_t *make_area(struct world *world, enum side side, uint64_t bytes)
{
	void *area = NULL;

	if (side == SERVER) {
		area = aligned_alloc(4096, kvr_round_up(bytes, 4096));
		assert_non_null(area);
		memset(area, 0, bytes);
		return area;
	}
	assert_int_equal(world->driver->allocate(world_device(world, side), bytes, &area), 0);
	assert_non_null(area);
	assert_int_equal((uintptr_t)area % 4096, 0);
	assert_true(bytes_are(area, bytes, 0));
	return area;
}

struct memory *memory_make(struct world *world, enum side side, uint64_t length, int flags)
{
	struct memory *memory = calloc(1, sizeof(*memory));
	struct verbs_device *device = world_device(world, side);

	assert_non_null(memory);
	memory->world = world;
	memory->side = side;
	memory->length = length;
	memory->area_bytes = length + 2 * GUARD_BYTES;
	memory->next = world->memories;
	world->memories = memory;
	memory->area = make_area(world, side, memory->area_bytes);
	memory->bytes = memory->area + GUARD_BYTES;
	memset(memory->area, GUARD_VALUE, GUARD_BYTES);
	memset(memory->bytes + length, GUARD_VALUE, GUARD_BYTES);
	assert_int_equal(world->driver->register_memory(device, memory->bytes, length, flags, &memory->mr), 0);
	return memory;
}

void memory_import(struct memory *memory, struct pair *pair)
{
	const struct verbs_driver *driver = memory->world->driver;
	struct verbs_export description = { 0 };
	struct verbs_remote_memory remote = { 0 };
	struct verbs_import import = { 0 };

	assert_int_equal(driver->export_memory(memory->mr, &description), 0);
	remote.address = address_of(memory, 0);
	remote.length = memory->length;
	remote.offset = description.offset;
	remote.kind = description.kind;
	remote.rkey = description.rkey;
	remote.fd = description.fd;
	assert_int_equal(driver->import_memory(pair->qp[SERVER], &remote, &import), 0);
	assert_int_equal(import.address, remote.address);
	assert_int_equal(import.length, remote.length);
	memory->rkey = import.rkey;
	memory->importer = pair->qp[SERVER];
}

struct memory *memory_remote(struct pair *pair, uint64_t length, int flags)
{
	struct memory *memory = memory_make(pair->world, CLIENT, length, flags);

	memory_import(memory, pair);
	return memory;
}

void memory_deregister(struct memory *memory)
{
	if (memory->mr)
		assert_int_equal(memory->world->driver->deregister_memory(memory->mr), 0);
	memory->mr = NULL;
}

void memory_forget(struct memory *memory)
{
	memory->world->driver->forget_memory(memory->importer, memory->rkey);
	memory->importer = NULL;
}

void pattern_fill(uint8_t *bytes, uint64_t length, uint64_t seed)
{
	for (uint64_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)(random_mix(seed * 1000003 + i / 8) >> i % 8 * 8);
}

bool pattern_is(const uint8_t *bytes, uint64_t length, uint64_t seed)
{
	for (uint64_t i = 0; i < length; i++) {
		if (bytes[i] != (uint8_t)(random_mix(seed * 1000003 + i / 8) >> i % 8 * 8))
			return false;
	}
	return true;
}

bool bytes_are(const uint8_t *bytes, uint64_t length, uint8_t value)
{
	for (uint64_t i = 0; i < length; i++) {
		if (bytes[i] != value)
			return false;
	}
	return true;
}

void world_check_guards(struct world *world)
{
	for (struct memory *memory = world->memories; memory; memory = memory->next) {
		assert_true(bytes_are(memory->area, GUARD_BYTES, GUARD_VALUE));
		assert_true(bytes_are(memory->bytes + memory->length, GUARD_BYTES, GUARD_VALUE));
	}
}

/* ---- posting -------------------------------------------------------------------------------------------------- */

uint64_t address_of(const struct memory *memory, uint64_t offset)
{
	return (uintptr_t)memory->bytes + offset;
}

struct ibv_sge sge_of(const struct memory *memory, uint64_t offset, uint32_t length)
{
	struct ibv_sge sge = { .addr = address_of(memory, offset), .length = length, .lkey = memory->mr->lkey };

	return sge;
}

int post_send(
	struct ibv_qp *qp, uint64_t id, const struct memory *memory, uint64_t offset, uint32_t length, unsigned flags)
{
	struct ibv_sge sge = sge_of(memory, offset, length);

	return post_transfer(qp, id, IBV_WR_SEND, &sge, 1, 0, 0, flags);
}

int post_transfer(struct ibv_qp *qp, uint64_t id, enum ibv_wr_opcode opcode, struct ibv_sge *sges, int sge_count,
	uint64_t remote_address, uint32_t rkey, unsigned flags)
{
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = sges, .num_sge = sge_count, .opcode = opcode };
	struct ibv_send_wr *bad = NULL;
	int error;

	wr.send_flags = flags;
	wr.wr.rdma.remote_addr = remote_address;
	wr.wr.rdma.rkey = rkey;
	error = ibv_post_send(qp, &wr, &bad);
	assert_ptr_equal(bad, error ? &wr : NULL);
	assert_true(error >= 0);
	return error;
}

int post_receive(struct ibv_qp *qp, uint64_t id, const struct memory *memory, uint64_t offset, uint32_t length)
{
	struct ibv_sge sge = sge_of(memory, offset, length);
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad = NULL;
	int error = ibv_post_recv(qp, &wr, &bad);

	assert_ptr_equal(bad, error ? &wr : NULL);
	assert_true(error >= 0);
	return error;
}

/* ---- the log -------------------------------------------------------------------------------------------------- */

const struct ibv_wc *completion_at(struct world *world, enum side side, uint32_t index)
{
	assert_true(index < world->log[side].count);
	return &world->log[side].wcs[index];
}

uint32_t completions_of(struct world *world, enum side side, uint64_t id)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < world->log[side].count; i++)
		count += world->log[side].wcs[i].wr_id == id;
	return count;
}

const struct ibv_wc *completion_of(struct world *world, enum side side, uint64_t id)
{
	assert_int_equal(completions_of(world, side, id), 1);
	for (uint32_t i = 0;; i++) {
		if (world->log[side].wcs[i].wr_id == id)
			return &world->log[side].wcs[i];
	}
}

void expect_success(struct world *world, enum side side, uint64_t id)
{
	assert_int_equal(completion_of(world, side, id)->status, IBV_WC_SUCCESS);
}

void expect_each_once(struct world *world, enum side side, uint64_t first, uint32_t count)
{
	uint64_t expected = first;

	for (uint32_t i = 0; i < world->log[side].count; i++) {
		uint64_t id = world->log[side].wcs[i].wr_id;

		if (id < first || id >= first + count)
			continue;
		assert_int_equal(id, expected);
		expected++;
	}
	assert_int_equal(expected, first + count);
}

/* ---- the end -------------------------------------------------------------------------------------------------- */

static void release_memories(struct world *world)
{
	while (world->memories) {
		struct memory *memory = world->memories;

		world->memories = memory->next;
		if (memory->mr)
			world->driver->deregister_memory(memory->mr);
		if (memory->area && memory->side == SERVER)
			free(memory->area);
		else if (memory->area)
			world->driver->release(world_device(world, memory->side), memory->area, memory->area_bytes);
		free(memory);
	}
}

/* Asserts nothing: it runs after a failed case as well. */
static void end_quietly(struct pair *pair, enum side side)
{
	struct world *world = pair->world;
	const struct verbs_driver *driver = world->driver;

	if (!pair->qp[side])
		return;
	if (pair->started[side]) {
		driver->qp_fail(pair->qp[side]);
		for (uint32_t i = 0; i < world->harness->patience_rounds && !driver->qp_idle(pair->qp[side]); i++) {
			struct ibv_wc wc;

			if (world->harness->step)
				world->harness->step(&world->base);
			for (enum side other = SERVER; other < SIDES; other++)
				ibv_poll_cq(world->cq[other], 1, &wc);
		}
		driver->qp_stop(pair->qp[side]);
	}
	if (side == SERVER)
		forget_imports(world, pair);
	driver->destroy_qp(pair->qp[side]);
	pair->qp[side] = NULL;
}

void world_close(struct world *world)
{
	while (world->pairs) {
		struct pair *pair = world->pairs;

		end_quietly(pair, SERVER);
		end_quietly(pair, CLIENT);
		world->pairs = pair->next;
		free(pair);
	}
	release_memories(world);
	if (world->srq)
		world->driver->destroy_srq(world->srq);
	for (enum side side = SERVER; side < SIDES; side++) {
		if (world->cq[side])
			world->driver->destroy_cq(world->cq[side]);
		free(world->log[side].wcs);
	}
	world->harness->close(&world->base);
	free(world);
}

int world_teardown(void **state)
{
	world_close(*state);
	return 0;
}
