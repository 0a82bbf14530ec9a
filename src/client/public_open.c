/* public_open.c - opening and closing a client over sockets and a device. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "client/client_private.h"

#define CLOSE_PATIENCE_NS KVR_SECOND

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
	if (strcmp(name, verbs_nic.name) == 0)
		return &verbs_nic;
	error_text_set("there is no driver \"%s\" in this library: it has \"%s\" and \"%s\"", name, verbs_local.name,
		verbs_nic.name);
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
	char bytes[sizeof(client->secret) + 2];
	ssize_t length = -1;
	int error = 0;
	int fd;

	if (!path)
		return 0;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		length = read(fd, bytes, sizeof(bytes));
	if (length < 0)
		error = -errno;
	if (fd >= 0)
		close(fd);
	if (error) {
		error_text_set("key file %s: %s", path, strerror(-error));
		return error;
	}
	/* The first line, as kvraild reads the same file. */
	for (ssize_t i = 0; i < length; i++) {
		if (bytes[i] == '\n' || bytes[i] == '\r')
			length = i;
	}
	if (length == 0 || (size_t)length > sizeof(client->secret)) {
		error_text_set(
			"key file %s: its first line must be a secret of 1 to %zu bytes", path, sizeof(client->secret));
		error = -EINVAL;
	} else {
		memcpy(client->secret, bytes, (size_t)length);
		client->secret_length = (uint32_t)length;
	}
	explicit_bzero(bytes, sizeof(bytes));
	return error;
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

static void close_devices(struct client_options *options)
{
	while (options->rail_count > 0) {
		struct verbs_device *rail = options->rails[--options->rail_count];

		rail->driver->close(rail);
	}
	if (options->device)
		options->device->driver->close(options->device);
	options->device = NULL;
}

/* One, or each of those that are named. */
static int open_devices(const struct verbs_driver *driver, const char *names, struct client_options *options)
{
	struct verbs_open open_options;
	char name[64];
	int error = 0;

	memset(&open_options, 0, sizeof(open_options));
	for (uint32_t i = 0; !error && (i == 0 || (names && text_list_item(names, i, name, sizeof(name)))); i++) {
		struct verbs_device **device = i ? &options->rails[i - 1] : &options->device;

		if (i == WIRE_RAILS_MAX) {
			error_text_set("device: %s names more than %u", names, WIRE_RAILS_MAX);
			error = -EINVAL;
			break;
		}
		if (i == 0 && names)
			(void)!text_list_item(names, 0, name, sizeof(name));
		open_options.device = names ? name : NULL;
		error = driver->open(&open_options, device);
		if (error) {
			*device = NULL;
			error_text_set("the driver %s can't be opened%s%s: %s", driver->name, names ? " on " : "",
				names ? name : "", strerror(-error));
		} else if (i > 0) {
			options->rail_count++;
		}
	}
	if (!error && options->rail_count > 0 && !driver->several_rails) {
		error_text_set("device: %s names several, with the driver %s there is one", names, driver->name);
		error = -EINVAL;
	}
	if (error)
		close_devices(options);
	return error;
}

static int client_make(const struct kvr_options *user, const struct stream_address *address, struct kvr_client **client)
{
	const struct verbs_driver *driver = driver_find(user->driver, address->is_unix);
	struct client_options options;
	struct public_context *context = calloc(1, sizeof(*context));
	int error;

	if (!context)
		return -ENOMEM;
	memset(&options, 0, sizeof(options));
	error = driver ? open_devices(driver, user->device, &options) : -ENODEV;
	if (error)
		goto free_context;
	options.user = user;
	options.connect = client_connect_socket;
	options.context = &context->client;
	error = random_secret(&options.seed, sizeof(options.seed));
	if (!error)
		error = client_create(&options, client);
	if (error)
		goto close_devices;
	context->client = *client;
	(*client)->owns_device = true;
	(*client)->address = *address;
	return client_read_secret(*client);
close_devices:
	close_devices(&options);
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

	error_text_set("%s", "");
	if (user && user->struct_bytes < sizeof(options)) {
		error_text_set("options.struct_bytes is not set: use KVR_OPTIONS_INIT");
		return -EINVAL;
	}
	if (user)
		options = *user;
	if (!options.key_name != !options.key_file) {
		error_text_set("key_name and key_file belong together: one of them is not set");
		return -EINVAL;
	}
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
	if (!error && client_wait_until(client, client->options.user->connect_timeout_ns, open_done, NULL)) {
		error = -ETIMEDOUT;
		error_text_set("%s: the server did not answer in time", url);
	}
	if (!error && !client_ready(client)) {
		error = client_failure(client, &words);
		error_text_set("%s: %s", url, words);
	} else if (error && kvr_error_text()[0] == '\0') {
		error_text_set("%s: %s", url, strerror(-error));
	}
	if (error) {
		kvr_close(&client);
		return error;
	}
	*out = client;
	return 0;
}

static bool close_done(struct kvr_client *client, void *context)
{
	(void)context;
	return client->state != CONNECTION_CLOSING;
}

KVR_API void kvr_close(struct kvr_client **pointer)
{
	struct kvr_client *client = *pointer;
	struct client_options devices;
	struct public_context *context;
	bool owns, closing;

	if (!client)
		return;
	*pointer = NULL;
	if (!*client->fork_marker)
		return; /* the parent's device and sockets are not ours to touch */
	devices = client->options;
	owns = client->owns_device;
	context = owns ? KVR_CONTAINER_OF(client->options.context, struct public_context, client) : NULL;
	pthread_mutex_lock(&client->lock);
	connection_lose(client, -ECONNRESET, "closed");
	closing = client->state == CONNECTION_CLOSING;
	pthread_mutex_unlock(&client->lock);
	/* Until the server has let go of our memory; a server that does not answer must not keep the process from ending. */
	if (closing && client_wait_until(client, CLOSE_PATIENCE_NS, close_done, NULL))
		log_warn("client: the server did not let go of the connection within a second");
	client_destroy(&client);
	if (owns)
		close_devices(&devices);
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
	info->in_flight = client->credits > 1 ? client->credits - 1 : client->credits; /* one is for CANCEL */
	info->lock_seconds = client->server.lock_seconds;
	info->boot_id = client->boot_id;
	info->reconnects = client->reconnects;
	text_copy(info->server, sizeof(info->server), client->server_name);
	text_copy(info->tenant, sizeof(info->tenant), client->tenant_name);
	text_copy(info->driver, sizeof(info->driver), client->device->driver->name);
	client_leave(client);
	return 0;
}
