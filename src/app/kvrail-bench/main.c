/* main.c - kvrail-bench: which command, its options, and its exit code: 0 good, 1 it failed, 2 wrong usage. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "app/common/program.h"
#include "app/kvrail-bench/geometry.h"
#include "app/kvrail-bench/load.h"
#include "app/kvrail-bench/replay.h"
#include "app/kvrail-bench/settings.h"
#include "base/atomic.h"
#include "base/clock.h"

/* Set by a signal, looked at by the running command, which ends in good order. A second one, later, ends the program
 * at once. */
static int interrupted;

static void on_signal(int number)
{
	static uint64_t first_ns;
	uint64_t now_ns = clock_now_ns();

	if (first_ns && now_ns - first_ns > KVR_SECOND)
		_exit(128 + number);
	if (!first_ns)
		first_ns = now_ns;
	kvr_store_release(&interrupted, 1);
}

static void catch_signals(void)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };

	sigemptyset(&action.sa_mask);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static int usage(FILE *file)
{
	fputs("usage: kvrail-bench replay --server URL --trace FILE [options]   replay request traces, check "
	      "every byte\n"
	      "       kvrail-bench load --server URL --op OP [options]          one operation over and over\n"
	      "       kvrail-bench models                                       whose KV caches are known\n"
	      "       kvrail-bench replay --help, load --help                   all options\n",
		file);
	return file == stdout ? PROGRAM_GOOD : PROGRAM_USAGE;
}

static int check_replay(void *settings, struct option_error *error)
{
	return replay_settings_check(settings, error);
}

static int check_load(void *settings, struct option_error *error)
{
	return load_settings_check(settings, error);
}

static int refuse_words(const struct option_table *table, const char *word)
{
	fprintf(stderr, "%s: \"%s\" is no option; --help lists all\n", table->program, word);
	return PROGRAM_USAGE;
}

static int replay_command(int argc, char **argv)
{
	struct replay_settings settings = { 0 };
	int code = program_begin(&replay_options, &argc, argv, &settings, check_replay);

	if (code == PROGRAM_RUN)
		code = argc > 1 ? refuse_words(&replay_options, argv[1]) : replay_run(&settings, &interrupted);
	option_fini(&replay_options, &settings);
	return code;
}

static int load_command(int argc, char **argv)
{
	struct load_settings settings = { 0 };
	int code = program_begin(&load_options, &argc, argv, &settings, check_load);

	if (code == PROGRAM_RUN)
		code = argc > 1 ? refuse_words(&load_options, argv[1]) : load_run(&settings, &interrupted);
	option_fini(&load_options, &settings);
	return code;
}

static int models_command(void)
{
	struct text out = { 0 };
	bool printed;

	geometry_list(&out);
	printed = program_print(&out);
	text_fini(&out);
	return printed ? PROGRAM_GOOD : PROGRAM_FAILED;
}

int main(int argc, char **argv)
{
	const char *command = argc > 1 ? argv[1] : "";

	catch_signals();
	if (strcmp(command, "replay") == 0)
		return replay_command(argc - 1, argv + 1);
	if (strcmp(command, "load") == 0)
		return load_command(argc - 1, argv + 1);
	if (strcmp(command, "models") == 0)
		return models_command();
	if (strcmp(command, "--version") == 0) {
		puts("kvrail-bench " KVRAIL_VERSION);
		return PROGRAM_GOOD;
	}
	if (strcmp(command, "--help") == 0 || strcmp(command, "-h") == 0)
		return usage(stdout);
	if (command[0])
		fprintf(stderr, "kvrail-bench: no command \"%s\"\n", command);
	return usage(stderr);
}
