/* test_local_steps.c - what a step of the local driver may cost: no system call, a bounded slice, and turns for
 * everybody. */
#include "test_local_pair.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol/message.h"

#define AREA_BYTES (1u << 20)

struct area {
	void *address;
	struct ibv_mr *mr;
	struct verbs_import import;
};

static void area_open(struct area *area, struct side *server, struct side *client, uint32_t length)
{
	struct verbs_remote_memory memory = { .length = length };
	struct verbs_export description;

	assert_int_equal(verbs_local.allocate(client->device, length, &area->address), 0);
	assert_int_equal(verbs_local.register_memory(client->device, area->address, length,
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &area->mr),
		0);
	assert_int_equal(verbs_local.export_memory(area->mr, &description), 0);
	memory.address = (uintptr_t)area->address;
	memory.kind = description.kind;
	memory.fd = description.fd;
	assert_int_equal(verbs_local.import_memory(server->qp, &memory, &area->import), 0);
}

static void area_close(struct area *area, struct side *client)
{
	assert_int_equal(verbs_local.deregister_memory(area->mr), 0);
	verbs_local.release(client->device, area->address, AREA_BYTES);
}

/* From here on any system call but leaving ends the process with SIGSYS. */
static void forbid_system_calls(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = { .len = KVR_COUNT_OF(filter), .filter = filter };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
		_exit(2);
}

/* Messages both ways and transfers; a number that says what went wrong, 0. */
static int work_hard(struct side *server, struct side *client, const struct area *area)
{
	for (unsigned round = 0; round < 10000; round++) {
		struct ibv_sge entry = { (uintptr_t)server->buffers, 3 * MESSAGE_BYTES, server->mr->lkey };
		unsigned sends = 0, receives = 0;

		if (side_send(client, RECEIVES, round % (MESSAGE_BYTES + 1), 1) != 0 ||
			side_transfer(server, IBV_WR_RDMA_WRITE, &entry, 1, area->import.address, area->import.rkey,
				2) != 0 ||
			side_send(server, RECEIVES, 8, 3) != 0)
			return 3;
		while (sends < 3 || receives < 2) {
			for (unsigned i = 0; i < 2; i++) {
				struct side *side = i ? client : server;
				struct ibv_wc wc;

				if (ibv_poll_cq(side->cq, 1, &wc) == 0)
					continue;
				if (wc.status != IBV_WC_SUCCESS)
					return 4;
				if (wc.opcode == IBV_WC_RECV) {
					side_post_receive(side, (uint32_t)wc.wr_id);
					receives++;
				} else {
					sends++;
				}
			}
		}
	}
	return 0;
}

static void posting_and_polling_make_no_system_call(void **state)
{
	struct side server, client;
	struct area area;
	pid_t child;
	int status;

	(void)state;
	pair_open(&server, &client, 16384);
	area_open(&area, &server, &client, AREA_BYTES);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		forbid_system_calls();
		/* not _exit(), before which AddressSanitizer asks the kernel for something */
		(void)syscall(SYS_exit_group, work_hard(&server, &client, &area));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	/* the filter does what it says */
	child = fork();
	if (child == 0) {
		forbid_system_calls();
		(void)getppid();
		(void)syscall(SYS_exit_group, 0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	verbs_local.forget_memory(server.qp, area.import.rkey);
	area_close(&area, &client);
	side_close(&client);
	side_close(&server);
}

static void a_poll_moves_no_more_than_a_slice(void **state)
{
	enum { SLICE = 16384 };
	struct side server, client;
	struct area area;
	struct ibv_mr *l1_mr;
	struct ibv_sge entry;
	struct ibv_wc wc;
	uint8_t *l1 = malloc(AREA_BYTES);
	unsigned polls = 1;

	(void)state;
	pair_open(&server, &client, SLICE);
	area_open(&area, &server, &client, AREA_BYTES);
	memset(l1, 0x11, AREA_BYTES);
	assert_int_equal(verbs_local.register_memory(server.device, l1, AREA_BYTES, 0, &l1_mr), 0);
	entry = (struct ibv_sge){ (uintptr_t)l1, AREA_BYTES, l1_mr->lkey };
	assert_int_equal(
		side_transfer(&server, IBV_WR_RDMA_WRITE, &entry, 1, area.import.address, area.import.rkey, 1), 0);
	assert_int_equal(((uint8_t *)area.address)[0], 0);
	while (ibv_poll_cq(server.cq, 1, &wc) == 0) {
		uint8_t *area_bytes = area.address;

		assert_int_equal(area_bytes[polls * SLICE - 1], 0x11);
		assert_int_equal(area_bytes[polls * SLICE], 0);
		polls++;
	}
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(polls, AREA_BYTES / SLICE);
	assert_int_equal(verbs_local.deregister_memory(l1_mr), 0);
	area_close(&area, &client);
	side_close(&client);
	side_close(&server);
	free(l1);
}

/* A second queue pair of the same server, on its queue, with a client of its own. */
static struct ibv_qp *second_client(struct side *server, struct side *client)
{
	struct verbs_qp_options options = { .send_cq = server->cq,
		.recv_cq = server->cq,
		.max_send_wr = 64,
		.max_recv_wr = 1,
		.max_sge = 4,
		.max_message_bytes = MESSAGE_BYTES,
		.peer_recv_wr = RECEIVES };
	struct stream_peer peer = this_process();
	struct offer from_server, from_client;
	struct side second = *server;

	assert_int_equal(verbs_local.create_qp(server->device, &options, &second.qp), 0);
	side_open(client, false, 0);
	side_offer(&second, &from_server);
	side_offer(client, &from_client);
	side_connect(&second, &from_client, peer);
	side_connect(client, &from_server, peer);
	return second.qp;
}

static void transfers_of_two_clients_take_turns(void **state)
{
	struct side server, second, client, other;
	struct area area, other_area;
	struct ibv_sge entry;
	unsigned done = 0;
	struct ibv_wc wc;

	(void)state;
	pair_open(&server, &client, MESSAGE_BYTES);
	second = server;
	second.qp = second_client(&server, &other);
	area_open(&area, &server, &client, AREA_BYTES);
	area_open(&other_area, &second, &other, AREA_BYTES);
	entry = (struct ibv_sge){ (uintptr_t)server.buffers, MESSAGE_BYTES * 8, server.mr->lkey };
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(
			side_transfer(&server, IBV_WR_RDMA_WRITE, &entry, 1, area.import.address, area.import.rkey, i),
			0);
	assert_int_equal(side_transfer(&second, IBV_WR_RDMA_WRITE, &entry, 1, other_area.import.address,
				 other_area.import.rkey, 100),
		0);
	do {
		wc = side_wait(&server);
		done++;
	} while (wc.wr_id != 100);
	assert_int_equal(wc.qp_num, second.qp->qp_num);
	/* the long queue of the first client did not keep the second one waiting */
	assert_true(done <= 2);
	verbs_local.qp_fail(second.qp);
	while (!verbs_local.qp_idle(second.qp))
		(void)ibv_poll_cq(server.cq, 1, &wc);
	verbs_local.qp_stop(second.qp);
	verbs_local.destroy_qp(second.qp);
	verbs_local.qp_fail(server.qp);
	while (!verbs_local.qp_idle(server.qp))
		(void)ibv_poll_cq(server.cq, 1, &wc);
	area_close(&area, &client);
	area_close(&other_area, &other);
	side_close(&other);
	side_close(&client);
	side_close(&server);
}

/* WRITE with immediate: the bytes are there when the receive completes, and the receive's buffer is not used. */
static void an_immediate_tells_of_bytes_written(void **state)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .num_sge = 1, .imm_data = 0x12345678 }, *bad;
	struct side server, client;
	struct ibv_sge entry;
	struct area area;
	struct ibv_wc wc;

	(void)state;
	pair_open(&server, &client, 1000);
	area_open(&area, &server, &client, AREA_BYTES);
	memset(server.buffers, 0x33, 3 * MESSAGE_BYTES);
	entry = (struct ibv_sge){ (uintptr_t)server.buffers, 3 * MESSAGE_BYTES, server.mr->lkey };
	wr.sg_list = &entry;
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = area.import.address;
	wr.wr.rdma.rkey = area.import.rkey;
	assert_int_equal(ibv_post_send(server.qp, &wr, &bad), 0);
	while (ibv_poll_cq(client.cq, 1, &wc) == 0)
		assert_true(ibv_poll_cq(server.cq, 1, &wc) >= 0);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(wc.byte_len, 3 * MESSAGE_BYTES);
	assert_int_equal(wc.imm_data, 0x12345678);
	assert_int_equal(client.buffers[0], 0);
	assert_memory_equal(area.address, server.buffers, 3 * MESSAGE_BYTES);
	area_close(&area, &client);
	side_close(&client);
	side_close(&server);
}

/* Work that only polling moves: the owner may not fall asleep over it. */
static void a_queue_with_work_left_is_readable_when_armed(void **state)
{
	struct side server, client;
	struct ibv_sge entry;
	struct area area;
	struct ibv_wc wc;

	(void)state;
	pair_open(&server, &client, 1000);
	area_open(&area, &server, &client, AREA_BYTES);
	entry = (struct ibv_sge){ (uintptr_t)server.buffers, 3 * MESSAGE_BYTES, server.mr->lkey };
	assert_int_equal(
		side_transfer(&server, IBV_WR_RDMA_WRITE, &entry, 1, area.import.address, area.import.rkey, 1), 0);
	for (unsigned rounds = 0;; rounds++) {
		assert_true(rounds < 1000);
		if (ibv_poll_cq(server.cq, 1, &wc) == 1)
			break;
		assert_int_equal(ibv_req_notify_cq(server.cq, 0), 0);
		assert_true(side_is_readable(&server));
		verbs_local.cq_clear_event(server.cq);
		assert_false(side_is_readable(&server));
	}
	assert_int_equal(ibv_req_notify_cq(server.cq, 0), 0);
	assert_false(side_is_readable(&server));
	/* and what is posted while it is armed */
	assert_int_equal(
		side_transfer(&server, IBV_WR_RDMA_WRITE, &entry, 1, area.import.address, area.import.rkey, 1), 0);
	assert_true(side_is_readable(&server));
	area_close(&area, &client);
	side_close(&client);
	side_close(&server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(posting_and_polling_make_no_system_call),
		cmocka_unit_test(a_poll_moves_no_more_than_a_slice),
		cmocka_unit_test(transfers_of_two_clients_take_turns),
		cmocka_unit_test(an_immediate_tells_of_bytes_written),
		cmocka_unit_test(a_queue_with_work_left_is_readable_when_armed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
