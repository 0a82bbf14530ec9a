#include "config/sample.h"

#define AT(field) offsetof(struct sample, field)

static const struct option_spec specs[] = {
	{ "config", OPTION_TEXT, AT(config), sizeof(((struct sample *)0)->config), NULL, NULL, NULL, "General",
		"file to read options from" },
	{ "l1-size", OPTION_SIZE, AT(l1_bytes), 0, "1GiB", "64MiB", "64TiB", "Memory",
		"pinned memory for cached chunks" },
	{ "lock-ttl", OPTION_TIME, AT(lock_ttl_ns), 0, "300s", "10ms", "24h", "Locks", "life of a read lock" },
	{ "chunk-tokens", OPTION_U32, AT(chunk_tokens), 0, "256", "1", "65536", "Memory", "tokens of a chunk" },
	{ "seed", OPTION_U64, AT(seed), 0, NULL, NULL, NULL, "General", "of random numbers" },
	{ "socket", OPTION_TEXT, AT(socket), sizeof(((struct sample *)0)->socket), "/run/kvrail.sock", NULL, NULL,
		"General", "Unix socket to serve" },
	{ "wait", OPTION_CHOICE, AT(wait), 0, "adaptive", "busy|adaptive", NULL, "Cores",
		"what a loop does without work" },
	{ "require-tenant", OPTION_BOOL, AT(require_tenant), 0, "no", NULL, NULL, "Tenants",
		"clients must name theirs" },
	{ "tenant", OPTION_LIST, AT(tenants), 0, NULL, NULL, NULL, "Tenants", "NAME:uid=N" },
	{ "l1-bytes", OPTION_RENAMED, 0, 0, "l1-size", NULL, NULL, NULL, NULL },
	{ "unbounded", OPTION_SIZE, AT(unbounded), 0, NULL, NULL, NULL, "Memory", "a size without bounds" },
	{ "token-file", OPTION_TEXT, AT(token_file), sizeof(((struct sample *)0)->token_file), NULL, NULL, NULL,
		"General", "secret of the operator" },
	{ "at-least", OPTION_U64, AT(at_least), 0, "5", "5", NULL, "Memory", "bounded below" },
	{ "at-most", OPTION_U64, AT(at_most), 0, "5", NULL, "9", "Memory", "bounded above" },
};

const struct option_table sample_table = { "sampled", "a program for tests", "[options]", specs, KVR_COUNT_OF(specs) };
