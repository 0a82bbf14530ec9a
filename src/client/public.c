/* public.c - kvrail.h over the stepped client: sockets, a clock, a lock, and waiting. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "client/client_private.h"

#define WAIT_SPIN_NS (50 * KVR_US)
#define WAIT_YIELD_NS (200 * KVR_US)
#define WAIT_SLEEP_MAX_NS (10 * KVR_MS)

/* Words of the calling thread's last error: each thread has its own, so that no call disturbs another's. */
static _Thread_local char error_words[256];

void error_text_set(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error_words, sizeof(error_words), format, arguments);
	va_end(arguments);
}

KVR_API const char *kvr_error_text(void)
{
	return error_words;
}

/* Every public call begins here: the lock, and the refusal in a child of fork. */
static int client_enter(struct kvr_client *client)
{
	error_words[0] = '\0';
	if (KVR_UNLIKELY(!*client->fork_marker)) {
		error_text_set("this client belongs to the parent process: open one of its own after fork");
		return -ECHILD;
	}
	pthread_mutex_lock(&client->lock);
	return 0;
}

static void client_leave(struct kvr_client *client)
{
	pthread_mutex_unlock(&client->lock);
}

/* ---- waiting ---- */

/* Sleeps until the device or the stream has news, or `until`; outside the lock, so that others can submit. */
static void client_sleep(struct kvr_client *client, uint64_t until_ns)
{
	struct pollfd fds[2];
	uint64_t now_ns = clock_now_ns();
	unsigned count = 0;
	uint64_t next_ns;
	struct timespec limit;
	bool quiet;

	pthread_mutex_lock(&client->lock);
	quiet = client_arm(client) && list_empty(&client->queue);
	next_ns = kvr_min_u64(until_ns, client_next_ns(client));
	next_ns = kvr_min_u64(next_ns, now_ns + WAIT_SLEEP_MAX_NS);
	if (client->stream)
		fds[count++].fd = client->stream->ops->event_fd(client->stream);
	if (client->started && client->device->driver->cq_event_fd(client->cq) >= 0)
		fds[count++].fd = client->device->driver->cq_event_fd(client->cq);
	pthread_mutex_unlock(&client->lock);
	if (!quiet || next_ns <= now_ns)
		return;
	for (unsigned i = 0; i < count; i++)
		fds[i].events = POLLIN;
	limit.tv_sec = (time_t)((next_ns - now_ns) / KVR_SECOND);
	limit.tv_nsec = (long)((next_ns - now_ns) % KVR_SECOND);
	if (ppoll(fds, count, &limit, NULL) <= 0)
		return;
	pthread_mutex_lock(&client->lock);
	if (client->started)
		client->device->driver->cq_clear_event(client->cq);
	pthread_mutex_unlock(&client->lock);
}

/* Steps until done(context) or the time is up: spins, then yields, then sleeps. 0 or -ETIMEDOUT. */
static int client_wait_until(struct kvr_client *client, uint64_t timeout_ns,
	bool (*done)(struct kvr_client *client, void *context), void *context)
{
	uint64_t begin_ns = clock_now_ns();
	uint64_t until_ns = timeout_ns > UINT64_MAX - begin_ns ? UINT64_MAX : begin_ns + timeout_ns;
	uint64_t idle_ns = begin_ns;

	for (;;) {
		uint64_t now_ns = clock_now_ns();
		bool busy, finished;

		pthread_mutex_lock(&client->lock);
		busy = client_step(client, now_ns);
		finished = done(client, context);
		pthread_mutex_unlock(&client->lock);
		if (finished)
			return 0;
		if (now_ns >= until_ns)
			return -ETIMEDOUT;
		if (busy)
			idle_ns = now_ns;
		else if (now_ns - idle_ns < WAIT_SPIN_NS)
			kvr_cpu_pause();
		else if (now_ns - idle_ns < WAIT_SPIN_NS + WAIT_YIELD_NS)
			sched_yield();
		else
			client_sleep(client, until_ns);
	}
}

struct ticket_wait {
	kvr_ticket ticket;
	struct kvr_result *result;
	int error;
};

static bool ticket_done(struct kvr_client *client, void *context)
{
	struct ticket_wait *wait = context;

	wait->error = client_take(client, wait->ticket, wait->result);
	return wait->error != -EAGAIN;
}

KVR_API int kvr_wait(struct kvr_client *client, kvr_ticket ticket, uint64_t timeout_ns, struct kvr_result *result)
{
	struct ticket_wait wait = { ticket, result, 0 };
	int error = client_enter(client);

	if (error)
		return error;
	client_leave(client);
	if (client_wait_until(client, timeout_ns, ticket_done, &wait))
		return -ETIMEDOUT;
	if (wait.error)
		return wait.error;
	if (result->error)
		error_text_set("%s", result->text);
	return result->error;
}

KVR_API int kvr_poll(struct kvr_client *client, kvr_ticket ticket, struct kvr_result *result)
{
	int error = client_enter(client);

	if (error)
		return error;
	client_step(client, clock_now_ns());
	error = client_take(client, ticket, result);
	client_leave(client);
	return error ? error : result->error;
}

KVR_API int kvr_cancel(struct kvr_client *client, kvr_ticket ticket)
{
	int error = client_enter(client);

	if (error)
		return error;
	error = client_submit_cancel(client, ticket);
	client_step(client, clock_now_ns());
	client_leave(client);
	return error;
}

/* The blocking calls' end: on time-out the request is canceled, and the wait goes on until the server has let go. */
static int client_finish(struct kvr_client *client, kvr_ticket ticket, uint64_t timeout_ns, struct kvr_result *result)
{
	struct kvr_result own;
	int error;

	if (!result)
		result = &own;
	memset(result, 0, sizeof(*result));
	error = kvr_wait(client, ticket, timeout_ns ? timeout_ns : client->options.user->request_timeout_ns, result);
	if (error != -ETIMEDOUT || result->status == STATUS_TIMED_OUT)
		return error;
	while (error == -ETIMEDOUT) {
		/* Again, should the CANCEL have found no room. */
		if (kvr_cancel(client, ticket) == -ENOENT)
			break;
		error = kvr_wait(client, ticket, KVR_SECOND, result);
	}
	if (error == -ECANCELED || error == -ETIMEDOUT) {
		result->error = -ETIMEDOUT;
		error_text_set("the server did not answer in time; the request was canceled");
		snprintf(result->text, sizeof(result->text), "%s", error_words);
		return -ETIMEDOUT;
	}
	return error;
}

/* ---- opening and closing ---- */

static int client_connect_socket(void *context, struct stream **stream)
{
	struct kvr_client **client = context;

	return stream_connect(&(*client)->address, stream);
}

static const struct verbs_driver *driver_find(const char *name, bool is_unix)
{
	if (!name)
		name = is_unix ? "local" : "nic";
	if (strcmp(name, verbs_local.name) == 0)
		return &verbs_local;
	error_text_set("there is no driver \"%s\" in this library: it has \"%s\"", name, verbs_local.name);
	return NULL;
}

static void url_default(char *url, size_t size)
{
	const char *directory = getenv("XDG_RUNTIME_DIR");
	const char *set = getenv("KVRAIL_URL");

	if (set && set[0])
		snprintf(url, size, "%s", set);
	else if (getuid() == 0 || !directory)
		snprintf(url, size, "unix:/run/kvrail/kvrail.sock");
	else
		snprintf(url, size, "unix:%s/kvrail.sock", directory);
}

static int client_read_secret(struct kvr_client *client)
{
	const char *path = client->options.user->key_file;
	ssize_t length;
	int fd;

	if (!path)
		return 0;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		error_text_set("key file %s: %s", path, strerror(errno));
		return -errno;
	}
	length = read(fd, client->secret, sizeof(client->secret));
	close(fd);
	while (length > 0 && (client->secret[length - 1] == '\n' || client->secret[length - 1] == '\r'))
		length--;
	if (length <= 0) {
		error_text_set("key file %s is empty", path);
		return -EINVAL;
	}
	client->secret_length = (uint32_t)length;
	return 0;
}

/* What client_options.connect gets: a pointer that is filled in once the client exists. */
struct public_context {
	struct kvr_client *client;
};

static bool open_done(struct kvr_client *client, void *context)
{
	(void)context;
	/* The first attempt decides: whoever wants to wait for a server opens again. */
	return client_ready(client) || (client->failure != 0 && client->state >= CONNECTION_CLOSING) ||
		(client->failure != 0 && client->state == CONNECTION_DOWN);
}

static int client_make(const struct kvr_options *user, const struct stream_address *address, struct kvr_client **client)
{
	const struct verbs_driver *driver = driver_find(user->driver, address->is_unix);
	struct client_options options;
	struct public_context *context = calloc(1, sizeof(*context));
	struct verbs_open open_options;
	int error = -ENODEV;

	if (!context)
		return -ENOMEM;
	memset(&options, 0, sizeof(options));
	memset(&open_options, 0, sizeof(open_options));
	open_options.device = user->device;
	if (driver)
		error = driver->open(&open_options, &options.device);
	if (error)
		goto free_context;
	options.user = user;
	options.connect = client_connect_socket;
	options.context = &context->client;
	error = random_secret(&options.seed, sizeof(options.seed));
	if (!error)
		error = client_create(&options, client);
	if (error)
		goto close_device;
	context->client = *client;
	(*client)->owns_device = true;
	(*client)->address = *address;
	return client_read_secret(*client);
close_device:
	options.device->driver->close(options.device);
free_context:
	free(context);
	return error;
}

KVR_API int kvr_open(const struct kvr_options *user, struct kvr_client **out)
{
	struct kvr_options options = KVR_OPTIONS_INIT;
	struct stream_address address;
	struct kvr_client *client = NULL;
	char url[512], name[64];
	const char *words;
	int error;

	error_words[0] = '\0';
	if (user && user->struct_bytes < sizeof(options)) {
		error_text_set("options.struct_bytes is not set: use KVR_OPTIONS_INIT");
		return -EINVAL;
	}
	if (user)
		options = *user;
	url_default(url, sizeof(url));
	if (options.url)
		snprintf(url, sizeof(url), "%s", options.url);
	snprintf(name, sizeof(name), "%s %d", program_invocation_short_name, (int)getpid());
	if (!options.name)
		options.name = name;
	error = stream_parse_address(url, &address);
	if (error) {
		error_text_set("\"%s\" is no address: unix:PATH or kvrail://HOST[:PORT]", url);
		return error;
	}
	error = client_make(&options, &address, &client);
	if (!error && client_wait_until(client, client->options.user->connect_timeout_ns, open_done, NULL))
		error = -ETIMEDOUT;
	if (!error && !client_ready(client)) {
		error = client_failure(client, &words);
		error_text_set("%s: %s", url, words);
	} else if (error && error_words[0] == '\0') {
		error_text_set("%s: %s", url, strerror(-error));
	}
	if (error) {
		kvr_close(&client);
		return error;
	}
	*out = client;
	return 0;
}

KVR_API void kvr_close(struct kvr_client **pointer)
{
	struct kvr_client *client = *pointer;
	struct verbs_device *device;
	struct public_context *context;
	bool owns;

	if (!client)
		return;
	*pointer = NULL;
	if (!*client->fork_marker)
		return; /* the parent's device and sockets are not ours to touch */
	device = client->device;
	owns = client->owns_device;
	context = owns ? KVR_CONTAINER_OF(client->options.context, struct public_context, client) : NULL;
	client_destroy(&client);
	if (owns)
		device->driver->close(device);
	free(context);
}

KVR_API enum kvr_health kvr_health(const struct kvr_client *client)
{
	struct kvr_client *own = (struct kvr_client *)(uintptr_t)client;
	enum connection_state state;

	if (client_enter(own))
		return KVR_FAILED;
	state = client->state;
	client_leave(own);
	switch (state) {
	case CONNECTION_READY:
		return KVR_HEALTHY;
	case CONNECTION_FAILED:
		return KVR_FAILED;
	default:
		return KVR_CONNECTING;
	}
}

KVR_API int kvr_get_info(struct kvr_client *client, struct kvr_info *info)
{
	int error = client_enter(client);

	if (error)
		return error;
	memset(info, 0, sizeof(*info));
	info->chunk_tokens = client->server.chunk_tokens;
	info->chunks_max = client->server.chunks_max;
	info->in_flight = client->credits;
	info->lock_seconds = client->server.lock_seconds;
	info->boot_id = client->boot_id;
	info->reconnects = client->reconnects;
	text_copy(info->server, sizeof(info->server), client->server_name);
	text_copy(info->tenant, sizeof(info->tenant), client->tenant_name);
	text_copy(info->driver, sizeof(info->driver), client->device->driver->name);
	client_leave(client);
	return 0;
}

KVR_API int kvr_event_fd(struct kvr_client *client)
{
	int fd = -1;

	if (client_enter(client))
		return -1;
	if (client->started) {
		fd = client->device->driver->cq_event_fd(client->cq);
		if (!client_arm(client))
			log_debug("client: news came while arming; poll at once");
	}
	client_leave(client);
	return fd;
}

/* ---- memory and registrations ---- */

KVR_API int kvr_alloc(struct kvr_client *client, size_t bytes, void **memory)
{
	uint64_t length = kvr_round_up(bytes, 4096);
	uint32_t region;
	void *address;
	int error = client_enter(client);

	if (error)
		return error;
	error = bytes == 0 ? -EINVAL : client->device->driver->allocate(client->device, length, &address);
	if (!error) {
		error = region_make(client, (uint64_t)(uintptr_t)address, length, &region);
		if (error) {
			client->device->driver->release(client->device, address, length);
		} else {
			client->regions[region].allocated = true;
			*memory = address;
		}
	} else {
		error_text_set("%zu bytes could not be allocated: %s", bytes, strerror(-error));
	}
	client_leave(client);
	return error;
}

KVR_API int kvr_free(struct kvr_client *client, void *memory)
{
	uint32_t index;
	int error = client_enter(client);

	if (error)
		return error;
	index = region_find(client, (uint64_t)(uintptr_t)memory, 1);
	if (index == UINT32_MAX || !client->regions[index].allocated ||
		client->regions[index].address != (uint64_t)(uintptr_t)memory) {
		error_text_set("this memory is not kvr_alloc's");
		error = -EINVAL;
	} else if (client->regions[index].users > 0) {
		error_text_set("a registration uses this memory");
		error = -EBUSY;
	} else {
		struct client_region *region = &client->regions[index];
		uint64_t length = region->length;

		/* The server may keep its mapping a moment longer: the pages are its own then. */
		client->device->driver->deregister_memory(region->mr);
		memset(region, 0, sizeof(*region));
		client->device->driver->release(client->device, memory, length);
	}
	client_leave(client);
	return error;
}

KVR_API int kvr_register(struct kvr_client *client, const struct kvr_model *model, const struct kvr_layout *layout,
	const uint8_t fingerprint[32], uint32_t *registration)
{
	struct kvr_result result;
	kvr_ticket ticket;
	uint32_t index;
	int error = client_enter(client);

	if (error)
		return error;
	error = client_submit_register(client, model, layout, fingerprint, &index, &ticket);
	client_leave(client);
	/* No time limit of its own: large memory takes long, and a lost connection ends the wait. */
	while (!error && (error = kvr_wait(client, ticket, KVR_SECOND, &result)) == -ETIMEDOUT)
		error = 0;
	if (!error)
		*registration = index;
	return error;
}

KVR_API int kvr_unregister(struct kvr_client *client, uint32_t registration)
{
	struct kvr_result result;
	kvr_ticket ticket;
	int error = client_enter(client);

	if (error)
		return error;
	error = client_submit_unregister(client, registration, &ticket);
	client_leave(client);
	while (!error && (error = kvr_wait(client, ticket, KVR_SECOND, &result)) == -ETIMEDOUT)
		error = 0;
	return error;
}

/* ---- sessions ---- */

KVR_API int kvr_session_create(struct kvr_client *client, uint32_t registration, const char *id, const char *salt,
	struct kvr_session **session)
{
	int error = client_enter(client);

	if (error)
		return error;
	error = client_session_create(client, registration, id, salt, session);
	client_leave(client);
	return error;
}

KVR_API int kvr_session_destroy(struct kvr_session **session)
{
	struct kvr_client *client = *session ? (*session)->client : NULL;
	int error = client ? client_enter(client) : 0;

	if (error || !client)
		return error;
	error = client_session_destroy(session);
	client_leave(client);
	return error;
}

KVR_API int kvr_session_tokens(struct kvr_session *session, const uint32_t *tokens, size_t count)
{
	int error = client_enter(session->client);

	if (error)
		return error;
	error = client_session_tokens(session, tokens, count);
	client_leave(session->client);
	return error;
}

KVR_API int kvr_session_digests(struct kvr_session *session, const uint8_t *digests, uint32_t chunk_count)
{
	int error = client_enter(session->client);

	if (error)
		return error;
	error = client_session_digests(session, digests, chunk_count);
	client_leave(session->client);
	return error;
}

KVR_API uint32_t kvr_session_chunks(const struct kvr_session *session)
{
	return session->chunk_count;
}

/* ---- operations: each submit locks, asks, and gives the queue a first push ---- */

#define SUBMIT(session_client, call)                    \
	struct kvr_client *own_client = session_client; \
	int error = client_enter(own_client);           \
	if (error)                                      \
		return error;                           \
	error = call;                                   \
	client_step(own_client, clock_now_ns());        \
	client_leave(own_client);                       \
	return error

KVR_API int kvr_submit_lookup(struct kvr_session *session, uint32_t flags, kvr_ticket *ticket)
{
	SUBMIT(session->client, client_submit_lookup(session, flags, ticket));
}

KVR_API int kvr_submit_query(struct kvr_session *session, uint64_t wait_ns, int early, kvr_ticket *ticket)
{
	SUBMIT(session->client, client_submit_query(session, wait_ns, early != 0, ticket));
}

KVR_API int kvr_submit_retrieve(struct kvr_session *session, const struct kvr_transfer *transfer, kvr_ticket *ticket)
{
	SUBMIT(session->client, client_submit_transfer(session, false, transfer, ticket));
}

KVR_API int kvr_submit_store(struct kvr_session *session, const struct kvr_transfer *transfer, kvr_ticket *ticket)
{
	SUBMIT(session->client, client_submit_transfer(session, true, transfer, ticket));
}

KVR_API int kvr_submit_free_locks(
	struct kvr_session *session, uint32_t first_chunk, uint32_t chunk_count, int all_ranks, kvr_ticket *ticket)
{
	SUBMIT(session->client, client_submit_free_locks(session, first_chunk, chunk_count, all_ranks != 0, ticket));
}

KVR_API int kvr_submit_end(struct kvr_session *session, kvr_ticket *ticket)
{
	SUBMIT(session->client, client_submit_end(session, ticket));
}

KVR_API int kvr_submit_ping(struct kvr_client *client, kvr_ticket *ticket)
{
	SUBMIT(client, client_submit_ping(client, ticket));
}

/* ---- blocking forms ---- */

static int client_failed(struct kvr_result *result, int error)
{
	if (result) {
		memset(result, 0, sizeof(*result));
		result->error = error;
		snprintf(result->text, sizeof(result->text), "%s", error_words);
	}
	return error;
}

KVR_API int kvr_lookup(struct kvr_session *session, uint64_t timeout_ns, struct kvr_result *result)
{
	kvr_ticket ticket;
	int error = kvr_submit_lookup(session, 0, &ticket);

	return error ? client_failed(result, error) : client_finish(session->client, ticket, timeout_ns, result);
}

KVR_API int kvr_retrieve(struct kvr_session *session, const struct kvr_transfer *transfer, uint64_t timeout_ns,
	struct kvr_result *result)
{
	kvr_ticket ticket;
	int error = kvr_submit_retrieve(session, transfer, &ticket);

	return error ? client_failed(result, error) : client_finish(session->client, ticket, timeout_ns, result);
}

KVR_API int kvr_store(struct kvr_session *session, const struct kvr_transfer *transfer, uint64_t timeout_ns,
	struct kvr_result *result)
{
	kvr_ticket ticket;
	int error = kvr_submit_store(session, transfer, &ticket);

	return error ? client_failed(result, error) : client_finish(session->client, ticket, timeout_ns, result);
}

KVR_API int kvr_free_locks(struct kvr_session *session, uint32_t first_chunk, uint32_t chunk_count, int all_ranks,
	uint64_t timeout_ns, struct kvr_result *result)
{
	kvr_ticket ticket;
	int error = kvr_submit_free_locks(session, first_chunk, chunk_count, all_ranks, &ticket);

	return error ? client_failed(result, error) : client_finish(session->client, ticket, timeout_ns, result);
}

KVR_API int kvr_end(struct kvr_session *session, uint64_t timeout_ns)
{
	kvr_ticket ticket;
	int error = kvr_submit_end(session, &ticket);

	return error ? error : client_finish(session->client, ticket, timeout_ns, NULL);
}

KVR_API int kvr_ping(struct kvr_client *client, uint64_t timeout_ns)
{
	kvr_ticket ticket;
	int error = kvr_submit_ping(client, &ticket);

	return error ? error : client_finish(client, ticket, timeout_ns, NULL);
}

static int submit_clear(struct kvr_client *client, uint32_t registration, kvr_ticket *ticket)
{
	SUBMIT(client, client_submit_clear(client, registration, ticket));
}

KVR_API int kvr_clear(struct kvr_client *client, uint32_t registration, uint64_t timeout_ns, struct kvr_result *result)
{
	kvr_ticket ticket;
	int error = submit_clear(client, registration, &ticket);

	return error ? client_failed(result, error) : client_finish(client, ticket, timeout_ns, result);
}
