/* sample.h - a table with every type of option, for the tests of this folder. */
#ifndef KVRAIL_TESTS_CONFIG_SAMPLE_H
#define KVRAIL_TESTS_CONFIG_SAMPLE_H

#include "config/option.h"

struct sample {
	char config[128];
	uint64_t l1_bytes;
	uint64_t lock_ttl_ns;
	uint32_t chunk_tokens;
	uint64_t seed;
	char socket[32];
	uint32_t wait;
	bool require_tenant;
	struct option_list tenants;
	uint64_t unbounded;
	char token_file[32];
	uint64_t at_least;
	uint64_t at_most;
};

extern const struct option_table sample_table;

#endif
