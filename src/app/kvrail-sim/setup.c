/* setup.c - what the seed decides before the first step: models and layouts, prompts, engines, the server's size and limits. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "app/kvrail-sim/world_private.h"

/* Identities that differ in one thing only: adapter, dtype, layout, engine (pitfalls E05, E06, E07). */
static void setup_shapes(struct world *world)
{
	static const uint32_t sizes[] = { 1, 1, 2, 2, 4 };
	static const char *const names[] = { "llama", "llama", "llama+adapter", "deepseek", "llama" };
	static const char *const dtypes[] = { "bfloat16", "fp8", "bfloat16", "fp8", "bfloat16" };
	static const char *const engines[] = { NULL, NULL, NULL, "engine 2", "engine 2" };
	bool mixed = world_draw(world, 2);

	for (uint32_t i = 0; i < WORLD_SHAPES; i++) {
		struct shape *shape = &world->shapes[i];

		shape->name = names[i];
		shape->dtype = dtypes[i];
		shape->engine = engines[i];
		shape->world_size = sizes[world_draw(world, KVR_COUNT_OF(sizes))];
		shape->readers = world_draw(world, 3) || shape->world_size > 2 ? 1 : 2 + (uint32_t)world_draw(world, 2);
		shape->planes = 1 + (uint32_t)world_draw(world, 4);
		shape->block_bytes = 32 + 8 * (uint32_t)world_draw(world, 12);
		shape->block_tokens = WORLD_CHUNK_TOKENS / (1u << world_draw(world, 3));
		if (!mixed) { /* all objects in one class of L1 */
			shape->planes = 2;
			shape->block_bytes = 64;
		}
		if (world->chain_max > 64) {
			shape->planes = 1;
			shape->block_tokens = WORLD_CHUNK_TOKENS;
			shape->block_bytes = 32;
			shape->world_size = shape->world_size > 2 ? 2 : shape->world_size;
		}
		shape->blocks_per_chunk = WORLD_CHUNK_TOKENS / shape->block_tokens;
	}
}

static int setup_fingerprints(struct world *world)
{
	for (uint32_t i = 0; i < WORLD_SHAPES; i++) {
		const struct shape *shape = &world->shapes[i];
		struct kvr_plane planes[8];
		struct kvr_layout layout;
		struct kvr_group group;
		int error;

		for (uint32_t p = 0; p < shape->planes; p++) {
			planes[p].address = NULL;
			planes[p].block_stride = shape->block_bytes;
			planes[p].block_bytes = shape->block_bytes;
		}
		memset(&group, 0, sizeof(group));
		group.tokens_per_block = shape->block_tokens;
		group.window_tokens = KVR_WINDOW_FULL;
		group.block_count = 1;
		group.plane_count = shape->planes;
		group.planes = planes;
		layout.struct_bytes = sizeof(layout);
		layout.group_count = 1;
		layout.groups = &group;
		error = kvr_layout_fingerprint(&layout, world->fingerprints[i]);
		if (error)
			return error;
	}
	return 0;
}

static void document_hash(struct world *world, struct document *document)
{
	for (uint32_t i = 0; i < document->length; i++)
		for (uint32_t t = 0; t < WORLD_CHUNK_TOKENS; t++)
			document->tokens[i * WORLD_CHUNK_TOKENS + t] = document->nodes[i] * 1000 + t;
	digest_chain(&world->digester, NULL, document->tokens, (size_t)document->length * WORLD_CHUNK_TOKENS,
		WORLD_CHUNK_TOKENS, document->digests);
}

/* Each document but the first shares a prefix with an earlier one. */
static int setup_documents(struct world *world)
{
	uint32_t limit = 6 * world->chain_max;

	world->node_count = 0;
	for (uint32_t d = 0; d < WORLD_DOCUMENTS; d++) {
		struct document *document = &world->documents[d];
		const struct document *parent = d ? &world->documents[world_draw(world, d)] : NULL;
		uint32_t length = 1 + (uint32_t)world_draw(world, world->chain_max);
		uint32_t shared = parent ? (uint32_t)world_draw(world, kvr_min_u64(length, parent->length + 1)) : 0;

		if (world->node_count + length - shared > limit)
			break;
		document->nodes = calloc(length, sizeof(uint32_t));
		document->digests = calloc(length, WIRE_DIGEST_BYTES);
		document->tokens = calloc((size_t)length * WORLD_CHUNK_TOKENS, sizeof(uint32_t));
		world->document_count = d + 1;
		if (!document->nodes || !document->digests || !document->tokens)
			return -ENOMEM;
		document->length = length;
		for (uint32_t i = 0; i < length; i++)
			document->nodes[i] = i < shared ? parent->nodes[i] : world->node_count++;
		document_hash(world, document);
	}
	return 0;
}

static void setup_network(struct world *world)
{
	struct sim_options *network = &world->network;

	sim_options_default(network);
	network->delay_min_ns = 200 + world_draw(world, 1000);
	network->delay_max_ns = network->delay_min_ns + world_draw(world, 5000);
	network->completion_max_ns = world_draw(world, 3000);
	network->pieces_max = 1 + (uint32_t)world_draw(world, 6);
	network->stream_chunk_max = world_draw(world, 4) ? 65536 : 1 + (uint32_t)world_draw(world, 64);
	if (world_has(world, WORLD_CUT) && !world_draw(world, 3))
		network->cut_per_million = 20 + (uint32_t)world_draw(world, 300);
	if (world_has(world, WORLD_ACCESS) && !world_draw(world, 3))
		network->access_error_per_million = 20 + (uint32_t)world_draw(world, 300);
	if (world_has(world, WORLD_MEMORY) && !world_draw(world, 3))
		network->register_fail_per_million = 1000 + (uint32_t)world_draw(world, 20000);
}

static void setup_server(struct world *world)
{
	struct server_options *options = &world->hosts[0].server_options;

	server_options_default(options);
	options->worker_count = 1 + (uint32_t)world_draw(world, WORLD_SERVER_WORKERS_MAX);
	options->chunk_tokens = WORLD_CHUNK_TOKENS;
	options->connections_max = WORLD_PROCESSES_MAX + 4;
	options->credits = 4 + (uint32_t)world_draw(world, 13);
	options->sessions_max = world_draw(world, 4) ? 128 : WORLD_ENGINES_MAX * WORLD_SESSIONS + 4;
	options->chain_chunks_max = world->chain_max > 64 ? 16384 : 4096;
	options->large_requests = 4;
	options->large_buffers = 2;
	options->message_bytes_max = 65536;
	options->send_depth = 64u << world_draw(world, 3);
	options->chunks_initial = 64;
	options->helper_threads = 0;
	options->lock_ttl_ns = 50 * KVR_MS + world_draw(world, 500 * KVR_MS);
	options->session_ttl_ns = 50 * KVR_MS + world_draw(world, KVR_SECOND);
	options->silence_ns = world_draw(world, 3) ? 0 : 400 * KVR_MS;
	options->registration_grace_ns = 3600 * KVR_SECOND;
	options->handshake_ns = 5 * KVR_SECOND;
	options->trust_tcp = true;
	options->version = "kvrail-sim";
	options->tenants = world->tenants;
	options->tenant_count = WORLD_TENANTS;
	options->areas = world->hosts[0].areas;
	options->area_count = 1 + (uint32_t)world_draw(world, 2);
	for (uint32_t i = 0; i < SERVER_WORKERS_MAX; i++)
		options->worker_areas[i] = i % options->area_count;
	if (!world_draw(world, 4)) {
		options->evict_high_permille = 900;
		options->evict_low_permille = 700;
	}
	/* Not drawn, so that programs of older seeds stay what they are. */
	if (random_mix(world->options.seed ^ 0x73656773) % 3 == 0)
		options->eviction = CACHE_EVICT_SEGMENTED;
	for (uint32_t t = 0; t < WORLD_TENANTS; t++) {
		struct control_tenant *tenant = &world->tenants[t];

		memcpy(tenant->name, t ? "guest" : "house", sizeof("guest"));
		tenant->by_uid = true;
		tenant->uid = 1000 + t;
		tenant->may_clear = t == 0;
	}
}

/* Room for everything that can exist, or for a few dozen objects. */
static void setup_l1(struct world *world)
{
	uint64_t objects = (uint64_t)WORLD_NAMESPACES * world->node_count * 2;
	uint64_t bytes = kvr_round_up(objects * 8192, L1_PAGE_BYTES);

	world->roomy = !world_has(world, WORLD_PRESSURE) || !world_draw(world, 4);
	if (!world->roomy)
		bytes = (2 + world_draw(world, 8)) * L1_PAGE_BYTES;
	else if (bytes > (64u << 20))
		bytes = 64u << 20;
	for (uint32_t i = 0; i < world->hosts[0].server_options.area_count; i++) {
		world->hosts[0].areas[i].bytes = bytes;
		world->hosts[0].areas[i].numa_node = -1;
	}
}

/* Where memory is short the tenants share it by quotas in every third world: none, little, or more than there is. */
static void setup_quotas(struct world *world)
{
	struct random random;

	random_init(&random, random_mix(world->options.seed ^ 0x71756f74));
	world->quotas = !world->roomy && !random_below(&random, 3);
	for (uint32_t t = 0; world->quotas && t < WORLD_TENANTS; t++) {
		struct tenant_quota *quota = &world->tenants[t].quota;

		quota->own = random_below(&random, 4) != 0;
		quota->quota.hard_bytes = random_below(&random, 12) * L1_PAGE_BYTES;
		quota->quota.soft_bytes = random_below(&random, quota->quota.hard_bytes + 1);
	}
	if (world->quotas)
		world->hosts[0].server_options.default_quota.hard_bytes = (1 + random_below(&random, 8)) *
			L1_PAGE_BYTES;
}

/* The others are as the first one, but for their L2. */
static int setup_hosts(struct world *world)
{
	int error = 0;

	for (uint32_t i = 0; i < world->host_count && !error; i++) {
		struct host *host = &world->hosts[i];

		host->world = world;
		host->number = i;
		if (i > 0) {
			host->server_options = world->hosts[0].server_options;
			host->server_options.areas = host->areas;
			host->server_options.l2 = NULL;
			memcpy(host->areas, world->hosts[0].areas, sizeof(host->areas));
		}
		error = model_init(&host->model, i, WORLD_NAMESPACES, world->node_count, WORLD_RANKS_MAX);
		if (!error)
			error = tiers_setup(host);
	}
	return error;
}

static void setup_engines(struct world *world)
{
	world->engine_count = 2 + (uint32_t)world_draw(world, WORLD_ENGINES_MAX - 1);
	for (uint32_t e = 0; e < world->engine_count; e++) {
		struct engine *engine = &world->engines[e];
		const struct shape *shape;

		/* Often the same model in the same tenant, so that they share. */
		engine->tenant = (uint32_t)(world_draw(world, 3) ? 0 : world_draw(world, WORLD_TENANTS));
		engine->shape = (uint32_t)(world_draw(world, 2) ? 0 : world_draw(world, WORLD_SHAPES));
		shape = &world->shapes[engine->shape];
		engine->host = e % world->host_count;
		engine->first_process = world->process_count;
		engine->worker_count = shape->world_size * shape->readers;
		process_init(world, &world->processes[world->process_count++], e, UINT32_MAX, 0);
		for (uint32_t rank = 0; rank < shape->world_size; rank++)
			for (uint32_t reader = 0; reader < shape->readers; reader++)
				process_init(world, &world->processes[world->process_count++], e, rank, reader);
	}
}

static int setup_actions(struct world *world)
{
	size_t chain = world->chain_max;
	size_t blocks = chain * WORLD_BLOCKS_PER_CHUNK_MAX;
	size_t bytes = (2 * chain + blocks) * sizeof(uint32_t) + kvr_round_up(chain, 8);
	size_t shares = WORLD_ENGINES_MAX * WORLD_SESSIONS * chain;
	uint8_t *at;
	uint32_t *share;

	world->actions = calloc(WORLD_ACTIONS, sizeof(world->actions[0]));
	world->action_arrays = calloc(1, WORLD_ACTIONS * bytes + shares * sizeof(uint32_t));
	world->scratch = calloc(blocks, sizeof(uint32_t));
	if (!world->actions || !world->action_arrays || !world->scratch)
		return -ENOMEM;
	at = world->action_arrays;
	for (uint32_t i = 0; i < WORLD_ACTIONS; i++, at += bytes) {
		struct action *action = &world->actions[i];

		action->generations = (uint32_t *)(void *)at;
		action->nodes = action->generations + chain;
		action->blocks = action->nodes + chain;
		action->outcomes = (uint8_t *)(action->blocks + blocks);
		list_init(&action->node);
		list_add_last(&world->free_actions, &action->node);
	}
	share = (uint32_t *)(void *)at;
	for (uint32_t e = 0; e < WORLD_ENGINES_MAX; e++) {
		for (uint32_t s = 0; s < WORLD_SESSIONS; s++, share += chain) {
			world->engines[e].sessions[s].held.shares = share;
			world->engines[e].sessions[s].engine = e;
			world->engines[e].sessions[s].slot = s;
		}
	}
	return 0;
}

/* As asked for; else the seed decides: one mostly, two in a quarter of the worlds. */
static uint32_t servers_of(const struct world *world)
{
	if (world->options.servers)
		return (uint32_t)kvr_min_u64(world->options.servers, WORLD_SERVERS_MAX);
	return random_mix(world->options.seed ^ 0x73727673) % 4 ? 1 : 2;
}

int world_setup(struct world *world)
{
	int error = digester_init(&world->digester);

	/* Apart from all that is drawn, so that a seed's world is the same with one rail and with two. */
	world->rails = world->options.rails ? world->options.rails
					    : 1 + (uint32_t)(random_mix(world->options.seed) & 1);
	random_init(&world->random, world->options.seed);
	world->host_count = servers_of(world);
	list_init(&world->free_actions);
	world->now_ns = KVR_SECOND;
	world->sequence = 1;
	/* Now and then prompts so long that requests do not fit a receive buffer, and go by INDIRECT. */
	world->chain_max = world_draw(world, 8) ? 6 + (uint32_t)world_draw(world, 8) : 300;
	world->pace = (uint32_t)world_draw(world, 5);
	world->blocks_per_process = world->chain_max > 64 ? 900 : 96;
	setup_shapes(world);
	setup_network(world);
	if (!error)
		error = setup_fingerprints(world);
	if (!error)
		error = setup_documents(world);
	if (!error)
		error = setup_actions(world);
	if (error)
		return error;
	setup_server(world);
	setup_l1(world);
	setup_quotas(world);
	error = sim_fabric_create(random_next(&world->random), &world->network, &world->fabric);
	if (error)
		return error;
	error = setup_hosts(world);
	if (error)
		return error;
	setup_engines(world);
	for (uint32_t i = 0; i < world->host_count && !world_stopped(world); i++)
		world_server_start(&world->hosts[i]);
	return world->no_memory ? -ENOMEM : 0;
}

void world_teardown(struct world *world)
{
	for (uint32_t i = 0; i < world->process_count; i++)
		process_fini(&world->processes[i]);
	for (uint32_t i = 0; i < world->host_count; i++)
		world_server_kill(&world->hosts[i]);
	sim_fabric_destroy(&world->fabric);
	for (uint32_t i = 0; i < world->host_count; i++) {
		tiers_teardown(&world->hosts[i]);
		model_fini(&world->hosts[i].model);
	}
	for (uint32_t d = 0; d < world->document_count; d++) {
		free(world->documents[d].nodes);
		free(world->documents[d].digests);
		free(world->documents[d].tokens);
	}
	free(world->actions);
	free(world->action_arrays);
	free(world->scratch);
	digester_fini(&world->digester);
	transcript_fini(&world->transcript);
}
