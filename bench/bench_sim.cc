// bench_sim.cc - simulated requests per second: a server, its clients and the fabric between them in one thread, with virtual time.
// lookup: 4 chunks, all hits; retrieve: a chunk of one block; store: a chunk of one block that is not there, and evicts another; mix: these
// and pings, in turn.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "client/client.h"
#include "mgmt/server.h"
#include "verbs/sim/fabric.h"

namespace
{

// L1 has room for fewer chunks than one engine's documents have, so that a STORE always moves bytes and evicts; the server knows the
// sessions of all of them.
constexpr uint64_t l1_bytes = 8 * L1_PAGE_BYTES;
constexpr uint32_t chunk_tokens = 16, chunks = 4, documents = 1000, blocks = 64, block_bytes = 1024, depth = 32,
		   connections = 8;

enum Operation { PING, LOOKUP, RETRIEVE, STORE, MIX };

struct World;

struct Engine {
	World *world;
	verbs_device *device;
	kvr_client *client;
	kvr_session *session;                 /* of what all engines share, and look up and retrieve */
	std::vector<kvr_session *> documents; /* of one chunk each, of this engine alone */
	uint32_t registration;
	uint64_t submitted = 0;
	std::vector<uint8_t> pool;
	std::vector<kvr_ticket> tickets; /* a ring: `oldest` is waited for */
	size_t oldest = 0;
};

struct World {
	sim_fabric *fabric = nullptr;
	verbs_device *device = nullptr;
	struct server *server = nullptr;
	control_tenant tenant{};
	l1_area area{};
	uint64_t now_ns = KVR_SECOND;
	std::vector<Engine> engines;

	void turn()
	{
		now_ns += 1000;
		sim_fabric_step(fabric, now_ns, 1u << 20);
		server_step(server, now_ns);
		for (Engine &engine : engines)
			client_step(engine.client, now_ns);
	}
};

int connect(void *context, stream **out)
{
	auto *engine = static_cast<Engine *>(context);
	stream *server_end;
	int error = sim_stream_pair(engine->world->fabric, engine->device, out, &server_end);

	if (!error)
		error = control_accept(server_control(engine->world->server), server_end, engine->world->now_ns);
	return error;
}

bool begin_server(World &world)
{
	server_options options;
	verbs_open open{};

	if (sim_fabric_create(1, nullptr, &world.fabric))
		return false;
	open.server = true;
	open.fabric = world.fabric;
	if (verbs_sim.open(&open, &world.device))
		return false;
	world.area.address = std::aligned_alloc(L1_PAGE_BYTES, l1_bytes);
	world.area.bytes = l1_bytes;
	world.area.numa_node = -1;
	std::strcpy(world.tenant.name, "default");
	server_options_default(&options);
	options.devices[0] = world.device;
	options.worker_count = 1;
	options.areas = &world.area;
	options.area_count = 1;
	options.chunk_tokens = chunk_tokens;
	options.connections_max =
		connections; /* what a SEND lands in is then no more memory than a real server's caches hold */
	options.credits = depth;
	options.helper_threads = 0;
	options.boot_id = options.seed = 1;
	options.trust_tcp = true;
	options.tenants = &world.tenant;
	options.tenant_count = 1;
	return server_create(&options, &world.server) == 0;
}

bool wait(World &world, Engine &engine, kvr_ticket ticket)
{
	kvr_result result;
	int error;

	while ((error = client_take(engine.client, ticket, &result)) == -EAGAIN)
		world.turn();
	return !error && !result.error;
}

int submit_transfer(kvr_session *session, bool store, uint32_t count, kvr_ticket *ticket)
{
	static const uint32_t ids[chunks] = { 0, 1, 2, 3 };
	kvr_blocks list = { ids, count };
	kvr_transfer transfer = KVR_TRANSFER_INIT;

	transfer.chunk_count = count;
	transfer.group_count = 1;
	transfer.groups = &list;
	return client_submit_transfer(session, store, &transfer, ticket);
}

bool make_session(Engine &engine, const char *id, uint32_t first_token, uint32_t count, kvr_session **session)
{
	uint32_t tokens[chunks * chunk_tokens];

	for (uint32_t i = 0; i < count * chunk_tokens; i++)
		tokens[i] = first_token + i;
	return !client_session_create(engine.client, engine.registration, id, nullptr, session) &&
		!client_session_tokens(*session, tokens, static_cast<size_t>(count) * chunk_tokens);
}

bool make_sessions(Engine &engine, unsigned number)
{
	char id[32];

	std::snprintf(id, sizeof(id), "engine %u", number);
	engine.documents.resize(documents);
	for (uint32_t i = 0; i < documents; i++) {
		char name[32];

		std::snprintf(name, sizeof(name), "engine %u document %u", number, i);
		if (!make_session(
			    engine, name, 1000 + (number * documents + i) * chunk_tokens, 1, &engine.documents[i]))
			return false;
	}
	return make_session(engine, id, 0, chunks, &engine.session);
}

bool begin_engine(World &world, Engine &engine, unsigned number)
{
	static const kvr_options fresh = KVR_OPTIONS_INIT;
	kvr_plane plane = { engine.pool.data(), block_bytes, block_bytes };
	kvr_group group = { chunk_tokens, KVR_WINDOW_FULL, blocks, 1, &plane };
	kvr_layout layout = { sizeof(layout), 1, &group };
	kvr_model model = KVR_MODEL_INIT;
	kvr_options user = fresh;
	client_options options{};
	verbs_open open{};
	kvr_ticket ticket;

	open.fabric = world.fabric;
	if (verbs_sim.open(&open, &engine.device))
		return false;
	options.user = &user;
	options.device = engine.device;
	options.connect = connect;
	options.context = &engine;
	options.seed = number + 1;
	if (client_create(&options, &engine.client))
		return false;
	while (!client_ready(engine.client)) {
		sim_fabric_step(world.fabric, world.now_ns += 1000, 1u << 20);
		server_step(world.server, world.now_ns);
		client_step(engine.client, world.now_ns);
	}
	model.name = "model";
	model.dtype = "uint8";
	if (client_submit_register(engine.client, &model, &layout, nullptr, &engine.registration, &ticket) ||
		!wait(world, engine, ticket))
		return false;
	return make_sessions(engine, number) && submit_transfer(engine.session, true, chunks, &ticket) == 0 &&
		wait(world, engine, ticket);
}

void end(World &world)
{
	for (Engine &engine : world.engines)
		client_destroy(&engine.client);
	if (world.server) {
		control_drain(server_control(world.server), world.now_ns);
		while (!control_idle(server_control(world.server))) {
			sim_fabric_step(world.fabric, world.now_ns += 1000, 1u << 20);
			server_step(world.server, world.now_ns);
		}
		server_destroy(&world.server);
	}
	for (Engine &engine : world.engines)
		verbs_sim.close(engine.device);
	if (world.device)
		verbs_sim.close(world.device);
	sim_fabric_destroy(&world.fabric);
	std::free(world.area.address);
}

int submit(Engine &engine, Operation operation, kvr_ticket *ticket)
{
	static const Operation mixed[] = { LOOKUP, RETRIEVE, PING, STORE };
	uint64_t number = engine.submitted++;

	if (operation == MIX) {
		operation = mixed[number % 4];
		number /= 4;
	}
	if (operation == PING)
		return client_submit_ping(engine.client, ticket);
	if (operation == LOOKUP)
		return client_submit_lookup(engine.session, KVR_LOOKUP_NO_LOCK, ticket);
	if (operation == RETRIEVE)
		return submit_transfer(engine.session, false, 1, ticket);
	return submit_transfer(engine.documents[number % documents], true, 1, ticket);
}

// Every engine keeps `depth` requests under way; one iteration is a turn of everybody.
void requests(benchmark::State &state, Operation operation)
{
	World world;
	uint64_t done = 0, failed = 0;
	kvr_result result;
	bool good;

	log_set_level(LOG_ERROR);
	world.engines.resize(static_cast<size_t>(state.range(0)));
	good = begin_server(world);
	for (unsigned i = 0; good && i < world.engines.size(); i++) {
		Engine &engine = world.engines[i];

		engine.world = &world;
		engine.pool.resize(blocks * block_bytes);
		engine.client = nullptr;
	}
	/* Those that are not there yet are not stepped. */
	std::vector<Engine> all;
	all.swap(world.engines);
	world.engines.reserve(all.size());
	for (unsigned i = 0; good && i < all.size(); i++) {
		world.engines.push_back(std::move(all[i]));
		world.engines.back().world = &world;
		good = begin_engine(world, world.engines.back(), i);
	}
	if (!good)
		state.SkipWithError("the world could not be made");
	for (Engine &engine : world.engines)
		engine.tickets.assign(depth - 2, 0);
	while (good && state.KeepRunning()) {
		for (Engine &engine : world.engines) {
			for (size_t n = 0; n < engine.tickets.size(); n++) {
				kvr_ticket &ticket = engine.tickets[engine.oldest];

				if (ticket && client_take(engine.client, ticket, &result))
					break;
				failed += ticket != 0 && result.status != 0;
				done += ticket != 0;
				if (submit(engine, operation, &ticket))
					ticket = 0;
				engine.oldest = (engine.oldest + 1) % engine.tickets.size();
			}
		}
		world.turn();
	}
	if (failed > 0)
		state.SkipWithError("a request did not end well");
	state.counters["requests/s"] = benchmark::Counter(static_cast<double>(done), benchmark::Counter::kIsRate);
	end(world);
}

void ping(benchmark::State &state)
{
	requests(state, PING);
}

void lookup(benchmark::State &state)
{
	requests(state, LOOKUP);
}

void retrieve(benchmark::State &state)
{
	requests(state, RETRIEVE);
}

void store(benchmark::State &state)
{
	requests(state, STORE);
}

void mix(benchmark::State &state)
{
	requests(state, MIX);
}

BENCHMARK(ping)->Arg(1)->Arg(4);
BENCHMARK(lookup)->Arg(1)->Arg(4);
BENCHMARK(retrieve)->Arg(1)->Arg(4);
BENCHMARK(store)->Arg(1)->Arg(4);
BENCHMARK(mix)->Arg(1)->Arg(4);

} // namespace

BENCHMARK_MAIN();
