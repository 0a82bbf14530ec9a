/*
 * libFuzzer target for a whole server: the input is a program of what raw clients say on their two legs, well-formed or spoiled, and of
 * what happens to them. In the simulator, with virtual time. Whatever they do, the server answers or closes, its books stay right, and
 * when all are gone nothing is left.
 *
 * A program is a list of steps: a byte that says what, and as many bytes as it wants. When the input ends, zeros follow.
 */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "fuzz/server_guest.h"

#define STEPS_MAX 200u
#define L1_BYTES (2 * L1_PAGE_BYTES)
#define SMALL_QUOTA 8192
#define DRAIN_TURNS 200000u

/* ---- a step ----------------------------------------------------------------------------------------------------- */

static void cleared(void *context, struct clear_job *job)
{
	(void)job;
	((struct world *)context)->clearing = false;
}

/* Rare things: the server is told to go, the operator clears L1 (a client's CLEAR reaches L2, too), a proof over TCP, a
 * place of L2 that fails or whose bytes have changed. */
static void trouble(struct world *world, struct guest *guest, uint32_t how)
{
	if (how > 200) {
		control_drain(server_control(world->server), world->now_ns);
	} else if (how > 180) {
		sim_place_rot(world->place);
	} else if (how > 150) {
		world->place_faults.down = !world->place_faults.down;
		sim_adapter_set(world->l2.adapters[0], &world->place_faults, false);
	} else if (how == 149) {
		if (!world->clearing &&
			control_request_clear(server_control(world->server), &world->clear, true, cleared, world) == 0)
			world->clearing = true;
	} else {
		say_authenticate(world, guest);
	}
}

static void step(struct world *world)
{
	uint32_t what = take(world);
	struct guest *guest = &world->guests[(what >> 5) % GUESTS];

	if (!guest->device)
		guest_begin(world, guest);
	what &= 31;
	if (what == 0)
		turns(world, 1 + take(world) % 64);
	else if (what == 1)
		world->now_ns += (uint64_t)take(world) * 10 * KVR_MS;
	else if (what == 2)
		guest_kill(world, guest);
	else if (what == 3)
		sim_fabric_cut_device(world->fabric, guest->device);
	else if (what == 4)
		trouble(world, guest, take(world));
	else if (what == 5)
		say_hello(world, guest);
	else if (what == 6)
		say_connect(world, guest);
	else if (what == 7)
		say_memory(world, guest);
	else if (what == 8)
		say_register(world, guest);
	else if (what == 9)
		say_unregister(world, guest);
	else if (what < 13)
		say_everything(world, guest);
	else if (what < 16)
		say_transfer(world, guest, WIRE_RETRIEVE);
	else if (what < 20)
		say_transfer(world, guest, WIRE_STORE);
	else if (what < 28)
		say_session_request(world, guest, what);
	else
		say_other(world, guest, what);
}

/* ---- a run ------------------------------------------------------------------------------------------------------ */

/* Slow enough for a LOOKUP to wait, and to be canceled meanwhile. */
static void begin_l2(struct world *world)
{
	world->place_faults.seed = 1;
	world->place_faults.delay_min_ns = 20 * KVR_US;
	world->place_faults.delay_max_ns = 200 * KVR_US;
	demand(sim_place_create(&world->place) == 0);
	demand(sim_adapter_open(&world->place_faults, world->place, &world->l2.adapters[0]) == 0);
	world->l2.adapter_count = 1;
	world->l2.wanted = 64;
	world->options.l2 = &world->l2;
	world->options.l2_deadline_ns = 100 * KVR_MS;
}

static void begin(struct world *world)
{
	static const char names[TENANTS][sizeof("guest")] = { "house", "guest", "small" };
	struct server_options *options = &world->options;
	struct verbs_open open;

	world->now_ns = KVR_SECOND;
	demand(sim_fabric_create(1, NULL, &world->fabric) == 0);
	memset(&open, 0, sizeof(open));
	open.server = true;
	open.fabric = world->fabric;
	demand(verbs_sim.open(&open, &world->device) == 0);
	world->area.address = aligned_alloc(L1_PAGE_BYTES, L1_BYTES);
	demand(world->area.address != NULL);
	world->area.bytes = L1_BYTES;
	world->area.numa_node = -1;
	for (uint32_t t = 0; t < TENANTS; t++) {
		memcpy(world->tenants[t].name, names[t], sizeof("guest"));
		world->tenants[t].by_uid = true;
		world->tenants[t].uid = 1000 + t;
		world->tenants[t].may_clear = t == 0;
	}
	/* A few objects, at most: less than there is room for. */
	world->tenants[2].quota = (struct tenant_quota){ .own = true, .quota = { SMALL_QUOTA, SMALL_QUOTA } };
	world->tenants[0].secret_length = sizeof(SECRET) - 1;
	memcpy(world->tenants[0].secret, SECRET, sizeof(SECRET) - 1);
	memcpy(world->tenants[0].key_name, SECRET_KEY, sizeof(SECRET_KEY));
	server_options_default(options);
	begin_l2(world);
	options->devices[0] = world->device;
	options->worker_count = 1;
	options->areas = &world->area;
	options->area_count = 1;
	options->chunk_tokens = CHUNK_TOKENS;
	options->connections_max = 2; /* the third guest is one too many */
	options->credits = 4;
	options->sessions_max = 3;
	options->chain_chunks_max = 64;
	options->large_requests = 1;
	options->large_buffers = 1;
	options->message_bytes_max = WIRE_INLINE_BYTES;
	options->send_depth = 64;
	options->chunks_initial = 64;
	options->lock_ttl_ns = options->session_ttl_ns = 500 * KVR_MS;
	options->silence_ns = options->registration_grace_ns = KVR_SECOND;
	options->helper_threads = 0;
	options->boot_id = options->seed = 99;
	options->tenants = world->tenants;
	options->tenant_count = TENANTS;
	demand(server_create(options, &world->server) == 0);
}

static bool at_rest(struct world *world)
{
	return control_idle(server_control(world->server)) && l2_idle(server_l2(world->server));
}

static void end(struct world *world)
{
	struct control *control = server_control(world->server);
	struct sim_counters counters;

	demand(server_verify(world->server, false) == 0);
	for (uint32_t i = 0; i < GUESTS; i++)
		guest_kill(world, &world->guests[i]);
	control_drain(control, world->now_ns);
	world->place_faults.down = false;
	sim_adapter_set(world->l2.adapters[0], &world->place_faults, true);
	for (uint32_t i = 0; i < DRAIN_TURNS && !at_rest(world); i++)
		turns(world, 1);
	demand(at_rest(world));
	demand(server_verify(world->server, true) == 0);
	server_destroy(&world->server);
	demand(sim_place_misuses(world->place) == 0);
	sim_place_destroy(&world->place);
	verbs_sim.close(world->device);
	sim_fabric_counters(world->fabric, &counters);
	demand(counters.cq_overflows == 0);
	sim_fabric_destroy(&world->fabric);
	free(world->area.address);
}

static void drop_line(void *context, enum log_level level, const char *line)
{
	(void)context;
	(void)line;
	demand(level != LOG_ERROR); /* the books are wrong, or a ring was full */
}

/* A run is long and reaches much: libFuzzer's accounting of rare features would cost more than the runs. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static char *more[64] = { NULL };
	int count = 0;

	while (count < *argc && count < 60) {
		more[count] = (*argv)[count];
		count++;
	}
	more[count++] = (char *)(uintptr_t) "-entropic=0";
	more[count++] = (char *)(uintptr_t) "-len_control=0";
	more[count++] = (char *)(uintptr_t) "-max_len=800";
	*argc = count;
	*argv = more;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct world world;

	log_set_sink(drop_line, NULL);
	log_set_level(LOG_ERROR);
	memset(&world, 0, sizeof(world));
	world.data = data;
	world.size = size;
	begin(&world);
	for (uint32_t i = 0; i < STEPS_MAX && world.size > 0; i++)
		step(&world);
	end(&world);
	return 0;
}
