/*
 * test_control_threads.c - the control object with its helper threads: what is stuck on one of them holds up nobody
 * else. The driver's
 * calls are the simulator's, under a lock that the steps take as well; some wait at a gate that the test opens.
 */
#include <errno.h>
#include <string.h>

#include "mgmt/control_rig.h"

#define REGION_BYTES ((uint64_t)65536)
#define ADDRESS UINT64_C(0x700000000000)

/* While it is closed, those who come wait. */
static struct gate {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool closed;
	unsigned waiting;
} gate = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static void gate_pass(void)
{
	pthread_mutex_lock(&gate.lock);
	gate.waiting++;
	while (gate.closed)
		pthread_cond_wait(&gate.changed, &gate.lock);
	gate.waiting--;
	pthread_mutex_unlock(&gate.lock);
}

static void gate_set(bool closed)
{
	pthread_mutex_lock(&gate.lock);
	gate.closed = closed;
	pthread_cond_broadcast(&gate.changed);
	pthread_mutex_unlock(&gate.lock);
}

static void wait_for_one_at_the_gate(struct rig *rig)
{
	unsigned waiting = 0;

	while (waiting == 0) {
		rig_step(rig);
		pthread_mutex_lock(&gate.lock);
		waiting = gate.waiting;
		pthread_mutex_unlock(&gate.lock);
	}
}

static int locked_create_qp(struct verbs_device *device, const struct verbs_qp_options *options, struct ibv_qp **qp)
{
	int error;

	pthread_mutex_lock(rig_lock());
	error = verbs_sim.create_qp(device, options, qp);
	pthread_mutex_unlock(rig_lock());
	return error;
}

static int locked_qp_address(
	struct ibv_qp *qp, uint8_t *bytes, uint32_t capacity, uint32_t *length, int *fds, unsigned *fd_count)
{
	int error;

	pthread_mutex_lock(rig_lock());
	error = verbs_sim.qp_address(qp, bytes, capacity, length, fds, fd_count);
	pthread_mutex_unlock(rig_lock());
	return error;
}

static int locked_qp_connect(struct ibv_qp *qp, const uint8_t *bytes, uint32_t length, const int *fds,
	unsigned fd_count, const struct stream_peer *peer)
{
	int error;

	pthread_mutex_lock(rig_lock());
	error = verbs_sim.qp_connect(qp, bytes, length, fds, fd_count, peer);
	pthread_mutex_unlock(rig_lock());
	return error;
}

static void locked_destroy_qp(struct ibv_qp *qp)
{
	pthread_mutex_lock(rig_lock());
	verbs_sim.destroy_qp(qp);
	pthread_mutex_unlock(rig_lock());
}

static int locked_import(struct ibv_qp *qp, const struct verbs_remote_memory *memory, struct verbs_import *import)
{
	int error;

	pthread_mutex_lock(rig_lock());
	error = verbs_sim.import_memory(qp, memory, import);
	pthread_mutex_unlock(rig_lock());
	return error;
}

static void locked_forget(struct ibv_qp *qp, uint32_t rkey)
{
	pthread_mutex_lock(rig_lock());
	verbs_sim.forget_memory(qp, rkey);
	pthread_mutex_unlock(rig_lock());
}

static int slow_import(struct ibv_qp *qp, const struct verbs_remote_memory *memory, struct verbs_import *import)
{
	if (memory->address == ADDRESS)
		gate_pass();
	return locked_import(qp, memory, import);
}

static void slow_forget(struct ibv_qp *qp, uint32_t rkey)
{
	gate_pass();
	locked_forget(qp, rkey);
}

static void slow_destroy_qp(struct ibv_qp *qp)
{
	gate_pass();
	locked_destroy_qp(qp);
}

static int slow_create_qp(struct verbs_device *device, const struct verbs_qp_options *options, struct ibv_qp **qp)
{
	gate_pass();
	return locked_create_qp(device, options, qp);
}

/* handshake_ns 0: virtual time runs as fast as this thread. */
static void start_with_threads(struct rig *rig, uint64_t handshake_ns)
{
	rig_prepare(rig);
	rig->driver.create_qp = locked_create_qp;
	rig->driver.qp_address = locked_qp_address;
	rig->driver.qp_connect = locked_qp_connect;
	rig->driver.destroy_qp = locked_destroy_qp;
	rig->driver.import_memory = locked_import;
	rig->driver.forget_memory = locked_forget;
	rig->options.helper_threads = 1;
	rig->options.handshake_ns = handshake_ns;
	rig_start(rig);
}

static void ask_for_slow_memory(struct peer *peer)
{
	uint8_t bytes[RIG_MESSAGE];

	peer_send(peer, bytes, make_memory(bytes, ADDRESS, REGION_BYTES, 5), NULL, 0);
	wait_for_one_at_the_gate(peer->rig);
}

/* pitfalls B03 */
static void a_slow_import_holds_up_nobodys_handshake(void **state)
{
	static const struct rig_calls calls = { .import_memory = slow_import };
	struct peer slow, other;
	uint32_t registration;
	struct rig rig;

	(void)state;
	start_with_threads(&rig, 0);
	rig_use(&rig, &calls);
	gate_set(true);
	peer_join(&rig, &slow);
	ask_for_slow_memory(&slow);
	peer_join(&rig, &other);
	assert_int_equal(peer_register(&other, 0, 0, 0, &registration), STATUS_OK);
	assert_int_equal(peer_unregister(&other, registration), STATUS_OK);
	peer_fini(&other);
	rig_settle(&rig, 1);
	assert_false(peer_look(&slow));
	gate_set(false);
	assert_int_equal(peer_reply(&slow), STATUS_OK);
	assert_int_equal(slow.header.type, WIRE_MEMORY_REPLY);
	peer_fini(&slow);
	rig_stop(&rig);
}

static void a_client_that_goes_while_its_memory_is_imported_stays_until_that_has_ended(void **state)
{
	static const struct rig_calls calls = { .import_memory = slow_import };
	struct peer slow, other;
	struct rig rig;

	(void)state;
	start_with_threads(&rig, 0);
	rig_use(&rig, &calls);
	gate_set(true);
	peer_join(&rig, &slow);
	ask_for_slow_memory(&slow);
	peer_fini(&slow);
	peer_join(&rig, &other);
	peer_fini(&other);
	rig_settle(&rig, 1);
	gate_set(false);
	rig_settle(&rig, 0);
	assert_int_equal(rig_counters(&rig)->memory_imports_total, 1);
	rig_stop(&rig);
}

static void a_handshake_whose_queue_pair_takes_long_is_not_out_of_time(void **state)
{
	static const struct rig_calls calls = { .create_qp = slow_create_qp };
	uint8_t bytes[RIG_MESSAGE];
	struct peer slow, gone;
	struct rig rig;

	(void)state;
	start_with_threads(&rig, 60 * KVR_SECOND);
	rig_use(&rig, &calls);
	gate_set(true);
	assert_int_equal(peer_open(&rig, &slow), 0);
	assert_int_equal(peer_hello(&slow), STATUS_OK);
	peer_send(&slow, bytes, make_connect(bytes, &slow), NULL, 0);
	assert_int_equal(peer_open(&rig, &gone), 0);
	assert_int_equal(peer_hello(&gone), STATUS_OK);
	peer_send(&gone, bytes, make_connect(bytes, &gone), NULL, 0);
	wait_for_one_at_the_gate(&rig);
	rig_steps(&rig, 50);
	peer_close(&gone);
	rig.now_ns += rig.options.handshake_ns;
	rig_steps(&rig, 50);
	assert_int_equal(rig_counters(&rig)->handshake_timeouts_total, 0);
	assert_int_equal(control_client_count(server_control(rig.server)), 2);
	gate_set(false);
	assert_int_equal(peer_reply(&slow), STATUS_OK);
	rig_settle(&rig, 1);
	peer_fini(&gone);
	peer_fini(&slow);
	rig_stop(&rig);
}

static void stuck_teardown(void (*make_stuck)(struct rig *rig, struct peer *peer), const struct rig_calls *calls)
{
	struct peer stuck, other;
	uint32_t region, registration;
	struct rig rig;

	start_with_threads(&rig, 0);
	rig_use(&rig, calls);
	peer_join(&rig, &stuck);
	assert_int_equal(peer_memory(&stuck, ADDRESS, REGION_BYTES, NULL), STATUS_OK);
	gate_set(true);
	make_stuck(&rig, &stuck);
	wait_for_one_at_the_gate(&rig);
	for (unsigned i = 0; i < 3; i++) {
		peer_join(&rig, &other);
		assert_int_equal(peer_memory(&other, ADDRESS, REGION_BYTES, &region), STATUS_OK);
		assert_int_equal(peer_register(&other, 1, ADDRESS, region, &registration), STATUS_OK);
		assert_int_equal(peer_unregister(&other, registration), STATUS_OK);
		peer_fini(&other);
	}
	/* They wait behind the stuck one, and there is no room for more than the maximum. */
	rig_steps(&rig, 1000);
	assert_int_equal(control_client_count(server_control(rig.server)), RIG_CLIENTS);
	assert_int_equal(peer_open(&rig, &other), -EUSERS);
	peer_fini(&other);
	gate_set(false);
	peer_fini(&stuck);
	rig_settle(&rig, 0);
	rig_stop(&rig);
}

static void leave(struct rig *rig, struct peer *peer)
{
	(void)rig;
	peer_close(peer);
}

static void forget(struct rig *rig, struct peer *peer)
{
	uint8_t bytes[RIG_MESSAGE];

	(void)rig;
	peer_send(peer, bytes, make_forget(bytes, 0), NULL, 0);
}

/* pitfalls C01 */
static void unmapping_that_is_stuck_in_the_kernel_holds_up_no_registration(void **state)
{
	static const struct rig_calls calls = { .forget_memory = slow_forget };

	(void)state;
	stuck_teardown(leave, &calls);
	stuck_teardown(forget, &calls);
}

/* pitfalls C01 */
static void a_queue_pair_whose_end_is_stuck_holds_up_no_registration(void **state)
{
	static const struct rig_calls calls = { .destroy_qp = slow_destroy_qp };

	(void)state;
	stuck_teardown(leave, &calls);
}

static void who_never_connected_waits_for_no_teardown(void **state)
{
	static const struct rig_calls calls = { .destroy_qp = slow_destroy_qp };
	struct peer stuck, other;
	struct rig rig;

	(void)state;
	start_with_threads(&rig, 0);
	rig_use(&rig, &calls);
	peer_join(&rig, &stuck);
	gate_set(true);
	peer_fini(&stuck);
	wait_for_one_at_the_gate(&rig);
	for (unsigned i = 0; i < 3 * RIG_CLIENTS; i++) {
		assert_int_equal(peer_open(&rig, &other), 0);
		if (i % 2)
			assert_int_equal(peer_hello(&other), STATUS_OK);
		else
			peer_send(&other, "GET / HTTP/1.1", 14, NULL, 0);
		peer_fini(&other);
		rig_settle(&rig, 1);
	}
	gate_set(false);
	rig_settle(&rig, 0);
	rig_stop(&rig);
}

static void clients_come_and_go_at_any_moment_of_the_helpers(void **state)
{
	struct rig rig;

	(void)state;
	start_with_threads(&rig, 0);
	for (unsigned i = 0; i < 200; i++) {
		uint8_t bytes[4 * RIG_MESSAGE];
		struct peer peer;
		size_t length;

		assert_int_equal(peer_open(&rig, &peer), 0);
		length = make_hello(bytes, "sim", "");
		length += make_connect(bytes + length, &peer);
		length += make_memory(bytes + length, ADDRESS, REGION_BYTES, 9);
		length += make_register(bytes + length, "model", 2, ADDRESS, 0);
		peer_send(&peer, bytes, length, NULL, 0);
		rig_steps(&rig, i);
		peer_fini(&peer);
		rig_settle(&rig, 0);
	}
	rig_stop(&rig);
}

static void a_drained_server_waits_for_its_helpers(void **state)
{
	static const struct rig_calls calls = { .import_memory = slow_import };
	struct peer slow;
	struct rig rig;

	(void)state;
	start_with_threads(&rig, 0);
	rig_use(&rig, &calls);
	gate_set(true);
	peer_join(&rig, &slow);
	ask_for_slow_memory(&slow);
	control_drain(server_control(rig.server), rig.now_ns);
	assert_int_equal(peer_reply(&slow), PEER_CLOSED);
	rig_steps(&rig, 200);
	assert_false(control_idle(server_control(rig.server)));
	gate_set(false);
	rig_settle(&rig, 0);
	assert_true(control_idle(server_control(rig.server)));
	peer_fini(&slow);
	rig_stop(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_slow_import_holds_up_nobodys_handshake),
		cmocka_unit_test(a_client_that_goes_while_its_memory_is_imported_stays_until_that_has_ended),
		cmocka_unit_test(a_handshake_whose_queue_pair_takes_long_is_not_out_of_time),
		cmocka_unit_test(unmapping_that_is_stuck_in_the_kernel_holds_up_no_registration),
		cmocka_unit_test(a_queue_pair_whose_end_is_stuck_holds_up_no_registration),
		cmocka_unit_test(who_never_connected_waits_for_no_teardown),
		cmocka_unit_test(clients_come_and_go_at_any_moment_of_the_helpers),
		cmocka_unit_test(a_drained_server_waits_for_its_helpers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
