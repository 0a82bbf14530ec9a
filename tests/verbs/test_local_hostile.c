/* test_local_hostile.c - a client that breaks the rules: what it offers is refused, what it scribbles harms only
 * itself. */
#include "test_local_pair.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/random.h"
#include "protocol/message.h"
#include "verbs/local/shared.h"

#define AREA_BYTES 65536u

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

/* A memfd of `bytes` with these seals, populated or not. */
static int make_memfd(uint64_t bytes, int seals, bool populated)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	if (populated)
		assert_int_equal(fallocate(fd, 0, 0, (off_t)bytes), 0);
	if (seals)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static int import_fd(struct side *server, int fd, uint64_t offset, uint64_t length)
{
	struct verbs_remote_memory memory = { .address = 0x10000, .length = length, .offset = offset };
	struct verbs_import import;
	int rc;

	memory.kind = MEMORY_SHARED;
	memory.fd = fd;
	rc = verbs_local.import_memory(server->qp, &memory, &import);
	if (rc == 0)
		verbs_local.forget_memory(server->qp, import.rkey);
	return rc;
}

static void close_pair(struct side *server, struct side *client)
{
	side_close(client);
	side_close(server);
}

static void memory_that_could_shrink_is_refused(void **state)
{
	struct side server, client;
	int sealed = make_memfd(AREA_BYTES, F_SEAL_SHRINK, true);
	int open_end = make_memfd(AREA_BYTES, 0, true);
	int grow_only = make_memfd(AREA_BYTES, F_SEAL_GROW, true);
	int unsealable = memfd_create("test", MFD_CLOEXEC);
	int zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
	int pipe_fds[2];

	(void)state;
	pair_open(&server, &client, 0);
	assert_int_equal(pipe(pipe_fds), 0);
	assert_int_equal(ftruncate(unsealable, AREA_BYTES), 0);
	assert_int_equal(import_fd(&server, sealed, 0, AREA_BYTES), 0);
	assert_int_equal(import_fd(&server, open_end, 0, AREA_BYTES), -EPERM);
	assert_int_equal(import_fd(&server, grow_only, 0, AREA_BYTES), -EPERM);
	assert_int_equal(import_fd(&server, unsealable, 0, AREA_BYTES), -EPERM);
	assert_int_equal(import_fd(&server, zero, 0, AREA_BYTES), -EPERM);
	assert_int_equal(import_fd(&server, pipe_fds[0], 0, AREA_BYTES), -EPERM);
	assert_int_equal(import_fd(&server, -1, 0, AREA_BYTES), -EINVAL);
	/* with the seal on, the client has no way to take it back */
	assert_int_equal(ftruncate(sealed, 0), -1);
	assert_int_equal(errno, EPERM);
	close(sealed);
	close(open_end);
	close(grow_only);
	close(unsealable);
	close(zero);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	close_pair(&server, &client);
}

static void memory_that_is_not_there_is_refused(void **state)
{
	struct side server, client;
	int sealed = make_memfd(AREA_BYTES, F_SEAL_SHRINK, true);
	int sparse = make_memfd(UINT64_C(1) << 40, F_SEAL_SHRINK, false);
	int unwritable = make_memfd(AREA_BYTES, F_SEAL_SHRINK | F_SEAL_WRITE, true);
	char path[64];
	int read_only;

	(void)state;
	pair_open(&server, &client, 0);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", sealed);
	read_only = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(read_only >= 0);
	assert_int_equal(import_fd(&server, sealed, 0, AREA_BYTES + 1), -EFAULT);
	assert_int_equal(import_fd(&server, sealed, 1, AREA_BYTES), -EFAULT);
	assert_int_equal(import_fd(&server, sealed, AREA_BYTES, 1), -EFAULT);
	assert_int_equal(import_fd(&server, sealed, UINT64_MAX - 1, 16), -EFAULT);
	assert_int_equal(import_fd(&server, sealed, 0, 0), -EINVAL);
	assert_int_equal(import_fd(&server, sealed, 0, UINT64_MAX), -EINVAL);
	assert_int_equal(import_fd(&server, sealed, AREA_BYTES - 1, 1), 0);
	/* a terabyte that the server would have to come up with */
	assert_int_equal(import_fd(&server, sparse, 0, UINT64_C(1) << 40), -EFAULT);
	assert_int_equal(import_fd(&server, unwritable, 0, AREA_BYTES), -EPERM);
	assert_int_equal(import_fd(&server, read_only, 0, AREA_BYTES), -EPERM);
	close(read_only);
	close(sealed);
	close(sparse);
	close(unwritable);
	close_pair(&server, &client);
}

/* Pages that may be missing later are given only to, and taken only from, those who could kill this process anyway. */
static void huge_pages_are_shared_with_the_same_user_only(void **state)
{
	enum { HUGE = 2 << 20 };
	struct stream_peer stranger = this_process();
	struct offer from_server, from_client;
	struct side server, client;
	struct verbs_export description;
	struct ibv_mr *mr;
	void *address;
	int probe = memfd_create("test", MFD_CLOEXEC | MFD_HUGETLB);
	bool there_are = probe >= 0 && fallocate(probe, 0, 0, (off_t)2 * HUGE) == 0;

	(void)state;
	close(probe);
	if (!there_are)
		skip();
	stranger.uid++;
	pair_open(&server, &client, 0);
	assert_int_equal(verbs_local.allocate(client.device, HUGE + 1, &address), 0);
	memset(address, 1, HUGE + 1);
	assert_int_equal(verbs_local.register_memory(client.device, address, HUGE + 1,
				 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &mr),
		0);
	assert_int_equal(verbs_local.export_memory(mr, &description), 0);
	assert_int_equal(description.kind, MEMORY_SHARED);
	assert_int_equal(fcntl(description.fd, F_GET_SEALS) & F_SEAL_SHRINK, F_SEAL_SHRINK);
	assert_int_equal(lseek(description.fd, 0, SEEK_END), 2 * HUGE);
	assert_int_equal(import_fd(&server, description.fd, 0, HUGE + 1), 0);
	side_close(&server);
	side_open(&server, true, 0);
	side_offer(&server, &from_server);
	side_offer(&client, &from_client);
	side_connect(&server, &from_client, stranger);
	assert_int_equal(import_fd(&server, description.fd, 0, HUGE + 1), -EPERM);
	assert_int_equal(verbs_local.deregister_memory(mr), 0);
	verbs_local.release(client.device, address, HUGE + 1);
	close_pair(&server, &client);
}

static void memory_of_unknown_kinds_is_refused(void **state)
{
	struct verbs_remote_memory memory = { .address = 0x10000, .length = 4096, .fd = -1 };
	struct verbs_import import;
	struct side server, client;

	(void)state;
	pair_open(&server, &client, 0);
	for (uint32_t kind = 0; kind < 10; kind++) {
		memory.kind = kind;
		if (kind == MEMORY_DEVICE)
			assert_int_equal(verbs_local.import_memory(server.qp, &memory, &import), -ENODEV);
		else if (kind != MEMORY_SHARED && kind != MEMORY_PROCESS)
			assert_int_equal(verbs_local.import_memory(server.qp, &memory, &import), -EOPNOTSUPP);
	}
	memory.kind = MEMORY_PROCESS;
	memory.address = UINT64_MAX - 100;
	assert_int_equal(verbs_local.import_memory(server.qp, &memory, &import), -EINVAL);
	memory.address = 0x10000;
	/* imports are the server's */
	assert_int_equal(verbs_local.import_memory(client.qp, &memory, &import), -EINVAL);
	close_pair(&server, &client);
}

static void a_connection_has_a_bound_on_its_regions(void **state)
{
	struct verbs_remote_memory memory = { .address = 0x10000, .length = 4096, .kind = MEMORY_SHARED };
	struct verbs_import import;
	struct side server, client;
	unsigned count = 0;
	int rc;

	(void)state;
	memory.fd = make_memfd(AREA_BYTES, F_SEAL_SHRINK, true);
	pair_open(&server, &client, 0);
	while ((rc = verbs_local.import_memory(server.qp, &memory, &import)) == 0)
		count++;
	assert_int_equal(rc, -ENOSPC);
	assert_int_equal(count, WIRE_REGIONS_MAX);
	verbs_local.forget_memory(server.qp, import.rkey);
	assert_int_equal(verbs_local.import_memory(server.qp, &memory, &import), 0);
	/* what is left goes with the queue pair */
	close_pair(&server, &client);
	close(memory.fd);
}

static void holes_punched_into_client_memory_read_as_zeroes(void **state)
{
	struct verbs_remote_memory memory = { .address = 0x10000, .length = AREA_BYTES, .kind = MEMORY_SHARED };
	struct verbs_import import;
	struct side server, client;
	struct ibv_sge entry;

	(void)state;
	memory.fd = make_memfd(AREA_BYTES, F_SEAL_SHRINK, true);
	pair_open(&server, &client, 1024);
	assert_int_equal(verbs_local.import_memory(server.qp, &memory, &import), 0);
	for (unsigned round = 0; round < 100; round++) {
		struct ibv_wc wc;

		entry = buffer_entry(&server, RECEIVES, AREA_BYTES);
		memset(server.buffers + (size_t)RECEIVES * MESSAGE_BYTES, 0x5a, AREA_BYTES);
		assert_int_equal(side_transfer(&server, round % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, &entry, 1,
					 0x10000, import.rkey, round),
			0);
		do {
			assert_int_equal(
				fallocate(memory.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, AREA_BYTES), 0);
		} while (ibv_poll_cq(server.cq, 1, &wc) == 0);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		if (round % 2)
			assert_int_equal(server.buffers[(size_t)(RECEIVES + 1) * MESSAGE_BYTES], 0);
	}
	close_pair(&server, &client);
	close(memory.fd);
}

static void addresses_of_other_making_are_refused(void **state)
{
	struct stream_peer peer = this_process();
	struct offer from_server, from_client;
	struct random random;
	struct side server, client;

	(void)state;
	random_init(&random, 11);
	side_open(&server, true, 0);
	side_open(&client, false, 0);
	side_offer(&server, &from_server);
	side_offer(&client, &from_client);
	for (uint32_t length = 0; length < from_server.length; length++) {
		assert_int_equal(
			verbs_local.qp_connect(client.qp, from_server.bytes, length, from_server.fds, 2, &peer),
			-EBADMSG);
		assert_int_equal(
			verbs_local.qp_connect(server.qp, from_client.bytes, length, NULL, 0, &peer), -EBADMSG);
	}
	/* the wrong side's, and without its descriptors */
	assert_int_equal(
		verbs_local.qp_connect(server.qp, from_server.bytes, from_server.length, NULL, 0, &peer), -EBADMSG);
	assert_int_equal(
		verbs_local.qp_connect(client.qp, from_client.bytes, from_client.length, NULL, 0, &peer), -EBADMSG);
	assert_int_equal(
		verbs_local.qp_connect(client.qp, from_server.bytes, from_server.length, NULL, 0, &peer), -EBADMSG);
	for (unsigned round = 0; round < 2000; round++) {
		struct offer broken = from_server;

		/* the queue pair's number may be anything, the longest message anything that takes the same slots */
		uint64_t at = random_below(&random, LOCAL_ADDRESS_BYTES - 5);

		at = at < 8 ? at : at < 16 ? at + 4 : at + 5;
		broken.bytes[at] ^= (uint8_t)(1u << random_below(&random, 8));
		assert_int_not_equal(
			verbs_local.qp_connect(client.qp, broken.bytes, broken.length, broken.fds, 2, &peer), 0);
	}
	/* and with all that it is still as good as new */
	side_connect(&client, &from_server, peer);
	side_connect(&server, &from_client, peer);
	assert_int_equal(side_send(&client, RECEIVES, 10, 0), 0);
	assert_int_equal(side_wait(&server).byte_len, 10);
	close_pair(&server, &client);
}

/* A server's queue pair, and its shared memory as a client's process sees it. */
struct victim {
	struct side server, client;
	struct local_geometry geometry;
	struct local_shared *shared;
};

static void victim_open(struct victim *victim)
{
	struct offer offer, from_client;
	struct local_address address;

	side_open(&victim->server, true, 0);
	side_open(&victim->client, false, 0);
	side_offer(&victim->server, &offer);
	side_offer(&victim->client, &from_client);
	assert_int_equal(local_address_decode(offer.bytes, offer.length, &address), 0);
	victim->geometry = address.geometry;
	victim->shared = mmap(
		NULL, local_shared_bytes(&victim->geometry), PROT_READ | PROT_WRITE, MAP_SHARED, offer.fds[0], 0);
	assert_true(victim->shared != MAP_FAILED);
	side_connect(&victim->server, &from_client, this_process());
}

static void victim_close(struct victim *victim)
{
	munmap(victim->shared, local_shared_bytes(&victim->geometry));
	side_close(&victim->client);
	side_close(&victim->server);
}

/* Slot `index` of the ring that the client fills. */
static struct local_slot *client_slot(const struct victim *victim, uint32_t index)
{
	return (struct local_slot *)(void *)((uint8_t *)victim->shared + LOCAL_SLOTS_OFFSET +
		(uint64_t)index * victim->geometry.stride);
}

static void a_message_longer_than_its_slot_fails_the_queue_pair(void **state)
{
	struct victim victim;
	struct ibv_wc wc;

	(void)state;
	victim_open(&victim);
	client_slot(&victim, 0)->length = victim.geometry.message_bytes + 1;
	client_slot(&victim, 0)->kind = LOCAL_SLOT_SEND;
	kvr_store_release(&client_slot(&victim, 0)->sequence, 1);
	wc = side_wait(&victim.server);
	assert_int_equal(wc.status, IBV_WC_REM_OP_ERR);
	assert_int_equal(victim.server.qp->state, IBV_QPS_ERR);
	victim_close(&victim);
}

static void messages_of_another_lap_are_not_taken(void **state)
{
	static const uint32_t offsets[] = { 0, 2, 100, UINT32_MAX };
	struct victim victim;
	struct ibv_wc wc;

	(void)state;
	victim_open(&victim);
	client_slot(&victim, 0)->length = 4;
	client_slot(&victim, 0)->kind = LOCAL_SLOT_SEND;
	for (uint32_t i = 0; i < KVR_COUNT_OF(offsets); i++) {
		kvr_store_release(&client_slot(&victim, 0)->sequence, offsets[i]);
		assert_int_equal(ibv_poll_cq(victim.server.cq, 1, &wc), 0);
	}
	kvr_store_release(&client_slot(&victim, 0)->sequence, 1);
	assert_int_equal(side_wait(&victim.server).byte_len, 4);
	victim_close(&victim);
}

static void a_head_that_runs_ahead_fails_the_queue_pair(void **state)
{
	struct victim victim;
	struct ibv_wc wc;

	(void)state;
	victim_open(&victim);
	for (uint32_t i = 0; i < victim.geometry.slots; i++) {
		assert_int_equal(side_send(&victim.server, RECEIVES, 8, i), 0);
		assert_int_equal(side_wait(&victim.server).status, IBV_WC_SUCCESS);
	}
	kvr_store_release(&victim.shared->side[LOCAL_CLIENT].head, victim.geometry.slots + 1);
	assert_int_equal(side_send(&victim.server, RECEIVES, 8, 77), 0);
	wc = side_wait(&victim.server);
	assert_int_equal(wc.status, IBV_WC_REM_OP_ERR);
	assert_int_equal(wc.wr_id, 77);
	victim_close(&victim);
}

/* Writes what a hostile client might: mostly into the words that matter, near values that are right. */
static void scribble(struct random *random, struct local_shared *shared, const struct local_geometry *geometry)
{
	uint64_t bytes = local_shared_bytes(geometry);
	uint64_t slot = random_below(random, (uint64_t)2 * geometry->slots);
	uint32_t *words = (uint32_t *)(void *)((uint8_t *)shared + LOCAL_SLOTS_OFFSET + slot * geometry->stride);
	uint32_t value = random_chance(random, 1, 2) ? (uint32_t)random_next(random)
						     : (uint32_t)random_below(random, 70);

	switch (random_below(random, 8)) {
	case 0:
		kvr_store_relaxed(&shared->side[random_below(random, 2)].head, value);
		break;
	case 1:
		kvr_store_relaxed(&shared->side[random_below(random, 2)].sleeping, value);
		break;
	case 2:
		if (random_chance(random, 1, 20))
			kvr_store_relaxed(&shared->side[random_below(random, 2)].closed, value);
		break;
	case 3:
		((uint8_t *)shared)[random_below(random, bytes)] = (uint8_t)value;
		break;
	default: {
		uint32_t index = (uint32_t)slot % geometry->slots;
		uint32_t lap = (uint32_t)random_below(random, 4) * geometry->slots;

		words[1] = random_chance(random, 1, 3) ? value : (uint32_t)random_below(random, 8200);
		words[2] = random_chance(random, 1, 3) ? value : (uint32_t)random_below(random, 4);
		kvr_store_release(&words[0], random_chance(random, 1, 4) ? value : lap + index + 1);
		break;
	}
	}
}

/* One life of a server's queue pair with such a client. */
static void survive(uint64_t seed)
{
	struct victim victim;
	struct side *server = &victim.server;
	struct random random;

	random_init(&random, seed);
	victim_open(&victim);
	for (unsigned step = 0; step < 300 && server->qp->state != IBV_QPS_ERR; step++) {
		struct ibv_wc wc[4];
		int count;

		scribble(&random, victim.shared, &victim.geometry);
		if (random_chance(&random, 1, 3))
			(void)side_send(server, RECEIVES, (uint32_t)random_below(&random, MESSAGE_BYTES + 1), 0);
		if (random_chance(&random, 1, 10))
			(void)ibv_req_notify_cq(server->cq, 0);
		count = ibv_poll_cq(server->cq, 4, wc);
		for (int i = 0; i < count; i++) {
			if (wc[i].status == IBV_WC_SUCCESS && wc[i].opcode == IBV_WC_RECV) {
				assert_true(wc[i].byte_len <= MESSAGE_BYTES);
				side_post_receive(server, (uint32_t)wc[i].wr_id);
			}
		}
		if (random_chance(&random, 1, 10))
			verbs_local.cq_clear_event(server->cq);
	}
	victim_close(&victim);
}

static void scribbled_rings_harm_nobody(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 400; seed++)
		survive(seed);
}

/* The same from the client's point of view: it must not be harmed by a server either. */
static void a_client_survives_a_scribbling_server(void **state)
{
	struct random random;

	(void)state;
	random_init(&random, 99);
	for (unsigned life = 0; life < 200; life++) {
		struct local_address address;
		struct side server, client;
		struct offer offer;
		void *map;

		pair_open(&server, &client, 0);
		side_offer(&server, &offer);
		assert_int_equal(local_address_decode(offer.bytes, offer.length, &address), 0);
		map = mmap(NULL, local_shared_bytes(&address.geometry), PROT_READ | PROT_WRITE, MAP_SHARED,
			offer.fds[0], 0);
		assert_true(map != MAP_FAILED);
		for (unsigned step = 0; step < 100 && client.qp->state != IBV_QPS_ERR; step++) {
			struct ibv_wc wc;

			scribble(&random, map, &address.geometry);
			(void)side_send(&client, RECEIVES, (uint32_t)random_below(&random, MESSAGE_BYTES + 1), 0);
			if (ibv_poll_cq(client.cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS &&
				wc.opcode == IBV_WC_RECV)
				side_post_receive(&client, (uint32_t)wc.wr_id);
		}
		munmap(map, local_shared_bytes(&address.geometry));
		side_close(&client);
		side_close(&server);
	}
}

/* A client may do to the wake socket what it likes: the server never blocks on it. */
static void a_stuffed_wake_socket_does_not_block_the_server(void **state)
{
	struct side server, client;
	struct offer offer;
	struct ibv_wc wc;

	(void)state;
	pair_open(&server, &client, 0);
	side_offer(&server, &offer);
	while (send(offer.fds[1], "x", 1, MSG_DONTWAIT) == 1)
		continue;
	assert_int_equal(ibv_req_notify_cq(server.cq, 0), 0);
	verbs_local.cq_clear_event(server.cq);
	/* the server's own wakes find the client's end full */
	for (unsigned i = 0; i < 5000; i++) {
		assert_int_equal(ibv_req_notify_cq(client.cq, 0), 0);
		assert_int_equal(side_send(&server, RECEIVES, 8, 0), 0);
		assert_int_equal(side_wait(&server).status, IBV_WC_SUCCESS);
		wc = side_wait(&client);
		assert_int_equal(wc.byte_len, 8);
		side_post_receive(&client, (uint32_t)wc.wr_id);
		assert_int_equal(ibv_req_notify_cq(client.cq, 0), 0);
	}
	close_pair(&server, &client);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_that_could_shrink_is_refused),
		cmocka_unit_test(memory_that_is_not_there_is_refused),
		cmocka_unit_test(huge_pages_are_shared_with_the_same_user_only),
		cmocka_unit_test(memory_of_unknown_kinds_is_refused),
		cmocka_unit_test(a_connection_has_a_bound_on_its_regions),
		cmocka_unit_test(holes_punched_into_client_memory_read_as_zeroes),
		cmocka_unit_test(addresses_of_other_making_are_refused),
		cmocka_unit_test(a_message_longer_than_its_slot_fails_the_queue_pair),
		cmocka_unit_test(messages_of_another_lap_are_not_taken),
		cmocka_unit_test(a_head_that_runs_ahead_fails_the_queue_pair),
		cmocka_unit_test(scribbled_rings_harm_nobody),
		cmocka_unit_test(a_client_survives_a_scribbling_server),
		cmocka_unit_test(a_stuffed_wake_socket_does_not_block_the_server),
	};

	return cmocka_run_group_tests(tests, quiet, NULL);
}
