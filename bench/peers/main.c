/*
 * main.c - bench/peers: the same blocks into and out of kvrail and what a user would take instead, round by round side by
 * side, and the processor seconds that each took, client and server. bench/peers/run starts the servers and draws.
 *
 * usage: kvrail-peers --peer NAME=ADDRESS[,PID] ... [--rounds N] [--size BYTES ...] [--bytes B] [--core C] [--json FILE]
 *        kvrail-peers --serve-zmq ADDRESS
 */
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "app/kvrail-bench/machine.h"
#include "app/kvrail-bench/measure.h"
#include "app/kvrail-bench/pattern.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "peer.h"

#define PEERS_MAX 8u
#define SIZES_MAX 8u
#define ROUNDS_MAX 64u
#define PINGS 400u

enum op { OP_SET, OP_GET, OP_PING, OP_LOOKUP_KNOWN, OP_LOOKUP_HASH, OPS };
static const char *const op_names[OPS] = { "set", "get", "ping", "lookup", "lookup_hash" };

struct figure {
	double seconds[ROUNDS_MAX];
	double client_cpu, server_cpu; /* of all rounds, seconds */
	uint64_t operations;           /* of all rounds */
	uint32_t rounds;
};

struct plan {
	struct peer peers[PEERS_MAX];
	char addresses[PEERS_MAX][160];
	uint32_t peer_count;
	size_t sizes[SIZES_MAX];
	uint32_t size_count, rounds;
	uint64_t bytes;
	const char *json;
	struct figure figures[PEERS_MAX][SIZES_MAX][OPS];
	struct machine machine;
};

int peer_failed(const char *what, int error)
{
	fprintf(stderr, "peers: %s: %s\n", what, strerror(error < 0 ? -error : error));
	return error < 0 ? error : -EIO;
}

int peer_key(char key[PEER_KEY_BYTES], const struct pages *pages, uint32_t block)
{
	return snprintf(key, PEER_KEY_BYTES, "%zu:%08u", pages->page_bytes, block);
}

/* ---- processor time ---- */

static double thread_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Of all threads of a process, from the scheduler, in nanoseconds; 0: unknown. */
static double process_seconds(int pid)
{
	char path[64];
	struct dirent *entry;
	double total = 0;
	DIR *folder;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	folder = pid ? opendir(path) : NULL;
	while (folder && (entry = readdir(folder)) != NULL) {
		char name[400], line[96] = "";
		FILE *file;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(name, sizeof(name), "%s/%s/schedstat", path, entry->d_name);
		file = fopen(name, "re");
		if (file && fgets(line, sizeof(line), file))
			total += strtod(line, NULL) * 1e-9;
		if (file)
			fclose(file);
	}
	if (folder)
		closedir(folder);
	return total;
}

struct meter {
	uint64_t begin_ns;
	double client, server;
};

static struct meter meter_begin(const struct peer *peer)
{
	struct meter meter = { .server = process_seconds(peer->server), .client = thread_seconds() };

	meter.begin_ns = clock_now_ns();
	return meter;
}

static void meter_end(const struct meter *meter, const struct peer *peer, struct figure *figure, uint64_t operations)
{
	figure->seconds[figure->rounds++] = (double)(clock_now_ns() - meter->begin_ns) * 1e-9;
	figure->client_cpu += thread_seconds() - meter->client;
	figure->server_cpu += process_seconds(peer->server) - meter->server;
	figure->operations += operations;
}

/* ---- the data ---- */

static void fill(const struct pages *pages, uint32_t round)
{
	for (uint32_t i = 0; i < pages->count; i++)
		pattern_fill(pages_block(pages, i), pages->page_bytes, pattern_make(i, 0, 0, 0, round));
}

static int check(const struct peer *peer, const struct pages *pages, uint32_t round)
{
	for (uint32_t i = 0; i < pages->count; i++) {
		uint8_t expected;
		size_t first;

		if (pattern_check(pages_block(pages, i), pages->page_bytes, pattern_make(i, 0, 0, 0, round), &first,
			    &expected) == 0)
			continue;
		fprintf(stderr, "peers: %s: block %u came back wrong at byte %zu\n", peer->name, i, first);
		return -EILSEQ;
	}
	return 0;
}

static void shuffle(struct pages *pages, uint64_t seed)
{
	struct random random;

	random_init(&random, seed);
	for (uint32_t i = 0; i < pages->count; i++)
		pages->order[i] = i;
	for (uint32_t i = pages->count - 1; i > 0; i--) {
		uint32_t at = (uint32_t)random_below(&random, i + 1), kept = pages->order[i];

		pages->order[i] = pages->order[at];
		pages->order[at] = kept;
	}
}

/* ---- one size ---- */

static int move_round(struct peer *peer, struct pages *pages, uint32_t round, struct figure figures[OPS])
{
	struct meter meter;
	int error;

	shuffle(pages, round);
	fill(pages, round);
	meter = meter_begin(peer);
	error = peer->set(peer, pages, round);
	meter_end(&meter, peer, &figures[OP_SET], pages->count);
	if (error)
		return error;
	shuffle(pages, round + 1000);
	memset(pages->memory, PATTERN_POISON, pages->count * pages->page_bytes);
	meter = meter_begin(peer);
	error = peer->get(peer, pages, round);
	meter_end(&meter, peer, &figures[OP_GET], pages->count);
	return error ? error : check(peer, pages, round);
}

/* The first round of all warms up and is forgotten. */
static int run_rounds(struct plan *plan, struct pages pages[PEERS_MAX], uint32_t size)
{
	for (uint32_t round = 0; round <= plan->rounds; round++) {
		for (uint32_t p = 0; p < plan->peer_count; p++) {
			int error = move_round(&plan->peers[p], &pages[p], round, plan->figures[p][size]);

			if (error)
				return error;
		}
		for (uint32_t p = 0; round == 0 && p < plan->peer_count; p++)
			memset(plan->figures[p][size], 0, sizeof(plan->figures[p][size]));
	}
	return 0;
}

static int small_round(struct peer *peer, const uint32_t *tokens, uint32_t round, struct figure figures[OPS])
{
	struct meter meter = meter_begin(peer);
	int error = 0;

	for (uint32_t i = 0; !error && i < PINGS; i++)
		error = peer->ping(peer);
	meter_end(&meter, peer, &figures[OP_PING], PINGS);
	if (error || !peer->lookup)
		return error;
	if (round == 0)
		error = peer->learn(peer, tokens);
	for (unsigned hash = 0; !error && hash < 2; hash++) {
		meter = meter_begin(peer);
		for (uint32_t i = 0; !error && i < 4; i++)
			error = peer->lookup(peer, tokens, hash == 0);
		meter_end(&meter, peer, &figures[hash ? OP_LOOKUP_HASH : OP_LOOKUP_KNOWN], 4);
	}
	return error;
}

static int run_small(struct plan *plan, uint32_t size)
{
	uint32_t *tokens = calloc(PEER_LOOKUP_TOKENS, sizeof(*tokens));
	int error = tokens ? 0 : -ENOMEM;

	for (uint32_t i = 0; !error && i < PEER_LOOKUP_TOKENS; i++)
		tokens[i] = (uint32_t)(random_mix(i + 1) % 128000);
	for (uint32_t round = 0; !error && round <= plan->rounds; round++) {
		for (uint32_t p = 0; !error && p < plan->peer_count; p++) {
			error = small_round(&plan->peers[p], tokens, round, plan->figures[p][size]);
			for (unsigned op = OP_PING; round == 0 && op < OPS; op++)
				memset(&plan->figures[p][size][op], 0, sizeof(struct figure));
		}
	}
	free(tokens);
	return error;
}

static int give_pages(struct peer *peer, struct pages *pages, size_t page_bytes, uint64_t bytes)
{
	void *memory;

	pages->page_bytes = page_bytes;
	pages->count = (uint32_t)(bytes / page_bytes);
	pages->count -= pages->count % PEER_CHUNK_BLOCKS;
	pages->order = calloc(pages->count, sizeof(*pages->order));
	if (!pages->order)
		return -ENOMEM;
	if (peer->use)
		return peer->use(peer, pages);
	memory = mmap(NULL, pages->count * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return peer_failed("memory", -ENOMEM);
	(void)madvise(memory, pages->count * page_bytes, MADV_HUGEPAGE); /* as kvr_alloc's */
	pages->memory = memory;
	memset(memory, 0, pages->count * page_bytes);
	return 0;
}

static void take_pages(struct peer *peer, struct pages *pages)
{
	if (peer->unuse)
		peer->unuse(peer, pages);
	else if (pages->memory)
		munmap(pages->memory, pages->count * pages->page_bytes);
	free(pages->order);
}

static int run_size(struct plan *plan, uint32_t size)
{
	struct pages pages[PEERS_MAX] = { 0 };
	uint32_t ready = 0;
	int error = 0;

	for (; !error && ready < plan->peer_count; ready++)
		error = give_pages(&plan->peers[ready], &pages[ready], plan->sizes[size], plan->bytes);
	if (!error)
		error = run_rounds(plan, pages, size);
	if (!error && size == 0)
		error = run_small(plan, size);
	for (uint32_t p = 0; p < ready; p++)
		take_pages(&plan->peers[p], &pages[p]);
	return error;
}

/* ---- the report ---- */

static void figure_json(const struct plan *plan, uint32_t p, uint32_t size, unsigned op, struct text *out)
{
	const struct figure *figure = &plan->figures[p][size][op];
	double sorted[ROUNDS_MAX], operations = (double)figure->operations, median;
	uint64_t each = figure->operations / figure->rounds;
	uint64_t bytes = op <= OP_GET ? each * plan->sizes[size] : 0;

	memcpy(sorted, figure->seconds, figure->rounds * sizeof(*sorted));
	median = median_of(sorted, figure->rounds);
	text_append(out,
		"    {\"peer\": \"%s\", \"op\": \"%s\", \"size\": %zu, \"rounds\": %u, \"operations\": %llu, \"us\": %.4f, "
		"\"gbps\": %.4f, \"client_cpu_us\": %.4f, \"server_cpu_us\": ",
		plan->peers[p].name, op_names[op], op <= OP_GET ? plan->sizes[size] : 0, figure->rounds,
		(unsigned long long)each, median * 1e6 / (double)each, (double)bytes / median * 1e-9,
		figure->client_cpu * 1e6 / operations);
	text_append(out, plan->peers[p].server ? "%.4f, \"seconds\": [" : "null, \"seconds\": [",
		figure->server_cpu * 1e6 / operations);
	for (uint32_t i = 0; i < figure->rounds; i++)
		text_append(out, "%s%.6f", i ? ", " : "", figure->seconds[i]);
	text_append(out, "]}");
}

static int report(struct plan *plan)
{
	FILE *file = plan->json ? fopen(plan->json, "we") : stdout;
	struct text out = { 0 };
	bool first = true, written;

	if (!file)
		return peer_failed(plan->json, -errno);
	machine_finish(&plan->machine);
	text_append(&out, "{\n  \"machine\": {");
	machine_append_json(&plan->machine, 0, &out);
	text_append(&out, "},\n  \"bytes\": %llu, \"request_bytes\": %llu,\n  \"peers\": {",
		(unsigned long long)plan->bytes, (unsigned long long)PEER_REQUEST_BYTES);
	for (uint32_t p = 0; p < plan->peer_count; p++)
		text_append(&out, "%s\"%s\": \"%s\"", p ? ", " : "", plan->peers[p].name, plan->peers[p].how);
	text_append(&out, "},\n  \"results\": [\n");
	for (uint32_t p = 0; p < plan->peer_count; p++) {
		for (uint32_t size = 0; size < plan->size_count; size++) {
			for (unsigned op = 0; op < OPS; op++) {
				if (!plan->figures[p][size][op].rounds)
					continue;
				text_append(&out, first ? "" : ",\n");
				figure_json(plan, p, size, op, &out);
				first = false;
			}
		}
	}
	text_append(&out, "\n  ]\n}\n");
	written = !out.failed && fwrite(out.bytes, 1, out.length, file) == out.length && fflush(file) == 0;
	if (plan->json)
		fclose(file);
	text_fini(&out);
	return written ? 0 : -EIO;
}

/* ---- the command line ---- */

static int add_peer(struct plan *plan, const char *words)
{
	static const struct peer *const kinds[] = {
		&peer_kvrail,
		&peer_memcached,
#ifdef PEERS_HAVE_HIREDIS
		&peer_redis,
#endif
#ifdef PEERS_HAVE_ZMQ
		&peer_zmq,
#endif
	};
	const char *equals = strchr(words, '='), *comma = strrchr(words, ',');
	struct peer *peer = &plan->peers[plan->peer_count];
	char *address = plan->addresses[plan->peer_count];

	if (!equals || plan->peer_count == PEERS_MAX)
		return -EINVAL;
	for (size_t i = 0; i < KVR_COUNT_OF(kinds); i++) {
		if (strncmp(words, kinds[i]->name, strlen(kinds[i]->name)) == 0)
			*peer = *kinds[i];
	}
	if (!peer->name)
		return -EINVAL;
	snprintf(address, sizeof(plan->addresses[0]), "%.*s",
		(int)(comma ? comma - equals - 1 : (ptrdiff_t)strlen(equals + 1)), equals + 1);
	peer->server = comma ? (int)strtol(comma + 1, NULL, 10) : 0;
	peer->name = strndup(words, (size_t)(equals - words)); /* "redis tcp": what figures call it */
	plan->peer_count++;
	return peer->name ? 0 : -ENOMEM;
}

static void pin(int core)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)core, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		peer_failed("core", -errno);
}

static int read_argument(struct plan *plan, const char *name, const char *value)
{
	uint64_t size;

	if (strcmp(name, "--peer") == 0)
		return add_peer(plan, value);
	if (strcmp(name, "--json") == 0) {
		plan->json = value;
		return 0;
	}
	if (strcmp(name, "--rounds") == 0) {
		plan->rounds = (uint32_t)strtoul(value, NULL, 10);
		return plan->rounds >= 1 && plan->rounds < ROUNDS_MAX ? 0 : -EINVAL;
	}
	if (strcmp(name, "--core") == 0) {
		pin((int)strtol(value, NULL, 10));
		return 0;
	}
	if (text_parse_size(value, &size) || size < 64 || size % 64)
		return -EINVAL;
	if (strcmp(name, "--bytes") == 0)
		plan->bytes = size;
	else if (strcmp(name, "--size") == 0 && plan->size_count < SIZES_MAX)
		plan->sizes[plan->size_count++] = size;
	else
		return -EINVAL;
	return 0;
}

static int run(struct plan *plan)
{
	int error = 0;

	for (uint32_t p = 0; !error && p < plan->peer_count; p++)
		error = plan->peers[p].open(&plan->peers[p], plan->addresses[p]);
	for (uint32_t size = 0; !error && size < plan->size_count; size++)
		error = run_size(plan, size);
	if (!error)
		error = report(plan);
	for (uint32_t p = 0; p < plan->peer_count; p++)
		plan->peers[p].close(&plan->peers[p]);
	return error ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct plan *plan = calloc(1, sizeof(*plan));

	log_set_level(LOG_ERROR);
#ifdef PEERS_HAVE_ZMQ
	if (argc == 3 && strcmp(argv[1], "--serve-zmq") == 0) {
		free(plan);
		return zmq_serve(argv[2]);
	}
#endif
	if (!plan)
		return 1;
	plan->rounds = 9;
	plan->bytes = (uint64_t)64 << 20;
	machine_read(&plan->machine);
	for (int i = 1; i < argc; i += 2) {
		if (i + 1 >= argc || read_argument(plan, argv[i], argv[i + 1])) {
			fprintf(stderr,
				"peers: %s: unknown, malformed or without its value; this build knows kvrail, "
				"memcached"
#ifdef PEERS_HAVE_HIREDIS
				", redis"
#endif
#ifdef PEERS_HAVE_ZMQ
				", zmq"
#endif
				"\n",
				argv[i]);
			free(plan);
			return 2;
		}
	}
	if (plan->size_count == 0) {
		const size_t sizes[] = { 4096, 32768, 262144, 1048576 };

		memcpy(plan->sizes, sizes, sizeof(sizes));
		plan->size_count = KVR_COUNT_OF(sizes);
	}
	return run(plan);
}
