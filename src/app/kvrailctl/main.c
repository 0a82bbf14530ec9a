/* main.c - kvrailctl: which command. Exit codes: 0 good, 1 it failed, 2 wrong usage. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "app/common/program.h"
#include "app/kvrailctl/kvrailctl.h"
#include "base/log.h"

static const struct {
	const char *name;
	int (*run)(const struct kvrailctl_settings *settings);
} commands[] = {
	{ "status", kvrailctl_status },
	{ "top", kvrailctl_top },
	{ "sessions", kvrailctl_sessions },
	{ "clear", kvrailctl_clear },
	{ "quota", kvrailctl_quota },
	{ "pin", kvrailctl_pin },
	{ "unpin", kvrailctl_unpin },
	{ "check", kvrailctl_check },
	{ "topo", kvrailctl_topo },
};

static int run_command(const char *name, const struct kvrailctl_settings *settings)
{
	const char *names[KVR_COUNT_OF(commands)];
	const char *nearest;

	for (size_t i = 0; i < KVR_COUNT_OF(commands); i++) {
		if (strcmp(commands[i].name, name) == 0)
			return commands[i].run(settings);
		names[i] = commands[i].name;
	}
	nearest = text_nearest(name, names, KVR_COUNT_OF(commands));
	if (nearest)
		kvrailctl_complain("no command %.60s; did you mean %s?", name, nearest);
	else
		kvrailctl_complain("no command %.60s; kvrailctl --help lists all", name);
	return PROGRAM_USAGE;
}

int main(int argc, char **argv)
{
	struct kvrailctl_settings settings;
	int code;

	memset(&settings, 0, sizeof(settings));
	signal(SIGPIPE, SIG_IGN);
	log_set_level(LOG_ERROR);
	code = program_begin(&kvrailctl_options, &argc, argv, &settings, NULL);
	if (code == PROGRAM_RUN && argc != 2) {
		kvrailctl_complain(argc < 2 ? "give a command; kvrailctl --help lists all"
					    : "one command at a time; kvrailctl --help lists all");
		code = PROGRAM_USAGE;
	}
	if (code == PROGRAM_RUN)
		code = run_command(argv[1], &settings);
	option_fini(&kvrailctl_options, &settings);
	return code;
}
