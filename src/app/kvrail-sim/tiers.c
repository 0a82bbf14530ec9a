/* tiers.c - the L2 of a world: places that outlive the server, and what goes wrong with them. */
#include "app/kvrail-sim/world_private.h"

#define WORST_STICK_NS (200 * KVR_MS)

/* Its numbers come from a stream of their own, so that a world without L2 is what it was. */
static void random_of(const struct host *host, uint64_t salt, struct random *random)
{
	random_init(random, random_mix(host->world->options.seed ^ (0x4c32 + host->number)) + salt);
}

static uint32_t rarely(struct random *random, uint32_t most)
{
	return random_below(random, 2) ? 0 : (uint32_t)random_below(random, most);
}

static void choose_faults(struct random *random, bool hostile, struct sim_adapter_options *faults)
{
	faults->delay_min_ns = 1 + random_below(random, 2000);
	faults->delay_max_ns = faults->delay_min_ns +
		random_below(random, random_below(random, 3) ? 50000 : 5 * KVR_MS);
	faults->queue_depth = random_below(random, 2) ? 64 : 2;
	faults->capacity_bytes = 0;
	faults->fail = faults->corrupt = faults->lose = faults->stick = faults->refuse = faults->flip = 0;
	faults->stick_ns = 1 + random_below(random, WORST_STICK_NS);
	if (!hostile)
		return;
	if (random_below(random, 2))
		faults->capacity_bytes = 2000 + random_below(random, 200000);
	faults->evicts = random_below(random, 2);
	faults->fail = rarely(random, 100000);
	faults->corrupt = rarely(random, 100000);
	faults->lose = rarely(random, 100000);
	faults->stick = rarely(random, 20000);
	faults->refuse = rarely(random, 300000);
	faults->flip = rarely(random, 100000);
}

static void choose_limits(struct random *random, struct host *host)
{
	struct l2_options *l2 = &host->l2;

	l2->policy = random_below(random, 4) ? L2_STORE_ALL : (enum l2_policy)random_below(random, 3);
	l2->demote = !random_below(random, 3);
	l2->temporary = !random_below(random, 3);
	l2->fetches_max = random_below(random, 3) ? 32 : 1 + (uint32_t)random_below(random, 3);
	l2->loads_max = 1 + (uint32_t)random_below(random, 40);
	l2->store_queue = random_below(random, 3) ? 64 : 1 + (uint32_t)random_below(random, 8);
	l2->stores_max = 1 + (uint32_t)random_below(random, 16);
	l2->backoff_ns = 1 + random_below(random, 2 * KVR_MS);
	l2->backoff_max_ns = 20 * KVR_MS;
	l2->wanted = 256;
	l2->sick_after = 1 + (uint32_t)random_below(random, 12);
	l2->timeout_ns = random_below(random, 3) ? KVR_MS + random_below(random, WORST_STICK_NS) : KVR_SECOND;
	l2->sum_arrivals = random_below(random, 3);
	l2->sum_queue = random_below(random, 3) ? 64 : 1 + (uint32_t)random_below(random, 3);
	host->server_options.l2 = l2;
	host->server_options.l2_deadline_ns = random_below(random, 4) ? 1 + random_below(random, 50 * KVR_MS) : 0;
}

int tiers_setup(struct host *host)
{
	struct random random;
	bool hostile;
	int error = 0;

	random_of(host, 0, &random);
	if (!world_has(host->world, WORLD_L2) || !random_below(&random, 4))
		return 0;
	host->place_count = 1 + (uint32_t)random_below(&random, WORLD_PLACES_MAX);
	host->model.persistent = true;
	hostile = random_below(&random, 3);
	choose_limits(&random, host);
	for (uint32_t i = 0; i < host->place_count && !error; i++) {
		choose_faults(&random, hostile, &host->place_faults[i]);
		error = sim_place_create(&host->places[i]);
	}
	return error;
}

void tiers_teardown(struct host *host)
{
	for (uint32_t i = 0; i < host->place_count; i++)
		sim_place_destroy(&host->places[i]);
}

int tiers_open(struct host *host)
{
	for (uint32_t i = 0; i < host->place_count; i++) {
		int error;

		host->place_faults[i].seed = random_mix(host->boot_id + i);
		error = sim_adapter_open(&host->place_faults[i], host->places[i], &host->adapters[i]);
		if (error)
			return error;
		host->l2.adapters[i] = host->adapters[i];
		host->l2.adapter_count = i + 1;
	}
	return 0;
}

void tiers_kill(struct host *host)
{
	for (uint32_t i = 0; i < host->place_count; i++)
		sim_adapter_kill(host->adapters[i]);
}

void tiers_trouble(struct host *host, uint64_t a, uint64_t b)
{
	uint32_t place = host->place_count ? (uint32_t)(a % host->place_count) : 0;
	struct sim_adapter_options *faults = &host->place_faults[place];
	struct random random;

	if (!host->place_count)
		return;
	random_of(host, b, &random);
	switch (b % 4) {
	case 0:
		faults->down = !faults->down;
		break;
	case 1:
		sim_place_rot(host->places[place]);
		break;
	default:
		choose_faults(&random, b % 3, faults);
	}
	NOTE(host->world, "server %llu: L2 place %llu: down %llu, delays up to %llu ns", host->number, place,
		faults->down, faults->delay_max_ns);
	if (host->server)
		sim_adapter_set(host->adapters[place], faults, false);
}

void tiers_heal(struct host *host)
{
	for (uint32_t i = 0; i < host->place_count; i++) {
		struct sim_adapter_options *faults = &host->place_faults[i];

		faults->fail = faults->stick = faults->refuse = faults->flip = 0;
		faults->down = false;
		faults->delay_max_ns = faults->delay_min_ns +
			kvr_min_u64(20000, faults->delay_max_ns - faults->delay_min_ns);
		if (host->server)
			sim_adapter_set(host->adapters[i], faults, true);
	}
}

bool tiers_idle(const struct host *host)
{
	return !host->server || !server_l2(host->server) || l2_idle(server_l2(host->server));
}

void tiers_check(struct host *host)
{
	if (!tiers_idle(host))
		world_violated(host->world, "nobody is there, and L2 is at work");
	for (uint32_t i = 0; i < host->place_count; i++)
		if (sim_place_misuses(host->places[i]))
			world_violated(host->world,
				"memory changed under a STORE to L2, or a request was sent twice: %llu times",
				(unsigned long long)sim_place_misuses(host->places[i]));
}

bool tiers_well(const struct host *host)
{
	for (uint32_t i = 0; tiers_idle(host) && server_l2(host->server) && i < host->place_count; i++) {
		struct l2_health health;

		l2_get_health(server_l2(host->server), i, &health);
		if (health.state != L2_HEALTH_GOOD)
			return false;
	}
	return tiers_idle(host);
}

void tiers_count(struct host *host)
{
	const struct l2_counters *counters;

	if (!server_l2(host->server))
		return;
	counters = l2_get_counters(server_l2(host->server));
	host->world->report->l2_stored += counters->stored;
	host->world->report->l2_loaded += counters->loaded;
	host->world->report->l2_corrupt += counters->load_corrupt;
	host->world->report->l1_corrupt += counters->l1_corrupt;
	for (uint32_t i = 0; i < host->place_count; i++) {
		struct l2_health health;

		l2_get_health(server_l2(host->server), i, &health);
		host->world->report->l2_outages += health.outages;
	}
}
