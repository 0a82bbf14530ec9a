/* test_local_threads.c - the local driver with a thread for each side: sleeping without losing a wake-up, importing
 * while polling. */
#include "test_local_pair.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>

#include "base/atomic.h"
#include "protocol/message.h"

#define ROUND_TRIPS 50000u /* 100,000 messages */

/* Long enough for any machine: a wake-up that has not come by then never will. */
#define LOST_MS 20000

/* The next completion; sleeps when there is none. False when no wake-up came. */
static bool wait_asleep(struct side *side, struct ibv_wc *wc)
{
	struct pollfd pollfd = { .fd = verbs_local.cq_event_fd(side->cq), .events = POLLIN };

	for (;;) {
		if (ibv_poll_cq(side->cq, 1, wc) == 1)
			return true;
		(void)ibv_req_notify_cq(side->cq, 0);
		if (ibv_poll_cq(side->cq, 1, wc) == 1)
			return true;
		if (poll(&pollfd, 1, LOST_MS) != 1)
			return false;
		verbs_local.cq_clear_event(side->cq);
	}
}

/* Waits for a message; what was sent meanwhile completes on the way. */
static bool wait_message(struct side *side, struct ibv_wc *wc)
{
	do {
		if (!wait_asleep(side, wc) || wc->status != IBV_WC_SUCCESS)
			return false;
	} while (wc->opcode != IBV_WC_RECV);
	return true;
}

static bool try_post_receive(struct side *side, uint64_t index)
{
	struct ibv_sge entry = buffer_entry(side, (uint32_t)index, MESSAGE_BYTES);
	struct ibv_recv_wr wr = { .wr_id = index, .sg_list = &entry, .num_sge = 1 }, *bad = NULL;

	return ibv_post_recv(side->qp, &wr, &bad) == 0;
}

static void *echo(void *argument)
{
	struct side *server = argument;
	struct ibv_wc wc;

	for (uint32_t i = 0; i < ROUND_TRIPS; i++) {
		if (!wait_message(server, &wc))
			return "no wake-up";
		memcpy(server->buffers + (size_t)RECEIVES * MESSAGE_BYTES, server->buffers + wc.wr_id * MESSAGE_BYTES,
			wc.byte_len);
		if (!try_post_receive(server, wc.wr_id))
			return "post receive";
		if (side_send(server, RECEIVES, wc.byte_len, 0) != 0)
			return "send";
	}
	return NULL;
}

/* pitfalls I13 */
static void no_wake_up_is_lost_in_a_hundred_thousand_messages(void **state)
{
	struct side server, client;
	pthread_t thread;
	void *failure;

	(void)state;
	pair_open(&server, &client, 0);
	assert_int_equal(pthread_create(&thread, NULL, echo, &server), 0);
	for (uint32_t i = 0; i < ROUND_TRIPS; i++) {
		uint8_t *out = client.buffers + (size_t)RECEIVES * MESSAGE_BYTES;
		uint32_t length = sizeof(i) + i % 300;
		struct ibv_wc wc;

		memcpy(out, &i, sizeof(i));
		assert_int_equal(side_send(&client, RECEIVES, length, 0), 0);
		assert_true(wait_message(&client, &wc));
		assert_int_equal(wc.byte_len, length);
		assert_memory_equal(client.buffers + wc.wr_id * MESSAGE_BYTES, &i, sizeof(i));
		side_post_receive(&client, (uint32_t)wc.wr_id);
	}
	pthread_join(thread, &failure);
	assert_null(failure);
	side_close(&client);
	side_close(&server);
}

#define STREAMED 50000u

static void *consume(void *argument)
{
	struct side *server = argument;
	struct ibv_wc wc;

	for (uint32_t i = 0; i < STREAMED; i++) {
		uint32_t value;

		if (!wait_message(server, &wc))
			return "no wake-up";
		memcpy(&value, server->buffers + wc.wr_id * MESSAGE_BYTES, sizeof(value));
		if (value != i)
			return "out of order";
		if (!try_post_receive(server, wc.wr_id))
			return "post receive";
	}
	return NULL;
}

/* The sender sleeps when the ring is full, and is woken when slots come free. */
static void a_sender_that_sleeps_on_a_full_ring_is_woken(void **state)
{
	struct side server, client;
	uint32_t sent = 0, completed = 0;
	pthread_t thread;
	void *failure;

	(void)state;
	pair_open(&server, &client, 0);
	assert_int_equal(pthread_create(&thread, NULL, consume, &server), 0);
	while (completed < STREAMED) {
		struct ibv_wc wc;

		while (sent < STREAMED && sent - completed < 48) {
			struct ibv_sge entry = { (uintptr_t)&sent, sizeof(sent), 0 };
			struct ibv_send_wr wr = { .sg_list = &entry, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;

			wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
			assert_int_equal(ibv_post_send(client.qp, &wr, &bad), 0);
			sent++;
		}
		assert_true(wait_asleep(&client, &wc));
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		completed++;
	}
	pthread_join(thread, &failure);
	assert_null(failure);
	side_close(&client);
	side_close(&server);
}

/* One thread arms and polls once more while the other posts, at the same moment as nearly as two threads can meet. */
struct meeting {
	struct side *client;
	uint32_t round; /* atomic: the sleeper is about to arm */
	uint32_t sent;  /* atomic: the sender has posted */
};

#define MEETINGS 6000u

/* Spins for as long as the other thread can be expected to run; gives the processor away when it does not. */
static void wait_a_little(uint32_t *spins)
{
	if (++*spins % 2048 == 0)
		sched_yield();
	else
		kvr_cpu_pause();
}

static void *send_at_the_same_moment(void *argument)
{
	struct meeting *meeting = argument;
	uint32_t spins = 0;
	struct ibv_wc wc;

	for (uint32_t i = 1; i <= MEETINGS; i++) {
		while (kvr_load_acquire(&meeting->round) != i)
			wait_a_little(&spins);
		for (uint32_t wait = i % 16; wait > 0; wait--)
			kvr_cpu_pause();
		if (side_send(meeting->client, RECEIVES, 8, 0) != 0)
			return "send";
		kvr_store_release(&meeting->sent, i);
		while (ibv_poll_cq(meeting->client->cq, 1, &wc) == 0)
			wait_a_little(&spins);
	}
	return NULL;
}

/* pitfalls I13: either the poll after arming finds the message, or the descriptor becomes readable. */
static void a_message_at_the_moment_of_arming_is_never_missed(void **state)
{
	struct meeting meeting = { 0 };
	uint32_t spins = 0;
	struct side server, client;
	pthread_t thread;
	void *failure;

	(void)state;
	pair_open(&server, &client, 0);
	meeting.client = &client;
	assert_int_equal(pthread_create(&thread, NULL, send_at_the_same_moment, &meeting), 0);
	for (uint32_t i = 1; i <= MEETINGS; i++) {
		struct ibv_wc wc;
		int count;

		kvr_store_release(&meeting.round, i);
		for (uint32_t wait = i / 16 % 64; wait > 0; wait--)
			kvr_cpu_pause();
		(void)ibv_req_notify_cq(server.cq, 0);
		count = ibv_poll_cq(server.cq, 1, &wc);
		while (kvr_load_acquire(&meeting.sent) != i)
			wait_a_little(&spins);
		if (count == 0) {
			assert_true(side_is_readable(&server));
			verbs_local.cq_clear_event(server.cq);
			wc = side_wait(&server);
		} else if (side_is_readable(&server)) {
			verbs_local.cq_clear_event(server.cq);
		}
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		side_post_receive(&server, (uint32_t)wc.wr_id);
	}
	pthread_join(thread, &failure);
	assert_null(failure);
	side_close(&client);
	side_close(&server);
}

struct importer {
	struct side *server;
	struct verbs_remote_memory memory;
	uint32_t rkey; /* the latest, 0: none; atomic */
	uint32_t used; /* the latest that the polling thread is done with; atomic */
	uint32_t rounds;
};

/* As a control thread does: imports, hands the key over, and forgets it when nothing uses it any more. */
static void *import_and_forget(void *argument)
{
	struct importer *importer = argument;
	struct verbs_import import;

	for (uint32_t i = 0; i < importer->rounds; i++) {
		if (verbs_local.import_memory(importer->server->qp, &importer->memory, &import) != 0)
			return "import";
		kvr_store_release(&importer->rkey, import.rkey);
		while (kvr_load_acquire(&importer->used) != import.rkey)
			sched_yield();
		verbs_local.forget_memory(importer->server->qp, import.rkey);
	}
	kvr_store_release(&importer->rkey, UINT32_MAX);
	return NULL;
}

static void memory_is_imported_by_one_thread_while_another_polls(void **state)
{
	enum { AREA = 1 << 16 };
	struct importer importer = { .rounds = 300 };
	struct side server, client;
	struct verbs_export description;
	struct ibv_mr *mr;
	uint32_t done = 0;
	pthread_t thread;
	void *area, *failure;

	(void)state;
	pair_open(&server, &client, 4096);
	assert_int_equal(verbs_local.allocate(client.device, AREA, &area), 0);
	assert_int_equal(verbs_local.register_memory(
				 client.device, area, AREA, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &mr),
		0);
	assert_int_equal(verbs_local.export_memory(mr, &description), 0);
	importer.server = &server;
	importer.memory = (struct verbs_remote_memory){
		.address = (uintptr_t)area, .length = AREA, .kind = MEMORY_SHARED, .fd = description.fd
	};
	assert_int_equal(pthread_create(&thread, NULL, import_and_forget, &importer), 0);
	for (;;) {
		struct ibv_sge entry = buffer_entry(&server, RECEIVES, MESSAGE_BYTES);
		uint32_t rkey = kvr_load_acquire(&importer.rkey);
		struct ibv_wc wc;

		if (rkey == UINT32_MAX)
			break;
		if (rkey == 0 || rkey == kvr_load_relaxed(&importer.used)) {
			assert_int_equal(ibv_poll_cq(server.cq, 1, &wc), 0);
			continue;
		}
		assert_int_equal(side_transfer(&server, IBV_WR_RDMA_WRITE, &entry, 1, (uintptr_t)area, rkey, 1), 0);
		wc = side_wait(&server);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		done++;
		kvr_store_release(&importer.used, rkey);
	}
	pthread_join(thread, &failure);
	assert_null(failure);
	assert_int_equal(done, importer.rounds);
	assert_int_equal(verbs_local.deregister_memory(mr), 0);
	side_close(&server);
	verbs_local.release(client.device, area, AREA);
	side_close(&client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_wake_up_is_lost_in_a_hundred_thousand_messages),
		cmocka_unit_test(a_message_at_the_moment_of_arming_is_never_missed),
		cmocka_unit_test(a_sender_that_sleeps_on_a_full_ring_is_woken),
		cmocka_unit_test(memory_is_imported_by_one_thread_while_another_polls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
