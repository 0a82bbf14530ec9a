#include "app/kvrail-bench/settings.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/kvrail-bench/geometry.h"
#include "base/clock.h"

#define REPLAY(field) offsetof(struct replay_settings, field)
#define LOAD(field) offsetof(struct load_settings, field)

/* What both commands ask of the way to the server; AT: REPLAY or LOAD. */
#define SERVER_TEXT(AT, field, name, help)                                                                           \
	{                                                                                                            \
		name, OPTION_TEXT, AT(server.field), sizeof(((struct server_settings *)0)->field), NULL, NULL, NULL, \
			"Server", help                                                                               \
	}
#define SERVER_SPECS(AT)                                                                                                                            \
	SERVER_TEXT(AT, url, "server",                                                                                                              \
		"its address: unix:PATH or kvrail://HOST[:PORT]; none: $KVRAIL_URL, else the default socket"),                                      \
		SERVER_TEXT(AT, device, "device",                                                                                                   \
			"RDMA device that reaches a kvrail:// server, as mlx5_0, or several, as mlx5_0,mlx5_1; default: the first that is active"), \
		SERVER_TEXT(AT, key_name, "key-name", "name of the secret that proves which tenant this is"),                                       \
		SERVER_TEXT(AT, key_file, "key-file", "file whose first line is that secret"),                                                      \
		{ "spin", OPTION_TIME, AT(server.spin_ns), 0, "50us", "1ns", "1s", "Server",                                                        \
			"who waits polls so long," },                                                                                               \
	{                                                                                                                                           \
		"yield", OPTION_TIME, AT(server.yield_ns), 0, "200us", "1ns", "10s", "Server",                                                      \
			"then polls and yields its core for so long, and then sleeps"                                                               \
	}

static const struct option_spec replay_specs[] = {
	SERVER_SPECS(REPLAY),
	{ "trace", OPTION_TEXT, REPLAY(trace), SETTINGS_TEXT, NULL, NULL, NULL, "Trace", "the file" },
	{ "format", OPTION_CHOICE, REPLAY(format), 0, "auto", "auto|mooncake|azure", NULL, "Trace",
		"JSON lines with hash_ids, or CSV of sizes alone; auto: by the first line" },
	{ "trace-block-tokens", OPTION_U32, REPLAY(trace_block_tokens), 0, "512", "1", "65536", "Trace",
		"tokens that one hash id of the trace stands for" },
	{ "requests", OPTION_U64, REPLAY(requests), 0, "0", NULL, NULL, "Trace", "stop after so many; 0: all" },
	{ "seconds", OPTION_U32, REPLAY(seconds), 0, "0", NULL, "86400", "Trace",
		"begin no request after so many; 0: no limit" },
	{ "speed", OPTION_TEXT, REPLAY(speed), 32, "0", NULL, NULL, "Trace",
		"requests begin at their times in the trace, so many times faster: 1, 0.5, 100; 0: as fast as can be" },
	{ "model", OPTION_TEXT, REPLAY(model), 64, "llama3-8b", NULL, NULL, "Model",
		"whose KV cache; `kvrail-bench models` lists them" },
	{ "tp", OPTION_U32, REPLAY(tp), 0, "0", NULL, "64", "Model",
		"tensor parallel size: ranks, each with a connection and memory of its own; 0: what the model is "
		"usually served with" },
	{ "block-tokens", OPTION_U32, REPLAY(block_tokens), 0, "16", "1", "65536", "Model",
		"tokens of one page of the engine" },
	{ "scale", OPTION_U32, REPLAY(scale), 0, "1", "1", "1000000", "Model",
		"divides the bytes per token, so that a small machine can replay a big trace; a page keeps 64 bytes "
		"of each plane" },
	{ "clients", OPTION_U32, REPLAY(clients), 0, "1", "1", "64", "Load",
		"engines, each a thread with connections of its own" },
	{ "depth", OPTION_U32, REPLAY(depth), 0, "1", "1", "64", "Load", "requests that one client has in flight" },
	{ "pool", OPTION_SIZE, REPLAY(pool_bytes), 0, "0", NULL, NULL, "Load",
		"paged KV memory of one rank; 0: ten times the last-level cache, less where memory is short" },
	{ "seed", OPTION_U64, REPLAY(seed), 0, "1", NULL, NULL, "Load", "of the scattered block ids" },
	{ "verify", OPTION_BOOL, REPLAY(verify), 0, "no", NULL, NULL, "Checks",
		"check every byte that is retrieved, and those beside it" },
	{ "old-copies", OPTION_BOOL, REPLAY(old_copies), 0, "no", NULL, NULL, "Checks",
		"--verify: a copy of the chunk that was stored before it was evicted is as good as the last one: the "
		"server has an L2, or held something at the beginning" },
	{ "reference", OPTION_BOOL, REPLAY(reference), 0, "no", NULL, NULL, "Checks",
		"simulate a plain LRU beside it and compare hit rates; with 1 client, depth 1 and 1 rank, on a "
		"server that holds nothing else, they must be equal" },
	{ "capacity", OPTION_U64, REPLAY(capacity), 0, "0", NULL, "1073741824", "Checks",
		"chunks that the server's L1 holds, for the reference; 0: found out by filling it first" },
	{ "ceiling", OPTION_BOOL, REPLAY(ceiling), 0, "yes", NULL, NULL, "Checks",
		"measure memcpy of the same pages in between" },
	{ "name", OPTION_TEXT, REPLAY(name), 64, "", NULL, NULL, "Checks",
		"runs of one name, model and layout find what the others have stored, with --keep or in L2; default: a name "
		"of its own, that nothing is found which this run has not stored" },
	{ "keep", OPTION_BOOL, REPLAY(keep), 0, "no", NULL, NULL, "Output", "leave in the server what was stored" },
	{ "json", OPTION_TEXT, REPLAY(json), SETTINGS_TEXT, NULL, NULL, NULL, "Output",
		"write the results there as JSON; -: to standard output, and nothing else" },
};

static const struct option_spec load_specs[] = {
	SERVER_SPECS(LOAD),
	{ "op", OPTION_CHOICE, LOAD(op), 0, "retrieve", "ping|lookup|store|retrieve|mixed", NULL, "Load",
		"what is done over and over" },
	{ "size", OPTION_SIZE, LOAD(block_bytes), 0, "32KiB", "64B", "16MiB", "Load",
		"bytes of a page in one plane, a multiple of 64" },
	{ "planes", OPTION_U32, LOAD(planes), 0, "4", "1", "256", "Load", "planes, as K and V of each layer are" },
	{ "chunks", OPTION_U32, LOAD(chunks), 0, "0", NULL, "4096", "Load",
		"chunks of a request; 0: 512 for lookup, else what makes about 8 MiB, 1 to 64" },
	{ "set", OPTION_SIZE, LOAD(set_bytes), 0, "0", NULL, NULL, "Load",
		"bytes of distinct chunks in all, which must fit into L1; 0: ten times the last-level cache, at "
		"most 512 MiB" },
	{ "read-percent", OPTION_U32, LOAD(read_percent), 0, "80", NULL, "100", "Load",
		"mixed: retrieves of a hundred requests" },
	{ "hit-percent", OPTION_U32, LOAD(hit_percent), 0, "100", NULL, "100", "Load",
		"lookups and retrieves of a hundred that ask for what is there; the others for what nobody stored" },
	{ "skew", OPTION_TEXT, LOAD(skew), 32, "0", NULL, NULL, "Load",
		"how much more often some chains are asked for than others: exponent of Zipf's law, 0 all alike, "
		"0.99 as in YCSB" },
	{ "clients", OPTION_U32, LOAD(clients), 0, "1", "1", "64", "Load",
		"each with a connection and memory of its own" },
	{ "threads", OPTION_U32, LOAD(threads), 0, "0", NULL, "64", "Load",
		"that the clients are shared out to; a thread with several looks at them in turn and never sleeps; 0: one for each "
		"client" },
	{ "depth", OPTION_U32, LOAD(depth), 0, "0", NULL, "64", "Load",
		"requests that one client has in flight, with --rate at most; 0: 1, with --rate 16" },
	{ "seed", OPTION_U64, LOAD(seed), 0, "1", NULL, NULL, "Load",
		"of block ids, of the order of requests and of the times between them" },
	{ "model", OPTION_TEXT, LOAD(model), 64, "", NULL, NULL, "Layout",
		"size and planes are those of one rank of this model, in place of --size and --planes; "
		"`kvrail-bench models` lists them" },
	{ "tp", OPTION_U32, LOAD(tp), 0, "0", NULL, "64", "Layout",
		"--model: tensor parallel size; 0: what it is usually served with" },
	{ "scale", OPTION_U32, LOAD(scale), 0, "1", "1", "1000000", "Layout", "--model: divides the bytes per token" },
	{ "blocks", OPTION_CHOICE, LOAD(blocks), 0, "scattered", "scattered|contiguous", NULL, "Layout",
		"ids of a request's blocks: at random from all that are free, or one behind the other" },
	{ "memory", OPTION_CHOICE, LOAD(memory), 0, "host", "host|gpu", NULL, "Layout",
		"where the clients' paged KV memory is; gpu: on a GPU of this host, beside the rate of its copy engine" },
	{ "gpu", OPTION_U32, LOAD(gpu), 0, "0", NULL, "63", "Layout",
		"--memory gpu: which, as the vendor's library counts" },
	{ "rate", OPTION_U64, LOAD(rate), 0, "0", NULL, "100000000", "Time",
		"requests a second of all clients together, begun at their times whether or not earlier ones were "
		"answered (open loop); latency counts from the intended time; 0: each client begins one when "
		"another is answered (closed loop)" },
	{ "arrival", OPTION_CHOICE, LOAD(arrival), 0, "poisson", "poisson|even", NULL, "Time",
		"--rate: times between requests of a client: exponential, or all equal" },
	{ "warm-up", OPTION_TIME, LOAD(warm_up_ns), 0, "200ms", NULL, "1h", "Time",
		"not counted, before the first round" },
	{ "seconds", OPTION_U32, LOAD(seconds), 0, "5", "1", "86400", "Time", "how long, in all rounds" },
	{ "rounds", OPTION_U32, LOAD(rounds), 0, "9", "1", "1000", "Time",
		"memcpy is measured between rounds; medians are reported" },
	{ "verify", OPTION_BOOL, LOAD(verify), 0, "yes", NULL, NULL, "Checks",
		"at the end retrieve all once more and check every byte" },
	{ "ceiling", OPTION_BOOL, LOAD(ceiling), 0, "yes", NULL, NULL, "Checks",
		"measure memcpy of the same pages between rounds" },
	{ "server-pid", OPTION_U64, LOAD(server_pid), 0, "0", NULL, "4194304", "Output",
		"process whose processor time is reported as the server's, on this host; 0: unknown" },
	{ "interval", OPTION_TIME, LOAD(interval_ns), 0, "0", NULL, "1h", "Output",
		"a line with rate and latencies each so often, as 1s, on standard error and in the JSON; 0: none" },
	{ "json", OPTION_TEXT, LOAD(json), SETTINGS_TEXT, NULL, NULL, NULL, "Output",
		"write the results there as JSON, which Google Benchmark's compare.py reads too; -: to standard output, "
		"and nothing else" },
};

const struct option_table replay_options = {
	"kvrail-bench replay",
	"replays a trace of requests against a server, each as LOOKUP, RETRIEVE of the hit, STORE of the "
	"rest, END_SESSION",
	"--server URL --trace FILE [options]",
	replay_specs,
	KVR_COUNT_OF(replay_specs),
};

const struct option_table load_options = {
	"kvrail-bench load",
	"does one thing over and over, as fast as the server answers or at a rate",
	"--server URL --op OP [options]",
	load_specs,
	KVR_COUNT_OF(load_specs),
};

static const char *text_or_none(const char *text)
{
	return text[0] ? text : NULL;
}

void settings_client(const struct server_settings *server, const char *name, struct kvr_options *options)
{
	*options = (struct kvr_options)KVR_OPTIONS_INIT;
	options->url = text_or_none(server->url);
	options->device = text_or_none(server->device);
	options->key_name = text_or_none(server->key_name);
	options->key_file = text_or_none(server->key_file);
	options->name = name;
	options->spin_ns = server->spin_ns;
	options->yield_ns = server->yield_ns;
	options->reconnect = 0; /* a lost connection is a failure of the run */
}

static int refuse(struct option_error *error, const char *text)
{
	snprintf(error->text, sizeof(error->text), "%s", text);
	return -EINVAL;
}

static int check_server(const struct server_settings *server, struct option_error *error)
{
	return !server->key_name[0] == !server->key_file[0]
		? 0
		: refuse(error, "--key-name and --key-file belong together: one of them is missing");
}

/* A finite number 0 .. maximum. */
static bool read_number(const char *text, double maximum, double *value)
{
	char *end;

	*value = strtod(text, &end);
	return end != text && !*end && isfinite(*value) && *value >= 0 && *value <= maximum;
}

static int refuse_model(struct option_error *error, const char *model)
{
	const char *nearest = geometry_nearest(model);

	snprintf(error->text, sizeof(error->text), "--model %s is not known; %s%s%s`kvrail-bench models` lists all",
		model, nearest ? "did you mean " : "", nearest ? nearest : "", nearest ? "? " : "");
	return -EINVAL;
}

int replay_settings_check(struct replay_settings *settings, struct option_error *error)
{
	if (!settings->trace[0])
		return refuse(error, "--trace FILE is missing");
	if (!read_number(settings->speed, 1e9, &settings->speed_factor))
		return refuse(
			error, "--speed is a factor: 0 as fast as can be, 1 as in the trace, 100 so many times faster");
	if (!geometry_find(settings->model))
		return refuse_model(error, settings->model);
	if (settings->capacity && !settings->reference)
		return refuse(error, "--capacity is for --reference");
	return check_server(&settings->server, error);
}

int load_settings_check(struct load_settings *settings, struct option_error *error)
{
	if (settings->block_bytes % GEOMETRY_BLOCK_BYTES_MIN != 0)
		return refuse(error, "--size is a multiple of 64 bytes");
	if (settings->rounds > settings->seconds * 20)
		return refuse(error, "--rounds: at most 20 for each second of --seconds");
	if (settings->threads > settings->clients)
		return refuse(error, "--threads: at most one for each of --clients");
	if (!read_number(settings->skew, 10, &settings->skew_theta))
		return refuse(error, "--skew is an exponent from 0, all chains alike, to 10; 0.99 is usual");
	if (settings->model[0] && !geometry_find(settings->model))
		return refuse_model(error, settings->model);
	if (settings->memory == LOAD_GPU && settings->op < LOAD_STORE)
		return refuse(error, "--memory gpu is for what moves bytes: --op store, retrieve or mixed");
	if (settings->interval_ns && settings->interval_ns < 10 * KVR_MS)
		return refuse(error, "--interval: at least 10ms");
	return check_server(&settings->server, error);
}
