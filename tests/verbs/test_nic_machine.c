/* test_nic_machine.c - what the nic driver says and does on machines of all kinds, as a fake libibverbs answers for them
 * (pitfalls J, K, O10): each refusal names what is missing and what to do. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/log.h"
#include "fake/fake_verbs.h"
#include "protocol/message.h"
#include "verbs/driver.h"
#include "verbs/nic/address.h"

#define REMOTE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

struct said {
	char lines[4096];
};

static void keep_line(void *context, enum log_level level, const char *line)
{
	struct said *said = context;
	size_t length = strlen(said->lines);

	(void)level;
	snprintf(said->lines + length, sizeof(said->lines) - length, "%s\n", line);
}

/* The machine of one test: a good one, until the test takes something away. */
struct machine {
	struct fake_verbs *fake;
	struct said said;
	struct verbs_open options;
	struct verbs_device *device;
};

static int setup(void **state)
{
	static struct machine machine;

	memset(&machine, 0, sizeof(machine));
	machine.fake = fake_verbs_of(KVRAIL_FAKE_VERBS);
	machine.options.nic.library = KVRAIL_FAKE_VERBS;
	log_set_sink(keep_line, &machine.said);
	*state = &machine;
	return machine.fake ? 0 : -1;
}

static int teardown(void **state)
{
	struct machine *machine = *state;

	if (machine->device)
		verbs_nic.close(machine->device);
	log_set_sink(NULL, NULL);
	/* Whatever happened, nothing of the library's is left. */
	return machine->fake->objects == 0 && machine->fake->opened == machine->fake->closed ? 0 : -1;
}

static void expect_words(const struct machine *machine, const char *const *words)
{
	for (; *words; words++) {
		if (!strstr(machine->said.lines, *words))
			fail_msg("\"%s\" is not in: %s", *words, machine->said.lines);
	}
}

#define EXPECT_WORDS(machine, ...) expect_words(machine, (const char *const[]){ __VA_ARGS__, NULL })

static int open_device(struct machine *machine)
{
	return verbs_nic.open(&machine->options, &machine->device);
}

static void without_the_library_it_says_what_to_install(void **state)
{
	struct machine *machine = *state;

	machine->options.nic.library = "libkvrail-nowhere.so.1";
	assert_int_equal(open_device(machine), -EOPNOTSUPP);
	EXPECT_WORDS(machine, "libkvrail-nowhere.so.1", "install", "libibverbs1");
}

static void a_library_without_the_symbols_is_refused_by_the_first_that_is_missing(void **state)
{
	struct machine *machine = *state;

	machine->options.nic.library = "libm.so.6";
	assert_int_equal(open_device(machine), -EOPNOTSUPP);
	EXPECT_WORDS(machine, "libm.so.6", "ibv_get_device_list", "rdma-core");
}

/* pitfalls O10 */
static void without_a_device_it_says_so(void **state)
{
	struct machine *machine = *state;

	machine->fake->device_count = 0;
	assert_int_equal(open_device(machine), -ENODEV);
	EXPECT_WORDS(machine, "no RDMA device", "/dev/infiniband");
	machine->fake->list_errno = ENOSYS;
	assert_int_equal(open_device(machine), -ENODEV);
	EXPECT_WORDS(machine, "Function not implemented");
}

static void a_named_device_that_is_missing_is_told_with_those_that_are_there(void **state)
{
	struct machine *machine = *state;

	machine->fake->device_count = 2;
	machine->options.device = "mlx5_7";
	assert_int_equal(open_device(machine), -ENODEV);
	EXPECT_WORDS(machine, "mlx5_7", "fake0, fake1");
}

static void without_permission_it_says_which_files(void **state)
{
	struct machine *machine = *state;

	machine->fake->open_errno = EACCES;
	assert_int_equal(open_device(machine), -EACCES);
	EXPECT_WORDS(machine, "fake0", "permission", "/dev/infiniband/uverbs");
	machine->fake->open_errno = 0;
	machine->fake->domain_errno = EPERM;
	assert_int_equal(open_device(machine), -EACCES);
}

static void a_port_that_is_down_is_told_with_its_state(void **state)
{
	struct machine *machine = *state;

	machine->fake->port[0].state = IBV_PORT_DOWN;
	assert_int_equal(open_device(machine), -ENODEV);
	EXPECT_WORDS(machine, "fake0 port 1 is down", "cable");
	machine->fake->port[0].state = IBV_PORT_INIT;
	assert_int_equal(open_device(machine), -ENODEV);
	EXPECT_WORDS(machine, "waiting for a subnet manager");
	machine->fake->device_count = 2;
	assert_int_equal(open_device(machine), -ENODEV);
	EXPECT_WORDS(machine, "no port of the 2 RDMA devices");
	machine->options.port = 9;
	assert_int_equal(open_device(machine), -ENODEV);
	EXPECT_WORDS(machine, "no port 9");
}

static void the_first_active_port_is_taken(void **state)
{
	struct machine *machine = *state;

	machine->fake->ports = 2;
	machine->fake->port[0].state = IBV_PORT_DOWN;
	machine->fake->gids[0].port_num = 2;
	assert_int_equal(open_device(machine), 0);
	assert_string_equal(machine->device->name, "fake0 port 2");
}

/* pitfalls J01 */
static uint32_t match_of(const struct machine *machine, uint8_t link_layer, const uint8_t address[4])
{
	struct nic_address peer = { .qp_num = 7, .lid = 1, .mtu = IBV_MTU_1024, .link_layer = link_layer };
	uint8_t bytes[NIC_ADDRESS_BYTES];

	peer.gid.raw[10] = peer.gid.raw[11] = 0xff;
	memcpy(peer.gid.raw + 12, address, 4);
	nic_address_encode(&peer, bytes);
	return verbs_nic.match(machine->device, bytes, sizeof(bytes));
}

/* An address of the port's own network goes first, and what speaks something else is no peer. */
static void a_peer_is_matched_by_its_network(void **state)
{
	const uint8_t near[4] = { 10, 0, 0, 99 }, far[4] = { 10, 0, 1, 99 };
	struct machine *machine = *state;
	uint8_t garbage[NIC_ADDRESS_BYTES] = { 1 };

	assert_int_equal(open_device(machine), 0);
	assert_true(match_of(machine, IBV_LINK_LAYER_ETHERNET, near) > match_of(machine, IBV_LINK_LAYER_ETHERNET, far));
	assert_true(match_of(machine, IBV_LINK_LAYER_ETHERNET, far) > 0); /* there may be a route */
	assert_int_equal(match_of(machine, IBV_LINK_LAYER_INFINIBAND, near), 0);
	assert_int_equal(verbs_nic.match(machine->device, garbage, sizeof(garbage)), 0);
	assert_int_equal(verbs_nic.match(machine->device, garbage, 3), 0);
}

static void a_port_without_an_address_is_told_with_the_way_out(void **state)
{
	struct machine *machine = *state;

	machine->fake->gid_count = 0;
	assert_int_equal(open_device(machine), -ENODEV);
	EXPECT_WORDS(machine, "no usable address", "IP address", "option for the GID index");
	machine->options.nic.gid_index_set = true;
	machine->options.nic.gid_index = 5;
	assert_int_equal(open_device(machine), -ENODEV);
	EXPECT_WORDS(machine, "no address at GID index 5");
}

static void options_out_of_range_are_refused(void **state)
{
	struct machine *machine = *state;

	machine->options.nic.service_level = 16;
	assert_int_equal(open_device(machine), -EINVAL);
	EXPECT_WORDS(machine, "service level is 16, at most 15");
	machine->options.nic.service_level = 0;
	machine->options.nic.mtu_bytes = 1500;
	assert_int_equal(open_device(machine), -EINVAL);
	EXPECT_WORDS(machine, "not 1500");
}

static void limits_are_those_of_the_device(void **state)
{
	struct machine *machine = *state;
	const struct verbs_limits *limits;

	machine->fake->max_inline = 220;
	machine->fake->attributes.max_qp_init_rd_atom = 5;
	assert_int_equal(open_device(machine), 0);
	limits = &machine->device->limits;
	assert_int_equal(limits->max_cqe, 4096);
	assert_int_equal(limits->max_send_wr, 1023); /* one place is the marker's */
	assert_int_equal(limits->max_sge, 16);
	assert_int_equal(limits->max_inline_bytes, 220);
	assert_int_equal(limits->max_rd_atomic, 5);
	assert_int_equal(limits->max_dest_rd_atomic, 16);
	assert_int_equal(limits->max_message_bytes, 1u << 30);
	assert_int_equal(limits->read_window_bytes, 256 << 10);
	assert_int_equal(limits->reads_signalled, 4);
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

/* pitfalls K02: the caller makes slices of it, none is silently shorter. */
static void a_region_above_the_device_limit_is_refused_by_name(void **state)
{
	struct machine *machine = *state;
	static uint8_t bytes[8192];
	struct ibv_mr *mr = NULL;

	machine->fake->attributes.max_mr_size = 4096;
	assert_int_equal(open_device(machine), 0);
	assert_int_equal(machine->device->limits.max_region_bytes, 4096);
	assert_int_equal(verbs_nic.register_memory(machine->device, bytes, 4097, IBV_ACCESS_LOCAL_WRITE, &mr), -EINVAL);
	EXPECT_WORDS(machine, "4097", "4096", "slices");
	assert_int_equal(verbs_nic.register_memory(machine->device, bytes, 4096, IBV_ACCESS_LOCAL_WRITE, &mr), 0);
	assert_int_equal(verbs_nic.deregister_memory(mr), 0);
}

/* Takes the capability away, or gives it back. False: this process never had it. */
static bool set_ipc_lock(bool on)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

	if (syscall(SYS_capget, &header, data) != 0 || !(data[0].permitted & 1u << CAP_IPC_LOCK))
		return false;
	data[0].effective = on ? data[0].effective | 1u << CAP_IPC_LOCK : data[0].effective & ~(1u << CAP_IPC_LOCK);
	return syscall(SYS_capset, &header, data) == 0;
}

/* pitfalls K01 */
static void memory_that_may_not_be_pinned_is_told_with_both_sizes_and_the_remedy(void **state)
{
	struct machine *machine = *state;
	struct rlimit before, small = { 8u << 20, 8u << 20 };
	static uint8_t bytes[1 << 20];
	struct ibv_mr *mr = NULL;
	bool capable;
	int rc;

	assert_int_equal(open_device(machine), 0);
	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
	small.rlim_max = before.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &small), 0);
	capable = set_ipc_lock(false);
	machine->fake->region_errno = ENOMEM;
	rc = verbs_nic.register_memory(machine->device, bytes, sizeof(bytes), REMOTE, &mr);
	if (capable)
		set_ipc_lock(true);
	setrlimit(RLIMIT_MEMLOCK, &before);
	assert_int_equal(rc, -ENOMEM);
	EXPECT_WORDS(machine, "1.00 MiB", "8.00 MiB", "ulimit -l", "LimitMEMLOCK", "--ulimit memlock");
}

static void other_errors_of_a_registration_keep_their_meaning(void **state)
{
	struct machine *machine = *state;
	static uint8_t bytes[4096];
	struct ibv_mr *mr = NULL;

	assert_int_equal(open_device(machine), 0);
	machine->fake->region_errno = EFAULT;
	assert_int_equal(verbs_nic.register_memory(machine->device, bytes, 4096, REMOTE, &mr), -EINVAL);
	machine->fake->region_errno = EPERM;
	assert_int_equal(verbs_nic.register_memory(machine->device, bytes, 4096, REMOTE, &mr), -EPERM);
	machine->fake->region_errno = 0;
	assert_int_equal(
		verbs_nic.register_memory(machine->device, bytes, 4096, IBV_ACCESS_REMOTE_WRITE, &mr), -EINVAL);
}

/* GPU memory: the file decides what it is, so any will do here. */
static void a_dmabuf_is_registered_with_what_the_caller_says(void **state)
{
	struct machine *machine = *state;
	struct ibv_mr *mr = NULL;
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(open_device(machine), 0);
	assert_int_equal(verbs_nic.register_dmabuf(machine->device, fd, 0x100, 9000, 0x7f0000001100, REMOTE, &mr), 0);
	assert_int_equal(machine->fake->dmabuf_fd, fd);
	assert_int_equal(machine->fake->dmabuf_offset, 0x100);
	assert_int_equal(machine->fake->dmabuf_length, 9000);
	assert_int_equal(machine->fake->dmabuf_address, 0x7f0000001100);
	assert_int_equal(machine->fake->access, REMOTE);
	assert_int_equal((uintptr_t)mr->addr, 0x7f0000001100);
	assert_int_equal(mr->length, 9000);
	assert_int_equal(verbs_nic.deregister_memory(mr), 0);
	assert_int_equal(verbs_nic.register_dmabuf(machine->device, -1, 0, 4096, 4096, REMOTE, &mr), -EINVAL);
	assert_int_equal(verbs_nic.register_dmabuf(machine->device, fd, 0, 0, 4096, REMOTE, &mr), -EINVAL);
	assert_int_equal(verbs_nic.register_dmabuf(machine->device, fd, 0, 4096, UINT64_MAX - 5, REMOTE, &mr), -EINVAL);
	assert_int_equal(
		verbs_nic.register_dmabuf(machine->device, fd, 0, 4096, 4096, IBV_ACCESS_REMOTE_WRITE, &mr), -EINVAL);
	machine->fake->dmabuf_errno = EOPNOTSUPP; /* no such thing in its kernel driver: another way may be */
	assert_int_equal(verbs_nic.register_dmabuf(machine->device, fd, 0, 4096, 4096, REMOTE, &mr), -EOPNOTSUPP);
	machine->fake->dmabuf_errno = ENOMEM;
	assert_int_equal(verbs_nic.register_dmabuf(machine->device, fd, 0, 4096, 4096, REMOTE, &mr), -ENOMEM);
	machine->fake->dmabuf_errno = 0;
	fault_arm_name("nic_register_dmabuf", 1);
	assert_int_equal(verbs_nic.register_dmabuf(machine->device, fd, 0, 4096, 4096, REMOTE, &mr), -ENOMEM);
	fault_arm(0);
	close(fd);
}

static void relaxed_ordering_is_asked_for_only_where_the_caller_wants_it(void **state)
{
	struct machine *machine = *state;
	static uint8_t bytes[4096];
	struct ibv_mr *mr = NULL;

	assert_int_equal(open_device(machine), 0);
	assert_int_equal(verbs_nic.register_memory(machine->device, bytes, 4096, REMOTE, &mr), 0);
	assert_false(machine->fake->access_by_iova2);
	assert_int_equal(machine->fake->access, REMOTE);
	assert_int_equal(verbs_nic.deregister_memory(mr), 0);
	assert_int_equal(
		verbs_nic.register_memory(machine->device, bytes, 4096, REMOTE | IBV_ACCESS_RELAXED_ORDERING, &mr), 0);
	assert_true(machine->fake->access_by_iova2);
	assert_int_equal(machine->fake->access, REMOTE | IBV_ACCESS_RELAXED_ORDERING);
	assert_int_equal(verbs_nic.deregister_memory(mr), 0);
}

static void a_region_is_described_by_its_remote_key(void **state)
{
	struct machine *machine = *state;
	struct verbs_export description;
	struct ibv_mr *mr = NULL;
	void *area = NULL;

	assert_int_equal(open_device(machine), 0);
	assert_int_equal(verbs_nic.allocate(machine->device, 10000, &area), 0);
	assert_int_equal((uintptr_t)area % 4096, 0);
	assert_int_equal(verbs_nic.register_memory(machine->device, area, 10000, REMOTE, &mr), 0);
	assert_int_equal(mr->lkey, 0x1000);
	assert_int_equal(verbs_nic.export_memory(mr, &description), 0);
	assert_int_equal(description.kind, MEMORY_REMOTE);
	assert_int_equal(description.rkey, 0x2000);
	assert_int_equal(description.fd, -1);
	assert_int_equal(verbs_nic.deregister_memory(mr), 0);
	verbs_nic.release(machine->device, area, 10000);
}

static void queues_that_cannot_be_made_leave_nothing_behind(void **state)
{
	struct machine *machine = *state;
	struct verbs_qp_options options = { .max_send_wr = 4, .max_recv_wr = 4, .max_sge = 1 };
	struct ibv_cq *cq = NULL;
	struct ibv_qp *qp = NULL;
	unsigned objects;

	assert_int_equal(open_device(machine), 0);
	machine->fake->cq_errno = ENOMEM;
	objects = machine->fake->objects;
	assert_int_equal(verbs_nic.create_cq(machine->device, 16, &cq), -ENOMEM);
	assert_int_equal(machine->fake->objects, objects);
	machine->fake->cq_errno = 0;
	assert_int_equal(verbs_nic.create_cq(machine->device, 16, &cq), 0);
	options.send_cq = options.recv_cq = cq;
	objects = machine->fake->objects;
	machine->fake->qp_errno = ENOMEM;
	assert_int_equal(verbs_nic.create_qp(machine->device, &options, &qp), -ENOMEM);
	machine->fake->qp_errno = 0;
	machine->fake->modify_errno[IBV_QPS_INIT] = EINVAL;
	assert_int_equal(verbs_nic.create_qp(machine->device, &options, &qp), -EINVAL);
	EXPECT_WORDS(machine, "from RESET to INIT");
	assert_int_equal(machine->fake->objects, objects);
	verbs_nic.destroy_cq(cq);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(without_the_library_it_says_what_to_install),
		TEST(a_library_without_the_symbols_is_refused_by_the_first_that_is_missing),
		TEST(without_a_device_it_says_so),
		TEST(a_named_device_that_is_missing_is_told_with_those_that_are_there),
		TEST(without_permission_it_says_which_files),
		TEST(a_port_that_is_down_is_told_with_its_state),
		TEST(the_first_active_port_is_taken),
		TEST(a_peer_is_matched_by_its_network),
		TEST(a_port_without_an_address_is_told_with_the_way_out),
		TEST(options_out_of_range_are_refused),
		TEST(limits_are_those_of_the_device),
		TEST(a_region_above_the_device_limit_is_refused_by_name),
		TEST(memory_that_may_not_be_pinned_is_told_with_both_sizes_and_the_remedy),
		TEST(other_errors_of_a_registration_keep_their_meaning),
		TEST(a_dmabuf_is_registered_with_what_the_caller_says),
		TEST(relaxed_ordering_is_asked_for_only_where_the_caller_wants_it),
		TEST(a_region_is_described_by_its_remote_key),
		TEST(queues_that_cannot_be_made_leave_nothing_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
