/* kvraild's options: the table, what contradicts what, and what they come to. */
#include "app/kvraild/options.h"
#include "app/process.h"
#include "poll/loop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cmocka_all.h"

static int plan_of(const char *text, struct kvraild_plan *plan, struct option_error *error)
{
	struct kvraild_settings settings;
	int result;

	memset(&settings, 0, sizeof(settings));
	assert_int_equal(option_defaults(&kvraild_options, &settings, error), 0);
	assert_int_equal(option_read_text(&kvraild_options, "test", text, strlen(text), &settings, error), 0);
	result = kvraild_plan(&settings, plan, error);
	option_fini(&kvraild_options, &settings);
	return result;
}

static void assert_refused(const char *text, const char *message)
{
	struct option_error error;
	struct kvraild_plan plan;

	assert_int_equal(plan_of(text, &plan, &error), -EINVAL);
	assert_string_equal(error.text, message);
}

static void without_options_there_is_a_good_plan(void **state)
{
	struct option_error error;
	struct kvraild_plan plan;

	(void)state;
	setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
	assert_int_equal(plan_of("", &plan, &error), 0);
	assert_true(plan.socket.is_unix);
	assert_string_equal(plan.socket.path, geteuid() == 0 ? "/run/kvrail/kvrail.sock" : "/run/user/7/kvrail.sock");
	assert_int_equal(plan.socket_mode, 0660);
	assert_true(plan.has_http);
	assert_string_equal(plan.token, "");
	assert_int_equal(plan.tenant_count, 1);
	assert_string_equal(plan.tenants[0].name, "default");
	assert_true(plan.tenants[0].may_clear);
	assert_int_equal(plan.cores.count, 0);
	assert_false(plan.cores.any);
}

/* pitfalls O05 */
static void contradictions_name_the_options(void **state)
{
	(void)state;
	assert_refused("evict-low = 95\nevict-high = 90\n", "--evict-low 95 is above --evict-high 90");
	assert_refused("evict-high = 90\n", "--evict-low 100 is above --evict-high 90");
	assert_refused(
		"socket = /0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678\n",
		"--socket /0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678 is no "
		"path of a Unix socket: it has 1 to 107 characters");
	assert_refused("socket-mode = 0888\n", "--socket-mode 0888 is no octal number from 0 to 0777");
	assert_refused("socket-mode = 1777\n", "--socket-mode 1777 is no octal number from 0 to 0777");
	assert_refused("http = somewhere\n",
		"--http somewhere is no address; write HOST:PORT, as 127.0.0.1:9464 or [::1]:9464, or off");
	assert_refused(
		"http = off\nadmin-token-file = /x\n", "--admin-token-file is for the pages of --http, which is off");
	assert_refused("admin-token-file = /nonexistent\n",
		"--admin-token-file: /nonexistent can't be read: No such file or directory");
	assert_refused("l2 = floppy:/x\n", "--l2 floppy:/x: there is no such kind of place; there is: file redis s3");
	assert_refused(
		"l2 = /x\n", "--l2 /x: it names no kind; write KIND:PLACE, then ?name=value&name=value as wanted");
	assert_refused("l2 = file:/x\nl2 = file:/y\nl2 = file:/x?size=1GiB\n",
		"--l2 file:/x?size=1GiB: that place is given twice");
	assert_refused("l2 = file:x\n", "--l2 file:x: the directory is not named from / on");
	assert_refused("l2 = file:/x?sizze=1\n", "--l2 file:/x?sizze=1:1: unknown option sizze; did you mean size?");
	assert_refused("l2 = s3:bucket?endpoint=nowhere\n",
		"--l2 s3:bucket: the endpoint is http://HOST[:PORT] or https://HOST[:PORT], with nothing behind it");
	assert_refused("l2 = s3:x\n",
		"--l2 s3:x: the place is BUCKET or BUCKET/PREFIX; a bucket has 3 to 63 characters, both have at most 200");
	assert_refused("l2 = s3:bucket?credentials-file=/nonexistent\n",
		"--l2 s3:bucket: credentials-file can't be read: No such file or directory");
	assert_refused("l2 = s3:bucket?compress=zstd:0\n",
		"--l2 s3:bucket: compress is none, or zstd:LEVEL with a level from 1 to 19, not zstd:0");
	assert_refused("l2 = redis:a:1?compress=zstd\n",
		"--l2 redis:a:1: compress is none, or zstd:LEVEL with a level from 1 to 19, not zstd");
	assert_refused("l2 = redis:a:1?element=3\n", "--l2 redis:a:1: element is 1, 2 or 4");
	assert_refused("l2 = redis:somewhere\n",
		"--l2 redis:somewhere: the server is HOST:PORT, [ADDRESS]:PORT, or the path of a Unix socket, from / on");
	assert_refused("l2 = redis:a:1,b:2\n", "--l2 redis:a:1,b:2: several servers are named only with cluster=yes");
	assert_refused("l2 = redis:a:1?cluster=yes&database=1\n", "--l2 redis:a:1: a cluster has database 0 alone");
	assert_refused("l2 = redis:a:1?password-file=/nonexistent\n",
		"--l2 redis:a:1: password-file can't be read: No such file or directory");
	assert_refused("l2 = redis:a:1?password=x\n",
		"--l2 redis:a:1?password=x:1: unknown option password; kvraild --l2 redis:SERVER --help lists all");
	assert_refused("l2 = redis:a:1?expire=10us\n", "--l2 redis:a:1: expire is 1ms or more, or 0");
	assert_refused("l2 = file:/1\nl2 = file:/2\nl2 = file:/3\nl2 = file:/4\nl2 = file:/5\n",
		"--l2: 5 places are given, at most 4 are possible");
	assert_refused("require-tenant = yes\n", "--require-tenant needs at least one --tenant");
	assert_refused("cores = x\n", "--cores x is no list of cores, as 2-5,8, and neither auto nor any");
	assert_refused("cores = any\npoll-cores = 3\n",
		"--poll-cores 3 is for --cores auto: --cores any says how many poll by itself");
}

/* pitfalls O10: who comes by which way is a choice, and no other is used. */
static void an_address_for_other_hosts_stands_beside_the_socket(void **state)
{
	struct option_error error;
	struct kvraild_plan plan;

	(void)state;
	assert_int_equal(plan_of("http = off\n", &plan, &error), 0);
	assert_true(!plan.has_listen && plan.has_socket);
	assert_int_equal(plan_of("listen = kvrail://h\nsocket = off\n", &plan, &error), 0);
	assert_true(plan.has_listen && !plan.has_socket);
	assert_int_equal(plan_of("listen = kvrail://h\nsocket = /tmp/x\n", &plan, &error), 0);
	assert_true(plan.has_listen && plan.has_socket);
	assert_string_equal(plan.socket.path, "/tmp/x");
	assert_refused("socket = off\n", "--socket off leaves no clients: give an address as --listen");
	assert_int_equal(plan_of("listen = kvrail://10.0.0.7:7500\ngid-index = 3\n", &plan, &error), 0);
	assert_true(plan.has_listen);
	assert_false(plan.listen.is_unix);
	assert_string_equal(plan.listen.host, "10.0.0.7");
	assert_int_equal(plan.listen.port, 7500);
	assert_true(plan.gid_index_set);
	assert_int_equal(plan.gid_index, 3);
	assert_int_equal(plan_of("listen = kvrail://10.0.0.7\n", &plan, &error), 0);
	assert_false(plan.gid_index_set);
	assert_refused("listen = 10.0.0.7:7500\n", "--listen 10.0.0.7:7500 is no address; write kvrail://HOST:PORT");
	assert_refused("listen = unix:/tmp/x\n", "--listen unix:/tmp/x is no address; write kvrail://HOST:PORT");
	assert_refused("device = mlx5_0\n", "--device is for clients on other hosts: it needs --listen");
	assert_refused("trust-tcp = yes\n", "--trust-tcp is for clients on other hosts: it needs --listen");
	assert_refused("listen = kvrail://h\ngid-index = three\n",
		"--gid-index three is neither auto nor a number from 0 to 65535");
	assert_refused(
		"listen = kvrail://h\npath-mtu = 1500\n", "--path-mtu 1500 is none of 256, 512, 1024, 2048, 4096");
}

static void tenants_are_read_with_users_and_rights(void **state)
{
	struct option_error error;
	struct kvraild_plan plan;

	(void)state;
	assert_int_equal(plan_of("tenant = a:uid=1000\ntenant = b:clear:uid=0\ntenant = c\n", &plan, &error), 0);
	assert_int_equal(plan.tenant_count, 4);
	assert_string_equal(plan.tenants[0].name, "default");
	/* Not the only one any more: it clears nothing. */
	assert_false(plan.tenants[0].may_clear);
	assert_false(plan.tenants[0].by_uid);
	assert_string_equal(plan.tenants[1].name, "a");
	assert_true(plan.tenants[1].by_uid);
	assert_int_equal(plan.tenants[1].uid, 1000);
	assert_false(plan.tenants[1].may_clear);
	assert_true(plan.tenants[2].by_uid && plan.tenants[2].may_clear);
	assert_int_equal(plan.tenants[2].uid, 0);
	assert_false(plan.tenants[3].by_uid);
	assert_int_equal(plan_of("tenant = default:uid=5:clear\n", &plan, &error), 0);
	assert_int_equal(plan.tenant_count, 1);
	assert_true(plan.tenants[0].by_uid && plan.tenants[0].may_clear);
}

static void tenants_that_make_no_sense_are_refused(void **state)
{
	(void)state;
	assert_refused("tenant = :uid=1\n",
		"--tenant :uid=1: a name has 1 to 63 characters; write NAME, then :uid=N and :clear as wanted");
	assert_refused("tenant = a:uid=x\n",
		"--tenant a:uid=x: no such user number; write NAME, then :uid=N and :clear as wanted");
	assert_refused("tenant = a:uid=4294967295\n",
		"--tenant a:uid=4294967295: no such user number; write NAME, then :uid=N and :clear as wanted");
	assert_refused("tenant = a:\n",
		"--tenant a:: its parts are uid=N and clear, each once; write NAME, then :uid=N and :clear as wanted");
	assert_refused("tenant = a:clear:clear\n",
		"--tenant a:clear:clear: its parts are uid=N and clear, each once; write NAME, then :uid=N and :clear as wanted");
	assert_refused("tenant = a\ntenant = a\n",
		"--tenant a: that name was given before; write NAME, then :uid=N and :clear as wanted");
	assert_refused("tenant = a:uid=1\ntenant = b:uid=1\n",
		"--tenant b:uid=1: another tenant has that user already; write NAME, then :uid=N and :clear as wanted");
	assert_refused("tenant-key = a\n", "--tenant-key a: write NAME:FILE");
	assert_refused("tenant-key = a:/x\n", "--tenant-key a:/x: there is no tenant a; give --tenant a too");
	assert_refused("tenant = a\ntenant-key = a:/nonexistent\n",
		"--tenant-key: /nonexistent can't be read: No such file or directory");
}

static void secrets_are_first_lines_of_files(void **state)
{
	char path[] = "/tmp/kvrail-test-key-XXXXXX", config[256], message[256], secret[80];
	struct option_error error;
	struct kvraild_plan plan;

	(void)state;
	close(mkstemp(path));
	snprintf(config, sizeof(config), "tenant = a\ntenant-key = a:%s\nadmin-token-file = %s\n", path, path);
	write_file(path, "0123456789abcdef\nsecond line\n", 0600);
	assert_int_equal(plan_of(config, &plan, &error), 0);
	assert_string_equal(plan.token, "0123456789abcdef");
	assert_int_equal(plan.tenants[1].secret_length, 16);
	assert_memory_equal(plan.tenants[1].secret, "0123456789abcdef", 16);
	assert_string_equal(plan.tenants[1].key_name, "a");
	/* 64 bytes are the most that a tenant's secret has. */
	memset(secret, 'x', sizeof(secret));
	secret[64] = '\0';
	write_file(path, secret, 0600);
	assert_int_equal(plan_of(config, &plan, &error), 0);
	assert_int_equal(plan.tenants[1].secret_length, 64);
	secret[64] = 'x';
	secret[65] = '\0';
	write_file(path, secret, 0600);
	assert_int_equal(plan_of(config, &plan, &error), -EINVAL);
	snprintf(message, sizeof(message), "--tenant-key: the first line of %s is no secret of 16 to 64 characters",
		path);
	assert_string_equal(error.text, message);
	write_file(path, "too short\nbut the file is long enough", 0600);
	assert_int_equal(plan_of(config, &plan, &error), -EINVAL);
	snprintf(message, sizeof(message),
		"--admin-token-file: the first line of %s is no secret of 16 to 255 characters", path);
	assert_string_equal(error.text, message);
	unlink(path);
}

/* pitfalls M01: cores are those that the process was given. */
static void only_cores_that_were_given_can_be_asked_for(void **state)
{
	static const int allowed[] = { 9, 10, 11, 40 };
	struct kvraild_cores cores;
	struct option_error error;

	(void)state;
	assert_int_equal(kvraild_read_cores("9-11,40", allowed, 4, &cores, &error), 0);
	assert_int_equal(cores.count, 4);
	assert_int_equal(cores.given[3], 40);
	assert_int_equal(kvraild_read_cores("auto", allowed, 4, &cores, &error), 0);
	assert_true(cores.count == 0 && !cores.any);
	assert_int_equal(kvraild_read_cores("any", allowed, 4, &cores, &error), 0);
	assert_true(cores.count == 0 && cores.any);
	assert_int_equal(kvraild_read_cores("0-3", allowed, 4, &cores, &error), -EINVAL);
	assert_string_equal(error.text, "--cores 0-3: core 0 is not one that this process may use (9-11,40)");
	assert_int_equal(kvraild_read_cores("0-65", allowed, 4, &cores, &error), -EINVAL);
	assert_string_equal(error.text, "--cores 0-65: more than 65 cores");
	assert_int_equal(kvraild_read_cores("1024", allowed, 4, &cores, &error), -EINVAL);
	assert_string_equal(error.text, "--cores 1024: core numbers are below 1024");
}

/* The threads of a server with these options on a machine. */
static void place(
	const char *machine_text, const char *config, struct kvraild_placement *placement, struct plan *topology)
{
	struct machine_error machine_error = { "" };
	struct machine *machine = machine_read_text("test", machine_text, strlen(machine_text), &machine_error);
	struct kvraild_settings settings;
	struct plan_options options;
	struct option_error error;
	struct kvraild_plan plan;

	assert_non_null(machine);
	memset(&settings, 0, sizeof(settings));
	memset(&plan, 0, sizeof(plan));
	assert_int_equal(option_defaults(&kvraild_options, &settings, &error), 0);
	assert_int_equal(option_read_text(&kvraild_options, "test", config, strlen(config), &settings, &error), 0);
	assert_int_equal(
		kvraild_read_cores(settings.cores, (const int[]){ 0, 1, 2, 3, 4, 5, 6, 7 }, 8, &plan.cores, &error), 0);
	plan.has_listen = settings.listen[0] != '\0';
	kvraild_plan_options(&settings, &plan, &options);
	assert_int_equal(plan_make(machine, &options, topology), 0);
	kvraild_place(machine, &plan.cores, (enum kvraild_wait)settings.wait, topology, placement);
	option_fini(&kvraild_options, &settings);
	machine_free(&machine);
}

#define TWO_NODES                                                                                            \
	"kvrail-machine 1\nnode 0 package=0 memory=64GiB\nnode 1 package=1 memory=64GiB\ncores 0-3 node=0\n" \
	"cores 4-7 node=1\nnic m0 kind=roce node=1 ports=1:up:100/2:up:200\nnic m1 kind=roce node=0 ports=1:up:100\n"

static void the_thread_of_a_gpu_is_on_helpers_near_it(void **state)
{
	static const char text[] = TWO_NODES
		"gpu 0 pci=0000:1a:00.0 node=0\ngpu 1 pci=0000:9b:00.0 node=1\ngpu 2 pci=0000:9c:00.0\n";
	struct machine_error error = { "" };
	struct machine *machine = machine_read_text("test", text, strlen(text), &error);
	static struct plan topology;
	int cores[MACHINE_CPUS_MAX];

	(void)state;
	assert_non_null(machine);
	topology.helper_count = 3;
	topology.helpers[0] = 1;
	topology.helpers[1] = 3;
	topology.helpers[2] = 6;
	assert_int_equal(kvraild_place_gpu(machine, &topology, "0000:1A:00.0", cores), 2);
	assert_true(cores[0] == 1 && cores[1] == 3);
	assert_int_equal(kvraild_place_gpu(machine, &topology, "0000:9b:00.0", cores), 1);
	assert_int_equal(cores[0], 6);
	/* Not known where it is, and not known at all. */
	assert_int_equal(kvraild_place_gpu(machine, &topology, "0000:9c:00.0", cores), 0);
	assert_int_equal(kvraild_place_gpu(machine, &topology, "0000:9d:00.0", cores), 0);
	topology.helper_count = 2;
	assert_int_equal(kvraild_place_gpu(machine, &topology, "0000:9b:00.0", cores), 0);
	machine_free(&machine);
}

static void a_poll_core_serves_clients_of_both_kinds(void **state)
{
	static struct kvraild_plan plan;
	struct kvraild_placement *placement = &plan.placement;

	(void)state;
	plan.has_listen = plan.has_socket = true;
	for (int i = 0; i < 3; i++)
		placement->workers[i] = (struct kvraild_worker_place){ .core = 4 + i, .device = "m0", .port = 1 };
	placement->worker_count = 3;
	kvraild_place_kinds(&plan, placement);
	assert_int_equal(placement->worker_count, 6);
	assert_int_equal(kvraild_poll_cores(&plan), 3);
	for (int i = 0; i < 6; i++) {
		assert_int_equal(placement->workers[i].core, 4 + i / 2);
		assert_int_equal(placement->workers[i].remote, i % 2 == 0);
		assert_string_equal(placement->workers[i].device, i % 2 ? "" : "m0");
	}
	/* One thread steps no more than it has parts for. */
	placement->worker_count = LOOP_PARTS_MAX - 1;
	placement->shared = true;
	kvraild_place_kinds(&plan, placement);
	assert_int_equal(placement->worker_count, (LOOP_PARTS_MAX - 1) / 2 * 2);
	plan.has_socket = false;
	placement->worker_count = 2;
	kvraild_place_kinds(&plan, placement);
	assert_int_equal(placement->worker_count, 2);
	assert_true(placement->workers[0].remote && placement->workers[1].remote);
}

static void threads_are_where_the_topology_plan_says(void **state)
{
	static struct plan topology;
	struct kvraild_placement placement;

	(void)state;
	/* The fastest port of the two devices, as one is opened, and cores beside it. */
	place(TWO_NODES, "listen = kvrail://h\n", &placement, &topology);
	assert_int_equal(placement.worker_count, 1);
	assert_string_equal(placement.workers[0].device, "m0");
	assert_int_equal(placement.workers[0].port, 2);
	assert_int_equal(placement.workers[0].core, 4);
	assert_int_equal(placement.workers[0].node, 1);
	assert_int_equal(placement.management_core, 5);
	assert_true(placement.busy && !placement.insist && !placement.shared);
	assert_int_equal(topology.arenas[0].node, 1);
	place(TWO_NODES, "listen = kvrail://h\ndevice = m1\npoll-cores = 2\nwait = adaptive\n", &placement, &topology);
	assert_int_equal(placement.worker_count, 2);
	assert_string_equal(placement.workers[1].device, "m1");
	assert_int_equal(placement.workers[0].core, 1);
	assert_int_equal(placement.workers[1].core, 2);
	assert_int_equal(placement.management_core, 3);
	assert_false(placement.busy);
	/* Clients of this host: no device. */
	place(TWO_NODES, "", &placement, &topology);
	assert_int_equal(placement.worker_count, 1);
	assert_string_equal(placement.workers[0].device, "");
	assert_true(placement.busy);
}

static void cores_that_were_given_override_the_plan(void **state)
{
	static struct plan topology;
	struct kvraild_placement placement;

	(void)state;
	place(TWO_NODES, "cores = 2,3,6\n", &placement, &topology);
	assert_int_equal(placement.worker_count, 2);
	assert_int_equal(placement.workers[0].core, 2);
	assert_int_equal(placement.workers[1].core, 3);
	assert_int_equal(placement.management_core, 6);
	assert_true(placement.busy);
	place(TWO_NODES, "cores = 5\nwait = adaptive\n", &placement, &topology);
	assert_true(placement.shared);
	assert_int_equal(placement.workers[0].core, 5);
	assert_false(placement.busy);
	place(TWO_NODES, "cores = any\n", &placement, &topology);
	assert_int_equal(placement.workers[0].core, -1);
	assert_int_equal(placement.management_core, -1);
	assert_false(placement.busy);
	assert_false(topology.pinned);
	place(TWO_NODES, "cores = any\nwait = busy\n", &placement, &topology);
	assert_true(placement.busy && placement.insist);
}

static void few_cores_make_one_thread_of_worker_and_management(void **state)
{
	static struct plan topology;
	struct kvraild_placement placement;

	(void)state;
	place("kvrail-machine 1\nsynthetic core:2 pu:1\n", "", &placement, &topology);
	assert_true(placement.shared);
	assert_false(placement.busy);
	assert_int_equal(placement.worker_count, 1);
	assert_int_equal(placement.workers[0].core, -1);
	place("kvrail-machine 1\nsynthetic core:4 pu:1\n", "", &placement, &topology);
	assert_false(placement.shared);
	assert_true(placement.busy);
	assert_true(placement.workers[0].core >= 0 && placement.management_core >= 0);
}

/* A machine that can't be read: as --cores says, else unpinned, and nothing spins that was not told to. */
static void without_a_plan_the_server_does_what_it_is_told(void **state)
{
	struct kvraild_cores cores = { .any = false };
	struct kvraild_placement placement;

	(void)state;
	kvraild_place_anywhere(&cores, KVRAILD_WAIT_AUTO, &placement);
	assert_true(placement.shared && !placement.busy);
	assert_int_equal(placement.workers[0].core, -1);
	cores.given[0] = 4;
	cores.given[1] = 6;
	cores.count = 2;
	kvraild_place_anywhere(&cores, KVRAILD_WAIT_BUSY, &placement);
	assert_true(!placement.shared && placement.busy);
	assert_int_equal(placement.workers[0].core, 4);
	assert_int_equal(placement.management_core, 6);
}

/* pitfalls O05: as a user sees it: exit code 2, one line on standard error, nothing else. */
static void wrong_usage_ends_with_code_2_and_one_line(void **state)
{
	static const struct {
		const char *arguments[4];
		const char *message;
	} cases[] = {
		{ { "--l1-szie", "1" }, "kvraild: unknown option --l1-szie; did you mean --l1-size?\n" },
		{ { "--l1-size", "1" }, "kvraild: --l1-size 1 is out of range; allowed: 1MiB to 64TiB\n" },
		{ { "--credits=1", "--credits=2" }, "kvraild: --credits is given twice\n" },
		{ { "--evict-high", "50" }, "kvraild: --evict-low 100 is above --evict-high 50\n" },
		{ { "start" }, "kvraild: \"start\" is no option; kvraild --help lists all\n" },
		{ { "--config", "/nonexistent" },
			"kvraild: /nonexistent: the configuration file can't be read: No such file or directory\n" },
		{ { "--check-config", "--http", "x" },
			"kvraild: --http x is no address; write HOST:PORT, as 127.0.0.1:9464 or [::1]:9464, or off\n" },
	};

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(cases); i++) {
		struct text out = { NULL, 0, 0, false }, err = { NULL, 0, 0, false };

		assert_int_equal(process_run("kvraild", cases[i].arguments, &out, &err), 2);
		assert_string_equal(err.bytes, cases[i].message);
		assert_string_equal(out.bytes, "");
		text_fini(&out);
		text_fini(&err);
	}
}

static void flags_of_all_programs_print_and_end_with_code_0(void **state)
{
	struct text out = { NULL, 0, 0, false }, err = { NULL, 0, 0, false };
	char path[] = "/tmp/kvrail-test-conf-XXXXXX";

	(void)state;
	assert_int_equal(PROCESS_RUN("kvraild", &out, &err, "--version"), 0);
	assert_string_equal(out.bytes, "kvraild " KVRAIL_VERSION "\n");
	assert_string_equal(err.bytes, "");
	text_fini(&out);
	assert_int_equal(PROCESS_RUN("kvraild", &out, NULL, "--help"), 0);
	assert_non_null(strstr(out.bytes, "usage: kvraild [options]\n"));
	text_fini(&out);
	assert_int_equal(PROCESS_RUN("kvraild", &out, NULL, "--check-config"), 0);
	assert_string_equal(out.bytes, "kvraild: the options are good\n");
	text_fini(&out);
	/* What is printed is a file that can be given. */
	assert_int_equal(
		PROCESS_RUN("kvraild", &out, NULL, "--print-config", "--l1-size", "3GiB", "--tenant", "a:uid=7"), 0);
	assert_non_null(strstr(out.bytes, "\nl1-size = 3GiB  # default 1GiB\n"));
	close(mkstemp(path));
	write_file(path, out.bytes, 0600);
	text_fini(&out);
	assert_int_equal(PROCESS_RUN("kvraild", &out, NULL, "--config", path, "--print-config"), 0);
	assert_non_null(strstr(out.bytes, "\nl1-size = 3GiB  # default 1GiB\n"));
	assert_non_null(strstr(out.bytes, "\ntenant = a:uid=7\n"));
	text_fini(&out);
	text_fini(&err);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_options_there_is_a_good_plan),
		cmocka_unit_test(contradictions_name_the_options),
		cmocka_unit_test(an_address_for_other_hosts_stands_beside_the_socket),
		cmocka_unit_test(tenants_are_read_with_users_and_rights),
		cmocka_unit_test(tenants_that_make_no_sense_are_refused),
		cmocka_unit_test(secrets_are_first_lines_of_files),
		cmocka_unit_test(only_cores_that_were_given_can_be_asked_for),
		cmocka_unit_test(the_thread_of_a_gpu_is_on_helpers_near_it),
		cmocka_unit_test(a_poll_core_serves_clients_of_both_kinds),
		cmocka_unit_test(threads_are_where_the_topology_plan_says),
		cmocka_unit_test(cores_that_were_given_override_the_plan),
		cmocka_unit_test(without_a_plan_the_server_does_what_it_is_told),
		cmocka_unit_test(few_cores_make_one_thread_of_worker_and_management),
		cmocka_unit_test(wrong_usage_ends_with_code_2_and_one_line),
		cmocka_unit_test(flags_of_all_programs_print_and_end_with_code_0),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
