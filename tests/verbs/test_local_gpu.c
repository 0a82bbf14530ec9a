/*
 * One-sided work requests on GPU memory, over a table whose copies end when the test says so: what follows what, what waits, and
 * what is said when a copy or a GPU fails.
 */
#include "verbs/test_local_pair.h"

#include <errno.h>

#include "base/fault.h"
#include "protocol/message.h"
#include "verbs/gpu_table.h"

#define COPY_BYTES 4096u
#define COPIES 256u
#define REMOTE UINT64_C(0x7000000000)
#define REGION_BYTES (UINT64_C(1) << 20)

struct copy {
	uint64_t host, device;
	uint32_t bytes;
	bool to_device;
};

/* A lane for each direction. */
struct lane {
	struct gpu *gpu;
	bool to_device;
	struct copy copies[COPIES];
	uint64_t put, published, done, failed_below;
	void (*progress)(void *argument);
	void *argument;
};

struct gpu {
	struct verbs_gpu_table table;
	uint8_t *memory; /* stands for the GPU's: at 0x100000 */
	struct lane lanes[2];
	unsigned lane_count, regions;
	uint64_t room;      /* copies that a lane takes */
	uint64_t forbidden; /* host address that is not registered */
	int import_error;
	bool failed;
};

#define DEVICE UINT64_C(0x100000)

static int gpu_import(void *context, const struct verbs_remote_memory *memory, struct verbs_gpu_memory *imported)
{
	struct gpu *gpu = context;

	assert_int_equal(memory->handle_length, 3);
	if (gpu->import_error)
		return gpu->import_error;
	gpu->regions++;
	imported->gpu = 5;
	imported->address = DEVICE;
	imported->region = gpu;
	return 0;
}

static void gpu_forget(void *context, struct verbs_gpu_memory *imported)
{
	assert_ptr_equal(imported->region, context);
	((struct gpu *)context)->regions--;
}

static int gpu_lane_open(
	void *context, uint32_t number, bool to_device, void (*progress)(void *argument), void *argument, void **lane)
{
	struct gpu *gpu = context;

	assert_int_equal(number, 5);
	gpu->lane_count++;
	gpu->lanes[to_device].gpu = gpu;
	gpu->lanes[to_device].to_device = to_device;
	gpu->lanes[to_device].progress = progress;
	gpu->lanes[to_device].argument = argument;
	*lane = &gpu->lanes[to_device];
	return 0;
}

static void gpu_lane_close(void *context, void *lane)
{
	(void)lane;
	((struct gpu *)context)->lane_count--;
}

static int gpu_put(void *context, uint64_t host, uint64_t device, uint32_t bytes)
{
	struct lane *lane = context;

	assert_true(bytes > 0 && bytes <= COPY_BYTES);
	if (host == lane->gpu->forbidden)
		return -EFAULT;
	if (lane->put - lane->done >= lane->gpu->room)
		return -EAGAIN;
	lane->copies[lane->put % COPIES] = (struct copy){ host, device, bytes, lane->to_device };
	lane->put++;
	return 0;
}

static void gpu_publish(void *context)
{
	struct lane *lane = context;

	lane->published = lane->put;
}

static uint64_t gpu_done(void *context, uint64_t *failed_below)
{
	struct lane *lane = context;

	*failed_below = lane->gpu->failed ? lane->put : lane->failed_below;
	return lane->done;
}

/* Carries out `count` published copies. */
static void gpu_run(struct gpu *gpu, bool to_device, uint64_t count)
{
	struct lane *lane = &gpu->lanes[to_device];

	for (; count > 0; count--) {
		const struct copy *copy = &lane->copies[lane->done % COPIES];
		uint8_t *there = gpu->memory + (copy->device - DEVICE);

		assert_true(lane->done < lane->published);
		if (!gpu->failed && copy->to_device)
			memcpy(there, (const void *)(uintptr_t)copy->host, copy->bytes);
		else if (!gpu->failed)
			memcpy((void *)(uintptr_t)copy->host, there, copy->bytes);
		lane->done++;
	}
	lane->progress(lane->argument);
}

struct rig {
	struct gpu gpu;
	struct side server, client;
	struct verbs_import import;
};

static int import_region(struct rig *rig)
{
	struct verbs_remote_memory memory;

	memset(&memory, 0, sizeof(memory));
	memory.address = REMOTE;
	memory.length = REGION_BYTES;
	memory.kind = MEMORY_DEVICE;
	memory.fd = -1;
	memory.handle_length = 3;
	return verbs_local.import_memory(rig->server.qp, &memory, &rig->import);
}

static void open_rig(struct rig *rig)
{
	memset(rig, 0, sizeof(*rig));
	rig->gpu.table = (struct verbs_gpu_table){ .context = &rig->gpu,
		.copy_bytes_max = COPY_BYTES,
		.import = gpu_import,
		.forget = gpu_forget,
		.lane_open = gpu_lane_open,
		.lane_close = gpu_lane_close,
		.put = gpu_put,
		.publish = gpu_publish,
		.done = gpu_done };
	rig->gpu.memory = calloc(1, REGION_BYTES);
	rig->gpu.room = COPIES;
	assert_non_null(rig->gpu.memory);
	pair_open_with(&rig->server, &rig->client, 0, &rig->gpu.table);
	assert_int_equal(import_region(rig), 0);
	assert_int_equal(rig->gpu.lane_count, 2);
}

static void close_rig(struct rig *rig)
{
	for (int up = 0; up < 2; up++)
		gpu_run(&rig->gpu, up == 1, rig->gpu.lanes[up].published - rig->gpu.lanes[up].done);
	side_close(&rig->server);
	assert_int_equal(rig->gpu.regions, 0);
	assert_int_equal(rig->gpu.lane_count, 0);
	side_close(&rig->client);
	free(rig->gpu.memory);
}

static int transfer(struct rig *rig, bool write, uint32_t index, uint32_t length, uint64_t offset, uint64_t wr_id)
{
	struct ibv_sge entry = buffer_entry(&rig->server, index, length);

	return side_transfer(&rig->server, write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, &entry, 1, REMOTE + offset,
		rig->import.rkey, wr_id);
}

static int poll_once(struct side *side, struct ibv_wc *wc)
{
	return ibv_poll_cq(side->cq, 1, wc);
}

static void writes_and_reads_end_when_their_copies_have(void **state)
{
	struct rig rig;
	struct ibv_wc wc;

	(void)state;
	open_rig(&rig);
	memset(rig.server.buffers, 0x5a, 2 * MESSAGE_BYTES);
	assert_int_equal(transfer(&rig, true, 0, 8000, 100, 1), 0);
	assert_int_equal(poll_once(&rig.server, &wc), 0);
	assert_int_equal(rig.gpu.lanes[1].published, 2); /* cut at the table's limit */
	gpu_run(&rig.gpu, true, 1);
	assert_int_equal(poll_once(&rig.server, &wc), 0);
	gpu_run(&rig.gpu, true, 1);
	assert_int_equal(poll_once(&rig.server, &wc), 1);
	assert_int_equal(wc.wr_id, 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RDMA_WRITE);
	assert_int_equal(rig.gpu.memory[100], 0x5a);
	assert_int_equal(rig.gpu.memory[8099], 0x5a);
	assert_int_equal(rig.gpu.memory[8100], 0);
	rig.gpu.memory[5000] = 0x77;
	assert_int_equal(transfer(&rig, false, 2, 64, 5000, 2), 0);
	assert_int_equal(poll_once(&rig.server, &wc), 0);
	gpu_run(&rig.gpu, false, 1);
	assert_int_equal(poll_once(&rig.server, &wc), 1);
	assert_int_equal(wc.opcode, IBV_WC_RDMA_READ);
	assert_int_equal(rig.server.buffers[2 * MESSAGE_BYTES], 0x77);
	close_rig(&rig);
}

/* The order that the protocol stands on: a reply is not there before the data. */
static void a_send_waits_for_the_copies_before_it(void **state)
{
	struct rig rig;
	struct ibv_wc wc;

	(void)state;
	open_rig(&rig);
	assert_int_equal(transfer(&rig, true, 0, 100, 0, 1), 0);
	assert_int_equal(side_send(&rig.server, 1, 10, 2), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(poll_once(&rig.server, &wc), 0);
		assert_int_equal(poll_once(&rig.client, &wc), 0);
	}
	gpu_run(&rig.gpu, true, 1);
	assert_int_equal(side_wait(&rig.server).wr_id, 1);
	assert_int_equal(side_wait(&rig.server).wr_id, 2);
	assert_int_equal(side_wait(&rig.client).opcode, IBV_WC_RECV);
	close_rig(&rig);
}

static void many_are_under_way_and_the_other_direction_waits(void **state)
{
	struct rig rig;
	struct ibv_wc wc;

	(void)state;
	open_rig(&rig);
	for (uint32_t i = 0; i < 10; i++)
		assert_int_equal(transfer(&rig, true, 0, 100, i * 200, i), 0);
	assert_int_equal(transfer(&rig, false, 1, 100, 0, 10), 0);
	assert_int_equal(poll_once(&rig.server, &wc), 0);
	assert_int_equal(rig.gpu.lanes[1].published, 10);
	assert_int_equal(rig.gpu.lanes[0].published, 0);
	gpu_run(&rig.gpu, true, 10);
	for (uint32_t i = 0; i < 10; i++)
		assert_int_equal(side_wait(&rig.server).wr_id, i);
	assert_int_equal(poll_once(&rig.server, &wc), 0);
	assert_int_equal(rig.gpu.lanes[0].published, 1);
	gpu_run(&rig.gpu, false, 1);
	assert_int_equal(side_wait(&rig.server).wr_id, 10);
	close_rig(&rig);
}

static void a_lane_without_room_is_tried_again(void **state)
{
	struct rig rig;
	struct ibv_wc wc;

	(void)state;
	open_rig(&rig);
	rig.gpu.room = 1;
	memset(rig.server.buffers, 0x21, MESSAGE_BYTES);
	assert_int_equal(transfer(&rig, true, 0, MESSAGE_BYTES, 0, 1), 0);
	for (uint32_t i = 0; i < MESSAGE_BYTES / COPY_BYTES; i++) {
		assert_int_equal(poll_once(&rig.server, &wc), 0);
		assert_int_equal(rig.gpu.lanes[1].published, i + 1);
		gpu_run(&rig.gpu, true, 1);
	}
	assert_int_equal(side_wait(&rig.server).status, IBV_WC_SUCCESS);
	assert_int_equal(rig.gpu.memory[MESSAGE_BYTES - 1], 0x21);
	close_rig(&rig);
}

/* A client that lets the server read a request from its GPU: the server's buffers are nothing that a GPU knows. */
static void host_memory_that_no_gpu_knows_ends_the_queue_pair(void **state)
{
	struct rig rig;
	struct ibv_wc wc;

	(void)state;
	open_rig(&rig);
	rig.gpu.forbidden = (uintptr_t)(rig.server.buffers + (size_t)3 * MESSAGE_BYTES);
	assert_int_equal(transfer(&rig, false, 0, 64, 0, 1), 0);
	assert_int_equal(transfer(&rig, false, 3, 64, 0, 2), 0);
	assert_int_equal(transfer(&rig, false, 1, 64, 0, 3), 0);
	assert_int_equal(poll_once(&rig.server, &wc), 0);
	gpu_run(&rig.gpu, false, rig.gpu.lanes[0].published);
	assert_int_equal(side_wait(&rig.server).status, IBV_WC_SUCCESS);
	wc = side_wait(&rig.server);
	assert_int_equal(wc.wr_id, 2);
	assert_int_equal(wc.status, IBV_WC_LOC_PROT_ERR);
	wc = side_wait(&rig.server);
	assert_int_equal(wc.wr_id, 3);
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	close_rig(&rig);
}

static void an_access_outside_ends_behind_what_is_under_way(void **state)
{
	struct rig rig;
	struct ibv_wc wc;

	(void)state;
	open_rig(&rig);
	assert_int_equal(transfer(&rig, true, 0, 64, 0, 1), 0);
	assert_int_equal(transfer(&rig, true, 0, 64, REGION_BYTES - 63, 2), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(poll_once(&rig.server, &wc), 0);
	gpu_run(&rig.gpu, true, 1);
	assert_int_equal(side_wait(&rig.server).status, IBV_WC_SUCCESS);
	wc = side_wait(&rig.server);
	assert_int_equal(wc.wr_id, 2);
	assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
	close_rig(&rig);
}

/* A word of the client in host memory, beside its memory on the GPU. */
struct host_word {
	uint32_t *word;
	struct ibv_mr *mr;
	struct verbs_import import;
};

static void open_word(struct rig *rig, struct host_word *host)
{
	struct verbs_remote_memory memory;
	struct verbs_export description;
	void *address;

	assert_int_equal(verbs_local.allocate(rig->client.device, 4096, &address), 0);
	host->word = address;
	assert_int_equal(verbs_local.register_memory(rig->client.device, address, 4096,
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, &host->mr),
		0);
	assert_int_equal(verbs_local.export_memory(host->mr, &description), 0);
	memset(&memory, 0, sizeof(memory));
	memory.address = (uint64_t)(uintptr_t)address;
	memory.length = 4096;
	memory.kind = description.kind;
	memory.fd = description.fd;
	assert_int_equal(verbs_local.import_memory(rig->server.qp, &memory, &host->import), 0);
}

static void close_word(struct rig *rig, struct host_word *host)
{
	verbs_local.forget_memory(rig->server.qp, host->import.rkey);
	assert_int_equal(verbs_local.deregister_memory(host->mr), 0);
	verbs_local.release(rig->client.device, host->word, 4096);
}

static int move_word(
	struct rig *rig, const struct host_word *host, bool write, uint32_t index, uint32_t length, uint64_t wr_id)
{
	struct ibv_sge entry = buffer_entry(&rig->server, index, length);

	return side_transfer(&rig->server, write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, &entry, 1,
		(uint64_t)(uintptr_t)host->word, host->import.rkey, wr_id);
}

static void words_ride_along_and_hold_up_no_copy(void **state)
{
	static const uint32_t value = 0xabcd1234;
	struct host_word host;
	struct rig rig;
	struct ibv_wc wc;

	(void)state;
	open_rig(&rig);
	open_word(&rig, &host);
	memcpy(rig.server.buffers + MESSAGE_BYTES, &value, sizeof(value));
	assert_int_equal(transfer(&rig, true, 0, 64, 0, 1), 0);
	assert_int_equal(move_word(&rig, &host, true, 1, sizeof(value), 2), 0);
	assert_int_equal(transfer(&rig, true, 0, 64, 64, 3), 0);
	assert_int_equal(move_word(&rig, &host, false, 2, sizeof(value), 4), 0);
	assert_int_equal(transfer(&rig, true, 0, 64, 128, 5), 0);
	assert_int_equal(poll_once(&rig.server, &wc), 0);
	assert_int_equal(rig.gpu.lanes[1].published, 3); /* all of them, though words lie between */
	assert_int_equal(*host.word, 0);
	gpu_run(&rig.gpu, true, 1);
	assert_int_equal(side_wait(&rig.server).wr_id, 1);
	assert_int_equal(*host.word, value);
	assert_int_equal(side_wait(&rig.server).wr_id, 2);
	*host.word = 77; /* read when what is before it has ended, and not earlier */
	assert_int_equal(poll_once(&rig.server, &wc), 0);
	gpu_run(&rig.gpu, true, 2);
	for (uint64_t i = 3; i <= 5; i++)
		assert_int_equal(side_wait(&rig.server).wr_id, i);
	assert_int_equal(rig.server.buffers[(size_t)2 * MESSAGE_BYTES], 77);
	close_word(&rig, &host);
	close_rig(&rig);
}

static void what_is_no_word_waits_for_the_copies_before_it(void **state)
{
	struct host_word host;
	struct rig rig;
	struct ibv_wc wc;

	(void)state;
	open_rig(&rig);
	open_word(&rig, &host);
	assert_int_equal(transfer(&rig, true, 0, 64, 0, 1), 0);
	assert_int_equal(move_word(&rig, &host, true, 1, 9, 2), 0);
	assert_int_equal(transfer(&rig, true, 0, 64, 64, 3), 0);
	assert_int_equal(poll_once(&rig.server, &wc), 0);
	assert_int_equal(rig.gpu.lanes[1].published, 1);
	gpu_run(&rig.gpu, true, 1);
	for (uint64_t i = 1; i <= 2; i++)
		assert_int_equal(side_wait(&rig.server).wr_id, i);
	assert_int_equal(poll_once(&rig.server, &wc), 0);
	gpu_run(&rig.gpu, true, 1);
	assert_int_equal(side_wait(&rig.server).wr_id, 3);
	close_word(&rig, &host);
	close_rig(&rig);
}

static void a_word_behind_copies_that_fail_is_not_written(void **state)
{
	struct host_word host;
	struct rig rig;
	struct ibv_wc wc;

	(void)state;
	open_rig(&rig);
	open_word(&rig, &host);
	memset(rig.server.buffers, 0x5a, 2 * MESSAGE_BYTES);
	assert_int_equal(transfer(&rig, true, 0, 64, 0, 1), 0);
	assert_int_equal(move_word(&rig, &host, true, 1, 4, 2), 0);
	assert_int_equal(poll_once(&rig.server, &wc), 0);
	rig.gpu.failed = true;
	gpu_run(&rig.gpu, true, 1);
	assert_int_equal(side_wait(&rig.server).status, IBV_WC_REM_OP_ERR);
	wc = side_wait(&rig.server);
	assert_int_equal(wc.wr_id, 2);
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(*host.word, 0);
	close_word(&rig, &host);
	close_rig(&rig);
}

static void a_word_outside_its_region_ends_behind_what_is_under_way(void **state)
{
	struct host_word host;
	struct rig rig;
	struct ibv_wc wc;

	(void)state;
	open_rig(&rig);
	open_word(&rig, &host);
	assert_int_equal(transfer(&rig, true, 0, 64, 0, 1), 0);
	host.word += 1024; /* behind it */
	assert_int_equal(move_word(&rig, &host, true, 1, 4, 2), 0);
	host.word -= 1024;
	for (int i = 0; i < 3; i++)
		assert_int_equal(poll_once(&rig.server, &wc), 0);
	gpu_run(&rig.gpu, true, 1);
	assert_int_equal(side_wait(&rig.server).status, IBV_WC_SUCCESS);
	assert_int_equal(side_wait(&rig.server).status, IBV_WC_REM_ACCESS_ERR);
	close_word(&rig, &host);
	close_rig(&rig);
}

/* pitfalls C05: what is under way may still land, so nothing is said to be over before it has. */
static void a_failed_queue_pair_is_not_idle_before_its_copies_have_ended(void **state)
{
	struct rig rig;
	struct ibv_wc wc;

	(void)state;
	open_rig(&rig);
	assert_int_equal(transfer(&rig, true, 0, 64, 0, 1), 0);
	assert_int_equal(poll_once(&rig.server, &wc), 0);
	assert_int_equal(transfer(&rig, true, 0, 64, 64, 2), 0);
	verbs_local.qp_fail(rig.server.qp);
	for (unsigned i = 0; i < RECEIVES + 3; i++) {
		if (poll_once(&rig.server, &wc) == 1)
			assert_int_equal(wc.opcode, IBV_WC_RECV);
		assert_false(verbs_local.qp_idle(rig.server.qp));
	}
	gpu_run(&rig.gpu, true, 1);
	for (uint64_t i = 1; i <= 2; i++) {
		do {
			wc = side_wait(&rig.server);
		} while (wc.opcode == IBV_WC_RECV);
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	}
	assert_int_equal(rig.gpu.lanes[1].put, 1);
	assert_true(verbs_local.qp_idle(rig.server.qp));
	close_rig(&rig);
}

static void a_lost_gpu_is_an_error_completion(void **state)
{
	struct rig rig;
	struct ibv_wc wc;

	(void)state;
	open_rig(&rig);
	assert_int_equal(transfer(&rig, true, 0, 64, 0, 1), 0);
	assert_int_equal(poll_once(&rig.server, &wc), 0);
	rig.gpu.failed = true;
	gpu_run(&rig.gpu, true, 1);
	wc = side_wait(&rig.server);
	assert_int_equal(wc.wr_id, 1);
	assert_int_equal(wc.status, IBV_WC_REM_OP_ERR);
	close_rig(&rig);
}

static void copies_that_fail_end_the_work_requests_that_they_belong_to(void **state)
{
	struct rig rig;
	struct ibv_wc wc;

	(void)state;
	open_rig(&rig);
	for (uint64_t i = 0; i < 2; i++) {
		assert_int_equal(transfer(&rig, true, 0, 8000, 0, i), 0); /* two copies each */
		assert_int_equal(poll_once(&rig.server, &wc), 0);
		rig.gpu.lanes[1].failed_below = 2 * i; /* of somebody else, before this one */
		gpu_run(&rig.gpu, true, 2);
		assert_int_equal(side_wait(&rig.server).status, IBV_WC_SUCCESS);
	}
	for (uint64_t i = 2; i < 4; i++)
		assert_int_equal(transfer(&rig, true, 0, 8000, 0, i), 0);
	assert_int_equal(poll_once(&rig.server, &wc), 0);
	rig.gpu.lanes[1].failed_below = 5; /* the first of its two */
	gpu_run(&rig.gpu, true, 4);
	assert_int_equal(side_wait(&rig.server).status, IBV_WC_REM_OP_ERR);
	assert_int_equal(side_wait(&rig.server).status, IBV_WC_WR_FLUSH_ERR);
	close_rig(&rig);
}

static void who_sleeps_is_woken_by_the_end_of_copies(void **state)
{
	struct rig rig;
	struct ibv_wc wc;

	(void)state;
	open_rig(&rig);
	assert_int_equal(transfer(&rig, true, 0, 64, 0, 1), 0);
	assert_int_equal(poll_once(&rig.server, &wc), 0);
	verbs_local.cq_clear_event(rig.server.cq);
	assert_int_equal(ibv_req_notify_cq(rig.server.cq, 0), 0);
	assert_int_equal(poll_once(&rig.server, &wc), 0);
	assert_false(side_is_readable(&rig.server));
	gpu_run(&rig.gpu, true, 1);
	assert_true(side_is_readable(&rig.server));
	verbs_local.cq_clear_event(rig.server.cq);
	assert_int_equal(side_wait(&rig.server).wr_id, 1);
	close_rig(&rig);
}

static void memory_that_can_not_be_mapped_is_refused_and_nothing_is_left(void **state)
{
	struct rig rig;

	(void)state;
	open_rig(&rig);
	rig.gpu.import_error = -ENODEV;
	assert_int_equal(import_region(&rig), -ENODEV);
	rig.gpu.import_error = 0;
	assert_int_equal(rig.gpu.regions, 1);
	verbs_local.forget_memory(rig.server.qp, rig.import.rkey);
	assert_int_equal(rig.gpu.regions, 0);
	close_rig(&rig);
}

static void a_lane_that_can_not_be_made_refuses_the_memory(void **state)
{
	struct verbs_import import;
	struct rig rig;

	(void)state;
	for (uint64_t nth = 1; nth <= 2; nth++) {
		open_rig(&rig);
		import = rig.import;
		verbs_local.forget_memory(rig.server.qp, import.rkey);
		side_close(&rig.server);
		side_close(&rig.client);
		assert_int_equal(rig.gpu.lane_count, 0);
		pair_open_with(&rig.server, &rig.client, 0, &rig.gpu.table);
		fault_arm_name("local_gpu/lane", nth);
		assert_int_equal(import_region(&rig), -ENOMEM);
		fault_arm(0);
		assert_int_equal(rig.gpu.regions, 0);
		assert_int_equal(import_region(&rig), 0);
		close_rig(&rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(writes_and_reads_end_when_their_copies_have),
		cmocka_unit_test(a_send_waits_for_the_copies_before_it),
		cmocka_unit_test(many_are_under_way_and_the_other_direction_waits),
		cmocka_unit_test(a_lane_without_room_is_tried_again),
		cmocka_unit_test(host_memory_that_no_gpu_knows_ends_the_queue_pair),
		cmocka_unit_test(an_access_outside_ends_behind_what_is_under_way),
		cmocka_unit_test(words_ride_along_and_hold_up_no_copy),
		cmocka_unit_test(what_is_no_word_waits_for_the_copies_before_it),
		cmocka_unit_test(a_word_behind_copies_that_fail_is_not_written),
		cmocka_unit_test(a_word_outside_its_region_ends_behind_what_is_under_way),
		cmocka_unit_test(a_failed_queue_pair_is_not_idle_before_its_copies_have_ended),
		cmocka_unit_test(a_lost_gpu_is_an_error_completion),
		cmocka_unit_test(copies_that_fail_end_the_work_requests_that_they_belong_to),
		cmocka_unit_test(who_sleeps_is_woken_by_the_end_of_copies),
		cmocka_unit_test(memory_that_can_not_be_mapped_is_refused_and_nothing_is_left),
		cmocka_unit_test(a_lane_that_can_not_be_made_refuses_the_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
