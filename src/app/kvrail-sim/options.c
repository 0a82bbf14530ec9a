#include "app/kvrail-sim/options.h"

#include <errno.h>
#include <stdio.h>

#include "app/kvrail-sim/world.h"

static const struct option_spec specs[] = {
	{ "seed", OPTION_U64, offsetof(struct sim_settings, seed), 0, "1", NULL, NULL, "World",
		"what everything that is random comes from" },
	{ "steps", OPTION_U32, offsetof(struct sim_settings, steps), 0, "20000", "0", "100000000", "World",
		"operations of the program" },
	{ "faults", OPTION_TEXT, offsetof(struct sim_settings, faults), sizeof(((struct sim_settings *)0)->faults),
		"all", NULL, NULL, "World",
		"all, none, or some of crash,cut,stall,restart,time,layout,memory,access,slow,pressure,bad,clear,cancel,l2" },
	{ "servers", OPTION_U32, offsetof(struct sim_settings, servers), 0, "0", "0", "4", "World",
		"so many, that know nothing of each other; engines are spread over them, and go from one to another when "
		"processes crash; 0: the seed decides" },
	{ "rails", OPTION_U32, offsetof(struct sim_settings, rails), 0, "0", "0", "2", "World",
		"devices of each server and client; 0: the seed decides" },
	{ "seconds", OPTION_TIME, offsetof(struct sim_settings, seconds_ns), 0, "0s", "0s", "1000h", "World",
		"run world after world, with the seeds that follow, for so long; 0s: one world" },
	{ "shrink", OPTION_TIME, offsetof(struct sim_settings, shrink_ns), 0, "20s", "0s", "24h", "Report",
		"after a violation, look for a shorter program for so long; 0s: do not" },
	{ "trace", OPTION_BOOL, offsetof(struct sim_settings, trace), 0, "no", NULL, NULL, "Report",
		"print each line of the transcript and of the log to standard error" },
	{ "json", OPTION_BOOL, offsetof(struct sim_settings, json), 0, "no", NULL, NULL, "Report",
		"the summary line is a JSON object" },
};

const struct option_table sim_option_table = {
	.program = "kvrail-sim",
	.summary = "a server, its clients and their network in one thread, from a seed",
	.usage = "[options]",
	.specs = specs,
	.spec_count = KVR_COUNT_OF(specs),
};

int sim_options_check(void *opaque, struct option_error *error)
{
	struct sim_settings *settings = opaque;

	if (!world_parse_faults(settings->faults, &settings->fault_bits))
		return 0;
	snprintf(error->text, sizeof(error->text),
		"--faults %s: say all, none, or some of crash,cut,stall,restart,time,layout,memory,access,slow,pressure,"
		"bad,clear,cancel,l2",
		settings->faults);
	return -EINVAL;
}
