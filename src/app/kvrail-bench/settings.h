/* settings.h - the options of each command, read once. */
#ifndef KVRAIL_APP_BENCH_SETTINGS_H
#define KVRAIL_APP_BENCH_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "app/kvrail-bench/trace.h"
#include "base/compiler.h"
#include "config/option.h"
#include "kvrail.h"

KVR_BEGIN_C

#define SETTINGS_TEXT 256
#define SETTINGS_CLIENTS_MAX 64
#define SETTINGS_DEPTH_MAX 64

/* How a client gets there. "" everywhere: what kvr_open takes by itself. */
struct server_settings {
	char url[SETTINGS_TEXT];
	char device[256]; /* of a kvrail:// server's clients */
	char key_name[64], key_file[SETTINGS_TEXT];
	uint64_t spin_ns, yield_ns;
};

struct replay_settings {
	struct server_settings server;
	char trace[SETTINGS_TEXT];
	uint32_t format; /* enum trace_format */
	uint32_t trace_block_tokens;
	uint64_t requests;   /* 0: all */
	uint32_t seconds;    /* 0: no limit */
	char speed[32];      /* as text; see speed_factor */
	double speed_factor; /* set by settings_check: 0 as fast as possible */

	char model[64];
	uint32_t tp; /* 0: the model's own */
	uint32_t block_tokens;
	uint32_t scale;

	uint32_t clients;
	uint32_t depth;
	uint64_t pool_bytes; /* of one rank of one client; 0: chosen */
	uint64_t seed;

	bool verify, old_copies;
	char name[64]; /* "": one of its own */
	bool reference;
	uint64_t capacity; /* chunks that L1 holds; 0: found out */
	bool ceiling;
	bool keep;
	char json[SETTINGS_TEXT]; /* "": none, "-": standard output */
};

enum load_op { LOAD_PING, LOAD_LOOKUP, LOAD_STORE, LOAD_RETRIEVE, LOAD_MIXED };
enum load_blocks { LOAD_SCATTERED, LOAD_CONTIGUOUS };
enum load_memory { LOAD_HOST, LOAD_GPU };
enum load_arrival { LOAD_POISSON, LOAD_EVEN };

struct load_settings {
	struct server_settings server;
	uint32_t op;
	uint64_t block_bytes;
	uint32_t planes;
	uint32_t chunks;    /* of a request */
	uint64_t set_bytes; /* stored before, and read: 0: chosen */
	char model[64];     /* "": block_bytes and planes hold; else they are taken from it */
	uint32_t tp;
	uint32_t scale;
	uint32_t blocks; /* enum load_blocks */
	uint32_t memory; /* enum load_memory: where the paged KV memory is */
	uint32_t gpu;    /* on which GPU, as the vendor's library counts */
	uint32_t clients;
	uint32_t threads; /* 0: one for each client, see load_threads */
	uint32_t depth;   /* 0: chosen, see load_depth */
	uint64_t rate;    /* requests a second of all clients; 0: closed loop */
	uint32_t arrival; /* enum load_arrival */
	uint32_t seconds;
	uint32_t rounds;
	uint64_t warm_up_ns;
	uint32_t read_percent;
	uint32_t hit_percent;
	char skew[32];
	double skew_theta; /* what `skew` says */
	uint64_t seed;
	bool verify;
	bool ceiling;
	uint64_t server_pid; /* 0: unknown */
	uint64_t interval_ns;
	char json[SETTINGS_TEXT];
};

/* Requests that one client has in flight at most. */
static inline uint32_t load_depth(const struct load_settings *settings)
{
	return settings->depth ? settings->depth : settings->rate ? 16 : 1;
}

static inline uint32_t load_threads(const struct load_settings *settings)
{
	return settings->threads ? settings->threads : settings->clients;
}

/* For kvr_open, with the name for the server's status page. The texts stay the settings'. */
void settings_client(const struct server_settings *server, const char *name, struct kvr_options *options);

extern const struct option_table replay_options;
extern const struct option_table load_options;

/* What a table cannot say. 0, or -EINVAL with words. */
KVR_MUST_CHECK int replay_settings_check(struct replay_settings *settings, struct option_error *error);
KVR_MUST_CHECK int load_settings_check(struct load_settings *settings, struct option_error *error);

KVR_END_C

#endif
