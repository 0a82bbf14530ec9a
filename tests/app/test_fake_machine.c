/* test_fake_machine.c - programs on a machine whose libibverbs is a fake that answers as such a machine would. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "app/common/memlock.h"
#include "app/process.h"
#include "base/compiler.h"
#include "kvrail.h"

static char folder[] = "/tmp/kvrail-fake-XXXXXX";

/* The name that the driver asks for leads to the fake. */
static int lead_to_the_fake(void **state)
{
	char link[sizeof(folder) + 32];

	(void)state;
	if (!mkdtemp(folder))
		return -1;
	snprintf(link, sizeof(link), "%s/libibverbs.so.1", folder);
	return symlink(KVRAIL_FAKE_VERBS, link) == 0 && setenv("LD_LIBRARY_PATH", folder, 1) == 0 ? 0 : -1;
}

static int lead_back(void **state)
{
	char link[sizeof(folder) + 32];

	(void)state;
	snprintf(link, sizeof(link), "%s/libibverbs.so.1", folder);
	unlink(link);
	unsetenv("LD_LIBRARY_PATH");
	unsetenv("FAKE_VERBS");
	return rmdir(folder);
}

static void one_server_has_clients_on_this_host_and_on_others(void **state)
{
	struct kvr_options options = KVR_OPTIONS_INIT;
	struct server_process server;
	struct kvr_client *client = NULL;
	struct text status = { NULL, 0, 0, false };
	char url[128];

	(void)state;
	setenv("FAKE_VERBS", "good", 1);
	SERVER_START(&server, "--listen", "kvrail://127.0.0.1:7499", "--trust-tcp", "--service-level", "3",
		"--traffic-class", "96", "--rdma-timeout", "12", "--max-clients", "8", "--credits", "8", "--send-depth",
		"64");
	assert_non_null(strstr(server.ready, "1 poll core, kvrail://127.0.0.1:7499, unix:"));
	assert_int_equal(
		server_process_logged(&server, "clients on other hosts, by RDMA; local: clients on this host"), 1);
	snprintf(url, sizeof(url), "unix:%s", server.socket);
	options.url = url;
	assert_int_equal(kvr_open(&options, &client), 0);
	assert_int_equal(kvr_ping(client, 0), 0);
	kvr_close(&client);
	/* pitfalls J07 */
	assert_int_equal(http_ask(server.port, "GET", "/status", "", &status), 200);
	assert_non_null(strstr(status.bytes, "\"driver\":\"nic\",\"state\":\"active\""));
	assert_non_null(strstr(status.bytes, "\"service_level\":3,\"traffic_class\":96"));
	assert_non_null(strstr(status.bytes, "\"timeout\":12"));
	assert_non_null(strstr(status.bytes, "\"driver\":\"local\"}"));
	text_fini(&status);
	assert_int_equal(PROCESS_RUN("kvrailctl", &status, NULL, "status", "--http", server.url), 0);
	assert_non_null(strstr(status.bytes, "fake0 port 1"));
	text_fini(&status);
	assert_int_equal(server_process_stop(&server, SIGTERM), 0);
	assert_true(server_process_clean(&server));
}

static void a_server_has_a_rail_on_each_device_that_is_named(void **state)
{
	struct text status = { NULL, 0, 0, false }, err = { NULL, 0, 0, false };
	struct server_process server;

	(void)state;
	setenv("FAKE_VERBS", "two-devices", 1);
	SERVER_START(&server, "--listen", "kvrail://127.0.0.1:7499", "--trust-tcp", "--device", "fake0,fake1",
		"--max-clients", "8", "--credits", "8", "--send-depth", "64");
	assert_int_equal(
		server_process_logged(&server, "fake0 port 1, fake1 port 1: clients on other hosts, by RDMA"), 1);
	assert_int_equal(http_ask(server.port, "GET", "/status", "", &status), 200);
	assert_non_null(strstr(status.bytes, "fake1 port 1"));
	text_fini(&status);
	assert_int_equal(http_ask(server.port, "GET", "/metrics", "", &status), 200);
	assert_non_null(strstr(status.bytes, "kvrail_worker_rails_lost_total"));
	text_fini(&status);
	assert_int_equal(server_process_stop(&server, SIGTERM), 0);
	assert_true(server_process_clean(&server));
	assert_int_equal(PROCESS_RUN("kvraild", NULL, &err, "--listen", "kvrail://127.0.0.1:7499", "--trust-tcp",
				 "--socket", "off", "--http", "off", "--l1-size", "16MiB", "--device", "fake0,mlx5_7"),
		1);
	assert_non_null(strstr(err.bytes, "there is no RDMA device mlx5_7 here: there are fake0"));
	text_fini(&err);
}

static unsigned count_of(const char *text, const char *words)
{
	unsigned count = 0;

	for (; (text = strstr(text, words)) != NULL; text++)
		count++;
	return count;
}

/* 50 MiB with an adapter that registers 20 MiB at once: two areas of 20 MiB, one of 10. */
static void l1_is_registered_in_slices_where_the_device_takes_no_more_at_once(void **state)
{
	struct text status = { NULL, 0, 0, false }, err = { NULL, 0, 0, false };
	struct server_process server;

	(void)state;
	setenv("FAKE_VERBS", "small-regions", 1);
	SERVER_START(&server, "--listen", "kvrail://127.0.0.1:7499", "--trust-tcp", "--l1-size", "50MiB",
		"--max-clients", "8", "--credits", "8", "--send-depth", "64", "--large-buffers", "2");
	assert_int_equal(
		server_process_logged(&server, "L1 is mapped and registered in 3 slices of up to 20.00 MiB"), 1);
	assert_int_equal(http_ask(server.port, "GET", "/metrics", "", &status), 200);
	assert_int_equal(count_of(status.bytes, "kvrail_l1_area_bytes{area="), 3);
	text_fini(&status);
	assert_int_equal(server_process_stop(&server, SIGTERM), 0);
	assert_true(server_process_clean(&server));
	assert_int_equal(PROCESS_RUN("kvraild", NULL, &err, "--socket", "off", "--http", "off", "--listen",
				 "kvrail://127.0.0.1:7499", "--trust-tcp", "--l1-size", "2GiB"),
		1);
	assert_non_null(strstr(err.bytes, "more than 64 slices of 20.00 MiB"));
	text_fini(&err);
}

static void a_server_without_a_device_says_so_and_leaves(void **state)
{
	struct text err = { NULL, 0, 0, false };

	(void)state;
	setenv("FAKE_VERBS", "port-down", 1);
	assert_int_equal(PROCESS_RUN("kvraild", NULL, &err, "--listen", "kvrail://127.0.0.1:7499", "--trust-tcp",
				 "--socket", "off", "--http", "off", "--l1-size", "16MiB"),
		1);
	assert_non_null(strstr(err.bytes, "fake0 port 1 is down"));
	assert_non_null(strstr(err.bytes, "start: device failed"));
	text_fini(&err);
}

/* What the operator is to read, and whether it is a fault. */
static void check_says_what_is_wrong_with_a_device(void **state)
{
	static const struct {
		const char *machine, *device, *words;
		int code;
	} rows[] = {
		{ "good", "fake0", "  ok    RDMA device     fake0 port 1, address 10.0.0.1, MTU 4096\n", 0 },
		{ "small-mtu", "fake0",
			"  note  RDMA device     fake0 port 1, address 10.0.0.1, MTU 1024: both sides use", 0 },
		{ "no-device", "fake0", "  BAD   RDMA device     ", 1 },
		{ "good", "mlx5_0", "  BAD   RDMA device     there is no RDMA device mlx5_0 here: there are fake0\n",
			1 },
		{ "port-down", "fake0", "  BAD   RDMA device     fake0 port 1 is down: check the cable", 1 },
		{ "no-address", "fake0", "  BAD   RDMA device     ", 1 },
		{ "no-permission", "fake0", "/dev/infiniband/uverbs*", 1 },
	};

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(rows); i++) {
		struct text out = { NULL, 0, 0, false };
		int code;

		setenv("FAKE_VERBS", rows[i].machine, 1);
		code = PROCESS_RUN("kvrailctl", &out, NULL, "check", "--http", "http://127.0.0.1:1", "--socket",
			"/nonexistent/k.sock", "--l1-size", "1MiB", "--device", rows[i].device);
		if (code != rows[i].code || !strstr(out.bytes, rows[i].words))
			print_error("%s:\n%s", rows[i].machine, out.bytes);
		assert_int_equal(code, rows[i].code);
		assert_non_null(strstr(out.bytes, rows[i].words));
		text_fini(&out);
	}
}

/* pitfalls K01: both figures, and that shells, units and containers have limits of their own. */
static void too_little_locked_memory_is_said_with_both_figures(void **state)
{
	static const char *const words[] = { "1.00 GiB (1073741824 bytes)", "8.00 MiB (8388608 bytes)",
		"ulimit -l unlimited", "LimitMEMLOCK=infinity", "--ulimit memlock=-1" };
	char why[400];

	(void)state;
	assert_int_equal(memlock_check(1u << 30, UINT64_MAX, why, sizeof(why)), 0);
	assert_int_equal(memlock_check(1u << 30, 1u << 30, why, sizeof(why)), 0);
	assert_string_equal(why, "");
	assert_true(memlock_check(1u << 30, 8u << 20, why, sizeof(why)) < 0);
	for (size_t i = 0; i < KVR_COUNT_OF(words); i++)
		assert_non_null(strstr(why, words[i]));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_server_has_clients_on_this_host_and_on_others),
		cmocka_unit_test(a_server_has_a_rail_on_each_device_that_is_named),
		cmocka_unit_test(l1_is_registered_in_slices_where_the_device_takes_no_more_at_once),
		cmocka_unit_test(a_server_without_a_device_says_so_and_leaves),
		cmocka_unit_test(check_says_what_is_wrong_with_a_device),
		cmocka_unit_test(too_little_locked_memory_is_said_with_both_figures),
	};

	return cmocka_run_group_tests(tests, lead_to_the_fake, lead_back);
}
