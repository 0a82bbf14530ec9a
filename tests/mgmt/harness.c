#include "mgmt/harness.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/random.h"
#include "protocol/digest.h"
#include "tier/cache.h"
#include "tier/l1.h"

#define LKEY 77u

const struct model_of plain_model = { .name = "m", .dtype = "bfloat16", .tenant = 1, .world_size = 1, .readers = 1 };

/* ---- log ---- */

static void count_line(void *context, enum log_level level, const char *line)
{
	(void)level;
	(void)line;
	(*(unsigned *)context)++;
}

void log_expect_begin(unsigned *lines)
{
	*lines = 0;
	log_set_sink(count_line, lines);
}

void log_expect_end(void)
{
	log_set_sink(NULL, NULL);
}

/* ---- the world ---- */

void world_init(struct world *world, const struct world_options *options)
{
	struct l1_area area = { .numa_node = -1 };
	struct cache_options cache = { .spaces_max = 64, .high_permille = 1000, .low_permille = 1000 };
	struct management_options management = { .worker_count = 1, .area_count = 1, .connections_max = 32 };
	uint32_t lkey = LKEY;

	memset(world, 0, sizeof(*world));
	world->now = 1000 * KVR_SECOND;
	world->slots = options->slots;
	world->no_memory = options->no_memory;
	list_init(&world->clients);
	list_init(&world->asks);
	world->memory = aligned_alloc(4096, (size_t)options->slots * OBJECT_BYTES);
	world->mailbox = aligned_alloc(KVR_CACHE_LINE, sizeof(*world->mailbox));
	assert_non_null(world->memory);
	assert_non_null(world->mailbox);
	memset(world->mailbox, 0, sizeof(*world->mailbox));
	assert_int_equal(mailbox_init(world->mailbox, 4096, 32), 0);
	area.address = world->memory;
	area.bytes = (uint64_t)options->slots * OBJECT_BYTES;
	assert_int_equal(l1_create(&area, 1, &world->l1), 0);
	cache.l1 = world->l1;
	cache.accounts = WORLD_TENANTS;
	cache.chunks_initial = options->chunks_initial ? options->chunks_initial : 4096;
	assert_int_equal(cache_create(&cache, &world->cache), 0);
	management.cache = world->cache;
	management.l1 = world->l1;
	management.mailboxes = &world->mailbox;
	management.area_lkeys = &lkey;
	management.sessions_max = options->sessions_max ? options->sessions_max : 64;
	management.chain_chunks_max = options->chain_chunks_max ? options->chain_chunks_max : 65536;
	management.large_requests = options->large_requests ? options->large_requests : 4;
	management.chunk_tokens = CHUNK_TOKENS;
	management.quotas = options->quotas;
	management.default_quota = options->default_quota;
	management.pinned_bytes_max = options->pinned_bytes_max;
	management.lock_ttl_ns = 300 * KVR_SECOND;
	management.session_ttl_ns = 600 * KVR_SECOND;
	management.silence_ns = options->silence_ns;
	management.registration_grace_ns = options->registration_grace_ns;
	management.prefetch = options->prefetch;
	assert_int_equal(management_create(&management, &world->management), 0);
	management_step(world->management, world->now);
}

static void fill_to_the_last_slot(struct world *world)
{
	l1_ref *objects = calloc(world->slots, sizeof(*objects));
	uint32_t object_class, count = 0;

	assert_non_null(objects);
	cache_set_quota(world->cache, 0, &(struct cache_quota){ 0, 0 });
	assert_int_equal(l1_class_acquire(world->l1, OBJECT_BYTES, &object_class), 0);
	while (count < world->slots && (objects[count] = cache_reserve(world->cache, 0, object_class, 0, 4096)))
		count++;
	assert_int_equal(count, world->slots);
	while (count > 0)
		cache_abort(world->cache, objects[--count]);
	l1_class_release(world->l1, object_class);
	free(objects);
}

void world_fini(struct world *world)
{
	struct status_snapshot *status = calloc(1, sizeof(*status));
	struct ring_message message = { .kind = MANAGEMENT_STATUS, .word = { (uint64_t)(uintptr_t)status } };

	assert_non_null(status);
	world->hold = false;
	world->hold_closed = false;
	list_for_each(node, &world->asks)
		ask_finish(KVR_CONTAINER_OF(node, struct ask, node), CHUNK_FAILED);
	list_for_each(node, &world->clients)
		client_leave(KVR_CONTAINER_OF(node, struct client, node));
	world_run(world);
	while (!list_empty(&world->asks)) {
		struct ask *ask = KVR_CONTAINER_OF(world->asks.next, struct ask, node);

		assert_true(ask->replied);
		ask_free(ask);
	}
	while (!list_empty(&world->clients)) {
		struct client *client = KVR_CONTAINER_OF(world->clients.next, struct client, node);

		assert_true(client->detached);
		client_free(client);
	}
	world_pass(world, 700 * KVR_SECOND);
	assert_true(ring_push(management_inbox(world->management), &message));
	world_run(world);
	assert_int_equal(world->status_done, 1);
	assert_int_equal(status->sessions, 0);
	assert_int_equal(status->connections, 0);
	assert_int_equal(status->registrations, 0);
	assert_int_equal(status->parked, 0);
	assert_int_equal(status->transfers, 0);
	assert_int_equal(world->wrong_bytes, 0);
	world_verify(world);
	assert_int_equal(cache_verify(world->cache, true), 0);
	fill_to_the_last_slot(world);
	free(status);
	management_destroy(&world->management);
	cache_destroy(&world->cache);
	l1_destroy(&world->l1);
	mailbox_fini(world->mailbox);
	free(world->mailbox);
	free(world->memory);
}

void world_verify(struct world *world)
{
	assert_int_equal(management_verify(world->management), 0);
	assert_int_equal(cache_verify(world->cache, false), 0);
}

static struct cache_stats stats_of(struct world *world)
{
	struct cache_stats stats;

	cache_get_stats(world->cache, &stats);
	return stats;
}

uint64_t world_locks(struct world *world)
{
	return stats_of(world).locks;
}

uint64_t world_pins(struct world *world)
{
	return stats_of(world).pins;
}

uint64_t world_staged(struct world *world)
{
	return stats_of(world).staged;
}

uint64_t world_chunks(struct world *world)
{
	return stats_of(world).chunks;
}

uint32_t world_sessions(struct world *world)
{
	struct status_snapshot *status = calloc(1, sizeof(*status));
	struct ring_message message = { .kind = MANAGEMENT_STATUS, .word = { (uint64_t)(uintptr_t)status } };
	uint32_t sessions;

	assert_non_null(status);
	assert_true(ring_push(management_inbox(world->management), &message));
	world_run(world);
	sessions = status->sessions;
	world->status_done--;
	free(status);
	return sessions;
}

/* ---- the fake worker ---- */

static void push_management(struct world *world, uint32_t kind, void *object)
{
	struct ring_message message = { .kind = kind, .word = { (uint64_t)(uintptr_t)object } };

	assert_true(ring_push(&world->mailbox->to_management, &message));
}

/* What every word of a chunk's object is, but for the 16 bits that say who wrote it. */
static uint64_t content_of(const struct ask *ask, uint32_t index)
{
	const struct registration *registration = NULL;
	uint64_t digest, identity;
	const struct chain *chain = &ask->chain;
	uint8_t bytes[32];

	list_for_each(node, &ask->client->handles) {
		struct handle *handle = KVR_CONTAINER_OF(node, struct handle, node);

		if (handle->registration.number == ask->request.message.transfer.registration)
			registration = &handle->registration;
	}
	assert_non_null(registration);
	chain_digest_of(chain, ask->request.message.transfer.first_chunk + index, bytes);
	memcpy(&digest, bytes, sizeof(digest));
	memcpy(&identity, registration->model_key, sizeof(identity));
	return random_mix(digest ^ identity ^ registration->rank ^ ask->salt[0]) & ~(uint64_t)0xffff;
}

static void write_words(const struct transfer_part *part, uint64_t word, uint32_t from, uint32_t to)
{
	uint64_t *words = part->address;

	for (uint32_t n = from; n < to; n++)
		words[n] = word;
}

static void check_words(struct world *world, const struct transfer_part *part, uint64_t content, uint32_t count)
{
	const uint64_t *words = part->address;

	for (uint32_t n = 0; n < count; n++)
		world->wrong_bytes += words[n] != words[0] || (words[n] & ~(uint64_t)0xffff) != content;
}

static void move(struct ask *ask, bool last)
{
	const struct transfer *transfer = &ask->request.transfer;
	uint32_t words = (uint32_t)(transfer->layout->groups[0].object_bytes / 8);

	for (uint32_t n = 0; n < ask->request.message.transfer.chunk_count; n++) {
		const struct transfer_part *part = &transfer->parts[n];

		if (transfer->outcomes[n] != CHUNK_PENDING)
			continue;
		assert_non_null(part->address);
		assert_int_equal(part->lkey, LKEY);
		if (!transfer->to_client)
			write_words(
				part, content_of(ask, n) | ask->fill, last ? words / 2 : 0, last ? words : words / 2);
		else if (last)
			check_words(ask->client->world, part, content_of(ask, n), words);
	}
}

void ask_finish(struct ask *ask, enum chunk_outcome outcome)
{
	struct transfer *transfer = &ask->request.transfer;
	bool good = outcome == CHUNK_STORED || outcome == CHUNK_DELIVERED;

	if (!ask->out)
		return;
	ask->out = false;
	if (good)
		move(ask, true);
	for (uint32_t n = 0; n < ask->request.message.transfer.chunk_count; n++) {
		if (transfer->outcomes[n] != CHUNK_PENDING)
			continue;
		transfer->outcomes[n] = good ? (transfer->to_client ? CHUNK_DELIVERED : CHUNK_STORED)
					     : (uint8_t)outcome;
	}
	push_management(ask->client->world, TO_MANAGEMENT_TRANSFER_DONE, &ask->request);
}

static void worker_transfer(struct world *world, struct ask *ask)
{
	assert_false(ask->replied);
	assert_false(ask->out);
	ask->out = true;
	move(ask, false);
	if (ask->client->close_asked && !world->hold_closed)
		ask_finish(ask, CHUNK_FAILED);
	else if (!world->hold)
		ask_finish(ask, CHUNK_STORED);
}

static void worker_reply(struct world *world, struct ask *ask)
{
	struct request *request = &ask->request;

	assert_false(ask->replied);
	assert_false(ask->out);
	assert_false(list_linked(&request->waiting));
	assert_false(wheel_armed(&request->timer));
	ask->replied = true;
	ask->replied_turn = world->next_request++;
	ask->client->outstanding--;
	if ((request->header.type == WIRE_RETRIEVE || request->header.type == WIRE_STORE) &&
		status_has_body(request->reply.status))
		memcpy(ask->outcomes, request->transfer.outcomes, request->message.transfer.chunk_count);
	if (request->large)
		push_management(world, TO_MANAGEMENT_PARTS, request->large);
}

static void worker_close(struct world *world, struct client *client)
{
	client->close_asked = true;
	list_for_each(node, &world->asks) {
		struct ask *ask = KVR_CONTAINER_OF(node, struct ask, node);

		if (ask->client == client && !world->hold_closed)
			ask_finish(ask, CHUNK_FAILED);
	}
}

static void worker_turn(struct world *world)
{
	struct ring_message message;

	while (ring_pop(&world->mailbox->to_worker, &message)) {
		void *object = (void *)(uintptr_t)message.word[0];

		if (message.kind == TO_WORKER_OPEN)
			KVR_CONTAINER_OF(object, struct client, connection)->opened = true;
		else if (message.kind == TO_WORKER_CLOSE)
			worker_close(world, KVR_CONTAINER_OF(object, struct client, connection));
		else if (message.kind == TO_WORKER_REPLY)
			worker_reply(world, KVR_CONTAINER_OF(object, struct ask, request));
		else if (message.kind == TO_WORKER_TRANSFER)
			worker_transfer(world, KVR_CONTAINER_OF(object, struct ask, request));
		else if (message.kind == TO_WORKER_ABORT)
			KVR_CONTAINER_OF(object, struct ask, request)->aborted = true;
		else if (message.kind == TO_WORKER_FORGET)
			push_management(world, TO_MANAGEMENT_FORGOTTEN, object);
		else
			fail_msg("message %u to a worker", message.kind);
	}
	list_for_each(node, &world->clients) {
		struct client *client = KVR_CONTAINER_OF(node, struct client, node);

		if (client->close_asked && !client->closed && client->outstanding == 0) {
			client->closed = true;
			push_management(world, TO_MANAGEMENT_CLOSED, &client->connection);
		}
	}
}

/* ---- the fake control thread ---- */

static void push_inbox(struct world *world, uint32_t kind, void *object)
{
	struct ring_message message = { .kind = kind, .word = { (uint64_t)(uintptr_t)object } };

	assert_true(ring_push(management_inbox(world->management), &message));
}

static void supply_memory(struct world *world, uint64_t bytes)
{
	struct ring_message message = { .kind = MANAGEMENT_MEMORY, .word = { 0, bytes } };

	if (!world->no_memory) {
		void *memory = aligned_alloc(64, kvr_round_up(bytes, 64));

		assert_non_null(memory);
		memset(memory, 0, bytes);
		message.word[0] = (uint64_t)(uintptr_t)memory;
	}
	assert_true(ring_push(management_inbox(world->management), &message));
}

static void control_turn(struct world *world)
{
	struct ring_message message;

	while (ring_pop(management_outbox(world->management), &message)) {
		void *object = (void *)(uintptr_t)message.word[0];
		struct client *client = object ? KVR_CONTAINER_OF(object, struct client, connection) : NULL;
		struct handle *handle = object ? KVR_CONTAINER_OF(object, struct handle, registration) : NULL;

		switch (message.kind) {
		case CONTROL_REGISTERED:
			handle->answered = true;
			if (handle->registration.reply_status != STATUS_OK)
				handle->returned = true;
			break;
		case CONTROL_UNREGISTERED:
			assert_false(handle->returned);
			handle->returned = true;
			break;
		case CONTROL_LOST:
			assert_false(client->lost);
			client->lost = true;
			client_leave(client);
			break;
		case CONTROL_DETACHED:
			assert_false(client->detached);
			client->detached = true;
			break;
		case CONTROL_FORGOTTEN:
			client->forgotten++;
			break;
		case CONTROL_WANT_MEMORY:
			supply_memory(world, message.word[0]);
			break;
		case CONTROL_GARBAGE:
			free(object);
			break;
		case CONTROL_DRAINED:
			world->drained++;
			break;
		case CONTROL_STATUS_DONE:
			world->status_done++;
			break;
		case CONTROL_CLEAR_DONE:
			world->clear_done++;
			break;
		case CONTROL_PIN_DONE:
			world->pin_done++;
			break;
		case CONTROL_QUOTA_DONE:
			world->quota_done++;
			break;
		default:
			fail_msg("message %u to the control thread", message.kind);
		}
	}
}

bool world_turn(struct world *world)
{
	bool busy = management_step(world->management, world->now);

	worker_turn(world);
	control_turn(world);
	return busy || !management_quiet(world->management);
}

void world_run(struct world *world)
{
	unsigned turns = 0;

	while (world_turn(world))
		assert_true(turns++ < 100000);
}

void world_pass(struct world *world, uint64_t ns)
{
	for (unsigned n = 0; n < 64; n++) {
		world->now += ns / 64;
		world_run(world);
	}
	world->now += WHEEL_TICK_NS;
	world_run(world);
}

/* ---- clients ---- */

struct client *client_join(struct world *world, uint32_t tenant)
{
	struct client *client = aligned_alloc(KVR_CACHE_LINE, kvr_round_up(sizeof(*client), KVR_CACHE_LINE));

	assert_non_null(client);
	memset(client, 0, sizeof(*client));
	client->world = world;
	client->connection.tenant = tenant;
	client->connection.credits = 64;
	list_init(&client->handles);
	list_add_last(&world->clients, &client->node);
	push_inbox(world, MANAGEMENT_ATTACH, &client->connection);
	world_run(world);
	return client;
}

void client_fail(struct client *client)
{
	client->close_asked = true;
	push_management(client->world, TO_MANAGEMENT_LOST, &client->connection);
	worker_close(client->world, client);
}

void client_leave(struct client *client)
{
	if (client->detach_sent)
		return;
	client->detach_sent = true;
	push_inbox(client->world, MANAGEMENT_DETACH, &client->connection);
}

void client_free(struct client *client)
{
	assert_true(client->detached);
	while (!list_empty(&client->handles)) {
		struct handle *handle = KVR_CONTAINER_OF(list_pop_first(&client->handles), struct handle, node);

		assert_true(handle->returned);
		free(handle->registration.layout);
		free(handle);
	}
	list_remove(&client->node);
	free(client);
}

static struct layout *make_layout(uint64_t object_bytes)
{
	struct layout *layout = calloc(1, layout_bytes(1));

	assert_non_null(layout);
	layout->chunk_tokens = CHUNK_TOKENS;
	layout->group_count = 1;
	layout->plane_count = 1;
	layout->groups[0] = (struct layout_group){
		.tokens_per_block = BLOCK_TOKENS,
		.blocks_per_chunk = BLOCKS,
		.block_count = 1000000,
		.window_tokens = WIRE_WINDOW_FULL,
		.plane_count = 1,
		.object_bytes = object_bytes,
	};
	return layout;
}

/* Stands for the hash that the control thread makes. */
static void make_model_key(const struct model_of *model, uint8_t key[32])
{
	uint64_t hash = random_mix(model->tenant * 31 + model->world_size);

	for (const char *c = model->name; *c; c++)
		hash = random_mix(hash ^ (uint8_t)*c);
	for (const char *c = model->dtype; *c; c++)
		hash = random_mix(hash ^ (0x100u + (uint8_t)*c));
	for (unsigned n = 0; n < 4; n++) {
		memcpy(key + 8 * n, &hash, sizeof(hash));
		hash = random_mix(hash + 1);
	}
}

struct handle *handle_make(
	struct client *client, const struct model_of *model, uint32_t rank, uint32_t reader, uint64_t object_bytes)
{
	struct handle *handle = calloc(1, sizeof(*handle));
	struct registration *registration;

	assert_non_null(handle);
	registration = &handle->registration;
	handle->client = client;
	list_add_last(&client->handles, &handle->node);
	registration->connection = &client->connection;
	registration->number = ++client->world->next_registration;
	registration->tenant = model->tenant;
	make_model_key(model, registration->model_key);
	strcpy(registration->model_name, model->name);
	strcpy(registration->dtype, model->dtype);
	registration->world_size = model->world_size;
	registration->readers = model->readers;
	registration->rank = rank;
	registration->reader = reader;
	registration->scheduler = !object_bytes;
	registration->layout = object_bytes ? make_layout(object_bytes) : NULL;
	push_inbox(client->world, MANAGEMENT_REGISTER, registration);
	world_run(client->world);
	assert_true(handle->answered);
	return handle;
}

struct handle *handle_worker(struct client *client)
{
	struct handle *handle = handle_make(client, &plain_model, 0, 0, OBJECT_BYTES);

	assert_int_equal(handle->registration.reply_status, STATUS_OK);
	return handle;
}

struct handle *handle_scheduler(struct client *client)
{
	struct handle *handle = handle_make(client, &plain_model, 0, 0, 0);

	assert_int_equal(handle->registration.reply_status, STATUS_OK);
	return handle;
}

void handle_unregister(struct handle *handle)
{
	push_inbox(handle->client->world, MANAGEMENT_UNREGISTER, &handle->registration);
}

/* ---- chains ---- */

struct chain chain_named(uint64_t seed)
{
	return (struct chain){ .seed = seed, .fork_seed = seed };
}

void chain_digest_of(const struct chain *chain, uint32_t chunk, uint8_t digest[32])
{
	uint64_t seed = chunk < chain->fork ? chain->fork_seed : chain->seed;
	uint64_t word = random_mix(seed * 1000003 + chunk + 1);

	for (unsigned n = 0; n < 4; n++) {
		memcpy(digest + 8 * n, &word, sizeof(word));
		word = random_mix(word + n + 1);
	}
}

/* ---- requests ---- */

struct ask *ask_new(struct handle *handle, uint16_t type, const char *session)
{
	struct ask *ask = calloc(1, sizeof(*ask));
	struct request *request;
	struct session_ref ref;

	assert_non_null(ask);
	request = &ask->request;
	ask->client = handle->client;
	list_add_last(&handle->client->world->asks, &ask->node);
	request->connection = &handle->client->connection;
	request->header.type = type;
	request->header.request_id = ++handle->client->world->next_request;
	strcpy(ask->id, session);
	memset(&ref, 0, sizeof(ref));
	ref.id = (struct wire_text){ .bytes = ask->id, .length = (uint32_t)strlen(session) };
	ref.salt = ask->salt;
	ref.parent = ask->parent;
	switch (type) {
	case WIRE_LOOKUP:
		request->message.lookup = (struct lookup_request){ .registration = handle->registration.number,
			.session = ref };
		break;
	case WIRE_QUERY:
		request->message.query = (struct query_request){ .registration = handle->registration.number,
			.session = ref };
		break;
	case WIRE_RETRIEVE:
	case WIRE_STORE:
		request->message.transfer = (struct transfer_request){ .registration = handle->registration.number,
			.session = ref };
		request->message.transfer.header.type = type;
		break;
	case WIRE_FREE_LOCKS:
		request->message.free_locks = (struct free_locks_request){ .registration = handle->registration.number,
			.session = ref };
		break;
	case WIRE_END_SESSION:
		request->message.end_session = (struct end_session_request){
			.registration = handle->registration.number, .session = ref
		};
		break;
	case WIRE_CLEAR:
		request->message.clear = (struct clear_request){ .registration = handle->registration.number };
		break;
	default:
		break;
	}
	return ask;
}

static struct session_ref *ref_of(struct ask *ask)
{
	switch (ask->request.header.type) {
	case WIRE_LOOKUP:
		return &ask->request.message.lookup.session;
	case WIRE_QUERY:
		return &ask->request.message.query.session;
	case WIRE_FREE_LOCKS:
		return &ask->request.message.free_locks.session;
	case WIRE_END_SESSION:
		return &ask->request.message.end_session.session;
	default:
		return &ask->request.message.transfer.session;
	}
}

void ask_with_chain(struct ask *ask, const struct chain *chain, uint32_t first, uint32_t count)
{
	struct session_ref *ref = ref_of(ask);

	free(ask->digests);
	ask->digests = calloc(count ? count : 1, 32);
	assert_non_null(ask->digests);
	for (uint32_t n = 0; n < count; n++)
		chain_digest_of(chain, first + n, ask->digests + 32 * (size_t)n);
	if (first)
		chain_digest_of(chain, first - 1, ask->parent);
	else
		memcpy(ask->parent, digest_seed, 32);
	ref->digests = ask->digests;
	ref->first_chunk = first;
	ref->digest_count = count;
}

void ask_with_salt(struct ask *ask, uint8_t salt)
{
	memset(ask->salt, salt, sizeof(ask->salt));
}

void ask_send(struct ask *ask)
{
	ask->client->outstanding++;
	push_management(ask->client->world, TO_MANAGEMENT_REQUEST, &ask->request);
}

struct ask *ask_lookup(struct handle *handle, const char *session, const struct chain *chain, uint32_t count)
{
	struct ask *ask = ask_new(handle, WIRE_LOOKUP, session);

	if (chain)
		ask_with_chain(ask, chain, 0, count);
	else
		ask->request.message.lookup.chunk_count = count;
	ask_send(ask);
	return ask;
}

struct ask *ask_transfer(struct handle *handle, uint16_t type, const char *session, const struct chain *chain,
	uint32_t first, uint32_t count)
{
	struct ask *ask = ask_prepare_transfer(handle, type, session, chain, first, count);

	ask_send(ask);
	return ask;
}

struct ask *ask_prepare_transfer(struct handle *handle, uint16_t type, const char *session, const struct chain *chain,
	uint32_t first, uint32_t count)
{
	struct ask *ask = ask_new(handle, type, session);
	struct transfer_request *message = &ask->request.message.transfer;

	ask_with_chain(ask, chain, 0, first + count);
	message->first_chunk = first;
	message->chunk_count = count;
	message->group_count = 1;
	message->run_count = 1;
	ask->group_runs = 1;
	ask->run.count = count * BLOCKS;
	message->group_runs = (const uint8_t *)&ask->group_runs;
	message->runs = (const uint8_t *)&ask->run;
	ask->chain = *chain;
	return ask;
}

struct ask *ask_free_locks(
	struct handle *handle, const char *session, uint32_t first, uint32_t count, uint32_t rank, uint32_t reader)
{
	struct ask *ask = ask_new(handle, WIRE_FREE_LOCKS, session);

	ask->request.message.free_locks.first_chunk = first;
	ask->request.message.free_locks.chunk_count = count;
	ask->request.message.free_locks.rank = rank;
	ask->request.message.free_locks.reader = reader;
	ask_send(ask);
	return ask;
}

struct ask *ask_end(struct handle *handle, const char *session)
{
	struct ask *ask = ask_new(handle, WIRE_END_SESSION, session);

	ask_send(ask);
	return ask;
}

struct ask *ask_query(struct handle *handle, const char *session, uint64_t timeout_ns)
{
	struct ask *ask = ask_new(handle, WIRE_QUERY, session);

	ask->request.message.query.timeout_ns = timeout_ns;
	ask_send(ask);
	return ask;
}

struct ask *ask_cancel(struct handle *handle, const struct ask *target)
{
	struct ask *ask = ask_new(handle, WIRE_CANCEL, "");

	ask->request.message.cancel.target = target->request.header.request_id;
	ask_send(ask);
	return ask;
}

void ask_free(struct ask *ask)
{
	assert_true(ask->replied);
	list_remove(&ask->node);
	free(ask->digests);
	free(ask);
}

uint32_t ask_expect(struct ask *ask, uint16_t status)
{
	uint32_t first = ask->request.reply.first;

	assert_true(ask->replied);
	if (ask->request.reply.status != status)
		print_message("%s: %s\n", status_name(ask->request.reply.status), ask->request.reply.text);
	assert_int_equal(ask->request.reply.status, status);
	ask_free(ask);
	return first;
}

static uint32_t run_expect(struct ask *ask, uint16_t status)
{
	world_run(ask->client->world);
	return ask_expect(ask, status);
}

uint32_t do_lookup(
	struct handle *handle, const char *session, const struct chain *chain, uint32_t count, uint16_t status)
{
	return run_expect(ask_lookup(handle, session, chain, count), status);
}

uint32_t do_store(struct handle *handle, const char *session, const struct chain *chain, uint32_t first, uint32_t count,
	uint16_t status)
{
	return run_expect(ask_transfer(handle, WIRE_STORE, session, chain, first, count), status);
}

uint32_t do_retrieve(struct handle *handle, const char *session, const struct chain *chain, uint32_t first,
	uint32_t count, uint16_t status)
{
	return run_expect(ask_transfer(handle, WIRE_RETRIEVE, session, chain, first, count), status);
}

uint32_t do_free(
	struct handle *handle, const char *session, uint32_t first, uint32_t count, uint32_t rank, uint16_t status)
{
	return run_expect(ask_free_locks(handle, session, first, count, rank, 0), status);
}

void do_end(struct handle *handle, const char *session)
{
	run_expect(ask_end(handle, session), STATUS_OK);
}
