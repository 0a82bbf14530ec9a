/* client.c - the client object: made, stepped, asked, destroyed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "client/client_private.h"

static int client_copy_options(struct kvr_client *client, const struct client_options *options)
{
	struct kvr_options *user = calloc(1, sizeof(*user));
	const char **texts[] = { &user->url, &user->driver, &user->device, &user->name, &user->tenant, &user->key_name,
		&user->key_file };

	if (!user)
		return -ENOMEM;
	*user = *options->user;
	client->options = *options;
	client->options.user = user;
	for (unsigned i = 0; i < KVR_COUNT_OF(texts); i++) {
		if (!*texts[i])
			continue;
		client->strings[i] = strdup(*texts[i]);
		if (!client->strings[i])
			return -ENOMEM;
		*texts[i] = client->strings[i];
	}
	if (user->connect_timeout_ns == 0)
		user->connect_timeout_ns = 5 * KVR_SECOND;
	if (user->request_timeout_ns == 0)
		user->request_timeout_ns = 30 * KVR_SECOND;
	return 0;
}

#define FORK_MARKER_BYTES 4096

/* MADV_WIPEONFORK: a child of fork reads 0 here. Looking costs a load, where getpid costs a system call on every request. */
static const char *fork_marker_make(void)
{
	char *page = mmap(NULL, FORK_MARKER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		return NULL;
	if (madvise(page, FORK_MARKER_BYTES, MADV_WIPEONFORK)) {
		munmap(page, FORK_MARKER_BYTES);
		return NULL;
	}
	*page = 1;
	return page;
}

static bool options_usable(const struct kvr_options *user)
{
	const struct {
		const char *name, *text;
	} texts[] = { { "name", user->name }, { "tenant", user->tenant }, { "key_name", user->key_name } };

	if (user->struct_bytes < sizeof(*user)) {
		error_text_set("options.struct_bytes is not set: use KVR_OPTIONS_INIT");
		return false;
	}
	for (unsigned i = 0; i < KVR_COUNT_OF(texts); i++) {
		if (texts[i].text && strlen(texts[i].text) > WIRE_NAME_MAX) {
			error_text_set("options.%s has more than %u bytes", texts[i].name, WIRE_NAME_MAX);
			return false;
		}
	}
	return true;
}

int client_create(const struct client_options *options, struct kvr_client **out)
{
	pthread_condattr_t attributes;
	struct kvr_client *client;
	int error;

	if (!options->device || !options->connect || !options->user || !options_usable(options->user))
		return -EINVAL;
	if (options->rail_count > WIRE_RAILS_MAX - 1 ||
		(options->rail_count > 0 && !options->device->driver->several_rails))
		return -EINVAL;
	client = calloc(1, sizeof(*client));
	if (!client)
		return -ENOMEM;
	client->rail_count = 1 + options->rail_count;
	client->rails[0].device = options->device;
	for (uint32_t i = 0; i < options->rail_count; i++)
		client->rails[1 + i].device = options->rails[i];
	client_rails_set_home(client, 0);
	client->out_fd = -1;
	client->event_fd = client->event_timer = -1;
	list_init(&client->sessions);
	pthread_mutex_init(&client->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&client->news, &attributes);
	pthread_condattr_destroy(&attributes);
	random_init(&client->random, options->seed);
	error = client_copy_options(client, options);
	client->fork_marker = fork_marker_make();
	if (!error && !client->fork_marker)
		error = -ENOMEM;
	if (!error)
		error = digester_init(&client->digester);
	if (!error)
		error = queue_create(client);
	if (error) {
		client_destroy(&client);
		return error;
	}
	*out = client;
	return 0;
}

static void client_free_memory(struct kvr_client *client)
{
	for (uint32_t i = 0; i < CLIENT_REGISTRATIONS_MAX; i++) {
		if (client->registrations[i].used)
			registration_free(client, &client->registrations[i]);
	}
	for (uint32_t i = 0; i < CLIENT_REGIONS_MAX; i++) {
		struct client_region *region = &client->regions[i];

		if (region->mr)
			region_free(client, region);
	}
}

void client_destroy(struct kvr_client **pointer)
{
	struct kvr_client *client = *pointer;
	const struct verbs_driver *driver;

	if (!client)
		return;
	driver = client->device->driver;
	connection_lose(client, -ECONNRESET, "closed");
	for (unsigned turn = 0; turn < 1000 && !client_rails_gone(client); turn++)
		;
	if (client->qp) {
		/* Nobody is left to reuse the blocks: what the server still writes goes to memory that stays mapped on its side. */
		for (unsigned turn = 0; client->started && turn < 1000 && !driver->qp_idle(client->qp); turn++)
			queue_step(client);
		if (client->started)
			driver->qp_stop(client->qp);
		driver->destroy_qp(client->qp);
		client->qp = NULL;
	}
	if (client->slots)
		queue_end_all(client, -ECONNRESET, "closed");
	if (client->lingering)
		client->lingering->ops->close(client->lingering);
	client->lingering = NULL;
	list_for_each_safe(node, &client->sessions) {
		struct kvr_session *session = KVR_CONTAINER_OF(node, struct kvr_session, node);

		session->in_flight = 0;
		if (client_session_destroy(&session))
			log_error("client: a session could not be destroyed");
	}
	events_destroy(client);
	client_gpu_forget_words(client);
	client_free_memory(client);
	queue_destroy(client);
	client_gpu_fini(client);
	digester_fini(&client->digester);
	text_fini(&client->inbox);
	text_fini(&client->outbox);
	for (unsigned i = 0; i < KVR_COUNT_OF(client->strings); i++)
		free(client->strings[i]);
	explicit_bzero(client->secret, sizeof(client->secret));
	free((void *)(uintptr_t)client->options.user);
	if (client->fork_marker)
		munmap((void *)(uintptr_t)client->fork_marker, FORK_MARKER_BYTES);
	pthread_cond_destroy(&client->news);
	pthread_mutex_destroy(&client->lock);
	free(client);
	*pointer = NULL;
}

bool client_step(struct kvr_client *client, uint64_t now_ns)
{
	bool busy;

	client->now_ns = now_ns;
	busy = queue_step(client);
	return connection_step(client) || busy;
}

uint64_t client_next_ns(const struct kvr_client *client)
{
	uint64_t next_ns;

	if (client->state == CONNECTION_DOWN)
		return client->retry_ns;
	if (client->state == CONNECTION_CLOSING)
		return client->now_ns + KVR_MS;
	next_ns = client->state < CONNECTION_READY ? client->attempt_ns : client_rails_next_ns(client);
	/* Of what the device says of itself no descriptor tells. */
	if (client->in_flight > 0 && client->device->driver->several_rails)
		next_ns = kvr_min_u64(next_ns, client->now_ns + CLIENT_HEALTH_LOOK_NS);
	return next_ns;
}

bool client_arm(struct kvr_client *client)
{
	client->look_ns = 0; /* what wakes who sleeps now may be the control stream */
	if (!client->started)
		return true;
	if (ibv_req_notify_cq(client->cq, 0))
		return false;
	return !queue_step(client);
}

bool client_ready(const struct kvr_client *client)
{
	return client->state == CONNECTION_READY;
}

bool client_quiet(const struct kvr_client *client)
{
	return client->in_flight == 0 && list_empty(&client->queue);
}

int client_failure(const struct kvr_client *client, const char **text)
{
	*text = client->failure_text;
	return client->failure;
}

int client_take(struct kvr_client *client, kvr_ticket ticket, struct kvr_result *result)
{
	struct slot *slot = slot_find(client, ticket);

	if (!slot)
		return -ENOENT;
	if (slot->state != SLOT_DONE)
		return -EAGAIN;
	*result = slot->result;
	client->done_count--;
	slot_free(client, slot);
	return 0;
}
