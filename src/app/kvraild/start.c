/* start.c - kvraild put together in the order of one table, a line a step, and taken apart in reverse. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/common/heap.h"
#include "app/common/memlock.h"
#include "app/kvraild/daemon.h"
#include "base/text.h"

#define DETAIL 320
/* --send-depth 0. A GPU's link wants 16 MiB under way, of pages of 4 KiB too. */
#define SEND_DEPTH 256
#define SEND_DEPTH_GPU 4096
/* Descriptors of one client: its socket, memory that it passes, rings and their wake-ups; and those of the server itself. */
#define FDS_OF_CLIENT 16
#define FDS_OF_SERVER 128

/* ---- limits ---- */

/* Before anything is taken: pinning that fails comes after minutes of touching memory (pitfalls K01). */
static int check_memlock(const struct daemon *daemon)
{
	char why[400];
	int error;

	if (!daemon->plan->has_listen)
		return 0;
	error = memlock_check(daemon->settings->l1_bytes, memlock_limit(), why, sizeof(why));
	if (error)
		log_error("--l1-size: %s", why);
	return error;
}

static int start_limits(struct daemon *daemon, char *detail)
{
	uint64_t wanted = FDS_OF_SERVER + FDS_OF_CLIENT * (uint64_t)daemon->settings->max_clients;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return -errno;
	if (limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
			return -errno;
	}
	if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < wanted)
		log_warn(
			"RLIMIT_NOFILE is %llu: %u clients may want %llu descriptors; raise it (LimitNOFILE=, ulimit -n)",
			(unsigned long long)limit.rlim_cur, daemon->settings->max_clients, (unsigned long long)wanted);
	snprintf(detail, DETAIL, "%llu descriptors; heap: %s", (unsigned long long)limit.rlim_cur,
		heap_known() ? daemon_heap_conf() : "of libc");
	return check_memlock(daemon);
}

/* ---- sockets ---- */

static int start_sockets(struct daemon *daemon, char *detail)
{
	return daemon_start_listeners(daemon, detail, DETAIL);
}

/* ---- port of the pages, taken before the memory, which takes long ---- */

static void warn_of_open_address(const char *address)
{
	if (strncmp(address, "127.", 4) != 0 && strncmp(address, "[::1]:", 6) != 0 &&
		strncmp(address, "localhost:", 10) != 0)
		log_warn(
			"http %s: everybody who reaches this address can read the pages, and is asked for the token only to clear",
			address);
}

static int start_port(struct daemon *daemon, char *detail)
{
	int error;

	daemon->http_listen_fd = -1;
	snprintf(detail, DETAIL, "no pages");
	if (!daemon->plan->has_http)
		return 0;
	error = http_listen(daemon->settings->http, &daemon->http_listen_fd);
	/* A build without them serves all the same. */
	daemon->plan->has_http = error != -EOPNOTSUPP;
	if (error)
		return daemon->plan->has_http ? error : 0;
	warn_of_open_address(daemon->settings->http);
	snprintf(detail, DETAIL, "%u of http %s", stream_bound_port(daemon->http_listen_fd), daemon->settings->http);
	return 0;
}

static void finish_port(struct daemon *daemon)
{
	if (daemon->http_listen_fd >= 0)
		close(daemon->http_listen_fd);
}

/* ---- devices ---- */

static int start_devices(struct daemon *daemon, char *detail)
{
	return daemon_start_devices(daemon, detail, DETAIL);
}

/* ---- place and memory ---- */

static int start_place(struct daemon *daemon, char *detail)
{
	return daemon_start_place(daemon, detail, DETAIL);
}

static int start_memory(struct daemon *daemon, char *detail)
{
	return daemon_start_memory(daemon, detail, DETAIL);
}

/* ---- GPUs ---- */

static int start_gpus(struct daemon *daemon, char *detail)
{
	return daemon_start_gpus(daemon, detail, DETAIL);
}

/* ---- L2 ---- */

static void finish_l2(struct daemon *daemon)
{
	for (uint32_t i = 0; i < daemon->l2.adapter_count; i++)
		daemon->l2.adapters[i]->driver->close(daemon->l2.adapters[i]);
	daemon->l2.adapter_count = 0;
}

static void fill_l2(const struct kvraild_settings *settings, struct l2_options *options)
{
	options->policy = (enum l2_policy)settings->l2_policy;
	options->demote = settings->l2_evict_stored;
	options->sum_arrivals = settings->l2_checksums == 0;
	options->temporary = settings->l2_residence == 1;
	options->fetches_max = settings->l2_lookups;
	options->loads_max = settings->l2_loads;
	options->load_bytes_max = settings->l2_load_bytes;
	options->stores_max = settings->l2_stores;
	options->store_queue = settings->l2_store_queue;
	options->store_bytes_max = settings->l2_store_bytes;
	options->sick_after = settings->l2_sick_after;
	options->timeout_ns = settings->l2_timeout_ns;
}

static int start_l2(struct daemon *daemon, char *detail)
{
	struct l2_options *l2 = &daemon->l2;
	char text[512];

	snprintf(detail, DETAIL, "none");
	fill_l2(daemon->settings, l2);
	for (uint32_t i = 0; i < daemon->plan->l2_count; i++) {
		int error = l2_place_open(
			&daemon->plan->l2[i], daemon->areas, daemon->area_count, &l2->adapters[i], text, sizeof(text));
		size_t length = i ? strlen(detail) : 0;

		if (error) {
			log_error("--l2 %s: %s", daemon->settings->l2.items[i], text);
			finish_l2(daemon);
			return error;
		}
		l2->adapter_count = i + 1;
		snprintf(detail + length, DETAIL - length, "%s%s", i ? ", " : "", l2->adapters[i]->name);
	}
	return 0;
}

/* ---- server ---- */

static int start_server(struct daemon *daemon, char *detail)
{
	const struct kvraild_settings *settings = daemon->settings;
	struct server_options options;
	int error;

	server_options_default(&options);
	options.worker_count = daemon->plan->placement.worker_count;
	for (uint32_t i = 0; i < options.worker_count; i++)
		options.devices[i] = daemon_device_of(daemon, i);
	options.rail_count = daemon->remote_count > 1 ? daemon->remote_count : 0;
	for (uint32_t i = 0; i < options.rail_count; i++)
		options.rails[i] = daemon->remotes[i];
	daemon_place_areas(daemon, &options);
	options.keep = daemon->kept.keep;
	options.chunk_tokens = settings->chunk_tokens;
	options.connections_max = settings->max_clients;
	options.credits = settings->credits;
	options.sessions_max = settings->sessions;
	options.chain_chunks_max = settings->session_chunks;
	options.large_requests = settings->large_requests;
	options.large_buffers = settings->large_buffers;
	options.message_bytes_max = (uint32_t)settings->message_bytes;
	options.send_depth = settings->send_depth;
	if (options.send_depth == 0)
		options.send_depth = daemon->gpus ? SEND_DEPTH_GPU : SEND_DEPTH;
	options.chunks_initial = settings->chunks_initial;
	options.evict_high_permille = settings->evict_high * 10;
	options.evict_low_permille = settings->evict_low * 10;
	options.eviction = (enum cache_eviction)settings->eviction;
	options.lock_ttl_ns = settings->lock_ttl_ns;
	options.session_ttl_ns = settings->session_ttl_ns;
	options.silence_ns = settings->silence_ns;
	options.registration_grace_ns = settings->registration_grace_ns;
	options.handshake_ns = settings->handshake_ns;
	options.tenants = daemon->plan->tenants;
	options.tenant_count = daemon->plan->tenant_count;
	options.default_quota = daemon->plan->default_quota;
	options.pinned_bytes_max = settings->l1_bytes / 100 * settings->pin_limit;
	options.require_tenant = settings->require_tenant;
	options.trust_tcp = settings->trust_tcp;
	options.version = "kvraild " KVRAIL_VERSION;
	if (daemon->l2.adapter_count > 0)
		options.l2 = &daemon->l2;
	options.l2_deadline_ns = settings->l2_wait_ns;
	error = server_create(&options, &daemon->server);
	daemon->l2.adapter_count = 0; /* they are the server's */
	if (error)
		return error;
	if (daemon->kept.keep)
		log_info("server: %llu objects of the server before are in L1 again",
			(unsigned long long)keep_get_counters(daemon->kept.keep)->restored_objects);
	snprintf(detail, DETAIL, "boot id %016llx, %u clients with %u requests each, %u tenant%s",
		(unsigned long long)server_boot_id(daemon->server), settings->max_clients, settings->credits,
		daemon->plan->tenant_count, daemon->plan->tenant_count == 1 ? "" : "s");
	return 0;
}

static void finish_server(struct daemon *daemon)
{
	if (!daemon->forced)
		server_destroy(&daemon->server);
}

/* ---- loops ---- */

static int start_loops(struct daemon *daemon, char *detail)
{
	int error = daemon_make_loops(daemon);

	if (error) {
		daemon_free_loops(daemon);
		return error;
	}
	snprintf(detail, DETAIL, "%u thread%s", daemon->loop_count, daemon->loop_count == 1 ? "" : "s");
	return 0;
}

/* ---- pages ---- */

static void fill_sources(struct daemon *daemon)
{
	struct status_sources *sources = &daemon->sources;

	sources->version = KVRAIL_VERSION;
	sources->boot_id = server_boot_id(daemon->server);
	sources->started_ns = daemon->started_ns;
	sources->control = server_control(daemon->server);
	sources->control_counters = control_counters(sources->control);
	sources->management = management_counters(server_management(daemon->server));
	sources->cache = cache_get_counters(server_cache(daemon->server));
	sources->kept = daemon->kept.keep ? keep_get_counters(daemon->kept.keep) : NULL;
	sources->worker_count = server_worker_count(daemon->server);
	for (uint32_t i = 0; i < sources->worker_count; i++) {
		sources->workers[i].counters = worker_counters(server_worker(daemon->server, i));
		sources->workers[i].device = worker_device(server_worker(daemon->server, i))->name;
	}
	for (uint32_t i = 0; i < daemon->remote_count; i++)
		sources->devices[sources->device_count++] = daemon->remotes[i];
	if (daemon->local)
		sources->devices[sources->device_count++] = daemon->local;
	sources->loop_count = daemon->loop_count;
	for (uint32_t i = 0; i < daemon->loop_count; i++)
		sources->loops[i] = daemon->loops[i];
	sources->l2 = server_l2(daemon->server);
	sources->tenants = daemon->plan->tenants;
	sources->tenant_count = daemon->plan->tenant_count;
	sources->connections_max = daemon->settings->max_clients;
	sources->chunk_tokens = daemon->settings->chunk_tokens;
	sources->l1_pages = l1_page_kind_text(daemon_l1_pages(daemon));
	sources->l1_locked = true;
	sources->area_count = daemon->area_count;
	for (uint32_t i = 0; i < daemon->area_count; i++) {
		sources->areas[i].node = daemon->areas[i].numa_node;
		sources->areas[i].mapping = &daemon->memory[i];
		sources->l1_locked &= daemon->memory[i].locked;
	}
	sources->guard = &daemon->guard;
	sources->heap = heap_numbers;
	if (daemon->topology)
		plan_json(daemon->machine, daemon->topology, &daemon->plan_json);
	sources->plan_json = daemon->plan_json.bytes;
	sources->gpus = daemon->gpus;
	sources->gpu_reason = daemon->gpu_reason;
	sources->options_json = daemon->options_json.bytes;
}

static void finish_pages(struct daemon *daemon)
{
	http_destroy(&daemon->http);
	text_fini(&daemon->options_json);
	text_fini(&daemon->plan_json);
}

static int start_pages(struct daemon *daemon, char *detail)
{
	struct http_options options;
	int error;

	snprintf(detail, DETAIL, "off");
	if (!daemon->plan->has_http)
		return 0;
	option_json(&kvraild_options, daemon->settings, &daemon->options_json);
	if (daemon->options_json.failed)
		return -ENOMEM;
	fill_sources(daemon);
	if (daemon->plan_json.failed) {
		finish_pages(daemon);
		return -ENOMEM;
	}
	memset(&options, 0, sizeof(options));
	options.listen_fd = daemon->http_listen_fd;
	daemon->http_listen_fd = -1;
	options.token = daemon->plan->token;
	options.control = server_control(daemon->server);
	options.sources = &daemon->sources;
	options.not_ready = daemon_not_ready;
	options.context = daemon;
	error = http_create(&options, &daemon->http);
	if (error) {
		finish_pages(daemon);
		return error;
	}
	daemon_http_url(daemon, detail, DETAIL);
	return 0;
}

void daemon_http_url(const struct daemon *daemon, char *out, size_t size)
{
	const char *address = daemon->settings->http;

	snprintf(out, size, "http://%.*s:%u", (int)(strrchr(address, ':') - address), address, http_port(daemon->http));
}

/* ---- threads ---- */

static int start_threads(struct daemon *daemon, char *detail)
{
	int error;

	daemon->watch_fd = epoll_create1(EPOLL_CLOEXEC);
	if (daemon->watch_fd < 0)
		return -errno;
	/* Threads that pin themselves begin with all cores of the process. */
	daemon_use_all_cores(daemon);
	error = daemon_start_loops(daemon);
	daemon_leave_poll_cores(daemon);
	if (error) {
		close(daemon->watch_fd);
		return error;
	}
	control_watch(server_control(daemon->server), daemon_watch_fd, daemon);
	daemon->sources.loops[daemon->sources.loop_count++] = daemon->control_loop;
	for (uint32_t i = 0; i < daemon->loop_count; i++) {
		size_t length = strlen(detail);

		snprintf(detail + length, DETAIL - length, "%s%s", i ? ", " : "", loop_name(daemon->loops[i]));
		length = strlen(detail);
		if (loop_core(daemon->loops[i]) >= 0)
			snprintf(detail + length, DETAIL - length, " on core %d", loop_core(daemon->loops[i]));
	}
	return 0;
}

static void finish_threads(struct daemon *daemon)
{
	daemon_stop_loops(daemon);
	close(daemon->watch_fd);
}

/* ---- the table ---- */

static const struct {
	const char *name;
	int (*start)(struct daemon *daemon, char *detail);
	void (*finish)(struct daemon *daemon);
} steps[] = {
	{ "limits", start_limits, NULL },
	{ "socket", start_sockets, daemon_finish_listeners },
	{ "port", start_port, finish_port },
	{ "place", start_place, daemon_finish_place },
	{ "device", start_devices, daemon_finish_devices },
	{ "memory", start_memory, daemon_finish_memory },
	{ "gpu", start_gpus, daemon_finish_gpus },
	{ "L2", start_l2, finish_l2 },
	{ "server", start_server, finish_server },
	{ "loops", start_loops, daemon_free_loops },
	{ "pages", start_pages, finish_pages },
	{ "threads", start_threads, finish_threads },
};

static void finish_steps(struct daemon *daemon, size_t count)
{
	while (count-- > 0) {
		if (steps[count].finish)
			steps[count].finish(daemon);
	}
}

int daemon_start(struct daemon *daemon)
{
	daemon->started_ns = clock_now_ns();
	for (size_t i = 0; i < KVR_COUNT_OF(steps); i++) {
		char detail[DETAIL] = "", time[TEXT_SHORT];
		uint64_t start_ns = clock_now_ns();
		int error = kvr_load_relaxed(&daemon_signals.leave) ? -EINTR : steps[i].start(daemon, detail);

		if (error) {
			if (error != -EINTR)
				log_error("start: %s failed: %s", steps[i].name, strerror(-error));
			finish_steps(daemon, i);
			return error;
		}
		log_info("start: %-7s %s (%s)", steps[i].name, detail, text_time(time, clock_now_ns() - start_ns));
	}
	return 0;
}

void daemon_finish(struct daemon *daemon)
{
	finish_steps(daemon, KVR_COUNT_OF(steps));
}
