/*
 * kvraild and an engine with its KV memory on a GPU, as processes, over the fake library: the path that the real one takes, from the
 * handle in MEMORY to the copies' flags.
 */
#include "app/process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cmocka_all.h"

#define ENGINE KVRAIL_TEST_DIR "/gpu_engine"

/* Both find the fake by the name of the real one. */
static int with_fake(void **state)
{
	(void)state;
	return setenv("LD_LIBRARY_PATH", KVRAIL_TEST_DIR "/fake_cuda", 1);
}

static int without_fake(void **state)
{
	(void)state;
	unsetenv("FAKE_CUDA_LAUNCH_US");
	return unsetenv("LD_LIBRARY_PATH");
}

/* The engine, with its output in the file. */
static pid_t start_engine(const struct server_process *server, const char *mode, const char *out)
{
	char url[128];
	pid_t pid;

	snprintf(url, sizeof(url), "unix:%s", server->socket);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		int fd = open(out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

		dup2(fd, STDOUT_FILENO);
		dup2(fd, STDERR_FILENO);
		execl(ENGINE, ENGINE, "--server", url, mode, (char *)NULL);
		_exit(99);
	}
	return pid;
}

static int engine_ends(pid_t pid)
{
	int status = 0;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Runs it to its end; what it said is in `out`. */
static int run_engine(const struct server_process *server, const char *mode, struct text *out)
{
	char path[] = "/tmp/kvrail-engine-XXXXXX";
	int fd = mkstemp(path);
	int code;

	assert_true(fd >= 0);
	close(fd);
	code = engine_ends(start_engine(server, mode, path));
	read_file(path, out);
	unlink(path);
	return code;
}

static bool page_has(const struct server_process *server, const char *page, const char *words)
{
	struct text body = { 0 };
	bool found;

	assert_int_equal(http_ask(server->port, "GET", page, "", &body), 200);
	found = strstr(body.bytes, words) != NULL;
	text_fini(&body);
	return found;
}

static void every_layout_comes_back_from_a_gpu(void **state)
{
	struct server_process server;
	struct text out = { 0 };

	(void)state;
	SERVER_START(&server, "--gpu", "on", "--l1-size", "64MiB");
	assert_int_equal(run_engine(&server, "check", &out), 0);
	assert_non_null(strstr(out.bytes, "opaque pages"));
	text_fini(&out);
	assert_true(page_has(&server, "/status", "\"name\":\"Fake GPU 0\""));
	assert_true(page_has(&server, "/status", "\"gpu_path\":\"mapped by interprocess handle"));
	assert_true(page_has(&server, "/metrics", "kvrail_gpus 1\n"));
	assert_true(page_has(&server, "/metrics", "kvrail_gpu_lost{gpu=\"0\",pci=\"0001:1a:01.0\"} 0\n"));
	assert_false(
		page_has(&server, "/metrics", "kvrail_gpu_to_host_bytes_total{gpu=\"0\",pci=\"0001:1a:01.0\"} 0\n"));
	assert_int_equal(server_process_stop(&server, SIGTERM), 0);
	assert_true(server_process_clean(&server));
}

/* Streams wait for layers, and transfers for streams; no processor in between. */
static void layers_and_marks_keep_streams_in_step(void **state)
{
	struct server_process server;
	struct text out = { 0 };

	(void)state;
	setenv("FAKE_CUDA_LAUNCH_US", "300", 1);
	SERVER_START(&server, "--gpu", "on", "--l1-size", "64MiB");
	assert_int_equal(run_engine(&server, "order", &out), 0);
	assert_non_null(strstr(out.bytes, "order: right"));
	text_fini(&out);
	assert_true(!page_has(&server, "/metrics", "kvrail_worker_word_waits_total 0\n"));
	assert_int_equal(server_process_stop(&server, SIGTERM), 0);
	assert_true(server_process_clean(&server));
}

/* pitfalls L05, C01: killed in mid-transfer, an engine takes nothing with it. */
static void an_engine_that_is_killed_leaves_no_memory_mapped(void **state)
{
	struct server_process server;
	char path[160];
	struct text out = { 0 };
	pid_t engine;

	(void)state;
	/* every kernel takes a while, so that some are under way when it is killed */
	setenv("FAKE_CUDA_LAUNCH_US", "2000", 1);
	SERVER_START(&server, "--gpu", "on", "--l1-size", "512MiB");
	snprintf(path, sizeof(path), "%s/loop", server.folder);
	for (unsigned round = 0; round < 3; round++) {
		write_file(path, "", 0600);
		engine = start_engine(&server, "loop", path);
		do {
			sched_yield();
			text_fini(&out);
			memset(&out, 0, sizeof(out));
			read_file(path, &out);
		} while (!strstr(out.bytes ? out.bytes : "", "looping"));
		assert_int_equal(kill(engine, SIGKILL), 0);
		assert_int_equal(engine_ends(engine), 128 + SIGKILL);
		while (!page_has(&server, "/metrics", "kvrail_gpu_regions{gpu=\"0\",pci=\"0001:1a:01.0\"} 0\n"))
			sched_yield();
	}
	unlink(path);
	text_fini(&out);
	memset(&out, 0, sizeof(out));
	assert_int_equal(run_engine(&server, "check", &out), 0);
	text_fini(&out);
	assert_int_equal(server_process_stop(&server, SIGTERM), 0);
	assert_true(server_process_clean(&server));
}

static void start_to_lose_the_gpu(struct server_process *server, const char *how)
{
	setenv("FAKE_CUDA_BREAK_AFTER", "3", 1);
	SERVER_START(server, "--gpu", "on", "--l1-size", "64MiB", "--gpu-lost", how, "--drain-timeout", "60s");
	unsetenv("FAKE_CUDA_BREAK_AFTER");
}

static void a_server_that_lost_a_gpu_serves_on_without_it(void **state)
{
	struct server_process server;
	struct text out = { 0 };

	(void)state;
	start_to_lose_the_gpu(&server, "serve");
	assert_int_not_equal(run_engine(&server, "check", &out), 0);
	text_fini(&out);
	memset(&out, 0, sizeof(out));
	assert_true(page_has(&server, "/metrics", "kvrail_gpu_lost{gpu=\"0\",pci=\"0001:1a:01.0\"} 1\n"));
	assert_true(page_has(&server, "/status", "\"failed\":true"));
	assert_int_equal(run_engine(&server, "check", &out), 1);
	assert_non_null(strstr(out.bytes, "the server has lost that GPU"));
	text_fini(&out);
	assert_int_equal(server_process_stop(&server, SIGTERM), 0);
	assert_true(server_process_clean(&server));
}

static void a_server_that_leaves_for_a_lost_gpu_is_followed_by_one_that_uses_it(void **state)
{
	struct server_process server;
	struct text out = { 0 };

	(void)state;
	start_to_lose_the_gpu(&server, "leave");
	assert_int_not_equal(run_engine(&server, "check", &out), 0);
	text_fini(&out);
	memset(&out, 0, sizeof(out));
	assert_int_equal(server_process_stop(&server, 0), 1); /* by itself */
	assert_int_equal(server_process_logged(&server, "leaving, as --gpu-lost says"), 1);
	assert_true(server_process_clean(&server));
	SERVER_START(&server, "--gpu", "on", "--l1-size", "64MiB", "--gpu-lost", "leave");
	assert_int_equal(run_engine(&server, "check", &out), 0);
	text_fini(&out);
	assert_int_equal(server_process_stop(&server, SIGTERM), 0);
	assert_true(server_process_clean(&server));
}

/* The engine is one process; it finds whichever server there is by the same name. */
static void an_engine_lives_on_with_the_server_that_follows(void **state)
{
	struct server_process servers[2], named;
	struct text out = { 0 };
	char path[] = "/tmp/kvrail-again-XXXXXX", said[64];
	pid_t engine;

	(void)state;
	assert_non_null(mkdtemp(path));
	snprintf(said, sizeof(said), "%s/said", path);
	snprintf(named.socket, sizeof(named.socket), "%s/sock", path);
	start_to_lose_the_gpu(&servers[0], "leave");
	assert_int_equal(symlink(servers[0].socket, named.socket), 0);
	engine = start_engine(&named, "again", said);
	assert_int_equal(server_process_stop(&servers[0], 0), 1);
	SERVER_START(&servers[1], "--gpu", "on", "--l1-size", "64MiB");
	unlink(named.socket);
	assert_int_equal(symlink(servers[1].socket, named.socket), 0);
	assert_int_equal(engine_ends(engine), 0);
	read_file(said, &out);
	assert_non_null(strstr(out.bytes, "again: right after "));
	text_fini(&out);
	unlink(said);
	unlink(named.socket);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(server_process_stop(&servers[1], SIGTERM), 0);
	assert_true(server_process_clean(&servers[0]));
	assert_true(server_process_clean(&servers[1]));
}

/* pitfalls L08 */
static void a_server_that_uses_no_gpus_says_so_to_the_client(void **state)
{
	struct server_process server;
	struct text out = { 0 };

	(void)state;
	SERVER_START(&server, "--gpu", "off");
	assert_int_equal(run_engine(&server, "check", &out), 1);
	assert_non_null(strstr(out.bytes, "the server does not reach that GPU"));
	text_fini(&out);
	assert_true(page_has(&server, "/status", "\"gpu_path\":\"none\",\"gpu_reason\":\"--gpu off\""));
	assert_true(page_has(&server, "/metrics", "kvrail_gpus 0\n"));
	assert_int_equal(server_process_logged(&server, "this server reaches none: see its --gpu"), 1);
	assert_int_equal(server_process_stop(&server, SIGTERM), 0);
	assert_true(server_process_clean(&server));
}

static void without_a_gpu_auto_serves_and_on_does_not_start(void **state)
{
	struct server_process server;
	struct text out = { 0 }, err = { 0 };

	(void)state;
	SERVER_START(&server, "--gpu", "auto");
	assert_true(page_has(&server, "/status", "\"gpu_reason\":\"no GPU driver: libcuda.so.1"));
	assert_int_equal(server_process_stop(&server, SIGTERM), 0);
	assert_true(server_process_clean(&server));
	assert_int_equal(PROCESS_RUN("kvraild", &out, &err, "--gpu", "on", "--socket", "/tmp/kvrail-no-gpu.sock",
				 "--http", "off", "--l1-size", "1MiB"),
		1);
	assert_non_null(strstr(err.bytes, "--gpu on: no GPU driver"));
	text_fini(&out);
	text_fini(&err);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(every_layout_comes_back_from_a_gpu, with_fake, without_fake),
		cmocka_unit_test_setup_teardown(layers_and_marks_keep_streams_in_step, with_fake, without_fake),
		cmocka_unit_test_setup_teardown(
			an_engine_that_is_killed_leaves_no_memory_mapped, with_fake, without_fake),
		cmocka_unit_test_setup_teardown(a_server_that_lost_a_gpu_serves_on_without_it, with_fake, without_fake),
		cmocka_unit_test_setup_teardown(
			a_server_that_leaves_for_a_lost_gpu_is_followed_by_one_that_uses_it, with_fake, without_fake),
		cmocka_unit_test_setup_teardown(
			an_engine_lives_on_with_the_server_that_follows, with_fake, without_fake),
		cmocka_unit_test_setup_teardown(
			a_server_that_uses_no_gpus_says_so_to_the_client, with_fake, without_fake),
		cmocka_unit_test(without_a_gpu_auto_serves_and_on_does_not_start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
