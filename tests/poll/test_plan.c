/* What the plan does with machines of each shape, as tables of machine texts: pitfalls M01, M07, M08. */
#include "poll/plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cmocka_all.h"

static struct plan plan;
static struct machine *machine;

static void read_machine(const char *text)
{
	struct machine_error error = { "" };
	struct text all = { NULL, 0, 0, false };

	text_append(&all, "kvrail-machine 1\n%s", text);
	machine = machine_read_text("test", all.bytes, all.length, &error);
	if (!machine)
		print_error("%s\n", error.text);
	assert_non_null(machine);
	text_fini(&all);
}

static void make_plan(const char *text, const char *asked)
{
	struct plan_options options = { .cores = 0 };
	struct machine_error error = { "" };

	machine_free(&machine);
	read_machine(text);
	assert_int_equal(plan_parse_options(asked, &options, &error), 0);
	assert_int_equal(plan_make(machine, &options, &plan), 0);
}

static int free_machine(void **state)
{
	(void)state;
	machine_free(&machine);
	return 0;
}

static bool warned(const char *words)
{
	for (uint32_t i = 0; i < plan.warning_count; i++) {
		if (strstr(plan.warnings[i], words))
			return true;
	}
	return false;
}

/* "2:mlx5_0 3:-", core and rail. */
static void assert_polls(const char *expected)
{
	struct text made = { NULL, 0, 0, false };

	for (uint32_t i = 0; i < plan.poll_count; i++)
		text_append(&made, "%s%d:%s", i ? " " : "", plan.polls[i].core,
			plan.polls[i].rail < 0 ? "-" : plan.rails[plan.polls[i].rail].name);
	assert_string_equal(made.bytes, expected);
	text_fini(&made);
}

static void assert_helpers(const char *expected)
{
	struct text made = { NULL, 0, 0, false };

	machine_list(&made, plan.helpers, plan.helper_count);
	assert_string_equal(made.bytes ? made.bytes : "", expected);
	text_fini(&made);
}

#define TWO_NODES                         \
	"node 0 package=0 memory=64GiB\n" \
	"node 1 package=1 memory=64GiB\n" \
	"distance 0 10 21\ndistance 1 21 10\n"
#define EIGHT_CORES TWO_NODES "cores 0-3 node=0\ncores 4-7 node=1\n"
#define RAIL(name, node) "nic " name " kind=roce node=" node " ports=1:up:100\n"

static void poll_cores_are_on_the_node_of_their_rail(void **state)
{
	static const struct {
		const char *machine, *asked, *polls;
		int management;
		const char *helpers;
	} cases[] = {
		{ EIGHT_CORES RAIL("a", "1"), "", "4:a", 5, "0-3,6-7" },
		{ EIGHT_CORES RAIL("a", "0"), "", "1:a", 2, "0,3-7" },
		{ EIGHT_CORES RAIL("a", "0") RAIL("b", "1"), "", "1:a 4:b", 2, "0,3,5-7" },
		{ EIGHT_CORES RAIL("a", "0") RAIL("b", "1"), "cores=4", "1:a 2:a 4:b 5:b", 3, "0,6-7" },
		/* the cores are shared out between the nodes by their rails */
		{ EIGHT_CORES RAIL("a", "0") RAIL("b", "1") RAIL("c", "1"), "cores=3", "1:a 4:b 5:c", 6, "0,2-3,7" },
		/* fewer cores than rails: each some */
		{ EIGHT_CORES RAIL("a", "0") RAIL("b", "0") RAIL("c", "1"), "cores=2", "1:a 1:b 4:c", 2, "0,3,5-7" },
		{ EIGHT_CORES RAIL("a", "0") RAIL("b", "0") RAIL("c", "1"), "cores=1", "1:a 1:b 1:c", 2, "0,3-7" },
		/* more cores than rails */
		{ EIGHT_CORES RAIL("a", "1"), "cores=3", "4:a 5:a 6:a", 7, "0-3" },
		/* a node gets no more than it has, while others have cores left */
		{ TWO_NODES "cores 0-1 node=0\ncores 2-9 node=1\n" RAIL("a", "0") RAIL("b", "0") RAIL("c", "0")
				RAIL("d", "1"),
			"cores=4", "1:a 0:b 0:c 2:d 3:d", 4, "5-9" },
		/* rails of a node that gets no core are polled from the nearest */
		{ "node 0 package=0\nnode 1 package=1\nnode 2 package=1\ncores 0-3 node=0\ncores 4-7 node=1\n"
		  "cores 8-11 node=2\n" RAIL("a", "0") RAIL("b", "0") RAIL("c", "1") RAIL("d", "1") RAIL("e", "2"),
			"cores=2", "1:a 1:b 4:c 4:d 4:e", 5, "0,2-3,6-11" },
		/* the rails that are asked for, from both nodes */
		{ EIGHT_CORES RAIL("a", "0") RAIL("b", "0") RAIL("c", "1") RAIL("d", "1"), "rails=2", "1:a 4:c", 2,
			"0,3,5-7" },
		/* without a rail: near GPUs, else near network interfaces */
		{ EIGHT_CORES "gpu 0 node=1\n", "", "4:-", 5, "0-3,6-7" },
		{ EIGHT_CORES "nic eth0 kind=ethernet node=1\n", "", "4:-", 5, "0-3,6-7" },
		{ EIGHT_CORES "gpu 0 node=0\nnic eth0 kind=ethernet node=1\n", "", "1:-", 2, "0,3-7" },
		/* isolated before others, nohz_full before the rest of them; helpers elsewhere */
		{ EIGHT_CORES "isolated 2-3,6\n" RAIL("a", "0"), "", "2:a", 3, "0-1,4-5,7" },
		{ EIGHT_CORES "isolated 2-3\nnohz_full 3\n" RAIL("a", "0"), "", "3:a", 2, "0-1,4-7" },
		/* but an isolated core far away is no good */
		{ EIGHT_CORES "isolated 6-7\n" RAIL("a", "0"), "", "1:a", 2, "0,3-5" },
	};

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(cases); i++) {
		print_message("case %zu\n", i);
		make_plan(cases[i].machine, cases[i].asked);
		assert_polls(cases[i].polls);
		assert_int_equal(plan.management_core, cases[i].management);
		assert_helpers(cases[i].helpers);
		assert_true(plan.busy);
	}
}

#define ONE_NODE "node 0 memory=64GiB\n"
#define ONE_RAIL ONE_NODE RAIL("a", "0")

/* pitfalls M01: whatever the cpuset, only its processors, and a stated policy. */
static void small_cpusets_have_fewer_threads_and_a_warning(void **state)
{
	static const struct {
		const char *machine, *asked, *polls;
		int management;
		const char *helpers;
		bool busy, shared;
		const char *warning;
	} cases[] = {
		{ ONE_RAIL "cores 0-15 node=0\nallowed 9-11\n", "cores=3", "9:a", 10, "11", true, false,
			"3 physical cores may be used: 1 poll core instead of 3" },
		{ ONE_RAIL "cores 0-15 node=0\nallowed 9-11\n", "", "9:a", 10, "11", true, false, NULL },
		{ ONE_RAIL "cores 0-15 node=0\nallowed 9-12\n", "cores=8", "9:a 10:a", 11, "12", true, false,
			"4 physical cores may be used: 2 poll cores instead of 8" },
		{ ONE_RAIL "cores 0-15 node=0\nallowed 9-12\n", "cores=3", "9:a 10:a", 11, "12", true, false,
			"4 physical cores may be used: 2 poll cores instead of 3" },
		{ ONE_RAIL "cores 0-15 node=0\nallowed 9-10\n", "cores=2", "9:a", 9, "10", true, true,
			"one thread polls and manages" },
		{ ONE_RAIL "cores 0-15 node=0\nallowed 9\n", "", "9:a", 9, "9", false, true, "does not spin" },
		/* two threads of one core are one core */
		{ ONE_RAIL "cores 0 siblings=1 node=0\n", "", "1:a", 1, "0", false, true,
			"siblings of threads that poll" },
		{ ONE_RAIL "cores 0-1 siblings=2-3 node=0\n", "cores=4", "1:a", 1, "0,2", true, true,
			"2 physical cores may be used" },
		/* a core of which only one thread is ours comes after whole ones */
		{ ONE_RAIL "cores 0-3 siblings=4-7 node=0\nallowed 0-3,6-7\n", "", "2:a", 3, "0-1", true, false, NULL },
		{ ONE_RAIL "cores 0-3 siblings=4-7 node=0\nallowed 1-3\n", "", "1:a", 2, "3", true, false,
			"a sibling outside the cpuset" },
		/* the control group's quota counts as the cpuset does */
		{ ONE_RAIL "cores 0-15 node=0\nquota 4500\n", "cores=8", "1:a 2:a", 3, "0,4-15", true, false,
			"the control group grants 4.5 processors: 2 poll cores instead of 8" },
		{ ONE_RAIL "cores 0-15 node=0\nquota 500\n", "", "1:a", 1, "0,2-15", false, true, "grants 0.5" },
		/* isolated, and nobody gave them to this process */
		{ ONE_RAIL "cores 0-7 node=0\nallowed 0-5\nisolated 6-7\n", "", "1:a", 2, "0,3-5", true, false,
			"processors 6-7 are isolated but not in this process' affinity" },
		/* nothing but isolated ones */
		{ ONE_RAIL "cores 0-3 node=0\nisolated 0-3\n", "", "1:a", 2, "0,3", true, false,
			"helper threads run on isolated processors" },
		/* core 0 when there is no other */
		{ ONE_RAIL "cores 0-1 node=0\nallowed 0\n", "", "0:a", 0, "0", false, true, NULL },
		{ ONE_RAIL "cores 0-3 node=0\n", "cores=2", "1:a 2:a", 3, "0", true, false, NULL },
	};

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(cases); i++) {
		print_message("case %zu\n", i);
		make_plan(cases[i].machine, cases[i].asked);
		assert_polls(cases[i].polls);
		assert_int_equal(plan.management_core, cases[i].management);
		assert_helpers(cases[i].helpers);
		assert_int_equal(plan.busy, cases[i].busy);
		assert_int_equal(plan.shared, cases[i].shared);
		if (cases[i].warning && !warned(cases[i].warning))
			fail_msg("no warning like: %s", cases[i].warning);
	}
}

static void small_machines_without_a_rail_leave_cores_to_their_clients(void **state)
{
	(void)state;
	make_plan(ONE_NODE "cores 0-2 node=0\n", "");
	assert_polls("1:-");
	assert_false(plan.busy || plan.shared);
	assert_true(warned("3 physical cores may be used, and clients of this host poll there too"));
	make_plan(ONE_NODE "cores 0-1 node=0\n", "");
	assert_true(!plan.busy && plan.shared);
	make_plan(ONE_NODE "cores 0-3 node=0\n", "");
	assert_true(plan.busy && !plan.shared);
}

static void a_rail_whose_node_has_no_core_left_is_polled_from_the_nearest_one(void **state)
{
	(void)state;
	make_plan(TWO_NODES "node 2 package=1 memory=1GiB\ncores 0-7 node=0\ncores 8 node=1\ncores 9-15 node=2\n" RAIL(
			  "a", "1") RAIL("b", "1"),
		"");
	/* nodes of one package are nearer than others */
	assert_polls("8:a 9:b");
	assert_true(plan.polls[0].near);
	assert_false(plan.polls[1].near);
	assert_true(warned("b is polled by core 9 of node 2"));
	make_plan(EIGHT_CORES "allowed 0-3\n" RAIL("a", "1"), "");
	assert_polls("1:a");
	assert_true(warned("a is polled by core 1 of node 0"));
	assert_non_null(strstr(plan.polls[0].reason, "distance 21"));
}

static void no_processor_at_all_is_an_error(void **state)
{
	struct plan_options options = { .cores = 0 };

	(void)state;
	machine_free(&machine);
	read_machine(ONE_NODE "cores 0-3 node=0\n");
	for (uint32_t i = 0; i < machine->cpu_count; i++)
		machine->cpus[i].allowed = false;
	assert_int_equal(plan_make(machine, &options, &plan), -EINVAL);
}

static void links_and_ports_that_hold_a_rail_back_are_warned_of(void **state)
{
	static const struct {
		const char *nic, *warning;
		uint32_t rails;
	} cases[] = {
		{ "nic a kind=roce node=0 link=x8@16 link-max=x16@16 ports=1:up:100\n",
			"a is on a x8 link and could use x16", 1 },
		{ "nic a kind=roce node=0 link=x16@16 link-max=x16@32 ports=1:up:100\n", "a has a PCIe link of 16 GT/s",
			1 },
		{ "nic a kind=roce node=0 link=x16@16 link-max=x16@16 ports=1:up:400\n",
			"carries about 227 Gbit/s, the port 400", 1 },
		{ "nic a kind=roce node=0 link-gbits=126 ports=1:up:200\n", "carries about 113 Gbit/s, the port 200",
			1 },
		{ "nic a kind=roce node=0 ports=1:down:100\n", "a port 1 is down", 0 },
		{ "nic a kind=roce node=0 ports=1:down:100/2:up:100\n", "a port 1 is down", 1 },
		{ "nic a kind=roce node=0 ports=1:up:100/2:up:100\n", NULL, 2 },
		{ "nic a kind=roce node=0\n", NULL, 1 },
		{ "nic a kind=roce ports=1:up:100\n", "a: its NUMA node is not known", 1 },
		{ "nic a kind=soft-roce netdev=eth0 node=1\n", "a is soft-RoCE", 1 },
		{ "nic a kind=soft-roce node=1 link=x1@2.5 link-max=x2@5 ports=1:up:10\n", "!link", 1 },
		{ "nic a kind=roce node=0 ports=1:up:400\nnic b kind=roce node=0 ports=1:up:100\n",
			"b has 100 Gbit/s, less than half of the fastest rail's 400: left out", 1 },
		{ "nic a kind=ethernet node=0\n", "no RDMA port is up", 0 },
	};

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(cases); i++) {
		struct text text = { NULL, 0, 0, false };

		print_message("case %zu\n", i);
		text_append(&text, EIGHT_CORES "%s", cases[i].nic);
		make_plan(text.bytes, "");
		text_fini(&text);
		assert_int_equal(plan.rail_count, cases[i].rails);
		/* "!": none with these words */
		if (cases[i].warning &&
			warned(cases[i].warning + (cases[i].warning[0] == '!')) == (cases[i].warning[0] == '!'))
			fail_msg("warning: %s", cases[i].warning);
	}
	make_plan(EIGHT_CORES RAIL("a", "0"), "rails=3");
	assert_true(warned("3 rails were asked for, 1 can be used"));
	assert_int_equal(plan.rail_count, 1);
}

/* "0:64,1:32 ..." in MiB, with the kind of page. */
static void assert_arenas(const char *expected)
{
	static const char *const kinds[] = { "normal", "thp", "huge" };
	struct text made = { NULL, 0, 0, false };

	for (uint32_t i = 0; i < plan.arena_count; i++) {
		const struct plan_arena *arena = &plan.arenas[i];

		text_append(&made, "%s%d:%llu:%s", i ? " " : "", arena->node, (unsigned long long)arena->bytes >> 20,
			kinds[arena->pages]);
		if (arena->pages == PLAN_PAGES_HUGE)
			text_append(&made, "%llu", (unsigned long long)arena->page_bytes >> 20);
	}
	assert_string_equal(made.bytes ? made.bytes : "", expected);
	text_fini(&made);
}

/* pitfalls M07 */
static void arenas_are_on_the_nodes_of_the_rails_in_proportion(void **state)
{
	static const struct {
		const char *machine, *asked, *arenas, *warning;
	} cases[] = {
		{ EIGHT_CORES RAIL("a", "0"), "l1=8GiB", "0:8192:normal", "node 0 has no huge pages" },
		{ EIGHT_CORES "thp always\n" RAIL("a", "1"), "l1=8GiB", "1:8192:thp", "transparent huge pages there" },
		{ EIGHT_CORES RAIL("a", "0") RAIL("b", "1"), "l1=8GiB", "0:4096:normal 1:4096:normal", NULL },
		{ EIGHT_CORES RAIL("a", "0") RAIL("b", "1") RAIL("c", "1"), "l1=9GiB", "0:3072:normal 1:6144:normal",
			NULL },
		/* a card that is near to two nodes uses both */
		{ EIGHT_CORES RAIL("a", "0-1"), "l1=8GiB", "0:4096:normal 1:4096:normal", NULL },
		/* mems_allowed */
		{ TWO_NODES "cores 0-3 node=0\n" RAIL("a", "0-1"), "l1=8GiB", "0:4096:normal 1:4096:normal", NULL },
		{ "node 0 memory=64GiB allowed=no\nnode 1 memory=64GiB\ncores 0-3 node=0\n" RAIL("a", "0-1"), "l1=8GiB",
			"1:8192:normal", NULL },
		/* what does not fit goes to the nearest */
		{ EIGHT_CORES RAIL("a", "0"), "l1=64GiB", "0:58982:normal 1:6554:normal",
			"6.40 GiB of L1 does not fit on the nodes of the rails" },
		{ EIGHT_CORES RAIL("a", "0"), "l1=256GiB", "0:203162:normal 1:58982:normal",
			"140.80 GiB of the 256.00 GiB of L1 is more than" },
		{ "node 0 package=0 memory=8GiB\nnode 1 package=1 memory=8GiB\nnode 2 package=1 memory=8GiB\n"
		  "cores 0-3 node=1\n" RAIL("a", "1"),
			"l1=10GiB", "1:7372:normal 2:2868:normal", NULL },
		/* GPU memory and other memory are no L1 */
		{ "node 0 memory=8GiB\nnode 1 memory=64GiB kind=gpu\nnode 2 memory=64GiB kind=other\ncores 0-3 node=0\n" RAIL(
			  "a", "0-2"),
			"l1=4GiB", "0:4096:normal", NULL },
		/* the largest pages of which there are enough */
		{ "node 0 memory=64GiB huge=1GiB:8/8,2MiB:9000/9000\ncores 0-3 node=0\n" RAIL("a", "0"), "l1=8GiB",
			"0:8192:huge1024", NULL },
		{ "node 0 memory=64GiB huge=1GiB:7/8,2MiB:9000/9000\ncores 0-3 node=0\n" RAIL("a", "0"), "l1=8GiB",
			"0:8192:huge2", NULL },
		{ "node 0 memory=64GiB huge=1GiB:1/8,2MiB:1000/1000\ncores 0-3 node=0\n" RAIL("a", "0"), "l1=8GiB",
			"0:8192:normal",
			"echo 4096 > /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages" },
		{ "node 0 memory=64GiB huge=2MiB:100/300\ncores 0-3 node=0\n" RAIL("a", "0"), "l1=1GiB",
			"0:1024:normal", "echo 712 >" },
		{ "node 0 memory=64GiB huge=1GiB:8/8\ncores 0-3 node=0\n" RAIL("a", "0"), "l1=512MiB", "0:512:normal",
			"node 0 has no huge pages that are smaller than its part of L1" },
		/* huge pages of the neighbour come before normal ones, but not those of another package */
		{ "node 0 package=0 memory=8GiB huge=2MiB:1024/1024\nnode 1 package=0 memory=8GiB huge=2MiB:1024/1024\n"
		  "cores 0-3 node=0\n" RAIL("a", "0"),
			"l1=3GiB", "0:2048:huge2 1:1024:huge2", "1.00 GiB of L1 is on neighbouring nodes" },
		{ "node 0 package=0 memory=8GiB huge=2MiB:1024/1024\nnode 1 package=1 memory=8GiB huge=2MiB:1024/1024\n"
		  "cores 0-3 node=0\n" RAIL("a", "0"),
			"l1=3GiB", "0:3072:normal", "echo 1536 >" },
		/* whole pages on each of three nodes */
		{ "node 0 memory=8GiB huge=1GiB:4/4\nnode 1 memory=8GiB huge=1GiB:4/4\nnode 2 memory=8GiB huge=1GiB:4/4\n"
		  "cores 0-2 node=0\ncores 3 node=1\ncores 4 node=2\n" RAIL("a", "0") RAIL("b", "1") RAIL("c", "2"),
			"l1=4GiB", "0:2048:huge1024 1:1024:huge1024 2:1024:huge1024", NULL },
		{ "node 0 memory=8GiB huge=1GiB:4/4\nnode 1 memory=8GiB huge=1GiB:4/4\nnode 2 memory=8GiB huge=1GiB:4/4\n"
		  "cores 0-2 node=0\ncores 3 node=1\ncores 4 node=2\n" RAIL("a", "0") RAIL("b", "1") RAIL("c", "2"),
			"l1=2GiB", "0:684:normal 1:682:normal 2:682:normal", NULL },
		{ EIGHT_CORES "memory-limit 4GiB\n" RAIL("a", "0"), "l1=4GiB", "0:4096:normal",
			"memory.max of 4.00 GiB" },
		{ EIGHT_CORES RAIL("a", "0"), "", "", NULL },
	};

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(cases); i++) {
		print_message("case %zu\n", i);
		make_plan(cases[i].machine, cases[i].asked);
		assert_arenas(cases[i].arenas);
		if (cases[i].warning && !warned(cases[i].warning))
			fail_msg("no warning like: %s", cases[i].warning);
	}
}

/* gpus GPUs and nics NICs, half of each on a node; with switches: a GPU and its NICs behind each. down: a NIC whose port is. */
static void make_server(struct text *out, uint32_t gpus, uint32_t nics, bool switches, int down)
{
	text_append(out, TWO_NODES "cores 0-31 node=0\ncores 32-63 node=1\n");
	for (uint32_t i = 0; switches && i < gpus; i++)
		text_append(out, "switch 0000:%02x:00.0\n", i);
	for (uint32_t i = 0; i < nics; i++) {
		text_append(out, "nic n%u kind=roce node=%u ports=1:%s:400", i, 2 * i / nics,
			(int)i == down ? "down" : "up");
		if (switches)
			text_append(out, " switch=0000:%02x:00.0", i * gpus / nics);
		text_append(out, "\n");
	}
	for (uint32_t i = 0; i < gpus; i++) {
		text_append(out, "gpu %u node=%u", i, 2 * i / gpus);
		if (switches)
			text_append(out, " switch=0000:%02x:00.0", i);
		text_append(out, "\n");
	}
}

static void assert_gpus(const char *expected)
{
	struct text made = { NULL, 0, 0, false };

	for (uint32_t i = 0; i < plan.gpu_count; i++) {
		for (uint32_t j = 0; j < plan.gpus[i].rail_count; j++)
			text_append(&made, "%s%s", j ? "," : i ? " " : "", plan.rails[plan.gpus[i].rails[j]].name);
	}
	assert_string_equal(made.bytes ? made.bytes : "", expected);
	text_fini(&made);
}

/* pitfalls M08 */
static void rails_are_given_to_gpus_fairly(void **state)
{
	static const struct {
		uint32_t gpus, nics;
		bool switches;
		int down;
		const char *expected;
	} cases[] = {
		{ 8, 8, true, -1, "n0 n1 n2 n3 n4 n5 n6 n7" },
		{ 8, 8, false, -1, "n0 n1 n2 n3 n4 n5 n6 n7" },
		{ 8, 16, true, -1, "n0,n1 n2,n3 n4,n5 n6,n7 n8,n9 n10,n11 n12,n13 n14,n15" },
		{ 8, 16, false, -1, "n0,n4 n1,n5 n2,n6 n3,n7 n8,n12 n9,n13 n10,n14 n11,n15" },
		{ 8, 4, true, -1, "n0 n0 n1 n1 n2 n2 n3 n3" },
		{ 8, 4, false, -1, "n0 n1 n0 n1 n2 n3 n2 n3" },
		/* one is down: a neighbour of the same node serves its GPU */
		{ 8, 8, true, 2, "n0 n1 n0 n3 n4 n5 n6 n7" },
		{ 8, 8, false, 2, "n0 n1 n3 n0 n4 n5 n6 n7" },
		{ 2, 2, false, 0, "n1 n1" },
		{ 4, 0, false, -1, "" },
		{ 0, 4, false, -1, "" },
	};

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(cases); i++) {
		struct text text = { NULL, 0, 0, false };

		print_message("case %zu\n", i);
		make_server(&text, cases[i].gpus, cases[i].nics, cases[i].switches, cases[i].down);
		make_plan(text.bytes, "");
		text_fini(&text);
		assert_gpus(cases[i].expected);
	}
	/* a rail of another node than all GPUs is for host memory */
	make_plan(EIGHT_CORES RAIL("a", "0") RAIL("b", "1") "gpu 0 node=0\n", "");
	assert_gpus("a");
	/* a GPU with a rail behind the same inner switch, one with a rail behind the outer one */
	make_plan(EIGHT_CORES "switch 0:0.0\nswitch 1:0.0 parent=0:0.0\nswitch 2:0.0 parent=0:0.0\n"
			      "nic far kind=roce node=0\nnic near kind=roce node=0 switch=1:0.0\n"
			      "gpu 0 node=0 switch=2:0.0\ngpu 1 node=0 switch=1:0.0\n",
		"");
	assert_gpus("near,far near");
}

static void the_warnings_that_have_no_room_are_counted(void **state)
{
	struct text text = { NULL, 0, 0, false }, out = { NULL, 0, 0, false };

	(void)state;
	text_append(&text, EIGHT_CORES);
	for (uint32_t i = 0; i < 60; i++)
		text_append(&text, "nic n%u kind=roce node=0 ports=1:down:100\n", i);
	make_plan(text.bytes, "");
	assert_int_equal(plan.warning_count, PLAN_WARNINGS_MAX);
	assert_true(plan.warnings_dropped >= 60 - PLAN_WARNINGS_MAX);
	plan_print(machine, &plan, &out);
	assert_non_null(strstr(out.bytes, "more warnings"));
	text_fini(&text);
	text_fini(&out);
}

/* Each bound at once: 64 rails of 64 nodes, 1024 processors, 32 GPUs. */
static void the_largest_machine_has_a_plan(void **state)
{
	struct text text = { NULL, 0, 0, false }, out = { NULL, 0, 0, false };

	(void)state;
	for (uint32_t i = 0; i < 64; i++)
		text_append(&text, "node %u package=%u memory=1TiB huge=1GiB:900/900\n", i, i / 8);
	for (uint32_t i = 0; i < 64; i++)
		text_append(&text, "cores %u-%u siblings=%u-%u node=%u\n", 8 * i, 8 * i + 7, 512 + 8 * i,
			512 + 8 * i + 7, i);
	for (uint32_t i = 0; i < 64; i++)
		text_append(&text, "nic n%u kind=roce node=%u ports=1:up:400/2:up:400\n", i, i);
	for (uint32_t i = 0; i < 32; i++)
		text_append(&text, "gpu %u node=%u\n", i, 2 * i);
	make_plan(text.bytes, "cores=64,l1=40TiB");
	assert_int_equal(plan.rail_count, 64);
	assert_int_equal(plan.poll_core_count, 64);
	for (uint32_t i = 0; i < plan.poll_count; i++)
		assert_true(plan.polls[i].near);
	plan_print(machine, &plan, &out);
	plan_json(machine, &plan, &out);
	assert_false(out.failed);
	text_fini(&text);
	text_fini(&out);
}

static int plan_given_cores(const char *text, const int *given, uint32_t count)
{
	struct plan_options options = { .given = given, .given_count = count };

	machine_free(&machine);
	read_machine(text);
	return plan_make(machine, &options, &plan);
}

#define SIBLINGS                                                                                       \
	"node 0 package=0 memory=8GiB\nnode 1 package=1 memory=8GiB\ncores 0-3 siblings=8-11 node=0\n" \
	"cores 4-7 siblings=12-15 node=1\n"

static void given_cores_are_used_as_they_are_and_poll_what_is_near(void **state)
{
	static const int given[] = { 1, 2, 5, 6 };

	(void)state;
	assert_int_equal(plan_given_cores(SIBLINGS RAIL("far", "1") RAIL("near", "0"), given, 4), 0);
	assert_polls("1:near 2:near 5:far");
	assert_int_equal(plan.management_core, 6);
	assert_true(plan.busy && plan.pinned && !plan.shared);
	assert_false(warned("its own node"));
	for (uint32_t i = 0; i < plan.helper_count; i++)
		assert_true(plan.helpers[i] % 8 == 0 || plan.helpers[i] % 8 == 3 || plan.helpers[i] % 8 == 4 ||
			plan.helpers[i] % 8 == 7);
	/* One core polls and manages; the rail of the other node crosses the socket link, which is said. */
	assert_int_equal(plan_given_cores(SIBLINGS RAIL("far", "1") RAIL("near", "0"), given, 1), 0);
	assert_polls("1:far 1:near");
	assert_true(plan.shared);
	assert_int_equal(plan.management_core, 1);
	assert_true(warned("far is polled by core 1 of node 0: no given core is on its own node"));
}

/* pitfalls M01: what can't be is refused, what is only bad is said. */
static void what_speaks_against_given_cores_is_said(void **state)
{
	static const int siblings[] = { 1, 9 }, all[] = { 0, 1, 2, 3 }, foreign[] = { 16 };

	(void)state;
	assert_int_equal(plan_given_cores(SIBLINGS, siblings, 2), 0);
	assert_true(warned("core 9 is the sibling of another that was given"));
	assert_int_equal(plan_given_cores(SIBLINGS, foreign, 1), -EINVAL);
	assert_int_equal(plan_given_cores(SIBLINGS "allowed 0-7\n", siblings, 2), -EINVAL);
	assert_int_equal(plan_given_cores("synthetic core:4 pu:1\n", all, 4), 0);
	assert_true(warned("leave no physical core for anything else"));
	assert_true(plan.pinned && !plan.busy);
	assert_int_equal(plan_given_cores("quota 1500\n" SIBLINGS, siblings, 2), 0);
	assert_true(warned("the control group grants 1.5 processors"));
	assert_false(plan.busy);
}

static void a_server_of_local_clients_uses_no_rail_and_says_nothing_of_it(void **state)
{
	(void)state;
	make_plan(SIBLINGS RAIL("a", "1"), "local=1");
	assert_int_equal(plan.rail_count, 0);
	assert_polls("1:-");
	assert_false(warned("RDMA"));
	assert_true(plan.busy);
	/* One poll core: L1 is where it is, and elsewhere only what does not fit there. */
	make_plan(SIBLINGS, "local=1,l1=4GiB");
	assert_int_equal(plan.arena_count, 1);
	assert_int_equal(plan.arenas[0].node, plan.polls[0].node);
	make_plan(SIBLINGS, "local=1,l1=10GiB");
	assert_int_equal(plan.arena_count, 2);
	assert_true(warned("does not fit on the nodes of the poll cores"));
	make_plan(SIBLINGS, "local=1,l1=4GiB,cores=2");
	assert_int_equal(plan.arena_count, 2);
	make_plan(SIBLINGS RAIL("a", "0") "gpu 0 node=1\n", "local=1");
	assert_polls("4:-");
}

/* Who wants no spinning has the same places, and hears nothing of what only matters to threads that spin. */
static void threads_that_sleep_are_pinned_as_well(void **state)
{
	static const int given[] = { 1, 2 };
	struct plan_options options = { .adaptive = true, .local = true };

	(void)state;
	machine_free(&machine);
	read_machine(SIBLINGS);
	assert_int_equal(plan_make(machine, &options, &plan), 0);
	assert_true(plan.pinned && !plan.busy);
	assert_false(warned("isolated"));
	options.given = given;
	options.given_count = 2;
	assert_int_equal(plan_make(machine, &options, &plan), 0);
	assert_true(plan.pinned && !plan.busy);
	assert_int_equal(plan.warning_count, 0);
	machine_free(&machine);
	read_machine("synthetic core:2 pu:1\n");
	options.given_count = 0;
	assert_int_equal(plan_make(machine, &options, &plan), 0);
	assert_false(plan.pinned || plan.busy);
}

static void rails_are_the_devices_that_are_named(void **state)
{
	struct plan_options options = { .devices = "b,ab" };

	(void)state;
	machine_free(&machine);
	read_machine(SIBLINGS RAIL("a", "0") RAIL("b", "1"));
	assert_int_equal(plan_make(machine, &options, &plan), 0);
	assert_int_equal(plan.rail_count, 1);
	assert_string_equal(plan.rails[0].name, "b");
	options.port = 2;
	assert_int_equal(plan_make(machine, &options, &plan), 0);
	assert_int_equal(plan.rail_count, 0);
}

static void add_line(void *context, const char *line)
{
	text_append(context, "%s\n", line);
}

static void each_decision_is_a_line_with_its_reason(void **state)
{
	static const int given[] = { 1, 2 };
	struct text out = { NULL, 0, 0, false };

	(void)state;
	assert_int_equal(plan_given_cores(SIBLINGS RAIL("a", "0"), given, 2), 0);
	plan_lines(&plan, add_line, &out);
	assert_string_equal(out.bytes,
		"poll core 1 for a: on the rail's node, not isolated, whole core\n"
		"manage core 2: node 0, given, not isolated, whole core\n"
		"helpers 0,3,8,11: near the rails, beside no spinning thread\n"
		"threads spin on their cores\n");
	text_fini(&out);
	make_plan("synthetic core:2 pu:1\n", "l1=1GiB");
	plan_lines(&plan, add_line, &out);
	assert_non_null(strstr(out.bytes, "poll any core for local clients"));
	assert_non_null(strstr(out.bytes, "arena of 1.00 GiB on node 0: near the poll cores, normal pages"));
	assert_non_null(strstr(out.bytes, "threads wait adaptively and are not pinned"));
	text_fini(&out);
}

static void memory_of_a_node_is_touched_by_its_own_cores(void **state)
{
	int cpus[64];

	(void)state;
	machine_free(&machine);
	read_machine(SIBLINGS "allowed 0-2,8,12-13\n");
	assert_int_equal(plan_touch_cpus(machine, 0, cpus, 64), 3);
	assert_int_equal(cpus[2], 2);
	assert_int_equal(plan_touch_cpus(machine, 1, cpus, 64), 2);
	assert_int_equal(cpus[0], 12);
	assert_int_equal(plan_touch_cpus(machine, 7, cpus, 64), 5);
	assert_int_equal(plan_touch_cpus(machine, 0, cpus, 2), 2);
}

static void what_if_is_read_and_refused(void **state)
{
	static const struct {
		const char *text;
		int result;
		struct plan_options options;
	} cases[] = {
		{ "", 0, { .cores = 0 } },
		{ "rails=4,cores=6", 0, { .cores = 6, .rails = 4 } },
		{ "l1=2GiB", 0, { .l1_bytes = 2ULL << 30 } },
		{ "cores=64,", 0, { .cores = 64 } },
		{ "local=1", 0, { .local = true } },
		{ "cores=65", -EINVAL, { .cores = 0 } },
		{ "cores", -EINVAL, { .cores = 0 } },
		{ "cores=", -EINVAL, { .cores = 0 } },
		{ "cores=-1", -EINVAL, { .cores = 0 } },
		{ "nodes=1", -EINVAL, { .cores = 0 } },
		{ "cores=2,l1=2MB", -EINVAL, { .cores = 0 } },
		{ ",", -EINVAL, { .cores = 0 } },
		{ "=", -EINVAL, { .cores = 0 } },
	};

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(cases); i++) {
		struct plan_options options = { .cores = 0 };
		struct machine_error error = { "" };

		print_message("case %zu\n", i);
		assert_int_equal(plan_parse_options(cases[i].text, &options, &error), cases[i].result);
		assert_memory_equal(&options, &cases[i].options, sizeof(options));
		assert_int_equal(error.text[0] != '\0', cases[i].result != 0);
	}
}

static void json_has_the_keys_that_scripts_read(void **state)
{
	struct text out = { NULL, 0, 0, false };

	(void)state;
	make_plan("name a \"name\"\n" EIGHT_CORES RAIL("a", "1") "gpu 0 node=1\n", "l1=1GiB");
	plan_json(machine, &plan, &out);
	assert_non_null(strstr(out.bytes,
		"{\"machine\":\"a \\\"name\\\"\",\"waiting\":\"busy\",\"pinned\":true,\"poll_cores\":[{\"core\":4,"
		"\"rail\":\"a\",\"numa\":1,\"reason\":\""));
	assert_non_null(strstr(out.bytes,
		"\"management_core\":5,\"helper_cores\":[0,1,2,3,6,7],\"arenas\":[{\"numa\":1,"
		"\"bytes\":1073741824,"));
	assert_non_null(strstr(out.bytes, "\"gpus\":[{\"gpu\":\"0\",\"rails\":[\"a\"],"));
	assert_non_null(strstr(out.bytes, "\"warnings\":[\""));
	text_fini(&out);
	make_plan(EIGHT_CORES, "");
	plan_json(machine, &plan, &out);
	assert_non_null(strstr(out.bytes, "\"rail\":null"));
	text_fini(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(poll_cores_are_on_the_node_of_their_rail),
		cmocka_unit_test(small_cpusets_have_fewer_threads_and_a_warning),
		cmocka_unit_test(small_machines_without_a_rail_leave_cores_to_their_clients),
		cmocka_unit_test(a_rail_whose_node_has_no_core_left_is_polled_from_the_nearest_one),
		cmocka_unit_test(no_processor_at_all_is_an_error),
		cmocka_unit_test(links_and_ports_that_hold_a_rail_back_are_warned_of),
		cmocka_unit_test(arenas_are_on_the_nodes_of_the_rails_in_proportion),
		cmocka_unit_test(rails_are_given_to_gpus_fairly),
		cmocka_unit_test(the_warnings_that_have_no_room_are_counted),
		cmocka_unit_test(the_largest_machine_has_a_plan),
		cmocka_unit_test(given_cores_are_used_as_they_are_and_poll_what_is_near),
		cmocka_unit_test(what_speaks_against_given_cores_is_said),
		cmocka_unit_test(a_server_of_local_clients_uses_no_rail_and_says_nothing_of_it),
		cmocka_unit_test(threads_that_sleep_are_pinned_as_well),
		cmocka_unit_test(rails_are_the_devices_that_are_named),
		cmocka_unit_test(each_decision_is_a_line_with_its_reason),
		cmocka_unit_test(memory_of_a_node_is_touched_by_its_own_cores),
		cmocka_unit_test(what_if_is_read_and_refused),
		cmocka_unit_test(json_has_the_keys_that_scripts_read),
	};

	return cmocka_run_group_tests(tests, NULL, free_machine);
}
