/* test_local_process.c - the local driver between two processes: messages, memory, and a client that dies at any
 * moment. */
#include "test_local_pair.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "base/log.h"
#include "base/random.h"
#include "protocol/message.h"

#define AREA_BYTES (4u << 20)
#define ECHOES 1000u

/* What the client's process says of its memory. */
struct description {
	uint64_t address;
	uint64_t offset;
	uint32_t kind;
};

struct client_process {
	pid_t pid;
	int socket;
	struct description description;
	int fd;
};

static uint8_t pattern(uint64_t seed, uint32_t at)
{
	return (uint8_t)random_mix(seed * 0x10001 + at);
}

static bool send_with_fds(int socket, const void *bytes, size_t length, const int *fds, unsigned fd_count)
{
	char control[CMSG_SPACE(sizeof(int) * STREAM_FDS_MAX)] = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = length };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (fd_count > 0) {
		message.msg_control = control;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);

		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
		memcpy(CMSG_DATA(header), fds, sizeof(int) * fd_count);
	}
	return sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)length;
}

static bool receive_with_fds(int socket, void *bytes, size_t length, int *fds, unsigned *fd_count)
{
	char control[CMSG_SPACE(sizeof(int) * STREAM_FDS_MAX)];
	struct iovec iov = { .iov_base = bytes, .iov_len = length };
	struct msghdr message = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)
	};
	struct cmsghdr *header;

	*fd_count = 0;
	if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != (ssize_t)length)
		return false;
	header = CMSG_FIRSTHDR(&message);
	if (header && header->cmsg_type == SCM_RIGHTS) {
		*fd_count = (unsigned)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(header), sizeof(int) * *fd_count);
	}
	return true;
}

/* the client's process: leaves with a number that says where it failed ------------------------------------------- */

static void must(bool condition, int code)
{
	if (!condition)
		_exit(code);
}

static void client_exchange(struct side *side, int socket)
{
	struct offer mine, theirs;
	struct stream_peer peer = { 0, 0, 0 };

	must(verbs_local.qp_address(side->qp, mine.bytes, sizeof(mine.bytes), &mine.length, mine.fds, &mine.fd_count) ==
			0,
		10);
	must(send_with_fds(socket, mine.bytes, mine.length, NULL, 0), 11);
	must(receive_with_fds(socket, theirs.bytes, mine.length, theirs.fds, &theirs.fd_count), 12);
	must(verbs_local.qp_connect(side->qp, theirs.bytes, mine.length, theirs.fds, theirs.fd_count, &peer) == 0, 13);
	for (unsigned i = 0; i < theirs.fd_count; i++)
		close(theirs.fds[i]);
	verbs_local.qp_start(side->qp);
}

static void client_echo(struct side *side)
{
	for (unsigned done = 0; done < ECHOES;) {
		struct ibv_wc wc;

		if (ibv_poll_cq(side->cq, 1, &wc) == 0) {
			sched_yield();
			continue;
		}
		must(wc.status == IBV_WC_SUCCESS, 20);
		if (wc.opcode != IBV_WC_RECV)
			continue;
		memcpy(side->buffers + (size_t)RECEIVES * MESSAGE_BYTES, side->buffers + wc.wr_id * MESSAGE_BYTES,
			wc.byte_len);
		must(side_send(side, RECEIVES, wc.byte_len, 0) == 0, 21);
		side_post_receive(side, (uint32_t)wc.wr_id);
		done++;
	}
}

/* Commands: 'e' echo, 'v' does the memory hold pattern 1?, 'f' fill it with pattern 2, 'u' unmap it, 's' become another
 * user, 't' try to truncate. */
static void client_main(int socket, uint32_t kind)
{
	struct verbs_export export_description;
	struct description description = { 0 };
	struct side side;
	uint8_t *area;
	void *address;
	char command;

	side_open(&side, false, 0);
	client_exchange(&side, socket);
	if (kind == MEMORY_SHARED)
		must(verbs_local.allocate(side.device, AREA_BYTES, &address) == 0, 30);
	else
		/* far from where the test's process has anything */
		address = mmap(
			(void *)0x200000000000, AREA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	area = address;
	must(verbs_local.register_memory(side.device, area, AREA_BYTES,
		     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, &side.mr) == 0,
		31);
	must(verbs_local.export_memory(side.mr, &export_description) == 0, 32);
	must(export_description.kind == kind, 33);
	description.address = (uintptr_t)area;
	description.offset = export_description.offset;
	description.kind = export_description.kind;
	must(send_with_fds(
		     socket, &description, sizeof(description), &export_description.fd, export_description.fd >= 0),
		34);
	/* the messages' own buffers again */
	must(verbs_local.register_memory(side.device, side.buffers, (size_t)2 * RECEIVES * MESSAGE_BYTES,
		     IBV_ACCESS_LOCAL_WRITE, &side.mr) == 0,
		35);
	while (read(socket, &command, 1) == 1) {
		char answer = 'y';

		if (command == 'e')
			client_echo(&side);
		for (uint32_t i = 0; command == 'v' && i < AREA_BYTES; i++)
			answer = area[i] == pattern(1, i) ? answer : 'n';
		for (uint32_t i = 0; command == 'f' && i < AREA_BYTES; i++)
			area[i] = pattern(2, i);
		if (command == 'u')
			munmap(area, AREA_BYTES);
		if (command == 's')
			answer = seteuid(65534) == 0 ? 'y' : 'n';
		if (command == 't')
			answer = ftruncate(export_description.fd, 0) == -1 && errno == EPERM ? 'y' : 'n';
		must(write(socket, &answer, 1) == 1, 40);
	}
	_exit(0);
}

/* the server's process ------------------------------------------------------------------------------------------- */

static void start_client(struct side *server, struct client_process *client, uint32_t kind)
{
	struct offer from_client = { .length = 32 }, mine;
	struct stream_peer peer = this_process();
	unsigned fd_count;
	int sockets[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
	client->pid = fork();
	assert_true(client->pid >= 0);
	if (client->pid == 0) {
		close(sockets[0]);
		client_main(sockets[1], kind);
		_exit(99);
	}
	close(sockets[1]);
	client->socket = sockets[0];
	client->fd = -1;
	side_open(server, true, 64 << 10);
	assert_true(receive_with_fds(client->socket, from_client.bytes, 32, from_client.fds, &from_client.fd_count));
	peer.pid = client->pid;
	side_connect(server, &from_client, peer);
	side_offer(server, &mine);
	assert_true(send_with_fds(client->socket, mine.bytes, mine.length, mine.fds, mine.fd_count));
	assert_true(receive_with_fds(
		client->socket, &client->description, sizeof(client->description), &client->fd, &fd_count));
}

static void command(struct client_process *client, char what)
{
	char answer = 0;

	assert_int_equal(write(client->socket, &what, 1), 1);
	assert_int_equal(read(client->socket, &answer, 1), 1);
	assert_int_equal(answer, 'y');
}

static void reap(struct client_process *client)
{
	int status;

	close(client->socket);
	if (client->fd >= 0)
		close(client->fd);
	assert_int_equal(waitpid(client->pid, &status, 0), client->pid);
	assert_true(WIFEXITED(status) ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGKILL);
}

static struct verbs_import import_area(struct side *server, const struct client_process *client)
{
	struct verbs_remote_memory memory = { .address = client->description.address, .length = AREA_BYTES };
	struct verbs_import import;

	memory.offset = client->description.offset;
	memory.kind = client->description.kind;
	memory.fd = client->fd;
	assert_int_equal(verbs_local.import_memory(server->qp, &memory, &import), 0);
	return import;
}

static uint8_t *make_l1(struct side *server, struct ibv_mr **mr)
{
	uint8_t *l1 = aligned_alloc(4096, AREA_BYTES);

	assert_non_null(l1);
	for (uint32_t i = 0; i < AREA_BYTES; i++)
		l1[i] = pattern(1, i);
	assert_int_equal(verbs_local.register_memory(server->device, l1, AREA_BYTES, IBV_ACCESS_LOCAL_WRITE, mr), 0);
	return l1;
}

static unsigned open_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	unsigned count = 0;

	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

static void a_client_in_another_process_echoes(void **state)
{
	struct client_process client;
	struct side server;
	char what = 'e', answer;

	(void)state;
	start_client(&server, &client, MEMORY_SHARED);
	assert_int_equal(write(client.socket, &what, 1), 1);
	for (uint32_t i = 0; i < ECHOES; i++) {
		uint8_t *out = server.buffers + (size_t)RECEIVES * MESSAGE_BYTES;
		uint32_t length = i * 8 % (MESSAGE_BYTES + 1);
		struct ibv_wc wc;

		for (uint32_t at = 0; at < length; at++)
			out[at] = pattern(i, at);
		assert_int_equal(side_send(&server, RECEIVES, length, 0), 0);
		do {
			wc = side_wait(&server);
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
		} while (wc.opcode != IBV_WC_RECV);
		assert_int_equal(wc.byte_len, length);
		assert_memory_equal(server.buffers + wc.wr_id * MESSAGE_BYTES, out, length);
		side_post_receive(&server, (uint32_t)wc.wr_id);
	}
	assert_int_equal(read(client.socket, &answer, 1), 1);
	reap(&client);
	side_close(&server);
}

static void big_memory_goes_both_ways(uint32_t kind)
{
	struct client_process client;
	struct verbs_import import;
	struct side server;
	struct ibv_mr *l1_mr;
	struct ibv_sge entry;
	uint8_t *l1;

	start_client(&server, &client, kind);
	l1 = make_l1(&server, &l1_mr);
	import = import_area(&server, &client);
	entry = (struct ibv_sge){ (uintptr_t)l1, AREA_BYTES, l1_mr->lkey };
	assert_int_equal(side_transfer(&server, IBV_WR_RDMA_WRITE, &entry, 1, import.address, import.rkey, 1), 0);
	assert_int_equal(side_wait(&server).status, IBV_WC_SUCCESS);
	command(&client, 'v');
	command(&client, 'f');
	assert_int_equal(side_transfer(&server, IBV_WR_RDMA_READ, &entry, 1, import.address, import.rkey, 2), 0);
	assert_int_equal(side_wait(&server).status, IBV_WC_SUCCESS);
	for (uint32_t i = 0; i < AREA_BYTES; i++)
		assert_true(l1[i] == pattern(2, i));
	if (kind == MEMORY_SHARED)
		command(&client, 't');
	verbs_local.forget_memory(server.qp, import.rkey);
	reap(&client);
	assert_int_equal(verbs_local.deregister_memory(l1_mr), 0);
	side_close(&server);
	free(l1);
}

static void shared_memory_of_another_process_is_written_and_read(void **state)
{
	(void)state;
	big_memory_goes_both_ways(MEMORY_SHARED);
}

static void ordinary_memory_of_another_process_is_written_and_read(void **state)
{
	(void)state;
	big_memory_goes_both_ways(MEMORY_PROCESS);
}

static void kill_client(const struct client_process *client)
{
	siginfo_t info;

	kill(client->pid, SIGKILL);
	/* until it has ended; it stays there to be reaped */
	assert_int_equal(waitid(P_PID, (id_t)client->pid, &info, WEXITED | WNOWAIT), 0);
}

static void fail_and_flush(struct side *server, unsigned outstanding)
{
	unsigned completions = 0;
	struct ibv_wc wc;

	verbs_local.qp_fail(server->qp);
	while (!verbs_local.qp_idle(server->qp)) {
		if (ibv_poll_cq(server->cq, 1, &wc) == 1 && wc.opcode != IBV_WC_RECV)
			completions++;
	}
	assert_int_equal(completions, outstanding);
}

/* pitfalls C05, B07 */
static void a_client_killed_between_two_slices_leaves_nothing_behind(void **state)
{
	unsigned before = open_descriptors();

	(void)state;
	for (unsigned slices = 0; slices < 200; slices += 23) {
		struct client_process client;
		struct verbs_import import;
		struct side server;
		struct ibv_mr *l1_mr;
		struct ibv_sge entry;
		struct ibv_wc wc;
		unsigned outstanding = 3;
		uint8_t *l1;

		start_client(&server, &client, MEMORY_SHARED);
		l1 = make_l1(&server, &l1_mr);
		import = import_area(&server, &client);
		entry = (struct ibv_sge){ (uintptr_t)l1, AREA_BYTES, l1_mr->lkey };
		for (unsigned i = 0; i < 3; i++)
			assert_int_equal(side_transfer(&server, i == 1 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, &entry,
						 1, import.address, import.rkey, i),
				0);
		for (unsigned i = 0; i < slices; i++)
			outstanding -= (unsigned)ibv_poll_cq(server.cq, 1, &wc);
		kill_client(&client);
		/* goes on as if nothing had happened: the memory is the server's as well */
		for (unsigned i = 0; i < 5; i++)
			outstanding -= (unsigned)ibv_poll_cq(server.cq, 1, &wc);
		fail_and_flush(&server, outstanding);
		verbs_local.forget_memory(server.qp, import.rkey);
		reap(&client);
		assert_int_equal(verbs_local.deregister_memory(l1_mr), 0);
		side_close(&server);
		free(l1);
	}
	assert_int_equal(open_descriptors(), before);
}

static void a_dead_process_is_not_written_to(void **state)
{
	unsigned before = open_descriptors();

	(void)state;
	for (unsigned late = 0; late < 2; late++) {
		struct client_process client;
		struct verbs_import import;
		struct side server;
		struct ibv_mr *l1_mr;
		struct ibv_sge entry;
		struct ibv_wc wc;
		uint8_t *l1;

		start_client(&server, &client, MEMORY_PROCESS);
		l1 = make_l1(&server, &l1_mr);
		import = import_area(&server, &client);
		entry = (struct ibv_sge){ (uintptr_t)l1, AREA_BYTES, l1_mr->lkey };
		kill_client(&client);
		/* and once the number may be another's */
		if (late)
			reap(&client);
		assert_int_equal(
			side_transfer(&server, IBV_WR_RDMA_WRITE, &entry, 1, import.address, import.rkey, 1), 0);
		assert_int_equal(
			side_transfer(&server, IBV_WR_RDMA_WRITE, &entry, 1, import.address, import.rkey, 2), 0);
		wc = side_wait(&server);
		assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
		assert_int_equal(wc.wr_id, 1);
		fail_and_flush(&server, 1);
		if (!late)
			reap(&client);
		assert_int_equal(verbs_local.deregister_memory(l1_mr), 0);
		side_close(&server);
		free(l1);
	}
	assert_int_equal(open_descriptors(), before);
}

static void memory_that_the_client_unmapped_is_an_access_error(void **state)
{
	struct client_process client;
	struct verbs_import import;
	struct side server;
	struct ibv_mr *l1_mr;
	struct ibv_sge entry;
	uint8_t *l1;

	(void)state;
	start_client(&server, &client, MEMORY_PROCESS);
	l1 = make_l1(&server, &l1_mr);
	import = import_area(&server, &client);
	entry = (struct ibv_sge){ (uintptr_t)l1, AREA_BYTES, l1_mr->lkey };
	command(&client, 'u');
	assert_int_equal(side_transfer(&server, IBV_WR_RDMA_READ, &entry, 1, import.address, import.rkey, 1), 0);
	assert_int_equal(side_wait(&server).status, IBV_WC_REM_ACCESS_ERR);
	reap(&client);
	assert_int_equal(verbs_local.deregister_memory(l1_mr), 0);
	side_close(&server);
	free(l1);
}

/* The number of a process that has ended may be another's. pid as wanted, or -errno where that needs a right we lack. */
static pid_t start_impostor(pid_t wanted)
{
	struct clone_args arguments = {
		.exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&wanted, .set_tid_size = 1
	};
	long pid = syscall(SYS_clone3, &arguments, sizeof(arguments));

	if (pid == 0) {
		for (;;)
			(void)syscall(SYS_pause);
	}
	return pid < 0 ? (pid_t)-errno : (pid_t)pid;
}

static void a_process_with_a_recycled_number_is_not_written_to(void **state)
{
	struct client_process client;
	struct verbs_import import;
	struct side server;
	struct ibv_mr *l1_mr;
	struct ibv_sge entry;
	uint8_t *l1, *victim;
	pid_t impostor;

	(void)state;
	start_client(&server, &client, MEMORY_PROCESS);
	l1 = make_l1(&server, &l1_mr);
	import = import_area(&server, &client);
	kill_client(&client);
	reap(&client);
	victim = mmap((void *)(uintptr_t)import.address, AREA_BYTES, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	assert_true((uintptr_t)victim == import.address);
	impostor = start_impostor(client.pid);
	entry = (struct ibv_sge){ (uintptr_t)l1, AREA_BYTES, l1_mr->lkey };
	assert_int_equal(side_transfer(&server, IBV_WR_RDMA_WRITE, &entry, 1, import.address, import.rkey, 1), 0);
	assert_int_equal(side_wait(&server).status, IBV_WC_REM_ACCESS_ERR);
	for (uint32_t i = 0; i < AREA_BYTES; i++)
		assert_int_equal(victim[i], 0);
	if (impostor > 0) {
		kill(impostor, SIGKILL);
		assert_int_equal(waitpid(impostor, NULL, 0), impostor);
	}
	munmap(victim, AREA_BYTES);
	assert_int_equal(verbs_local.deregister_memory(l1_mr), 0);
	side_close(&server);
	free(l1);
	if (impostor < 0)
		skip();
}

static void a_process_that_changed_its_user_is_not_written_to(void **state)
{
	struct client_process client;
	struct verbs_import import;
	struct side server;
	struct ibv_mr *l1_mr;
	struct ibv_sge entry;
	uint8_t *l1;

	(void)state;
	if (geteuid() != 0)
		skip();
	start_client(&server, &client, MEMORY_PROCESS);
	l1 = make_l1(&server, &l1_mr);
	import = import_area(&server, &client);
	command(&client, 's');
	entry = (struct ibv_sge){ (uintptr_t)l1, AREA_BYTES, l1_mr->lkey };
	assert_int_equal(side_transfer(&server, IBV_WR_RDMA_WRITE, &entry, 1, import.address, import.rkey, 1), 0);
	assert_int_equal(side_wait(&server).status, IBV_WC_REM_ACCESS_ERR);
	reap(&client);
	assert_int_equal(verbs_local.deregister_memory(l1_mr), 0);
	side_close(&server);
	free(l1);
}

/* The helper is stopped at its next slice, and only then is the queue pair idle: no late byte lands (pitfalls C05,
 * F08). */
static void failing_during_a_helpers_transfer_waits_for_it(void **state)
{
	struct client_process client;
	struct verbs_import import;
	struct side server;
	struct ibv_mr *l1_mr;
	struct ibv_sge entry;
	uint8_t *l1;

	(void)state;
	start_client(&server, &client, MEMORY_PROCESS);
	l1 = make_l1(&server, &l1_mr);
	import = import_area(&server, &client);
	for (unsigned i = 0; i < 20; i++) {
		entry = (struct ibv_sge){ (uintptr_t)l1, AREA_BYTES, l1_mr->lkey };
		assert_int_equal(
			side_transfer(&server, IBV_WR_RDMA_READ, &entry, 1, import.address, import.rkey, i), 0);
	}
	{
		struct ibv_wc wc;
		unsigned done = (unsigned)ibv_poll_cq(server.cq, 1, &wc);

		done += (unsigned)ibv_poll_cq(server.cq, 1, &wc);
		fail_and_flush(&server, 20 - done);
	}
	memset(l1, 0x77, AREA_BYTES);
	command(&client, 'f');
	for (uint32_t i = 0; i < AREA_BYTES; i++)
		assert_int_equal(l1[i], 0x77);
	reap(&client);
	assert_int_equal(verbs_local.deregister_memory(l1_mr), 0);
	side_close(&server);
	free(l1);
}

static void say_nothing(void *context, enum log_level level, const char *line)
{
	(void)context;
	(void)level;
	(void)line;
}

static int quiet(void **state)
{
	(void)state;
	log_set_sink(say_nothing, NULL);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_client_in_another_process_echoes),
		cmocka_unit_test(shared_memory_of_another_process_is_written_and_read),
		cmocka_unit_test(ordinary_memory_of_another_process_is_written_and_read),
		cmocka_unit_test(a_client_killed_between_two_slices_leaves_nothing_behind),
		cmocka_unit_test(a_dead_process_is_not_written_to),
		cmocka_unit_test(a_process_with_a_recycled_number_is_not_written_to),
		cmocka_unit_test(a_process_that_changed_its_user_is_not_written_to),
		cmocka_unit_test(memory_that_the_client_unmapped_is_an_access_error),
		cmocka_unit_test(failing_during_a_helpers_transfer_waits_for_it),
	};

	return cmocka_run_group_tests(tests, quiet, NULL);
}
