/* test_local_faults.c - whatever resource is missing while a connection of the local driver is set up: an error, and
 * nothing leaks. */
#include "test_local_pair.h"

#include <dirent.h>
#include <errno.h>

#include "base/fault.h"
#include "base/log.h"
#include "protocol/message.h"

#define AREA_BYTES 65536u

/* All that a connection is made of. What could not be made is NULL. */
struct connection {
	struct verbs_device *device[2]; /* server, client */
	struct ibv_cq *cq[2];
	struct ibv_srq *srq[2];
	struct ibv_qp *qp[2];
	void *area;
	struct ibv_mr *mr;
	struct verbs_import import[2];
};

static int make_side(struct connection *connection, unsigned side)
{
	struct verbs_open open = { .server = side == 0 };
	struct verbs_qp_options options = {
		.max_send_wr = 8, .max_recv_wr = 8, .max_sge = 1, .max_message_bytes = 4096, .peer_recv_wr = 8
	};
	int rc = verbs_local.open(&open, &connection->device[side]);

	if (rc == 0)
		rc = verbs_local.create_cq(connection->device[side], 16, &connection->cq[side]);
	if (rc == 0)
		rc = verbs_local.create_srq(connection->device[side], 16, &connection->srq[side]);
	options.send_cq = connection->cq[side];
	options.recv_cq = connection->cq[side];
	options.srq = side == 0 ? connection->srq[side] : NULL;
	if (rc == 0)
		rc = verbs_local.create_qp(connection->device[side], &options, &connection->qp[side]);
	return rc;
}

static int connect_side(struct connection *connection, unsigned side)
{
	struct stream_peer peer = this_process();
	struct offer offer;
	int rc = verbs_local.qp_address(
		connection->qp[1 - side], offer.bytes, sizeof(offer.bytes), &offer.length, offer.fds, &offer.fd_count);

	if (rc == 0)
		rc = verbs_local.qp_connect(
			connection->qp[side], offer.bytes, offer.length, offer.fds, offer.fd_count, &peer);
	return rc;
}

static int share(struct connection *connection)
{
	struct verbs_remote_memory memory = { .length = AREA_BYTES };
	struct verbs_export description;
	int rc = verbs_local.allocate(connection->device[1], AREA_BYTES, &connection->area);

	if (rc == 0)
		rc = verbs_local.register_memory(connection->device[1], connection->area, AREA_BYTES,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &connection->mr);
	if (rc == 0)
		rc = verbs_local.export_memory(connection->mr, &description);
	if (rc != 0)
		return rc;
	memory.address = (uintptr_t)connection->area;
	memory.kind = description.kind;
	memory.fd = description.fd;
	rc = verbs_local.import_memory(connection->qp[0], &memory, &connection->import[0]);
	memory.kind = MEMORY_PROCESS;
	if (rc == 0)
		rc = verbs_local.import_memory(connection->qp[0], &memory, &connection->import[1]);
	return rc;
}

static int make_all(struct connection *connection)
{
	int rc = make_side(connection, 0);

	if (rc == 0)
		rc = make_side(connection, 1);
	if (rc == 0)
		rc = connect_side(connection, 0);
	if (rc == 0)
		rc = connect_side(connection, 1);
	return rc == 0 ? share(connection) : rc;
}

static void unmake(struct connection *connection)
{
	for (unsigned side = 0; side < 2; side++) {
		if (connection->qp[side])
			verbs_local.destroy_qp(connection->qp[side]);
		if (connection->srq[side])
			verbs_local.destroy_srq(connection->srq[side]);
		if (connection->cq[side])
			verbs_local.destroy_cq(connection->cq[side]);
	}
	if (connection->mr)
		(void)verbs_local.deregister_memory(connection->mr);
	if (connection->area)
		verbs_local.release(connection->device[1], connection->area, AREA_BYTES);
	for (unsigned side = 0; side < 2; side++) {
		if (connection->device[side])
			verbs_local.close(connection->device[side]);
	}
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

static void the_nth_missing_resource_is_an_error_and_leaks_nothing(void **state)
{
	unsigned before = open_descriptors();
	unsigned failures = 0;
	uint64_t nth;

	(void)state;
	for (nth = 1;; nth++) {
		struct connection connection = { 0 };
		int rc;

		fault_arm(nth);
		rc = make_all(&connection);
		if (!fault_fired()) {
			fault_arm(0);
			assert_int_equal(rc, 0);
			unmake(&connection);
			break;
		}
		assert_true(rc == -ENOMEM || rc == -EOPNOTSUPP || rc == -EAGAIN);
		failures++;
		fault_arm(0);
		unmake(&connection);
		assert_int_equal(open_descriptors(), before);
	}
	assert_true(failures >= 15);
	assert_int_equal(open_descriptors(), before);
}

/* A connect that failed for want of something may be tried again. */
static void a_failed_connect_can_be_repeated(void **state)
{
	static const char *const points[] = { "local_qp_connect/epoll", "local_rings/dup" };

	(void)state;
	for (unsigned i = 0; i < KVR_COUNT_OF(points); i++) {
		struct connection connection = { 0 };

		assert_int_equal(make_side(&connection, 0), 0);
		assert_int_equal(make_side(&connection, 1), 0);
		fault_arm_name(points[i], 1);
		assert_int_equal(connect_side(&connection, 1), -ENOMEM);
		fault_arm(0);
		assert_int_equal(connect_side(&connection, 1), 0);
		assert_int_equal(connect_side(&connection, 1), -EINVAL);
		assert_int_equal(connect_side(&connection, 0), 0);
		assert_int_equal(share(&connection), 0);
		unmake(&connection);
	}
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
		cmocka_unit_test(the_nth_missing_resource_is_an_error_and_leaks_nothing),
		cmocka_unit_test(a_failed_connect_can_be_repeated),
	};

	return cmocka_run_group_tests(tests, quiet, NULL);
}
