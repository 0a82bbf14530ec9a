/* test_local_messages.c - the local driver's rings and copies, both sides in one process and one thread. */
#include "test_local_pair.h"

#include <errno.h>

#include "base/random.h"
#include "protocol/message.h"

static void messages_of_every_length_arrive_whole(void **state)
{
	struct side server, client;

	(void)state;
	pair_open(&server, &client, 0);
	for (uint32_t length = 0; length <= MESSAGE_BYTES; length += length < 200 ? 1 : 397) {
		uint8_t *from = client.buffers + (size_t)RECEIVES * MESSAGE_BYTES;
		struct ibv_wc wc;

		for (uint32_t i = 0; i < length; i++)
			from[i] = (uint8_t)(i * 7 + length);
		assert_int_equal(side_send(&client, RECEIVES, length, length), 0);
		wc = side_wait(&client);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, IBV_WC_SEND);
		assert_int_equal(wc.wr_id, length);
		wc = side_wait(&server);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, IBV_WC_RECV);
		assert_int_equal(wc.byte_len, length);
		assert_int_equal(wc.qp_num, server.qp->qp_num);
		assert_memory_equal(server.buffers + wc.wr_id * MESSAGE_BYTES, from, length);
		side_post_receive(&server, (uint32_t)wc.wr_id);
	}
	side_close(&client);
	side_close(&server);
}

static void a_full_ring_holds_sends_back_until_receives_are_posted(void **state)
{
	struct side server, client;
	uint32_t received = 0, sent = 0;

	(void)state;
	pair_open(&server, &client, 0);
	/* 16 receives and 16 slots: 60 messages wait in three places. Inline, so that each is a value of its own. */
	for (uint32_t i = 0; i < 60; i++) {
		struct ibv_sge entry = { (uintptr_t)&i, sizeof(i), 0 };
		struct ibv_send_wr wr, *bad;

		memset(&wr, 0, sizeof(wr));
		wr.wr_id = i;
		wr.sg_list = &entry;
		wr.num_sge = 1;
		wr.opcode = IBV_WR_SEND;
		wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
		assert_int_equal(ibv_post_send(client.qp, &wr, &bad), 0);
	}
	while (received < 60) {
		struct ibv_wc wc[4];
		int count = ibv_poll_cq(client.cq, 4, wc);

		for (int i = 0; i < count; i++)
			assert_int_equal(wc[i].wr_id, sent++);
		count = ibv_poll_cq(server.cq, 4, wc);
		for (int i = 0; i < count; i++) {
			uint32_t value;

			assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
			memcpy(&value, server.buffers + wc[i].wr_id * MESSAGE_BYTES, sizeof(value));
			assert_int_equal(value, received++);
			side_post_receive(&server, (uint32_t)wc[i].wr_id);
		}
	}
	assert_int_equal(sent, 60);
	side_close(&client);
	side_close(&server);
}

#define AREA_BYTES (3u << 20)

static uint32_t import_area(struct side *server, struct side *client, void *area, struct ibv_mr **mr)
{
	struct verbs_export description;
	struct verbs_remote_memory memory = { 0 };
	struct verbs_import import;

	assert_int_equal(verbs_local.register_memory(client->device, area, AREA_BYTES,
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, mr),
		0);
	assert_int_equal(verbs_local.export_memory(*mr, &description), 0);
	memory.address = (uintptr_t)area;
	memory.length = AREA_BYTES;
	memory.offset = description.offset;
	memory.kind = description.kind;
	memory.fd = description.fd;
	assert_int_equal(verbs_local.import_memory(server->qp, &memory, &import), 0);
	assert_int_equal(import.length, AREA_BYTES);
	return import.rkey;
}

static void transfer_both_ways(struct side *server, struct side *client, uint8_t *area)
{
	uint8_t *l1 = aligned_alloc(4096, 2 * AREA_BYTES);
	struct ibv_mr *area_mr, *l1_mr;
	uint32_t rkey = import_area(server, client, area, &area_mr);
	struct ibv_sge entries[2];
	struct ibv_wc wc;

	assert_int_equal(
		verbs_local.register_memory(server->device, l1, 2 * AREA_BYTES, IBV_ACCESS_LOCAL_WRITE, &l1_mr), 0);
	for (uint32_t i = 0; i < 2 * AREA_BYTES; i++)
		l1[i] = (uint8_t)random_mix(i);
	entries[0] = (struct ibv_sge){ (uintptr_t)l1 + 5, 1000001, l1_mr->lkey };
	entries[1] = (struct ibv_sge){ (uintptr_t)l1 + AREA_BYTES, 77777, l1_mr->lkey };
	assert_int_equal(side_transfer(server, IBV_WR_RDMA_WRITE, entries, 2, (uintptr_t)area + 3, rkey, 1), 0);
	wc = side_wait(server);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RDMA_WRITE);
	assert_memory_equal(area + 3, l1 + 5, 1000001);
	assert_memory_equal(area + 3 + 1000001, l1 + AREA_BYTES, 77777);
	assert_int_equal(area[2], 0);
	assert_int_equal(area[3 + 1000001 + 77777], 0);
	memset(l1, 0, 2 * AREA_BYTES);
	assert_int_equal(side_transfer(server, IBV_WR_RDMA_READ, entries, 2, (uintptr_t)area + 3, rkey, 2), 0);
	wc = side_wait(server);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RDMA_READ);
	assert_memory_equal(area + 3, l1 + 5, 1000001);
	assert_memory_equal(area + 3 + 1000001, l1 + AREA_BYTES, 77777);
	verbs_local.forget_memory(server->qp, rkey);
	/* a key that was given back fails (pitfalls F08), and so does the queue pair */
	assert_int_equal(side_transfer(server, IBV_WR_RDMA_READ, entries, 2, (uintptr_t)area + 3, rkey, 3), 0);
	wc = side_wait(server);
	assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(server->qp->state, IBV_QPS_ERR);
	assert_int_equal(verbs_local.deregister_memory(area_mr), 0);
	assert_int_equal(verbs_local.deregister_memory(l1_mr), 0);
	free(l1);
}

static void shared_memory_is_written_and_read_in_slices(void **state)
{
	struct side server, client;
	void *area;

	(void)state;
	pair_open(&server, &client, 4096);
	assert_int_equal(verbs_local.allocate(client.device, AREA_BYTES, &area), 0);
	transfer_both_ways(&server, &client, area);
	side_close(&server);
	verbs_local.release(client.device, area, AREA_BYTES);
	side_close(&client);
}

static void ordinary_memory_is_written_and_read_by_the_helper(void **state)
{
	struct side server, client;
	uint8_t *area = calloc(1, AREA_BYTES);

	(void)state;
	pair_open(&server, &client, 0);
	transfer_both_ways(&server, &client, area);
	side_close(&server);
	side_close(&client);
	free(area);
}

static void an_armed_queue_becomes_readable_with_a_message(void **state)
{
	struct side server, client;
	struct ibv_wc wc;

	(void)state;
	pair_open(&server, &client, 0);
	assert_int_equal(side_send(&client, RECEIVES, 40, 1), 0);
	assert_false(side_is_readable(&server));
	assert_int_equal(side_send(&client, RECEIVES, 40, 1), 0);
	assert_int_equal(side_wait(&server).status, IBV_WC_SUCCESS);
	assert_int_equal(side_wait(&server).status, IBV_WC_SUCCESS);
	for (unsigned round = 0; round < 1000; round++) {
		side_post_receive(&server, round % RECEIVES);
		side_post_receive(&server, round % RECEIVES);
		assert_int_equal(ibv_req_notify_cq(server.cq, 0), 0);
		assert_int_equal(ibv_poll_cq(server.cq, 1, &wc), 0);
		assert_false(side_is_readable(&server));
		/* pitfalls I13: the only message, just between the last poll and the sleep */
		assert_int_equal(side_send(&client, RECEIVES, 40, 1), 0);
		assert_true(side_is_readable(&server));
		verbs_local.cq_clear_event(server.cq);
		assert_false(side_is_readable(&server));
		/* awake, and not armed again: nobody is to spend a system call on waking it */
		assert_int_equal(side_send(&client, RECEIVES, 40, 2), 0);
		assert_false(side_is_readable(&server));
		assert_int_equal(side_wait(&server).opcode, IBV_WC_RECV);
		assert_int_equal(side_wait(&server).opcode, IBV_WC_RECV);
		while (ibv_poll_cq(client.cq, 1, &wc) == 1)
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
	side_close(&client);
	side_close(&server);
}

/* pitfalls F08: also when its place in the table is in use again. */
static void a_key_given_back_stays_invalid_when_its_place_is_reused(void **state)
{
	struct verbs_remote_memory memory = { .length = AREA_BYTES, .kind = MEMORY_SHARED };
	struct verbs_export description;
	struct verbs_import import;
	struct side server, client;
	struct ibv_mr *mr;
	struct ibv_sge entry;
	uint32_t first;
	void *area;

	(void)state;
	pair_open(&server, &client, 0);
	assert_int_equal(verbs_local.allocate(client.device, AREA_BYTES, &area), 0);
	first = import_area(&server, &client, area, &mr);
	assert_int_equal(verbs_local.export_memory(mr, &description), 0);
	memory.address = (uintptr_t)area;
	memory.fd = description.fd;
	for (unsigned i = 1; i < 3 * WIRE_REGIONS_MAX; i++) {
		verbs_local.forget_memory(server.qp, i == 1 ? first : import.rkey);
		assert_int_equal(verbs_local.import_memory(server.qp, &memory, &import), 0);
		assert_int_not_equal(import.rkey, first);
	}
	for (unsigned i = 1; i < WIRE_REGIONS_MAX; i++)
		assert_int_equal(verbs_local.import_memory(server.qp, &memory, &import), 0);
	entry = buffer_entry(&server, RECEIVES, 64);
	assert_int_equal(side_transfer(&server, IBV_WR_RDMA_WRITE, &entry, 1, (uintptr_t)area, import.rkey, 1), 0);
	assert_int_equal(side_wait(&server).status, IBV_WC_SUCCESS);
	assert_int_equal(side_transfer(&server, IBV_WR_RDMA_WRITE, &entry, 1, (uintptr_t)area, first, 2), 0);
	assert_int_equal(side_wait(&server).status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(verbs_local.deregister_memory(mr), 0);
	side_close(&server);
	verbs_local.release(client.device, area, AREA_BYTES);
	side_close(&client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_of_every_length_arrive_whole),
		cmocka_unit_test(a_full_ring_holds_sends_back_until_receives_are_posted),
		cmocka_unit_test(shared_memory_is_written_and_read_in_slices),
		cmocka_unit_test(ordinary_memory_is_written_and_read_by_the_helper),
		cmocka_unit_test(a_key_given_back_stays_invalid_when_its_place_is_reused),
		cmocka_unit_test(an_armed_queue_becomes_readable_with_a_message),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
