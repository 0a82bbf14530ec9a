/* server.c - a server put together from its parts in the order of one table, and taken apart in reverse. */
#include "mgmt/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/helper.h"
#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "mgmt/prefetch_l2.h"

struct server {
	struct server_options options;
	uint64_t boot_id;
	struct server_info info;
	struct l1 *l1;
	struct cache *cache;
	struct l2 *l2;
	struct verbs_device *devices[SERVER_WORKERS_MAX + WIRE_RAILS_MAX]; /* of workers and rails, each once */
	uint32_t device_count;
	struct ibv_mr **area_regions; /* [device * area_count + area] */
	uint32_t *area_lkeys;         /* [worker * area_count + area] */
	uint32_t *rail_lkeys; /* of each worker: [device * area_count + area], its own device, then the others */
	uint16_t *rail_costs; /* as these */
	struct worker *workers[SERVER_WORKERS_MAX];
	struct management *management;
	struct control *control;
};

void server_options_default(struct server_options *options)
{
	memset(options, 0, sizeof(*options));
	options->chunk_tokens = 256;
	options->connections_max = 64;
	options->credits = 32;
	options->sessions_max = 4096;
	options->chain_chunks_max = 262144;
	options->large_requests = 16;
	options->large_buffers = 8;
	options->message_bytes_max = 1u << 20;
	options->send_depth = 256;
	options->chunks_initial = 65536;
	options->evict_high_permille = 1000;
	options->evict_low_permille = 1000;
	options->lock_ttl_ns = 300 * KVR_SECOND;
	options->session_ttl_ns = 600 * KVR_SECOND;
	options->registration_grace_ns = 60 * KVR_SECOND;
	options->handshake_ns = 5 * KVR_SECOND;
	options->helper_threads = 1;
	options->l2_deadline_ns = 2 * KVR_SECOND;
	options->version = "kvraild";
}

/* Names are given out as the control thread knows them; tenants never change while the server runs. */
static const char *server_tenant_name(void *context, uint32_t tenant)
{
	const struct server *server = context;

	return tenant < server->options.tenant_count ? server->options.tenants[tenant].name : "";
}

static int server_init_identity(struct server *server)
{
	const struct server_options *options = &server->options;
	int error = 0;

	server->boot_id = options->boot_id;
	while (!error && server->boot_id == 0)
		error = random_secret(&server->boot_id, sizeof(server->boot_id));
	server->info.version = WIRE_VERSION_MAX;
	server->info.features = FEATURE_FLAG_PER_LAYER | FEATURE_SEVERAL_MESSAGES;
	server->info.chunk_tokens = options->chunk_tokens;
	server->info.chunks_max = WIRE_CHUNKS_MAX;
	server->info.message_bytes_max = options->message_bytes_max;
	server->info.inline_bytes = WIRE_INLINE_BYTES;
	server->info.credits = options->credits;
	server->info.lock_seconds = (uint32_t)(options->lock_ttl_ns / KVR_SECOND);
	server->info.heartbeat_ns = options->silence_ns;
	server->info.server.bytes = options->version;
	server->info.server.length = (uint32_t)strlen(options->version);
	return error;
}

static int server_init_l1(struct server *server)
{
	int error = l1_create(server->options.areas, server->options.area_count, &server->l1);

	if (!error && server->options.area_distances)
		l1_set_distances(server->l1, server->options.area_distances);
	return error;
}

static void server_fini_l1(struct server *server)
{
	l1_destroy(&server->l1);
}

static int server_init_cache(struct server *server)
{
	struct cache_options options;

	memset(&options, 0, sizeof(options));
	options.l1 = server->l1;
	options.accounts = server->options.tenant_count;
	options.spaces_max = server->options.sessions_max + 1024;
	options.chunks_initial = server->options.chunks_initial;
	options.seed = server->options.seed;
	options.high_permille = server->options.evict_high_permille;
	options.low_permille = server->options.evict_low_permille;
	options.eviction = server->options.eviction;
	if (server->options.keep)
		options.keeper = keep_keeper(server->options.keep);
	return cache_create(&options, &server->cache);
}

static void server_fini_cache(struct server *server)
{
	cache_destroy(&server->cache);
}

static int server_init_l2(struct server *server)
{
	struct l2_options options;

	if (!server->options.l2)
		return 0;
	options = *server->options.l2;
	options.cache = server->cache;
	options.l1 = server->l1;
	options.callbacks = prefetch_l2_callbacks;
	options.seed = server->options.boot_id;
	options.sum_threads = server->options.helper_threads;
	return l2_create(&options, &server->l2);
}

static void server_fini_l2(struct server *server)
{
	l2_destroy(&server->l2);
}

static uint32_t server_device_index(const struct server *server, const struct verbs_device *device)
{
	uint32_t i = 0;

	while (i < server->device_count && server->devices[i] != device)
		i++;
	return i;
}

static void server_add_device(struct server *server, struct verbs_device *device)
{
	if (server_device_index(server, device) == server->device_count)
		server->devices[server->device_count++] = device;
}

static void server_fini_areas(struct server *server)
{
	uint32_t areas = server->options.area_count;

	for (uint32_t i = 0; server->area_regions && i < server->device_count * areas; i++) {
		if (server->area_regions[i])
			server->devices[i / areas]->driver->deregister_memory(server->area_regions[i]);
	}
	free(server->area_regions);
	free(server->area_lkeys);
	free(server->rail_lkeys);
	free(server->rail_costs);
}

/* All areas with one device: pinning takes a second for some gigabytes, so devices do it side by side. */
struct device_areas {
	struct helper_job job;
	struct server *server;
	uint32_t device;
	struct helper *helper;
};

static void device_areas_run(struct helper_job *job)
{
	struct device_areas *mine = KVR_CONTAINER_OF(job, struct device_areas, job);
	const struct server_options *options = &mine->server->options;
	struct verbs_device *device = mine->server->devices[mine->device];
	struct ibv_mr **regions = &mine->server->area_regions[mine->device * options->area_count];

	job->result = 0;
	for (uint32_t i = 0; i < options->area_count && !job->result; i++) {
		const struct l1_area *area = &options->areas[i];
		uint64_t begin_ns = clock_now_ns();
		char size[TEXT_SHORT], time[TEXT_SHORT];

		job->result = device->driver->register_memory(
			device, area->address, area->bytes, IBV_ACCESS_LOCAL_WRITE, &regions[i]);
		if (job->result)
			log_error("L1 area %u (%llu bytes) can't be registered with %s: %s", i,
				(unsigned long long)area->bytes, device->name, strerror(-job->result));
		else if (clock_now_ns() - begin_ns > KVR_SECOND)
			log_info("L1 area %u of %u, %s, is registered with %s after %s", i + 1, options->area_count,
				text_size(size, area->bytes), device->name, text_time(time, clock_now_ns() - begin_ns));
	}
}

/* 0, or the error of the first device that failed. */
static int server_register_areas(struct server *server)
{
	uint32_t count = 0;
	struct device_areas *all = calloc(server->device_count, sizeof(*all));
	int error = all ? 0 : -ENOMEM;

	for (uint32_t i = 0; !error && i < server->device_count; i++) {
		struct device_areas *one = &all[count];

		one->job.run = device_areas_run;
		one->server = server;
		one->device = i;
		error = helper_create("kvr-register", server->options.helper_threads, 1, &one->helper);
		if (!error && helper_submit(one->helper, &one->job))
			count++;
	}
	for (uint32_t i = 0; i < count; i++) {
		helper_destroy(&all[i].helper); /* runs it to its end */
		if (!error)
			error = all[i].job.result;
	}
	free(all);
	return error;
}

static uint32_t *server_rail_row(const struct server *server, uint32_t worker, uint32_t row)
{
	return &server->rail_lkeys[((size_t)worker * (WIRE_RAILS_MAX + 1) + row) * server->options.area_count];
}

/* The keys and costs of one of a worker's devices. */
static void server_fill_row(struct server *server, uint32_t worker, uint32_t row, const struct verbs_device *device)
{
	uint32_t areas = server->options.area_count, index = server_device_index(server, device), rail = 0;
	uint32_t *lkeys = server_rail_row(server, worker, row);
	uint16_t *costs = &server->rail_costs[lkeys - server->rail_lkeys];

	while (rail < server->options.rail_count && server->options.rails[rail] != device)
		rail++;
	for (uint32_t i = 0; i < areas; i++) {
		lkeys[i] = server->area_regions[(size_t)index * areas + i]->lkey;
		costs[i] = server->options.rail_costs && rail < server->options.rail_count
			? server->options.rail_costs[(size_t)rail * areas + i]
			: 1000;
	}
}

/* The devices that a worker's connections may have further queue pairs on. */
static uint32_t server_rails_of(const struct server *server, uint32_t worker, struct verbs_device **rails)
{
	const struct server_options *options = &server->options;
	const struct verbs_device *home = options->devices[worker];
	uint32_t count = 0;

	for (uint32_t i = 0; i < options->rail_count && home->driver->several_rails; i++) {
		if (options->rails[i] != home && options->rails[i]->driver == home->driver &&
			count < WIRE_RAILS_MAX - 1)
			rails[count++] = options->rails[i];
	}
	return count;
}

static void server_fill_keys(struct server *server, uint32_t worker)
{
	struct verbs_device *rails[WIRE_RAILS_MAX];
	uint32_t count = server_rails_of(server, worker, rails);

	server_fill_row(server, worker, 0, server->options.devices[worker]);
	memcpy(&server->area_lkeys[(size_t)worker * server->options.area_count], server_rail_row(server, worker, 0),
		server->options.area_count * sizeof(uint32_t));
	for (uint32_t i = 0; i < count; i++)
		server_fill_row(server, worker, 1 + i, rails[i]);
}

/* L1 is registered for local access only: no client ever holds a key to it. */
static int server_init_areas(struct server *server)
{
	size_t areas = server->options.area_count, workers = server->options.worker_count;
	size_t rows = workers * (WIRE_RAILS_MAX + 1);
	int error = -ENOMEM;

	server_add_device(server, server->options.devices[0]);
	for (uint32_t i = 1; i < workers; i++)
		server_add_device(server, server->options.devices[i]);
	for (uint32_t i = 0; i < server->options.rail_count; i++)
		server_add_device(server, server->options.rails[i]);
	server->area_regions = calloc(server->device_count * areas, sizeof(struct ibv_mr *));
	server->area_lkeys = calloc(workers * areas, sizeof(uint32_t));
	server->rail_lkeys = calloc(rows * areas, sizeof(uint32_t));
	server->rail_costs = calloc(rows * areas, sizeof(uint16_t));
	if (!server->area_regions || !server->area_lkeys || !server->rail_lkeys || !server->rail_costs ||
		fault_point("server_create/areas"))
		goto fail;
	error = server_register_areas(server);
	if (error)
		goto fail;
	for (uint32_t i = 0; i < workers; i++)
		server_fill_keys(server, i);
	return 0;
fail:
	server_fini_areas(server);
	return error;
}

static void server_fini_workers(struct server *server)
{
	for (uint32_t i = 0; i < server->options.worker_count; i++)
		worker_destroy(&server->workers[i]);
}

static void server_before_worker(const struct server *server, uint32_t worker)
{
	if (server->options.before_worker)
		server->options.before_worker(server->options.before_worker_context, worker);
}

static int server_init_workers(struct server *server)
{
	for (uint32_t i = 0; i < server->options.worker_count; i++) {
		struct worker_options options;
		int error;

		server_before_worker(server, i);
		memset(&options, 0, sizeof(options));
		options.device = server->options.devices[i];
		options.index = i;
		options.rail_count = server_rails_of(server, i, options.rails);
		options.area_lkeys = server_rail_row(server, i, 0);
		options.area_costs = &server->rail_costs[options.area_lkeys - server->rail_lkeys];
		options.area_count = server->options.area_count;
		options.connections_max = server->options.connections_max;
		options.credits = server->options.credits;
		options.large_buffers = server->options.large_buffers;
		options.message_bytes_max = server->options.message_bytes_max;
		options.send_depth = server->options.send_depth;
		options.boot_id = server->boot_id;
		options.info = server->info;
		options.tenant_name = server_tenant_name;
		options.context = server;
		error = worker_create(&options, &server->workers[i]);
		if (error) {
			server_before_worker(server, server->options.worker_count);
			server_fini_workers(server);
			return error;
		}
	}
	server_before_worker(server, server->options.worker_count);
	return 0;
}

static int server_init_management(struct server *server)
{
	struct mailbox *mailboxes[SERVER_WORKERS_MAX];
	struct management_options options;
	struct prefetch_engine engine;
	struct tenant_quota quotas[CACHE_ACCOUNTS_MAX];

	for (uint32_t i = 0; i < server->options.worker_count; i++)
		mailboxes[i] = worker_mailbox(server->workers[i]);
	memset(&options, 0, sizeof(options));
	options.cache = server->cache;
	options.l1 = server->l1;
	options.mailboxes = mailboxes;
	options.worker_count = server->options.worker_count;
	for (uint32_t i = 0; i < server->options.tenant_count; i++)
		quotas[i] = server->options.tenants[i].quota;
	options.quotas = quotas;
	options.default_quota = server->options.default_quota;
	options.pinned_bytes_max = server->options.pinned_bytes_max;
	options.area_lkeys = server->area_lkeys;
	options.area_count = server->options.area_count;
	options.worker_areas = server->options.worker_areas;
	options.connections_max = server->options.connections_max;
	options.sessions_max = server->options.sessions_max;
	options.chain_chunks_max = server->options.chain_chunks_max;
	options.large_requests = server->options.large_requests;
	options.chunk_tokens = server->options.chunk_tokens;
	options.seed = server->options.seed;
	options.lock_ttl_ns = server->options.lock_ttl_ns;
	options.session_ttl_ns = server->options.session_ttl_ns;
	options.silence_ns = server->options.silence_ns;
	options.registration_grace_ns = server->options.registration_grace_ns;
	if (server->l2) {
		prefetch_l2_engine(server->l2, server->options.l2_deadline_ns, &engine);
		options.prefetch = &engine;
	}
	options.keep = server->options.keep;
	options.tenant_name = server_tenant_name;
	options.context = server;
	return management_create(&options, &server->management);
}

static void server_fini_management(struct server *server)
{
	management_destroy(&server->management);
}

/* A model of a tenant that is not configured any more has nobody to serve. */
static uint32_t server_take_model(void *context, const struct keep_model *model)
{
	const struct server *server = context;

	for (uint32_t i = 0; i < server->options.tenant_count; i++) {
		if (strcmp(server->options.tenants[i].name, model->tenant) == 0)
			return management_take_model(server->management, model, i);
	}
	return UINT32_MAX;
}

static int server_init_kept(struct server *server)
{
	int error;

	if (!server->options.keep)
		return 0;
	error = keep_restore(server->options.keep, server->l1, server->cache, server_take_model, server);
	if (!error)
		management_tell_quotas(server->management);
	return error;
}

static int server_init_control(struct server *server)
{
	struct control_options options;

	memset(&options, 0, sizeof(options));
	options.management = server->management;
	options.workers = server->workers;
	options.worker_count = server->options.worker_count;
	options.tenants = server->options.tenants;
	options.tenant_count = server->options.tenant_count;
	options.trust_tcp = server->options.trust_tcp;
	options.require_tenant = server->options.require_tenant;
	options.connections_max = server->options.connections_max;
	options.boot_id = server->boot_id;
	options.info = server->info;
	options.helper_threads = server->options.helper_threads;
	options.handshake_ns = server->options.handshake_ns;
	options.seed = server->options.seed;
	return control_create(&options, &server->control);
}

static void server_fini_control(struct server *server)
{
	control_destroy(&server->control);
}

static const struct {
	const char *name;
	int (*init)(struct server *server);
	void (*fini)(struct server *server);
} server_parts[] = {
	{ "identity", server_init_identity, NULL },
	{ "L1", server_init_l1, server_fini_l1 },
	{ "chunk table", server_init_cache, server_fini_cache },
	{ "memory regions of L1", server_init_areas, server_fini_areas },
	{ "workers", server_init_workers, server_fini_workers },
	{ "L2", server_init_l2, server_fini_l2 },
	{ "management core", server_init_management, server_fini_management },
	{ "what was in L1", server_init_kept, NULL },
	{ "control", server_init_control, server_fini_control },
};

static void server_fini_parts(struct server *server, unsigned count)
{
	while (count-- > 0) {
		if (server_parts[count].fini)
			server_parts[count].fini(server);
	}
}

static void close_adapters(const struct l2_options *options)
{
	for (uint32_t i = 0; options && i < options->adapter_count; i++)
		options->adapters[i]->driver->close(options->adapters[i]);
}

static int server_make(const struct server_options *options, struct server **out, bool *took_adapters)
{
	struct server *server;

	*out = NULL;
	*took_adapters = false;
	for (uint32_t i = 0; i < options->worker_count && i < SERVER_WORKERS_MAX; i++) {
		if (options->worker_areas[i] >= options->area_count)
			return -EINVAL;
	}
	if (options->worker_count == 0 || options->worker_count > SERVER_WORKERS_MAX || options->area_count == 0 ||
		options->rail_count > WIRE_RAILS_MAX || options->tenant_count == 0 ||
		options->tenant_count > CACHE_ACCOUNTS_MAX)
		return -EINVAL;
	server = fault_point("server_create/object") ? NULL : calloc(1, sizeof(*server));
	if (!server)
		return -ENOMEM;
	server->options = *options;
	for (unsigned i = 0; i < KVR_COUNT_OF(server_parts); i++) {
		int error = server_parts[i].init(server);

		if (error) {
			log_error("server: %s could not be made: %s", server_parts[i].name, strerror(-error));
			server_fini_parts(server, i);
			free(server);
			return error;
		}
		*took_adapters = server->l2 != NULL;
	}
	*out = server;
	return 0;
}

int server_create(const struct server_options *options, struct server **out)
{
	bool took_adapters;
	int error = server_make(options, out, &took_adapters);

	if (error && !took_adapters)
		close_adapters(options->l2);
	return error;
}

void server_destroy(struct server **pointer)
{
	struct server *server = *pointer;

	if (!server)
		return;
	server_fini_parts(server, KVR_COUNT_OF(server_parts));
	free(server);
	*pointer = NULL;
}

struct control *server_control(struct server *server)
{
	return server->control;
}

struct management *server_management(struct server *server)
{
	return server->management;
}

struct worker *server_worker(struct server *server, uint32_t index)
{
	return server->workers[index];
}

uint32_t server_worker_count(const struct server *server)
{
	return server->options.worker_count;
}

struct cache *server_cache(struct server *server)
{
	return server->cache;
}

struct l1 *server_l1(struct server *server)
{
	return server->l1;
}

struct l2 *server_l2(struct server *server)
{
	return server->l2;
}

uint64_t server_boot_id(const struct server *server)
{
	return server->boot_id;
}

bool server_step(struct server *server, uint64_t now_ns)
{
	bool busy = control_step(server->control, now_ns);

	for (uint32_t i = 0; i < server->options.worker_count; i++)
		busy |= worker_step(server->workers[i], now_ns);
	return management_step(server->management, now_ns) || busy;
}

int server_verify(struct server *server, bool expect_idle)
{
	int error = l1_verify(server->l1);

	if (!error)
		error = cache_verify(server->cache, expect_idle && !(server->l2 && l2_unanswered(server->l2) > 0));
	if (!error)
		error = management_verify(server->management);
	if (!error && server->l2)
		error = l2_verify(server->l2);
	return error;
}
