/* options.c - the table of kvraild's options, and what contradicts what. */
#include "app/kvraild/options.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mgmt/http.h"

#define AT(field) offsetof(struct kvraild_settings, field)
#define TEXT(field) AT(field), sizeof(((struct kvraild_settings *)0)->field)

static const struct option_spec specs[] = {
	{ "config", OPTION_TEXT, TEXT(config), NULL, NULL, NULL, "General",
		"file to read options from, lines of the form name = value" },
	{ "log-level", OPTION_CHOICE, AT(log_level), 0, "info", "error|warn|info|debug", NULL, "General",
		"what is logged, on standard error" },

	{ "socket", OPTION_TEXT, TEXT(socket), NULL, NULL, NULL, "Addresses",
		"path of the Unix socket that clients connect to; default: /run/kvrail/kvrail.sock for root, else "
		"$XDG_RUNTIME_DIR/kvrail.sock; off: no clients on this host" },
	{ "socket-mode", OPTION_TEXT, TEXT(socket_mode), "0660", NULL, NULL, "Addresses",
		"rights of the socket file, octal" },
	{ "listen", OPTION_TEXT, TEXT(listen), NULL, NULL, NULL, "Addresses",
		"address for clients on other hosts, beside those on this one, kvrail://HOST:PORT; needs an RDMA device" },
	{ "trust-tcp", OPTION_BOOL, AT(trust_tcp), 0, "no", NULL, NULL, "Addresses",
		"clients of --listen need no --tenant-key and are the tenant default: for closed networks" },
	{ "http", OPTION_TEXT, TEXT(http), "127.0.0.1:9464", NULL, NULL, "Addresses",
		"HOST:PORT of /healthz, /readyz, /status and /metrics; off: none" },
	{ "admin-token-file", OPTION_TEXT, TEXT(admin_token_file), NULL, NULL, NULL, "Addresses",
		"file with the bearer token of what changes something (POST /clear, /quota, /pin, /unpin), 16 characters at least; without it that is refused" },

	{ "device", OPTION_TEXT, TEXT(device), NULL, NULL, NULL, "RDMA device",
		"name of the device that --listen uses, as mlx5_0, or of several, as mlx5_0,mlx5_1, over which transfers are split; default: the first that is active" },
	{ "device-port", OPTION_U32, AT(device_port), 0, "0", "0", "255", "RDMA device",
		"port of the device; 0: the first that is active" },
	{ "gid-index", OPTION_TEXT, TEXT(gid_index), "auto", NULL, NULL, "RDMA device",
		"which of the port's addresses is used; auto: RoCE v2, routed, that of --listen" },
	{ "path-mtu", OPTION_U32, AT(path_mtu), 0, "0", "0", "4096", "RDMA device",
		"largest packet in bytes, 256 to 4096, a power of two; 0: the port's" },
	{ "service-level", OPTION_U32, AT(service_level), 0, "0", "0", "15", "RDMA device",
		"service level of all packets" },
	{ "traffic-class", OPTION_U32, AT(traffic_class), 0, "0", "0", "255", "RDMA device",
		"traffic class of all packets; RoCE: DSCP * 4" },
	{ "rdma-timeout", OPTION_U32, AT(rdma_timeout), 0, "14", "1", "31", "RDMA device",
		"a packet that is not acknowledged is sent again after 4.096 us * 2^N; 14: 67 ms" },
	{ "rdma-retries", OPTION_U32, AT(rdma_retries), 0, "7", "1", "7", "RDMA device",
		"how often, before the connection is lost" },
	{ "rnr-timer", OPTION_U32, AT(rnr_timer), 0, "12", "1", "31", "RDMA device",
		"code of the pause that a receiver without a buffer asks for, as ibv_modify_qp(3) has it; 12: 0.64 ms" },

	{ "l1-size", OPTION_SIZE, AT(l1_bytes), 0, "1GiB", "1MiB", "64TiB", "Memory",
		"pinned memory for cached chunks" },
	{ "l1-keep", OPTION_TEXT, TEXT(l1_keep), NULL, NULL, NULL, "Memory",
		"directory on tmpfs or hugetlbfs in which L1 lies, so that the next server finds it full; default: L1 goes with the process" },
	{ "l1-slice", OPTION_SIZE, AT(l1_slice), 0, "0", "0", "64TiB", "Memory",
		"map L1 and register it with RDMA devices in slices of so much, each of which is logged when it takes long; 0: as large as the "
		"devices allow" },
	{ "chunk-tokens", OPTION_U32, AT(chunk_tokens), 0, "256", "1", "65536", "Memory",
		"tokens of a chunk; clients must use the same" },
	{ "chunks-initial", OPTION_U32, AT(chunks_initial), 0, "65536", "64", "268435456", "Memory",
		"chunks that the table has room for at start; it grows" },
	{ "evict-high", OPTION_U32, AT(evict_high), 0, "100", "1", "100", "Memory",
		"percent of L1 in use above which eviction begins by itself; 100: only when a STORE needs room" },
	{ "evict-low", OPTION_U32, AT(evict_low), 0, "100", "1", "100", "Memory",
		"percent of L1 in use down to which it goes on" },
	{ "eviction", OPTION_CHOICE, AT(eviction), 0, "lru", "lru|segmented", NULL, "Memory",
		"which chunk goes first: the least recently used one; or, with segmented, one that was not asked for since it came, for as long as these are half of L1" },
	{ "pin-limit", OPTION_U32, AT(pin_limit), 0, "25", "0", "90", "Memory",
		"percent of L1 that prefixes pinned by kvrailctl pin may take together" },

	{ "gpu", OPTION_CHOICE, AT(gpu), 0, "auto", "auto|on|off", NULL, "GPUs",
		"reach clients' GPU memory on this host; auto: when there is a GPU; on: without one the server does not start" },
	{ "gpu-blocks", OPTION_U32, AT(gpu_blocks), 0, "0", "0", "64", "GPUs",
		"thread blocks of a copy kernel, of which four run at once in each direction: more for small pages, fewer for the model's sake; 0: 2" },
	{ "gpu-lost", OPTION_CHOICE, AT(gpu_lost), 0, "serve", "serve|leave", NULL, "GPUs",
		"when a GPU is lost, which only a new process can use again; serve: go on with host memory and other GPUs; leave: drain, then end with exit code 1, for a supervisor to start it again; L1 stays with --l1-keep" },
	{ "l2", OPTION_LIST, AT(l2), 0, NULL, NULL, NULL, "L2",
		"KIND:PLACE[?name=value&...]: where chunks are kept that L1 has no room for, asked in this order; as "
		"file:/var/cache/kvrail?size=100GiB, see docs/L2.md" },
	{ "l2-policy", OPTION_CHOICE, AT(l2_policy), 0, "all", "all|second-use|none", NULL, "L2",
		"what is written there: all that is stored, only what is used again while it is in L1, or nothing" },
	{ "l2-checksums", OPTION_CHOICE, AT(l2_checksums), 0, "arrival", "arrival|write", NULL, "L2",
		"when the checksum of an object is made: as soon as it has come from a client, so that bytes that change in L1 are found and not "
		"written, or when it is written" },
	{ "l2-evict-stored", OPTION_BOOL, AT(l2_evict_stored), 0, "no", NULL, NULL, "L2",
		"what has been written there is the next that L1 evicts" },
	{ "l2-residence", OPTION_CHOICE, AT(l2_residence), 0, "retained", "retained|temporary", NULL, "L2",
		"what a lookup has brought from there stays in L1 as if it had been stored, or is the next that L1 evicts when its session has let it go" },
	{ "l2-wait", OPTION_TIME, AT(l2_wait_ns), 0, "2s", "0", "1h", "L2",
		"how long a lookup that names no limit waits for it; 0: to the end" },
	{ "l2-lookups", OPTION_U32, AT(l2_lookups), 0, "64", "1", "1024", "L2",
		"lookups that ask it at once, further ones are answered from L1" },
	{ "l2-loads", OPTION_U32, AT(l2_loads), 0, "64", "1", "4096", "L2", "objects that are loaded at once" },
	{ "l2-load-memory", OPTION_SIZE, AT(l2_load_bytes), 0, "0", "0", "64TiB", "L2",
		"memory of L1 that loads may have under way; 0: a quarter of it" },
	{ "l2-stores", OPTION_U32, AT(l2_stores), 0, "32", "1", "4096", "L2",
		"objects that are written at once to each place" },
	{ "l2-store-queue", OPTION_U32, AT(l2_store_queue), 0, "1024", "1", "1048576", "L2",
		"objects that wait or are being written, for each place; further ones are not written" },
	{ "l2-store-memory", OPTION_SIZE, AT(l2_store_bytes), 0, "0", "0", "64TiB", "L2",
		"memory of L1 that these may hold; 0: a quarter of it" },

	{ "l2-sick-after", OPTION_U32, AT(l2_sick_after), 0, "8", "1", "1000000", "L2",
		"failures in a row after which a place is taken out, until a probe shows that it works again" },
	{ "l2-timeout", OPTION_TIME, AT(l2_timeout_ns), 0, "10s", "10ms", "1h", "L2",
		"a place that has not answered anything for so long is taken out, too" },
	{ "ready-needs-l2", OPTION_BOOL, AT(ready_needs_l2), 0, "no", NULL, NULL, "L2",
		"/readyz says 503, with the reason, while a place is out or read-only; no: it says 200 and that the server is degraded" },

	{ "cores", OPTION_TEXT, TEXT(cores), "auto", NULL, NULL, "Cores",
		"cores to pin threads to, as 2-5,8: the last one is the management core's, the others poll; of one core: both. auto: what "
		"kvrailctl topo --plan says; any: nothing is pinned" },
	{ "poll-cores", OPTION_U32, AT(poll_cores), 0, "0", "0", "64", "Cores",
		"--cores auto: how many cores poll; 0: one a rail of --listen, else one" },
	{ "wait", OPTION_CHOICE, AT(wait), 0, "auto", "auto|busy|adaptive", NULL, "Cores",
		"without work, threads poll on (busy) or sleep after a while (adaptive); auto: busy on cores of their own, adaptive where these "
		"turn out to be shared" },
	{ "realtime", OPTION_U32, AT(realtime), 0, "0", "0", "99", "Cores",
		"real-time priority (SCHED_FIFO) of pinned threads; 0: none. For isolated cores: elsewhere it keeps the kernel's own work "
		"from running" },
	{ "spin", OPTION_TIME, AT(spin_ns), 0, "50us", "1ns", "1s", "Cores",
		"adaptive: time without work before a thread yields its core" },
	{ "yield", OPTION_TIME, AT(yield_ns), 0, "200us", "1ns", "1s", "Cores",
		"adaptive: time of yielding before it sleeps" },

	{ "max-clients", OPTION_U32, AT(max_clients), 0, "64", "1", "4096", "Clients", "connections at once" },
	{ "credits", OPTION_U32, AT(credits), 0, "32", "1", "1024", "Clients",
		"requests that a client may have under way" },
	{ "large-requests", OPTION_U32, AT(large_requests), 0, "16", "1", "4096", "Clients",
		"requests of very many chunks that are worked on at once, of all clients" },
	{ "large-buffers", OPTION_U32, AT(large_buffers), 0, "8", "1", "1024", "Clients",
		"requests that are too long for a message, fetched at once by a poll core" },
	{ "message-size", OPTION_SIZE, AT(message_bytes), 0, "1MiB", "64KiB", "2MiB", "Clients", "longest request" },
	{ "send-depth", OPTION_U32, AT(send_depth), 0, "0", "0", "65536", "Clients",
		"work requests that a queue pair has room for, 64 at least; 0: 256, with GPUs 4096" },
	{ "sessions", OPTION_U32, AT(sessions), 0, "4096", "1", "1048576", "Clients", "sessions open at once" },
	{ "session-chunks", OPTION_U32, AT(session_chunks), 0, "262144", "4096", "268435456", "Clients",
		"chunks in the chains of all sessions together" },

	{ "lock-ttl", OPTION_TIME, AT(lock_ttl_ns), 0, "300s", "1s", "24h", "Time limits", "life of a read lock" },
	{ "session-ttl", OPTION_TIME, AT(session_ttl_ns), 0, "600s", "1s", "168h", "Time limits",
		"life of a session that nobody uses" },
	{ "silence", OPTION_TIME, AT(silence_ns), 0, "0", "0", "24h", "Time limits",
		"a client that asks nothing for so long is dropped; 0: never, the end of its socket tells" },
	{ "registration-grace", OPTION_TIME, AT(registration_grace_ns), 0, "60s", "0", "24h", "Time limits",
		"a client that registers nothing for so long is dropped; 0: never" },
	{ "handshake-timeout", OPTION_TIME, AT(handshake_ns), 0, "5s", "100ms", "10m", "Time limits",
		"a socket that has not said HELLO by then is closed" },
	{ "drain-timeout", OPTION_TIME, AT(drain_timeout_ns), 0, "30s", "0", "1h", "Time limits",
		"after SIGTERM, time for transfers to end before the server leaves all the same" },
	{ "stall-time", OPTION_TIME, AT(stall_ns), 0, "5s", "100ms", "10m", "Time limits",
		"a thread that makes no turn for so long makes /readyz say 503" },

	{ "tenant", OPTION_LIST, AT(tenants), 0, NULL, NULL, NULL, "Tenants",
		"NAME[:uid=N][:clear]: a tenant, the user whose Unix socket clients are it, and whether it may clear its chunks" },
	{ "tenant-key", OPTION_LIST, AT(tenant_keys), 0, NULL, NULL, NULL, "Tenants",
		"NAME:FILE: the file with the secret by which a tenant's TCP clients prove that they are it" },
	{ "quota", OPTION_LIST, AT(quotas), 0, NULL, NULL, NULL, "Tenants",
		"TENANT=SOFT:HARD: how much of L1 a tenant may hold, sizes or none. Above SOFT its chunks are the first to be "
		"evicted, beyond HARD it evicts its own; see docs/QUOTAS.md" },
	{ "default-quota", OPTION_TEXT, TEXT(default_quota), "none:none", NULL, NULL, "Tenants",
		"SOFT:HARD of each tenant without a quota of its own" },
	{ "require-tenant", OPTION_BOOL, AT(require_tenant), 0, "no", NULL, NULL, "Tenants",
		"clients must name the tenant that they are" },
};

const struct option_table kvraild_options = { "kvraild", "KV-cache server for LLM inference", "[options]", specs,
	KVR_COUNT_OF(specs) };

static int refuse(struct option_error *error, const char *format, ...) KVR_PRINTF(2, 3);

static int refuse(struct option_error *error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error->text, sizeof(error->text), format, arguments);
	va_end(arguments);
	return -EINVAL;
}

static int plan_socket(const struct kvraild_settings *settings, struct kvraild_plan *plan, struct option_error *error)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	const char *path = settings->socket;
	char url[256], *end;

	if (strncmp(path, "unix:", 5) == 0)
		path += 5;
	plan->has_socket = strcmp(path, "off") != 0;
	if (!plan->has_socket)
		return plan->has_listen ? 0
					: refuse(error, "--socket off leaves no clients: give an address as --listen");
	if (path[0])
		snprintf(url, sizeof(url), "unix:%s", path);
	else if (geteuid() == 0)
		snprintf(url, sizeof(url), "unix:/run/kvrail/kvrail.sock");
	else if (runtime && runtime[0])
		snprintf(url, sizeof(url), "unix:%s/kvrail.sock", runtime);
	else
		return refuse(
			error, "neither root nor $XDG_RUNTIME_DIR: give the path of the socket as --socket, or off");
	if (stream_parse_address(url, &plan->socket) != 0)
		return refuse(error, "--socket %s is no path of a Unix socket: it has 1 to 107 characters", url + 5);
	plan->socket_mode = (unsigned)strtoul(settings->socket_mode, &end, 8);
	if (end == settings->socket_mode || *end || plan->socket_mode > 0777)
		return refuse(error, "--socket-mode %s is no octal number from 0 to 0777", settings->socket_mode);
	return 0;
}

static int plan_device(const struct kvraild_settings *settings, struct kvraild_plan *plan, struct option_error *error)
{
	uint64_t index;

	if ((settings->path_mtu & (settings->path_mtu - 1)) != 0 ||
		(settings->path_mtu != 0 && settings->path_mtu < 256))
		return refuse(error, "--path-mtu %u is none of 256, 512, 1024, 2048, 4096", settings->path_mtu);
	if (strcmp(settings->gid_index, "auto") == 0)
		return 0;
	if (text_parse_u64(settings->gid_index, &index) != 0 || index > UINT16_MAX)
		return refuse(
			error, "--gid-index %s is neither auto nor a number from 0 to 65535", settings->gid_index);
	plan->gid_index_set = true;
	plan->gid_index = (uint32_t)index;
	return 0;
}

static int plan_listen(const struct kvraild_settings *settings, struct kvraild_plan *plan, struct option_error *error)
{
	plan->has_listen = true;
	if (stream_parse_address(settings->listen, &plan->listen) != 0 || plan->listen.is_unix)
		return refuse(error, "--listen %s is no address; write kvrail://HOST:PORT", settings->listen);
	return plan_device(settings, plan, error);
}

static int plan_http(const struct kvraild_settings *settings, struct kvraild_plan *plan, struct option_error *error)
{
	plan->has_http = strcmp(settings->http, "off") != 0;
	if (plan->has_http && !http_address_good(settings->http))
		return refuse(error,
			"--http %s is no address; write HOST:PORT, as 127.0.0.1:9464 or [::1]:9464, or off",
			settings->http);
	if (!settings->admin_token_file[0])
		return 0;
	if (!plan->has_http)
		return refuse(error, "--admin-token-file is for the pages of --http, which is off");
	return kvraild_read_secret(
		"--admin-token-file", settings->admin_token_file, 16, plan->token, sizeof(plan->token), error);
}

/* Each would take the other's files for a stranger's, and both would write everything. */
static bool l2_given_before(const struct kvraild_plan *plan, uint32_t number)
{
	const struct place *place = &plan->l2[number].place;

	for (uint32_t i = 0; i < number; i++) {
		if (strcmp(plan->l2[i].place.kind, place->kind) == 0 &&
			strcmp(plan->l2[i].place.where, place->where) == 0)
			return true;
	}
	return false;
}

static int plan_l2(const struct kvraild_settings *settings, struct kvraild_plan *plan, struct option_error *error)
{
	int result = 0;

	if (settings->l2.count > L2_ADAPTERS_MAX)
		return refuse(error, "--l2: %u places are given, at most %u are possible", settings->l2.count,
			L2_ADAPTERS_MAX);
	for (uint32_t i = 0; !result && i < settings->l2.count; i++) {
		result = l2_place_read(settings->l2.items[i], &plan->l2[i], error);
		if (!result && l2_given_before(plan, i)) {
			snprintf(error->text, sizeof(error->text), "--l2 %.400s: that place is given twice",
				settings->l2.items[i]);
			result = -EINVAL;
		}
	}
	plan->l2_count = settings->l2.count;
	return result;
}

static int plan_cores(const struct kvraild_settings *settings, struct kvraild_plan *plan, struct option_error *error)
{
	static const size_t bytes = CORES_MAX * sizeof(int);
	int *allowed = malloc(bytes);
	int count = allowed ? cores_allowed(allowed, CORES_MAX) : -ENOMEM;
	int result;

	if (count < 0)
		result = refuse(error, "the cores of this machine can't be read: %s", strerror(-count));
	else
		result = kvraild_read_cores(settings->cores, allowed, (uint32_t)count, &plan->cores, error);
	free(allowed);
	if (!result && settings->poll_cores && (plan->cores.any || plan->cores.count))
		return refuse(error, "--poll-cores %u is for --cores auto: --cores %s says how many poll by itself",
			settings->poll_cores, settings->cores);
	return result;
}

int kvraild_plan(const struct kvraild_settings *settings, struct kvraild_plan *plan, struct option_error *error)
{
	int result;

	memset(plan, 0, sizeof(*plan));
	if (settings->evict_low > settings->evict_high)
		return refuse(
			error, "--evict-low %u is above --evict-high %u", settings->evict_low, settings->evict_high);
	if (settings->send_depth > 0 && settings->send_depth < 64)
		return refuse(error, "--send-depth %u: it is 0 or 64 at least", settings->send_depth);
	if (!settings->listen[0] && (settings->device[0] || settings->trust_tcp))
		return refuse(error, "--%s is for clients on other hosts: it needs --listen",
			settings->device[0] ? "device" : "trust-tcp");
	result = settings->listen[0] ? plan_listen(settings, plan, error) : 0;
	if (!result)
		result = plan_socket(settings, plan, error);
	if (!result)
		result = plan_http(settings, plan, error);
	if (!result)
		result = kvraild_plan_tenants(settings, plan, error);
	if (!result)
		result = kvraild_plan_quotas(settings, plan, error);
	if (!result)
		result = plan_l2(settings, plan, error);
	if (!result)
		result = plan_cores(settings, plan, error);
	return result;
}
