#include "tier/sim_adapter.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "tier/checksum.h"
#include "tier/object_format.h"

#define SIM_HEADS 1024u
#define SIM_DEPTH 64u
#define SIM_MILLION 1000000u

struct sim_object {
	struct sim_object *next;
	struct l2_identity identity;
	uint64_t checksum;
	uint64_t sum; /* that an adapter tells of it */
	uint8_t bytes[];
};

struct sim_place {
	struct sim_object *heads[SIM_HEADS];
	uint64_t objects, bytes, misuses;
};

struct sim_request { /* what is under way */
	struct l2_request *request;
	uint64_t begun_ns, due_ns; /* half of the time it waits */
	uint64_t checksum;         /* STORE: of the memory when it began */
	bool canceled;
};

struct sim_adapter {
	struct l2_adapter base;
	struct sim_adapter_options options;
	struct sim_place *place;
	struct random random;
	uint64_t now_ns;
	struct sim_request *requests;
	uint32_t count, depth;
	struct list_node ended;
	struct l2_stats stats;
	bool killed;
};

static struct sim_adapter *sim_of(struct l2_adapter *adapter)
{
	return KVR_CONTAINER_OF(adapter, struct sim_adapter, base);
}

static uint64_t checksum_of(const void *bytes, uint64_t count)
{
	const uint8_t *at = bytes;
	uint64_t sum = count, word;

	for (; count >= sizeof(word); at += sizeof(word), count -= sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		sum = (sum ^ word) * 0x9e3779b97f4a7c15ULL;
		sum ^= sum >> 29;
	}
	for (; count > 0; at++, count--)
		sum = (sum ^ *at) * 0x9e3779b97f4a7c15ULL;
	return random_mix(sum);
}

/* ---- the place ---- */

int sim_place_create(struct sim_place **place)
{
	*place = calloc(1, sizeof(**place));
	return *place ? 0 : -ENOMEM;
}

static struct sim_object **find(struct sim_place *place, const struct l2_identity *identity)
{
	struct sim_object **link = &place->heads[checksum_of(identity, sizeof(*identity)) % SIM_HEADS];

	while (*link && memcmp(&(*link)->identity, identity, sizeof(*identity)) != 0)
		link = &(*link)->next;
	return link;
}

static void drop(struct sim_place *place, struct sim_object **link)
{
	struct sim_object *object = *link;

	*link = object->next;
	place->objects--;
	place->bytes -= object->identity.bytes;
	free(object);
}

void sim_place_destroy(struct sim_place **pointer)
{
	struct sim_place *place = *pointer;

	*pointer = NULL;
	for (uint32_t i = 0; place && i < SIM_HEADS; i++)
		while (place->heads[i])
			drop(place, &place->heads[i]);
	free(place);
}

uint64_t sim_place_objects(const struct sim_place *place)
{
	return place->objects;
}

uint64_t sim_place_bytes(const struct sim_place *place)
{
	return place->bytes;
}

uint64_t sim_place_misuses(const struct sim_place *place)
{
	return place->misuses;
}

bool sim_place_has(const struct sim_place *place, const struct l2_identity *identity)
{
	struct sim_object *object = place->heads[checksum_of(identity, sizeof(*identity)) % SIM_HEADS];

	while (object && memcmp(&object->identity, identity, sizeof(*identity)) != 0)
		object = object->next;
	return object != NULL;
}

void sim_place_rot(struct sim_place *place)
{
	for (uint32_t i = 0; i < SIM_HEADS; i++)
		for (struct sim_object *object = place->heads[i]; object; object = object->next)
			object->bytes[object->identity.bytes / 2] ^= 1;
}

static void evict_any(struct sim_adapter *sim)
{
	uint32_t at = (uint32_t)random_below(&sim->random, SIM_HEADS);

	for (uint32_t n = 0; n < SIM_HEADS; n++, at = (at + 1) % SIM_HEADS) {
		if (!sim->place->heads[at])
			continue;
		drop(sim->place, &sim->place->heads[at]);
		sim->stats.evicted++;
		return;
	}
}

/* ---- requests ---- */

static bool chance(struct sim_adapter *sim, uint32_t of_a_million)
{
	return of_a_million && random_below(&sim->random, SIM_MILLION) < of_a_million;
}

static int sim_submit(struct l2_adapter *adapter, struct l2_request *request)
{
	struct sim_adapter *sim = sim_of(adapter);
	struct sim_request *mine;

	if (sim->count == sim->depth || chance(sim, sim->options.refuse))
		return -EAGAIN;
	for (uint32_t i = 0; i < sim->count; i++)
		sim->place->misuses += sim->requests[i].request == request;
	mine = &sim->requests[sim->count++];
	mine->request = request;
	mine->canceled = false;
	mine->due_ns = sim->now_ns + sim->options.delay_min_ns;
	if (sim->options.delay_max_ns > sim->options.delay_min_ns)
		mine->due_ns += random_below(&sim->random, sim->options.delay_max_ns - sim->options.delay_min_ns);
	if (chance(sim, sim->options.stick))
		mine->due_ns += sim->options.stick_ns;
	mine->begun_ns = sim->now_ns + (mine->due_ns - sim->now_ns) / 2;
	if (request->operation == L2_STORE)
		mine->checksum = checksum_of(request->memory, request->identity.bytes);
	if (request->operation == L2_LOAD)
		memset(request->memory, 0xee, request->identity.bytes / 2);
	return 0;
}

static void sim_cancel(struct l2_adapter *adapter, struct l2_request *request)
{
	struct sim_adapter *sim = sim_of(adapter);

	for (uint32_t i = 0; i < sim->count; i++)
		if (sim->requests[i].request == request && chance(sim, SIM_MILLION / 2))
			sim->requests[i].canceled = true;
}

static int store_bytes(struct sim_adapter *sim, const struct sim_request *mine)
{
	const struct l2_identity *identity = &mine->request->identity;
	struct sim_place *place = sim->place;
	struct sim_object **link = find(place, identity);
	struct sim_object *object;

	if (*link)
		return 0;
	if (mine->request->has_checksum &&
		checksum_bytes(mine->request->memory, identity->bytes) != mine->request->checksum)
		return -EBADMSG;
	while (sim->options.capacity_bytes && place->bytes + identity->bytes > sim->options.capacity_bytes) {
		if (!sim->options.evicts || !place->objects)
			return -ENOSPC;
		evict_any(sim);
	}
	object = malloc(sizeof(*object) + identity->bytes);
	if (!object)
		return -ENOSPC;
	object->identity = *identity;
	object->checksum = checksum_of(mine->request->memory, identity->bytes);
	object->sum = checksum_bytes(mine->request->memory, identity->bytes);
	memcpy(object->bytes, mine->request->memory, identity->bytes);
	link = find(place, identity);
	object->next = *link;
	*link = object;
	place->objects++;
	place->bytes += identity->bytes;
	return 0;
}

static int do_store(struct sim_adapter *sim, const struct sim_request *mine)
{
	uint8_t *byte = mine->request->memory;
	int status;

	if (checksum_of(byte, mine->request->identity.bytes) != mine->checksum) {
		sim->place->misuses++;
		return -EBADMSG;
	}
	if (!mine->request->has_checksum || !chance(sim, sim->options.flip))
		return store_bytes(sim, mine);
	/* Only for now: who reads the object from L1 in the same moment is not to get it. */
	byte += random_below(&sim->random, mine->request->identity.bytes);
	*byte ^= 16;
	status = store_bytes(sim, mine);
	*byte ^= 16;
	return status;
}

static int do_load(struct sim_adapter *sim, struct l2_request *request)
{
	struct sim_object **link = find(sim->place, &request->identity);
	struct sim_object *object = *link;

	if (!object)
		return -ENOENT;
	if (chance(sim, sim->options.lose)) {
		drop(sim->place, link);
		return -ENOENT;
	}
	if (chance(sim, sim->options.corrupt))
		object->bytes[random_below(&sim->random, request->identity.bytes)] ^= (uint8_t)(1u
			<< random_below(&sim->random, 8));
	memcpy(request->memory, object->bytes, request->identity.bytes);
	if (checksum_of(request->memory, request->identity.bytes) != object->checksum) {
		drop(sim->place, link);
		return -EBADMSG;
	}
	request->checksum = object->sum;
	return 0;
}

static void clear_place(struct sim_place *place, const struct l2_request *request)
{
	for (uint32_t i = 0; i < SIM_HEADS; i++) {
		struct sim_object **link = &place->heads[i];

		while (*link) {
			if (object_is_cleared(request, &(*link)->identity))
				drop(place, link);
			else
				link = &(*link)->next;
		}
	}
}

static int perform(struct sim_adapter *sim, const struct sim_request *mine)
{
	struct l2_request *request = mine->request;

	if (mine->canceled)
		return -ECANCELED;
	if (request->deadline_ns && mine->begun_ns > request->deadline_ns)
		return -ETIMEDOUT;
	if (sim->options.down || chance(sim, sim->options.fail))
		return -EIO;
	switch (request->operation) {
	case L2_CONTAINS:
		return *find(sim->place, &request->identity) ? 0 : -ENOENT;
	case L2_LOAD:
		return do_load(sim, request);
	case L2_STORE:
		return do_store(sim, mine);
	case L2_CLEAR:
		clear_place(sim->place, request);
		return 0;
	default:
		if (*find(sim->place, &request->identity))
			drop(sim->place, find(sim->place, &request->identity));
		return 0;
	}
}

static void count(struct sim_adapter *sim, const struct l2_request *request)
{
	struct l2_stats *stats = &sim->stats;

	stats->misses += request->status == -ENOENT;
	stats->corrupt += request->status == -EBADMSG;
	stats->errors += request->status == -EIO;
	if (request->status)
		return;
	if (request->operation == L2_LOAD) {
		stats->loads++;
		stats->load_bytes += request->identity.bytes;
	} else if (request->operation == L2_STORE) {
		stats->stores++;
		stats->store_bytes += request->identity.bytes;
	}
}

static void end(struct sim_adapter *sim, uint32_t index)
{
	struct sim_request mine = sim->requests[index];
	struct l2_request *request = mine.request;

	sim->requests[index] = sim->requests[--sim->count];
	if (sim->killed) {
		/* Dead in the midst of it: on the disk it is whole, or not there. */
		if (request->operation == L2_STORE && chance(sim, SIM_MILLION / 2))
			(void)!do_store(sim, &mine);
		request->status = -EIO;
	} else {
		request->status = perform(sim, &mine);
	}
	if (request->status && request->operation == L2_LOAD)
		memset(request->memory, 0xee, request->identity.bytes);
	count(sim, request);
	list_add_last(&sim->ended, &request->node);
}

static bool sim_step(struct l2_adapter *adapter, uint64_t now_ns)
{
	struct sim_adapter *sim = sim_of(adapter);
	bool busy = false;

	sim->now_ns = now_ns;
	for (uint32_t i = sim->count; i > 0; i--) {
		if (!sim->killed && sim->requests[i - 1].due_ns > now_ns)
			continue;
		end(sim, i - 1);
		busy = true;
	}
	return busy;
}

static uint32_t sim_poll(struct l2_adapter *adapter, struct list_node *ended, uint32_t limit)
{
	struct sim_adapter *sim = sim_of(adapter);
	uint32_t taken = 0;

	while (taken < limit && !list_empty(&sim->ended)) {
		list_add_last(ended, list_pop_first(&sim->ended));
		taken++;
	}
	return taken;
}

static void sim_get_stats(struct l2_adapter *adapter, struct l2_stats *stats)
{
	const struct sim_adapter *sim = sim_of(adapter);

	*stats = sim->stats;
	stats->objects = sim->place->objects;
	stats->bytes = sim->place->bytes;
	stats->capacity_bytes = sim->options.capacity_bytes;
	stats->in_flight = sim->count;
}

static void sim_close(struct l2_adapter *adapter)
{
	struct sim_adapter *sim = sim_of(adapter);

	free(sim->requests);
	free(sim);
}

static const struct l2_adapter_driver sim_driver = {
	.kind = "sim",
	.submit = sim_submit,
	.cancel = sim_cancel,
	.poll = sim_poll,
	.step = sim_step,
	.get_stats = sim_get_stats,
	.close = sim_close,
};

int sim_adapter_open(const struct sim_adapter_options *options, struct sim_place *place, struct l2_adapter **adapter)
{
	struct sim_adapter *sim = calloc(1, sizeof(*sim));
	uint32_t depth = options->queue_depth ? options->queue_depth : SIM_DEPTH;

	*adapter = NULL;
	if (!sim)
		return -ENOMEM;
	sim->requests = calloc(depth, sizeof(*sim->requests));
	if (!sim->requests) {
		free(sim);
		return -ENOMEM;
	}
	sim->base.driver = &sim_driver;
	memcpy(sim->base.name, "sim:", sizeof("sim:"));
	sim->options = *options;
	sim->place = place;
	sim->depth = depth;
	list_init(&sim->ended);
	random_init(&sim->random, options->seed);
	*adapter = &sim->base;
	return 0;
}

void sim_adapter_set(struct l2_adapter *adapter, const struct sim_adapter_options *options, bool calm)
{
	struct sim_adapter *sim = sim_of(adapter);

	sim->options = *options;
	for (uint32_t i = 0; calm && i < sim->count; i++)
		if (sim->requests[i].due_ns > sim->now_ns + options->delay_max_ns)
			sim->requests[i].due_ns = sim->now_ns + options->delay_max_ns;
}

void sim_adapter_kill(struct l2_adapter *adapter)
{
	sim_of(adapter)->killed = true;
}
