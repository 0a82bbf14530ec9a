/* Reading machines: texts good and bad, hwloc XML, this machine, and what /proc and /sys say (from a folder that looks like them). */
#include "base/fault.h"
#include "base/random.h"
#include "poll/machine.h"
#include "poll/machine_private.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cmocka_all.h"

#define HEAD "kvrail-machine 1\n"
#define NODE "node 0 memory=8GiB\n"
#define CORES "cores 0-3 siblings=4-7 node=0\n"

#define SETS(cpus, nodes) \
	"cpuset=\"" cpus "\" complete_cpuset=\"" cpus "\" nodeset=\"" nodes "\" complete_nodeset=\"" nodes "\""
#define HOST_BRIDGE(gp, buses) \
	"<object type=\"Bridge\" gp_index=\"" gp "\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"" buses "\">"
#define BRIDGE(gp, depth, buses, at)                                                                              \
	"<object type=\"Bridge\" gp_index=\"" gp "\" bridge_type=\"1-1\" depth=\"" depth "\" bridge_pci=\"" buses \
	"\" pci_busid=\"" at "\" pci_type=\"0604 [1000:c030] [1000:0000] 00\" pci_link_speed=\"63.0\">"
#define NIC(gp, at, class)                                            \
	"<object type=\"PCIDev\" gp_index=\"" gp "\" pci_busid=\"" at \
	"\" pci_type=\"" class " [15b3:1021] [15b3:0000] 00\" pci_link_speed=\"31.5\">"

static struct machine *read_text(const char *text, struct machine_error *error)
{
	return machine_read_text("test", text, strlen(text), error);
}

static struct machine *must_read(const char *text)
{
	struct machine_error error = { "" };
	struct machine *machine = read_text(text, &error);

	if (!machine)
		fail_msg("%s", error.text);
	return machine;
}

static void a_machine_text_gives_every_fact(void **state)
{
	struct machine *machine = must_read(
		HEAD "name an edge box # not this\n"
		     "# a comment\n\n"
		     "node 0 package=1 memory=8GiB huge=2MiB:3/5,1GiB:1/2 # behind a line\r\n"
		     "node 7 memory=96GiB kind=gpu allowed=no\n"
		     "distance 0 10 80\n" CORES "allowed 1-7\nisolated 2,6\nnohz_full 6\n"
		     "quota 2500\nmemory-limit 4GiB\nthp madvise\n"
		     "switch 0000:10:00.0\nswitch 0000:11:00.0 parent=0000:10:00.0\n"
		     "nic mlx5_0 kind=infiniband netdev=ib0 pci=0000:12:00.0 switch=0000:11:00.0 "
		     "node=0 link=x8@16 link-max=x16@32 ports=1:up:400/2:down:0\n"
		     "gpu 0 model=H200 pci=0000:13:00.0 switch=0000:10:00.0 node=0,7");

	(void)state;
	assert_string_equal(machine->name, "an edge box");
	assert_int_equal(machine->node_count, 2);
	assert_int_equal(machine->nodes[0].package, 1);
	assert_int_equal(machine->nodes[0].bytes, 8ULL << 30);
	assert_int_equal(machine->nodes[0].huge_count, 2);
	assert_int_equal(machine->nodes[0].huge[0].page_bytes, 1 << 30);
	assert_int_equal(machine->nodes[0].huge[0].free, 1);
	assert_int_equal(machine->nodes[0].huge[1].total, 5);
	assert_int_equal(machine->nodes[1].number, 7);
	assert_int_equal(machine->nodes[1].package, -1);
	assert_int_equal(machine->nodes[1].memory, MACHINE_GPU_MEMORY);
	assert_false(machine->nodes[1].allowed);
	assert_int_equal(machine->distances[0][1], 80);
	assert_int_equal(machine->cpu_count, 8);
	assert_int_equal(machine->core_count, 4);
	assert_int_equal(machine->cpus[5].core, 1);
	assert_false(machine->cpus[0].allowed);
	assert_true(machine->cpus[6].isolated && machine->cpus[6].nohz_full && machine->cpus[2].isolated);
	assert_int_equal(machine->quota_millis, 2500);
	assert_int_equal(machine->memory_limit_bytes, 4ULL << 30);
	assert_int_equal(machine->thp, MACHINE_THP_MADVISE);
	assert_int_equal(machine->switches[1].above, 0);
	assert_int_equal(machine->nics[0].kind, MACHINE_INFINIBAND);
	assert_int_equal(machine->nics[0].above, 1);
	assert_int_equal(machine->nics[0].link.lanes, 8);
	assert_int_equal((int)machine_link_gbits(&machine->nics[0].link_max), 504);
	assert_int_equal(machine->nics[0].port_count, 2);
	assert_true(machine->nics[0].ports[0].up && !machine->nics[0].ports[1].up);
	assert_int_equal(machine->nics[0].ports[0].gbits, 400);
	assert_int_equal(machine->gpus[0].nodes, 3);
	assert_string_equal(machine->gpus[0].model, "H200");
	machine_free(&machine);
	assert_null(machine);
}

/* It reads back as it is written: cut at a blank, with bytes that a terminal would obey. */
static void a_name_is_cut_and_printable(void **state)
{
	struct text text = { NULL, 0, 0, false };
	struct machine *machine;

	(void)state;
	text_append(&text, HEAD "name  \x1b\x9b%.*s %s\n" NODE CORES, 92,
		"0123456789012345678901234567890123456789012345678901"
		"23456789012345678901234567890123456789012345678901234567890123456789",
		"behind");
	machine = must_read(text.bytes);
	assert_int_equal(strlen(machine->name), 94);
	assert_memory_equal(machine->name, "??0123", 6);
	machine_free(&machine);
	text_fini(&text);
}

static void a_synthetic_description_is_read_by_hwloc(void **state)
{
	struct machine *machine = must_read(
		HEAD "synthetic pack:2 numa:1(memory=4GiB) core:4 pu:2\nnic a kind=roce node=1\n");

	(void)state;
	assert_int_equal(machine->cpu_count, 16);
	assert_int_equal(machine->core_count, 8);
	assert_int_equal(machine->node_count, 2);
	assert_int_equal(machine->nodes[1].package, 1);
	assert_int_equal(machine->nodes[0].bytes, 4ULL << 30);
	assert_int_equal(machine->cpus[15].node, 1);
	assert_int_equal(machine->nics[0].nodes, 2);
	machine_free(&machine);
}

static void texts_that_are_no_machine_are_refused_with_the_line(void **state)
{
	static const struct {
		const char *text, *error;
	} cases[] = {
		{ "", "test:0: a machine has at least one node" },
		{ "\n", "test:1: a machine text begins" },
		{ "kvrail-machine 2\n", "test:1: a machine text begins" },
		{ HEAD, "at least one node and one core" },
		{ HEAD NODE, "at least one node and one core" },
		{ HEAD "wheel 4\n", "test:2: no line begins with wheel" },
		{ HEAD "node\n", "nothing is no number" },
		{ HEAD "node x\n", "x is no number" },
		{ HEAD "node 99999\n", "no number up to 65535" },
		{ HEAD "node 0\nnode 0\n", "test:3: node 0 is there twice" },
		{ HEAD "node 0 memory=8GB\n", "8GB is no size" },
		{ HEAD "node 0 kind=fast\n", "kind is dram" },
		{ HEAD "node 0 package=-1\n", "-1 is no number" },
		{ HEAD "node 0 wheels=4\n", "node has no wheels=4" },
		{ HEAD "node 0 huge=1GiB\n", "nothing is no number" },
		{ HEAD "node 0 huge=1GiB:2/1\n", "no more free than in total" },
		{ HEAD "node 0 huge=3MiB:1/1\n", "a power of two" },
		{ HEAD "node 0 huge=4096:1/1\n", "a power of two" },
		{ HEAD "node 0 huge=\n", "is no size" },
		{ HEAD NODE "distance 1 10\n", "there is no node 1" },
		{ HEAD NODE "distance 0 10 10\n", "one distance to each of 1 nodes" },
		{ HEAD NODE "distance 0 x\n", "x is no number" },
		{ HEAD NODE "cores 0-3\n", "nothing is no number" },
		{ HEAD NODE "cores 0-3 node=1\n", "there is no node 1" },
		{ HEAD NODE "cores 3-0 node=0\n", "3-0 is no list" },
		{ HEAD NODE "cores 0-1024 node=0\n", "is no list" },
		{ HEAD NODE "cores 0-3 siblings=3-6 node=0\n", "processor 3 is there twice" },
		{ HEAD NODE "cores 0-3 siblings=4-6 node=0\n", "as many as the first list has" },
		{ HEAD NODE "cores 0-3 siblings=4-7/8-12 node=0\n", "as many as the first list has" },
		{ HEAD "node 0 kind=gpu\ncores 0 node=0\n", "on a node of GPU memory" },
		{ HEAD NODE CORES "allowed 8\n", "there is no processor 8" },
		{ HEAD NODE CORES "isolated\n", "nothing is no list" },
		{ HEAD NODE CORES "isolated 1 2\n", "isolated has no 2" },
		{ HEAD NODE CORES "quota\n", "is no number" },
		{ HEAD NODE CORES "thp sometimes\n", "thp is always" },
		{ HEAD NODE CORES "memory-limit much\n", "much is no size" },
		{ HEAD NODE CORES "switch\n", "a name has 1 to" },
		{ HEAD NODE CORES "switch a\nswitch a\n", "switch a is there twice" },
		{ HEAD NODE CORES "switch a parent=b\n", "there is no switch b before" },
		{ HEAD NODE CORES "switch a parent=a\n", "there is no switch a before" },
		{ HEAD NODE CORES "nic\n", "a name has 1 to" },
		{ HEAD NODE CORES "nic a\nnic a\n", "nic a is there twice" },
		{ HEAD NODE CORES "nic a kind=fast\n", "kind is ethernet" },
		{ HEAD NODE CORES "nic a\x1b[2J\n", "a name has letters" },
		{ HEAD NODE CORES "nic a0123456789012345678901234567890\n", "a name has 1 to 31" },
		{ HEAD NODE CORES "nic a switch=b\n", "there is no switch b" },
		{ HEAD NODE CORES "nic a node=1\n", "there is no node 1" },
		{ HEAD NODE CORES "nic a link=8\n", "a link is lanes" },
		{ HEAD NODE CORES "nic a link=x8@nan\n", "nan is no number" },
		{ HEAD NODE CORES "nic a link=x8@\n", "is no number" },
		{ HEAD NODE CORES "nic a link=x80\n", "no number up to 64" },
		{ HEAD NODE CORES "nic a ports=1\n", "a port is number" },
		{ HEAD NODE CORES "nic a ports=1:maybe:3\n", "a port is number" },
		{ HEAD NODE CORES "nic a ports=1:up/2:up/3:up/4:up/5:up\n", "more than 4 ports" },
		{ HEAD NODE CORES "gpu 0\ngpu 0\n", "gpu 0 is there twice" },
		{ HEAD NODE "synthetic pu:2\n", "before all nodes" },
		{ HEAD "synthetic pu:5000\n", "more than 4096 objects" },
		{ HEAD "synthetic pack:100 core:100 pu:2\n", "more than 4096 objects" },
		{ HEAD "synthetic 2 100000\n", "more than 4096 objects" },
		{ HEAD "synthetic wheel:2\n", "hwloc does not know" },
		{ HEAD "synthetic core:2048 pu:1\n", "processor numbers are below 1024" },
	};

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(cases); i++) {
		struct machine_error error = { "" };

		assert_null(read_text(cases[i].text, &error));
		if (!strstr(error.text, cases[i].error))
			fail_msg("case %zu: \"%s\" has no \"%s\"", i, error.text, cases[i].error);
	}
}

static void texts_beyond_every_bound_are_refused(void **state)
{
	static const struct {
		const char *line, *error;
	} cases[] = {
		{ "node %u memory=1GiB\n", "more than 64 nodes" },
		{ "nic n%u kind=roce\n", "more than 64 NICs" },
		{ "gpu %u\n", "more than 32 GPUs" },
		{ "switch s%u\n", "more than 64 switches" },
	};
	struct machine_error error = { "" };
	char *large;

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(cases); i++) {
		struct text text = { NULL, 0, 0, false };

		text_append(&text, HEAD "%s", i ? NODE CORES : "");
		for (unsigned number = 0; number < 65; number++) {
			/* The format is one of the table's. */
			char line[64];

			snprintf(line, sizeof(line), "%.*s%u%s", (int)strcspn(cases[i].line, "%"), cases[i].line,
				number, strchr(cases[i].line, '%') + 2);
			text_append(&text, "%s", line);
		}
		assert_null(machine_read_text("test", text.bytes, text.length, &error));
		assert_non_null(strstr(error.text, cases[i].error));
		text_fini(&text);
	}
	large = malloc(MACHINE_TEXT_MAX + 1);
	assert_non_null(large);
	memset(large, 'x', MACHINE_TEXT_MAX + 1);
	assert_null(machine_read_text("test", large, MACHINE_TEXT_MAX + 1, &error));
	assert_non_null(strstr(error.text, "larger than"));
	assert_null(machine_read_text("test", large, MACHINE_TEXT_MAX, &error));
	assert_non_null(strstr(error.text, "a line is text"));
	memset(large, ' ', 300);
	memcpy(large, HEAD "nic\0", sizeof(HEAD) + 3);
	assert_null(machine_read_text("test", large, 300, &error));
	free(large);
}

/* Whatever bytes: a machine that keeps its promises, or an error with a line. */
static void texts_with_random_damage_are_read_or_refused(void **state)
{
	static const char base[] = HEAD
		"name x\nnode 0 package=0 memory=8GiB huge=2MiB:3/5\nnode 1 memory=1GiB kind=gpu\n"
		"distance 0 10 20\n" CORES "cores 8-9 node=0\nallowed 1-9\nisolated 2\nthp never\n"
		"switch a\nswitch b parent=a\nnic n kind=roce switch=b node=0 link=x8@16 "
		"ports=1:up:400/2:down:0\ngpu 0 node=0 switch=a model=M\n";
	static const char letters[] = "0123456789 \n-,:/=@#xankGi.";
	struct random random;
	uint32_t good = 0;

	(void)state;
	random_init(&random, 5);
	for (uint32_t round = 0; round < 20000; round++) {
		struct machine_error error = { "" };
		char text[sizeof(base)];
		size_t length = sizeof(base) - 1;
		struct machine *machine;

		memcpy(text, base, sizeof(base));
		for (uint64_t change = 1 + random_below(&random, 4); change > 0; change--)
			text[random_below(&random, length)] = random_below(&random, 8)
				? letters[random_below(&random, sizeof(letters) - 1)]
				: (char)random_below(&random, 256);
		if (random_below(&random, 4) == 0)
			length = random_below(&random, length);
		machine = machine_read_text("test", text, length, &error);
		assert_int_equal(machine == NULL, error.text[0] != '\0');
		good += machine != NULL;
		for (uint32_t i = 0; machine && i < machine->cpu_count; i++) {
			assert_true(machine->cpus[i].core < machine->core_count);
			assert_true(machine->cpus[i].node < machine->node_count);
		}
		machine_free(&machine);
	}
	/* Neither all refused nor all read: the damage is of the right size. */
	assert_true(good > 200 && good < 19000);
}

static char folder[64];

static void make_file(const char *name, const char *content)
{
	char path[512];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	for (char *at = path + strlen(folder) + 1; (at = strchr(at, '/')) != NULL; at++) {
		*at = '\0';
		mkdir(path, 0755);
		*at = '/';
	}
	file = fopen(path, "we");
	assert_non_null(file);
	assert_true(fputs(content, file) >= 0);
	fclose(file);
}

static int make_folder(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/kvrail-machine-XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	return system(command); /* NOLINT: the name is made by mkdtemp */
}

static void live_facts_come_from_proc_and_sys(void **state)
{
	struct machine *machine = must_read(HEAD "node 0 memory=8GiB\nnode 1 memory=8GiB\n"
						 "cores 0-3 node=0\ncores 4-7 node=1\n"
						 "nic mlx5_0 kind=roce pci=0000:41:00.0 node=0 link-gbits=100\n"
						 "nic eth1 kind=ethernet netdev=eth1 pci=0000:81:00.0 node=1\n");
	const struct machine_nic *nic;

	(void)state;
	make_file("sys/devices/system/cpu/isolated", "2-3\n");
	make_file("sys/devices/system/cpu/nohz_full", "3,99\n");
	make_file("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
	make_file("sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages", "40\n");
	make_file("sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "30\n");
	make_file("sys/devices/system/node/node1/hugepages/hugepages-1048576kB/nr_hugepages", "4\n");
	make_file("sys/devices/system/node/node1/hugepages/hugepages-1048576kB/free_hugepages", "5\n");
	make_file("proc/self/status", "Name:\tx\nMems_allowed_list:\t1\n");
	make_file("proc/self/cgroup", "0::/kube/pod\n");
	make_file("sys/fs/cgroup/kube/pod/cpu.max", "max 100000\n");
	make_file("sys/fs/cgroup/kube/cpu.max", "250000 100000\n");
	make_file("sys/fs/cgroup/kube/memory.max", "4294967296\n");
	make_file("sys/fs/cgroup/kube/pod/memory.max", "8589934592\n");
	make_file("sys/bus/pci/devices/0000:41:00.0/current_link_width", "8\n");
	make_file("sys/bus/pci/devices/0000:41:00.0/current_link_speed", "16.0 GT/s PCIe\n");
	make_file("sys/bus/pci/devices/0000:41:00.0/max_link_width", "16\n");
	make_file("sys/bus/pci/devices/0000:41:00.0/max_link_speed", "32.0 GT/s PCIe\n");
	make_file("sys/bus/pci/devices/0000:81:00.0/current_link_width", "0\n");
	make_file("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
	make_file("sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
	make_file("sys/class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand\n");
	make_file("sys/class/infiniband/rxe0/ports/1/state", "1: DOWN\n");
	make_file("sys/class/infiniband/rxe0/ports/1/link_layer", "Ethernet\n");
	make_file("sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0", "eth1\n");
	machine_add_live_facts(machine, folder);
	assert_true(machine->cpus[2].isolated && !machine->cpus[2].nohz_full);
	assert_true(machine->cpus[3].isolated && machine->cpus[3].nohz_full);
	assert_int_equal(machine->thp, MACHINE_THP_MADVISE);
	assert_int_equal(machine->nodes[0].huge_count, 0);
	assert_int_equal(machine->nodes[1].huge_count, 2);
	assert_int_equal(machine->nodes[1].huge[0].free, 4);
	assert_int_equal(machine->nodes[1].huge[1].free, 30);
	assert_int_equal(machine->nodes[1].huge[1].total, 40);
	assert_true(!machine->nodes[0].allowed && machine->nodes[1].allowed);
	assert_int_equal(machine->quota_millis, 2500);
	assert_int_equal(machine->memory_limit_bytes, 4ULL << 30);
	nic = &machine->nics[0];
	assert_int_equal(nic->link.lanes, 8);
	assert_int_equal((int)nic->link_max.gt_per_s, 32);
	assert_true(nic->link_gbits <= 0);
	assert_int_equal(nic->kind, MACHINE_INFINIBAND);
	assert_true(nic->port_count == 1 && nic->ports[0].up && nic->ports[0].gbits == 400);
	assert_int_equal(machine->nics[1].link.lanes, 0);
	/* soft-RoCE is where its network interface is */
	nic = &machine->nics[machine_find_nic(machine, "rxe0")];
	assert_int_equal(nic->kind, MACHINE_SOFT_ROCE);
	assert_string_equal(nic->netdev, "eth1");
	assert_int_equal(nic->nodes, 2);
	assert_string_equal(nic->pci, "0000:81:00.0");
	assert_true(nic->port_count == 1 && !nic->ports[0].up);
	machine_free(&machine);
}

/* Version 1, where each controller has a tree. */
static void limits_of_older_control_groups_are_read(void **state)
{
	struct machine *machine = must_read(HEAD NODE CORES);
	char root[96];

	(void)state;
	make_file("v1/proc/self/cgroup", "9:name=systemd:/\n4:memory:/box\n2:cpuacct:/other\n1:cpuset,cpu:/box\n");
	make_file("v1/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "9223372036854771712\n");
	make_file("v1/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
	make_file("v1/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "150000\n");
	make_file("v1/sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
	make_file("v1/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
	make_file("v1/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
	snprintf(root, sizeof(root), "%s/v1", folder);
	machine_add_live_facts(machine, root);
	assert_int_equal(machine->quota_millis, 1500);
	assert_int_equal(machine->memory_limit_bytes, 1 << 30);
	machine_free(&machine);
	/* A number near the largest one means that there is no limit. */
	make_file("v1/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	machine = must_read(HEAD NODE CORES);
	machine_add_live_facts(machine, root);
	assert_int_equal(machine->memory_limit_bytes, 0);
	machine_free(&machine);
}

static void facts_that_are_not_there_stay_unknown(void **state)
{
	struct machine *machine = must_read(HEAD NODE CORES "nic a pci=0000:41:00.0\n");

	(void)state;
	machine_add_live_facts(machine, "/nowhere");
	assert_int_equal(machine->thp, MACHINE_THP_UNKNOWN);
	assert_int_equal(machine->quota_millis, 0);
	assert_true(machine->nodes[0].allowed);
	assert_int_equal(machine->nics[0].port_count, 0);
	machine_free(&machine);
}

/* pitfalls M01 */
static void this_machine_is_read_within_the_affinity(void **state)
{
	struct machine_error error = { "" };
	struct machine *machine = machine_read_live(&error);
	cpu_set_t before, one;
	uint32_t allowed = 0;
	int first = -1;

	(void)state;
	assert_non_null(machine);
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	assert_true(machine->node_count > 0 && machine->nodes[0].bytes > 0);
	for (uint32_t i = 0; i < machine->cpu_count; i++) {
		assert_int_equal(machine->cpus[i].allowed, CPU_ISSET((unsigned)machine->cpus[i].number, &before) != 0);
		if (machine->cpus[i].allowed)
			first = machine->cpus[i].number;
	}
	machine_free(&machine);
	CPU_ZERO(&one);
	CPU_SET((unsigned)first, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	machine = machine_read_live(&error);
	assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
	assert_non_null(machine);
	for (uint32_t i = 0; i < machine->cpu_count; i++)
		allowed += machine->cpus[i].allowed;
	assert_int_equal(allowed, 1);
	machine_free(&machine);
}

static void an_export_reads_back(void **state)
{
	struct text facts = { NULL, 0, 0, false };
	struct machine_error error = { "" };
	struct machine *live = machine_read_live(&error), *machine;
	char path[128], side[160];

	(void)state;
	snprintf(path, sizeof(path), "%s/export.xml", folder);
	assert_int_equal(machine_export_xml(path, &facts, &error), 0);
	text_append(&facts, "nic rxe7 kind=soft-roce node=%d ports=1:up:10\nthp never\n", live->nodes[0].number);
	snprintf(side, sizeof(side), "export.xml.facts");
	make_file(side, facts.bytes);
	machine = machine_read_file(path, &error);
	if (!machine)
		fail_msg("%s", error.text);
	assert_string_equal(machine->name, "export");
	assert_int_equal(machine->cpu_count, live->cpu_count);
	assert_int_equal(machine->node_count, live->node_count);
	assert_int_equal(machine->thp, MACHINE_THP_NEVER);
	assert_true(machine_find_nic(machine, "rxe7") >= 0);
	machine_free(&machine);
	make_file(side, "nic a kind=what\n");
	assert_null(machine_read_file(path, &error));
	assert_non_null(strstr(error.text, "export.xml.facts:1: kind is"));
	machine_free(&live);
	text_fini(&facts);
}

/* What a server's XML has and no recorded machine does: a switch, an RDMA device, a node of GPU memory, a card of the whole machine. */
static const char server_xml
	[] = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">"
	     "<object type=\"Machine\" os_index=\"0\" " SETS("0x3",
		     "0x7") " allowed_cpuset=\"0x3\" allowed_nodeset=\"0x7\" gp_index=\"1\">"
			    "<object type=\"Package\" os_index=\"0\" " SETS("0x1",
				    "0x5") " gp_index=\"2\">"
					   "<object type=\"NUMANode\" os_index=\"0\" " SETS("0x1",
						   "0x1") " gp_index=\"3\" local_memory=\"8589934592\"/>"
							  "<object type=\"NUMANode\" os_index=\"2\" subtype=\"GPUMemory\" " SETS(
								  "0x1",
								  "0x4") " gp_index=\"4\" local_memory=\"4096\"/>"
									 "<object type=\"Core\" os_index=\"0\" " SETS(
										 "0x1",
										 "0x5") " gp_index=\"5\">"
											"<object type=\"PU\" os_index=\"0\" " SETS(
												"0x1",
												"0x5") " gp_index=\"6\"/></object>" HOST_BRIDGE("7",
												"0000:[40-44]") BRIDGE("8",
												"1", "0000:[41-44]",
												"0000:40:00.0")
												BRIDGE("9", "2", "0000:[42-44]", "0000:41:00.0") BRIDGE("10", "3", "0000:[43-43]", "0000:42:00.0") NIC("11", "0000:43:00.0", "0207") "<object type=\"OSDev\" gp_index=\"12\" name=\"ib0\" osdev_type=\"2\"/>"
																												     "<object type=\"OSDev\" gp_index=\"13\" name=\"mlx5_0\" osdev_type=\"3\"><info name=\"Port1State\" value=\"4\"/>"
																												     "<info name=\"Port2State\" value=\"1\"/></object></object></object>" BRIDGE("14", "3", "0000:[44-44]", "0000:42:01.0") "<object type=\"PCIDev\" gp_index=\"15\" pci_busid=\"0000:44:00.0\" pci_type=\"0302 [10de:2335] [10de:0000] 00\" "
																																											    "pci_link_speed=\"63.0\"/></object></object></object></object></object>"
																																											    "<object type=\"Package\" os_index=\"1\" " SETS("0x2", "0x2") " gp_index=\"16\">"
																																																			  "<object type=\"NUMANode\" os_index=\"1\" " SETS("0x2", "0x2") " gp_index=\"17\" local_memory=\"8589934592\"/>"
																																																											 "<object type=\"Core\" os_index=\"1\" " SETS("0x2", "0x2") " gp_index=\"18\">"
																																																																		    "<object type=\"PU\" os_index=\"1\" " SETS("0x2", "0x2") " gp_index=\"19\"/></object></object>" HOST_BRIDGE("20", "0000:[00-01]") NIC("21",
																																																																			    "0000:00:02.0",
																																																																			    "0200") "<object type=\"OSDev\" gp_index=\"22\" name=\"eth0\" osdev_type=\"2\"/></object>"
																																																																				    "<object type=\"PCIDev\" gp_index=\"23\" pci_busid=\"0000:00:03.0\" pci_type=\"0108 [1b36:0010] [1af4:1100] 02\" "
																																																																				    "pci_link_speed=\"0.0\"><object type=\"OSDev\" gp_index=\"24\" name=\"nvme0n1\" osdev_type=\"0\"/></object>"
																																																																				    "</object></object></topology>";

static void devices_of_an_hwloc_file_are_placed(void **state)
{
	struct machine_error error = { "" };
	struct machine *machine;
	const struct machine_nic *nic;
	char path[128];

	(void)state;
	make_file("server.xml", server_xml);
	snprintf(path, sizeof(path), "%s/server.xml", folder);
	machine = machine_read_file(path, &error);
	if (!machine)
		fail_msg("%s", error.text);
	assert_int_equal(machine->node_count, 3);
	assert_int_equal(machine->nodes[machine_find_node(machine, 2)].memory, MACHINE_GPU_MEMORY);
	assert_int_equal(machine->nodes[machine->cpus[0].node].number, 0);
	/* One bridge has two below it: it is the switch, and those above and below are not. */
	assert_int_equal(machine->switch_count, 1);
	assert_string_equal(machine->switches[0].pci, "0000:41:00.0");
	nic = &machine->nics[machine_find_nic(machine, "mlx5_0")];
	assert_int_equal(nic->kind, MACHINE_INFINIBAND);
	assert_string_equal(nic->netdev, "ib0");
	assert_int_equal(nic->above, 0);
	assert_int_equal(nic->nodes, 1U << machine_find_node(machine, 0));
	assert_int_equal((int)nic->link_gbits, 252);
	assert_true(nic->port_count == 2 && nic->ports[0].up && !nic->ports[1].up);
	assert_int_equal(machine->gpu_count, 1);
	assert_int_equal(machine->gpus[0].above, 0);
	/* A disk is no network interface. */
	assert_int_equal(machine->nic_count, 2);
	/* A card of the whole machine: nobody knows. */
	nic = &machine->nics[machine_find_nic(machine, "eth0")];
	assert_int_equal(nic->kind, MACHINE_ETHERNET);
	assert_int_equal(nic->nodes, 0);
	assert_int_equal(nic->above, -1);
	machine_free(&machine);
}

static void files_that_cannot_be_read_are_errors(void **state)
{
	struct machine_error error = { "" };
	char path[128];

	(void)state;
	assert_null(machine_read_file("/nowhere/at/all", &error));
	assert_non_null(strstr(error.text, "/nowhere/at/all can't be opened"));
	assert_null(machine_read_file("/", &error));
	make_file("empty", "");
	snprintf(path, sizeof(path), "%s/empty", folder);
	assert_null(machine_read_file(path, &error));
	assert_non_null(strstr(error.text, "is empty"));
	make_file("broken.xml", "<topology version=\"2.0\"><object type=\"Machine\"");
	snprintf(path, sizeof(path), "%s/broken.xml", folder);
	assert_null(machine_read_file(path, &error));
	assert_non_null(strstr(error.text, "broken.xml"));
	fault_arm_name("machine/topology", 1);
	assert_null(machine_read_live(&error));
	fault_arm_name("machine/memory", 1);
	assert_null(machine_read_live(&error));
	fault_arm(0);
	assert_non_null(strstr(error.text, "out of memory"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_machine_text_gives_every_fact),
		cmocka_unit_test(a_name_is_cut_and_printable),
		cmocka_unit_test(a_synthetic_description_is_read_by_hwloc),
		cmocka_unit_test(texts_that_are_no_machine_are_refused_with_the_line),
		cmocka_unit_test(texts_beyond_every_bound_are_refused),
		cmocka_unit_test(texts_with_random_damage_are_read_or_refused),
		cmocka_unit_test(live_facts_come_from_proc_and_sys),
		cmocka_unit_test(limits_of_older_control_groups_are_read),
		cmocka_unit_test(facts_that_are_not_there_stay_unknown),
		cmocka_unit_test(this_machine_is_read_within_the_affinity),
		cmocka_unit_test(an_export_reads_back),
		cmocka_unit_test(devices_of_an_hwloc_file_are_placed),
		cmocka_unit_test(files_that_cannot_be_read_are_errors),
	};

	setenv("HWLOC_HIDE_ERRORS", "2", 1);
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
