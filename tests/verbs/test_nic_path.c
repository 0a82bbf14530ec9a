/* test_nic_path.c - which address a port has, what an address blob says, and what two ends agree on. No device needed. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "verbs/nic/address.h"
#include "verbs/nic/gid.h"

static struct ibv_gid_entry entry(const char *text, uint32_t type, uint32_t interface)
{
	struct ibv_gid_entry entry = { .gid_type = type, .ndev_ifindex = interface };

	if (text[0] != '\0')
		assert_int_equal(nic_gid_parse(text, entry.gid.raw), 0);
	return entry;
}

#define V1(text) entry(text, IBV_GID_TYPE_ROCE_V1, 0)
#define V2(text) entry(text, IBV_GID_TYPE_ROCE_V2, 0)

/* pitfalls J01 */
static void a_routed_address_wins_over_link_local_ones_and_empty_places(void **state)
{
	const struct ibv_gid_entry entries[] = { V1("fe80::1"), V2("fe80::1"), V2(""), V2("10.1.2.3") };

	(void)state;
	assert_int_equal(nic_gid_choose(entries, 4, NULL), 3);
}

/* pitfalls J01 */
static void the_bound_address_wins_over_another(void **state)
{
	const struct ibv_gid_entry entries[] = { V2("10.1.2.3"), V2("10.1.2.4") };
	struct nic_gid_wish wish = { .has_address = true };

	(void)state;
	assert_int_equal(nic_gid_parse("10.1.2.4", wish.address), 0);
	assert_int_equal(nic_gid_choose(entries, 2, &wish), 1);
	assert_int_equal(nic_gid_choose(entries, 2, NULL), 0);
}

/* pitfalls J01 */
static void an_address_on_the_bound_interface_wins_over_one_on_another(void **state)
{
	const struct ibv_gid_entry entries[] = { entry("10.1.2.3", IBV_GID_TYPE_ROCE_V2, 3),
		entry("fd00::9", IBV_GID_TYPE_ROCE_V2, 7) };
	struct nic_gid_wish wish = { .interface = 7 };

	(void)state;
	assert_int_equal(nic_gid_choose(entries, 2, &wish), 1);
}

/* pitfalls J01 */
static void a_local_ipv6_address_wins_over_a_link_local_one(void **state)
{
	const struct ibv_gid_entry entries[] = { V2("fe80::1"), V2("fd00::1") };

	(void)state;
	assert_int_equal(nic_gid_choose(entries, 2, NULL), 1);
}

/* The type counts more than the scope: with v1 there is no way through a router whatever the address. */
static void roce_v2_wins_over_v1_and_scope_over_the_bound_interface(void **state)
{
	const struct ibv_gid_entry types[] = { V1("10.1.2.3"), V2("fe80::1") };
	const struct ibv_gid_entry scopes[] = { entry("169.254.1.1", IBV_GID_TYPE_ROCE_V2, 7), V2("10.1.2.3") };
	struct nic_gid_wish wish = { .interface = 7 };

	(void)state;
	assert_int_equal(nic_gid_choose(types, 2, NULL), 1);
	assert_int_equal(nic_gid_choose(types, 1, NULL), 0);
	assert_int_equal(nic_gid_choose(scopes, 2, &wish), 1);
}

/* pitfalls J01 */
static void no_address_is_chosen_where_there_is_none(void **state)
{
	const struct ibv_gid_entry entries[] = { V2(""), V2("::1"), V2("127.0.0.1"), V2("ff02::1"), V2("224.0.0.1"),
		V2("fe80::") };

	(void)state;
	assert_int_equal(nic_gid_choose(entries, 6, NULL), -ENOENT);
	assert_int_equal(nic_gid_choose(NULL, 0, NULL), -ENOENT);
}

static void addresses_are_read_and_written_as_text(void **state)
{
	union ibv_gid gid;
	char text[NIC_GID_TEXT];
	char longer[100];

	(void)state;
	assert_int_equal(nic_gid_parse("192.168.7.255", gid.raw), 0);
	assert_string_equal(nic_gid_text(text, &gid), "192.168.7.255");
	assert_int_equal(nic_gid_parse("[fd00::a:1]", gid.raw), 0);
	assert_string_equal(nic_gid_text(text, &gid), "fd00::a:1");
	assert_int_equal(nic_gid_parse("host.example", gid.raw), -EINVAL);
	assert_int_equal(nic_gid_parse("", gid.raw), -EINVAL);
	assert_int_equal(nic_gid_parse("10.0.0.1 ", gid.raw), -EINVAL);
	memset(longer, '1', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	assert_int_equal(nic_gid_parse(longer, gid.raw), -EINVAL);
}

static struct nic_address some_address(void)
{
	struct nic_address address = { .qp_num = 0x123456, .psn = 0xabcdef, .lid = 0x7001, .mtu = IBV_MTU_4096 };

	address.link_layer = IBV_LINK_LAYER_ETHERNET;
	address.reads_started = 16;
	address.reads_answered = 128;
	address.needs_grh = true;
	address.max_message_bytes = UINT64_C(1) << 31;
	for (unsigned i = 0; i < sizeof(address.gid.raw); i++)
		address.gid.raw[i] = (uint8_t)(i * 7 + 1);
	return address;
}

static void an_address_comes_back_from_its_bytes(void **state)
{
	struct nic_address address = some_address(), back;
	uint8_t bytes[NIC_ADDRESS_BYTES + 8] = { 0 };

	(void)state;
	nic_address_encode(&address, bytes);
	assert_int_equal(nic_address_decode(bytes, NIC_ADDRESS_BYTES, &back), 0);
	assert_int_equal(back.qp_num, address.qp_num);
	assert_int_equal(back.psn, address.psn);
	assert_int_equal(back.lid, address.lid);
	assert_int_equal(back.mtu, address.mtu);
	assert_int_equal(back.link_layer, address.link_layer);
	assert_int_equal(back.reads_started, address.reads_started);
	assert_int_equal(back.reads_answered, address.reads_answered);
	assert_true(back.needs_grh);
	assert_int_equal(back.max_message_bytes, address.max_message_bytes);
	assert_memory_equal(back.gid.raw, address.gid.raw, 16);
	/* A later version is longer, and its beginning is read. */
	bytes[4] = 2;
	bytes[6] = NIC_ADDRESS_BYTES + 8;
	assert_int_equal(nic_address_decode(bytes, NIC_ADDRESS_BYTES + 8, &back), 0);
	assert_int_equal(back.qp_num, address.qp_num);
}

static void a_damaged_address_is_refused(void **state)
{
	/* What is wrong: the place of a byte, and its value. */
	static const uint8_t damages[][2] = { { 0, 'k' }, { 4, 0 }, { 6, 47 }, { 11, 1 }, { 15, 1 }, { 34, 0 },
		{ 34, 6 }, { 35, 0 }, { 35, 3 } };
	struct nic_address address = some_address(), back;
	uint8_t bytes[NIC_ADDRESS_BYTES + 1] = { 0 };

	(void)state;
	for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
		nic_address_encode(&address, bytes);
		bytes[damages[i][0]] = damages[i][1];
		assert_int_equal(nic_address_decode(bytes, NIC_ADDRESS_BYTES, &back), -EBADMSG);
	}
	nic_address_encode(&address, bytes);
	assert_int_equal(nic_address_decode(bytes, NIC_ADDRESS_BYTES - 1, &back), -EBADMSG);
	assert_int_equal(nic_address_decode(bytes, NIC_ADDRESS_BYTES + 1, &back), -EBADMSG);
	memset(bytes + 8, 0, 4);
	assert_int_equal(nic_address_decode(bytes, NIC_ADDRESS_BYTES, &back), -EBADMSG);
}

/* pitfalls J02 */
static void both_ends_use_the_lesser_mtu_and_the_lesser_number_of_reads(void **state)
{
	struct nic_address server = some_address(), client = some_address();
	struct nic_path path;
	const char *why;

	(void)state;
	client.mtu = IBV_MTU_1024;
	client.reads_started = 4;
	client.reads_answered = 8;
	assert_int_equal(nic_path_agree(&server, &client, &path, &why), 0);
	assert_int_equal(path.mtu, IBV_MTU_1024);
	assert_int_equal(path.reads_started, 8);
	assert_int_equal(path.reads_answered, 4);
	assert_true(path.global);
	assert_int_equal(nic_path_agree(&client, &server, &path, &why), 0);
	assert_int_equal(path.mtu, IBV_MTU_1024);
	assert_int_equal(path.reads_started, 4);
	assert_int_equal(path.reads_answered, 8);
}

/* pitfalls J03 */
static void infiniband_goes_by_lid_and_by_route_header_only_where_it_must(void **state)
{
	struct nic_address server = some_address(), client;
	struct nic_path path;
	const char *why;

	(void)state;
	server.link_layer = IBV_LINK_LAYER_INFINIBAND;
	server.needs_grh = false;
	client = server;
	assert_int_equal(nic_path_agree(&server, &client, &path, &why), 0);
	assert_false(path.global);
	client.gid.raw[7] ^= 1; /* another subnet */
	assert_int_equal(nic_path_agree(&server, &client, &path, &why), 0);
	assert_true(path.global);
	client = server;
	client.needs_grh = true;
	assert_int_equal(nic_path_agree(&server, &client, &path, &why), 0);
	assert_true(path.global);
}

static void ends_that_cannot_meet_are_told_why(void **state)
{
	struct nic_address server = some_address(), client = some_address();
	struct nic_path path;
	const char *why;

	(void)state;
	client.link_layer = IBV_LINK_LAYER_INFINIBAND;
	assert_int_equal(nic_path_agree(&server, &client, &path, &why), -EINVAL);
	assert_non_null(strstr(why, "Ethernet"));
	server.link_layer = IBV_LINK_LAYER_INFINIBAND;
	server.lid = client.lid = 0;
	assert_int_equal(nic_path_agree(&server, &client, &path, &why), -EINVAL);
	assert_non_null(strstr(why, "subnet manager"));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_routed_address_wins_over_link_local_ones_and_empty_places),
		cmocka_unit_test(the_bound_address_wins_over_another),
		cmocka_unit_test(an_address_on_the_bound_interface_wins_over_one_on_another),
		cmocka_unit_test(a_local_ipv6_address_wins_over_a_link_local_one),
		cmocka_unit_test(roce_v2_wins_over_v1_and_scope_over_the_bound_interface),
		cmocka_unit_test(no_address_is_chosen_where_there_is_none),
		cmocka_unit_test(addresses_are_read_and_written_as_text),
		cmocka_unit_test(an_address_comes_back_from_its_bytes),
		cmocka_unit_test(a_damaged_address_is_refused),
		cmocka_unit_test(both_ends_use_the_lesser_mtu_and_the_lesser_number_of_reads),
		cmocka_unit_test(infiniband_goes_by_lid_and_by_route_header_only_where_it_must),
		cmocka_unit_test(ends_that_cannot_meet_are_told_why),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
