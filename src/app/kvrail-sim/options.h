/* options.h - kvrail-sim's options. */
#ifndef KVRAIL_APP_SIM_OPTIONS_H
#define KVRAIL_APP_SIM_OPTIONS_H

#include "app/common/program.h"

KVR_BEGIN_C

struct sim_settings {
	uint64_t seed;
	uint32_t steps, servers, rails;
	char faults[256];
	uint64_t seconds_ns;
	uint64_t shrink_ns;
	bool json, trace;
	uint32_t fault_bits; /* of `faults` */
};

extern const struct option_table sim_option_table;
/* For program_begin: reads `faults`. */
int sim_options_check(void *settings, struct option_error *error);

KVR_END_C

#endif
