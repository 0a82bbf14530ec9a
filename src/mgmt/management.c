#include "mgmt/management.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/random.h"
#include "mgmt/state.h"

/* ---- create and destroy ---- */

static void init_lists(struct management *management)
{
	list_init(&management->models);
	list_init(&management->idle_models);
	list_init(&management->peers);
	list_init(&management->closing);
	list_init(&management->unheld);
	list_init(&management->chores);
	list_init(&management->running);
	list_init(&management->publishing);
	list_init(&management->scans);
	list_init(&management->returning);
	list_init(&management->clears);
	list_init(&management->pin_jobs);
	list_init(&management->pins);
}

static int init_pools(struct management *management)
{
	const struct management_options *options = &management->options;
	/* Each session's last segment may be filled by one chunk only. */
	uint32_t segments = options->chain_chunks_max / SEGMENT_CHUNKS + SESSION_SEGMENTS;
	int error = pool_init(&management->models_pool, sizeof(struct model), MODELS_MAX);

	if (!error)
		error = pool_init(&management->sessions_pool, sizeof(struct session), options->sessions_max);
	if (!error)
		error = pool_init(&management->segments_pool, sizeof(struct segment), segments);
	if (!error && options->large_requests)
		error = pool_init(&management->larges_pool, sizeof(struct large_parts), options->large_requests);
	if (!error)
		error = pool_init(&management->peers_pool, sizeof(struct peer), options->connections_max);
	if (!error && options->prefetch)
		error = pool_init(&management->jobs_pool, sizeof(struct prefetch_job), PREFETCH_JOBS_MAX);
	return error;
}

static int init_rings(struct management *management)
{
	uint64_t capacity = 16 * (uint64_t)management->options.connections_max + 256;
	int error = ring_init(&management->inbox, (uint32_t)kvr_min_u64(capacity, RING_CAPACITY_MAX));

	return error ? error : ring_init(&management->outbox, (uint32_t)kvr_min_u64(capacity, RING_CAPACITY_MAX));
}

static int init_arrays(struct management *management)
{
	const struct management_options *options = &management->options;
	size_t mailboxes = options->worker_count * sizeof(struct mailbox *);
	size_t lkeys = (size_t)options->worker_count * options->area_count * sizeof(uint32_t);
	uint64_t buckets = 64;

	while (buckets < options->sessions_max)
		buckets *= 2;
	management->bucket_mask = buckets - 1;
	management->mailboxes = malloc(mailboxes);
	management->area_lkeys = malloc(lkeys);
	management->worker_areas = calloc(options->worker_count, sizeof(uint32_t));
	management->buckets = calloc(buckets, sizeof(struct session *));
	management->clear_keys = calloc(MODELS_MAX, sizeof(*management->clear_keys));
	if (fault_point("management/arrays") || !management->clear_keys || !management->mailboxes ||
		!management->area_lkeys || !management->worker_areas || !management->buckets)
		return -ENOMEM;
	memcpy(management->mailboxes, options->mailboxes, mailboxes);
	memcpy(management->area_lkeys, options->area_lkeys, lkeys);
	if (options->worker_areas)
		memcpy(management->worker_areas, options->worker_areas, options->worker_count * sizeof(uint32_t));
	return 0;
}

static bool options_valid(const struct management_options *options)
{
	return options->cache && options->l1 && options->mailboxes && options->worker_count && options->area_lkeys &&
		options->area_count && options->connections_max && options->sessions_max && options->chunk_tokens;
}

int management_create(const struct management_options *options, struct management **pointer)
{
	struct management *management;
	int error;

	*pointer = NULL;
	if (!options_valid(options))
		return -EINVAL;
	management = fault_point("management/struct")
		? NULL
		: aligned_alloc(KVR_CACHE_LINE, kvr_round_up(sizeof(*management), KVR_CACHE_LINE));
	if (!management)
		return -ENOMEM;
	memset(management, 0, sizeof(*management));
	management->options = *options;
	management->cache = options->cache;
	management->l1 = options->l1;
	if (options->prefetch)
		management->engine = *options->prefetch;
	init_lists(management);
	wheel_init(&management->wheel, 0);
	error = init_arrays(management);
	if (!error)
		error = init_pools(management);
	if (!error)
		error = init_rings(management);
	if (!error)
		error = quota_init(management);
	if (!error && options->seed) {
		management->hash_key[0] = random_mix(options->seed);
		management->hash_key[1] = random_mix(options->seed + 1);
	} else if (!error) {
		error = random_secret(management->hash_key, sizeof(management->hash_key));
	}
	if (error) {
		log_error("management: %u sessions, %u chain chunks, %u connections: %s", options->sessions_max,
			options->chain_chunks_max, options->connections_max, strerror(-error));
		management_destroy(&management);
		return error;
	}
	*pointer = management;
	return 0;
}

void management_destroy(struct management **pointer)
{
	struct management *management = *pointer;

	*pointer = NULL;
	if (!management)
		return;
	ring_fini(&management->inbox);
	ring_fini(&management->outbox);
	pool_fini(&management->models_pool);
	pool_fini(&management->sessions_pool);
	pool_fini(&management->segments_pool);
	pool_fini(&management->larges_pool);
	pool_fini(&management->peers_pool);
	pool_fini(&management->jobs_pool);
	free(management->clear_keys);
	free(management->mailboxes);
	free(management->area_lkeys);
	free(management->worker_areas);
	free(management->buckets);
	free(management->quotas);
	pins_free(management);
	free(management);
}

struct ring *management_inbox(struct management *management)
{
	return &management->inbox;
}

struct ring *management_outbox(struct management *management)
{
	return &management->outbox;
}

const struct management_counters *management_counters(const struct management *management)
{
	return &management->counters;
}

/* ---- messages ---- */

static void memory_came(struct management *management, void *memory, uint64_t bytes)
{
	management->memory_asked = false;
	if (!memory)
		management->memory_retry_ns = management->now_ns + MEMORY_RETRY_NS;
	cache_supply_memory(management->cache, memory, bytes);
	/* Their timers would try again, too: this is sooner. */
	list_for_each_safe(node, &management->publishing)
		request_cut_short(management, KVR_CONTAINER_OF(node, struct request, waiting), STATUS_OK, "");
}

static void drain(struct management *management)
{
	management->draining = true;
	search_hurry_all(management);
	if (management->engine.hurry)
		management->engine.hurry(management->engine.context);
}

static void handle_control(struct management *management, const struct ring_message *message)
{
	void *object = (void *)(uintptr_t)message->word[0];

	switch (message->kind) {
	case MANAGEMENT_ATTACH:
		connection_attach(management, object);
		break;
	case MANAGEMENT_REGISTER:
		registration_add(management, object);
		break;
	case MANAGEMENT_UNREGISTER:
		registration_ask_back(management, object);
		break;
	case MANAGEMENT_DETACH:
		connection_detach(management, object);
		break;
	case MANAGEMENT_STATUS:
		status_fill(management, object);
		control_push(management, CONTROL_STATUS_DONE, object, 0);
		break;
	case MANAGEMENT_CLEAR:
		clear_job_add(management, object);
		break;
	case MANAGEMENT_QUOTA:
		quota_job_run(management, object);
		control_push(management, CONTROL_QUOTA_DONE, object, 0);
		break;
	case MANAGEMENT_PIN:
	case MANAGEMENT_UNPIN:
		pin_job_add(management, object);
		break;
	case MANAGEMENT_DRAIN:
		drain(management);
		break;
	case MANAGEMENT_MEMORY:
		memory_came(management, object, message->word[1]);
		break;
	case MANAGEMENT_RAIL_OPEN:
		connection_rail_open(management, object, message->word[1]);
		break;
	case MANAGEMENT_RAIL_CLOSE:
		connection_rail_close(management, object, message->word[1]);
		break;
	case MANAGEMENT_FORGET:
		connection_forget(management, object, message->word[1]);
		break;
	default:
		log_error("management: unknown message %u of the control thread", message->kind);
	}
}

static bool read_control(struct management *management)
{
	struct ring_message message;
	bool busy = false;

	for (unsigned n = 0; n < STEP_MAIL && ring_space(&management->outbox) > OUTBOX_RESERVE; n++) {
		if (!ring_pop(&management->inbox, &message))
			break;
		handle_control(management, &message);
		busy = true;
	}
	return busy;
}

static void handle_worker(struct management *management, const struct ring_message *message)
{
	void *object = (void *)(uintptr_t)message->word[0];

	switch (message->kind) {
	case TO_MANAGEMENT_REQUEST:
		request_arrived(management, object);
		break;
	case TO_MANAGEMENT_TRANSFER_DONE:
		transfer_done(management, object);
		break;
	case TO_MANAGEMENT_LOST:
		connection_lost(management, object);
		break;
	case TO_MANAGEMENT_CLOSED:
		connection_closed(management, object);
		break;
	case TO_MANAGEMENT_RAIL_CLOSED:
		connection_rail_closed(management, object);
		break;
	case TO_MANAGEMENT_FORGOTTEN:
		connection_forgotten(management, object);
		break;
	case TO_MANAGEMENT_PARTS:
		transfer_give_parts(management, object);
		break;
	default:
		log_error("management: unknown message %u of a worker", message->kind);
	}
}

static bool read_worker(struct management *management, uint32_t worker)
{
	struct ring_message message;
	bool busy = false;

	for (unsigned n = 0; n < STEP_REQUESTS && management->budget > 0; n++) {
		if (ring_space(&management->outbox) <= OUTBOX_RESERVE ||
			!ring_pop(&management->mailboxes[worker]->to_management, &message))
			break;
		handle_worker(management, &message);
		busy = true;
	}
	return busy;
}

static bool read_workers(struct management *management)
{
	uint32_t count = management->options.worker_count;
	bool busy = false;

	for (uint32_t n = 0; n < count; n++) {
		uint32_t worker = management->worker_turn + n;

		busy |= read_worker(management, worker < count ? worker : worker - count);
	}
	if (++management->worker_turn == count)
		management->worker_turn = 0;
	return busy;
}

/* ---- the turn ---- */

static bool feed_table(struct management *management)
{
	uint64_t bytes;
	void *garbage;

	cache_grow_step(management->cache, STEP_GROWTH);
	if (ring_space(&management->outbox) <= OUTBOX_RESERVE)
		return false;
	garbage = cache_take_garbage(management->cache);
	if (garbage)
		control_push(management, CONTROL_GARBAGE, garbage, 0);
	if (management->memory_asked || management->now_ns < management->memory_retry_ns)
		return garbage != NULL;
	bytes = cache_wants_memory(management->cache);
	if (bytes) {
		struct ring_message message = { .kind = CONTROL_WANT_MEMORY, .word = { bytes } };

		management->memory_asked = ring_push(&management->outbox, &message);
	}
	return garbage || bytes;
}

static bool engine_idle(const struct management *management)
{
	return !management->engine.idle || management->engine.idle(management->engine.context);
}

static bool tell_drained(struct management *management)
{
	if (!management->draining || management->drained_told || management->in_flight ||
		ring_space(&management->outbox) <= OUTBOX_RESERVE || !engine_idle(management))
		return false;
	management->drained_told = true;
	control_push(management, CONTROL_DRAINED, NULL, 0);
	return true;
}

static bool work_left(const struct management *management)
{
	return !list_empty(&management->chores) || !list_empty(&management->running) ||
		!list_empty(&management->closing) || !list_empty(&management->scans) ||
		!list_empty(&management->returning) || !list_empty(&management->clears) ||
		!list_empty(&management->pin_jobs) || cache_evict_due(management->cache);
}

static bool rings_empty(struct management *management)
{
	if (!ring_empty(&management->inbox))
		return false;
	for (uint32_t n = 0; n < management->options.worker_count; n++)
		if (!ring_empty(&management->mailboxes[n]->to_management))
			return false;
	return true;
}

/* Nothing was left to do, and nothing has come since: a worker that the same thread steps polls the sooner again. */
static bool may_rest(struct management *management, uint64_t now_ns)
{
	return now_ns < management->rest_until_ns && rings_empty(management);
}

static void rest(struct management *management)
{
	management->rest_until_ns = kvr_min_u64(management->now_ns + REST_NS, management_next_ns(management));
}

bool management_step(struct management *management, uint64_t now_ns)
{
	bool busy = false;

	if (may_rest(management, now_ns)) {
		COUNT(management, idle_turns_total, 1);
		return false;
	}
	management->now_ns = now_ns;
	management->rest_until_ns = 0;
	management->budget = STEP_CHUNKS;
	busy |= read_control(management);
	/* What is long gets its slices first, and leaves half of the turn to what is new. */
	busy |= session_run_all(management, STEP_CHUNKS * 3 / 4);
	busy |= request_run_all(management, STEP_CHUNKS / 2);
	busy |= read_workers(management);
	if (management->engine.step)
		busy |= management->engine.step(management->engine.context, now_ns);
	busy |= wheel_step(&management->wheel, now_ns, STEP_TIMERS) > 0;
	busy |= connection_close_all(management);
	busy |= registration_scan_step(management);
	busy |= registration_return_step(management);
	busy |= clear_job_step(management);
	busy |= pin_job_step(management);
	busy |= cache_evict_step(management->cache, STEP_EVICTIONS) > 0;
	busy |= feed_table(management);
	busy |= tell_drained(management);
	model_idle_step(management);
	busy |= work_left(management);
	if (busy)
		COUNT(management, busy_turns_total, 1);
	else
		COUNT(management, idle_turns_total, 1);
	if (!busy && (!management->engine.step || management->engine.next_ns))
		rest(management);
	return busy;
}

uint64_t management_next_ns(const struct management *management)
{
	uint64_t next = wheel_next_ns(&management->wheel);

	if (work_left(management))
		return management->now_ns;
	if (!management->memory_asked && cache_wants_memory(management->cache))
		next = kvr_min_u64(next, kvr_max_u64(management->memory_retry_ns, management->now_ns));
	if (management->engine.next_ns)
		next = kvr_min_u64(next, management->engine.next_ns(management->engine.context, management->now_ns));
	return next;
}

bool management_quiet(struct management *management)
{
	return !work_left(management) && rings_empty(management);
}
