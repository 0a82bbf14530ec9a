/* control_handshake.c - HELLO, AUTHENTICATE, CONNECT: who is it, which tenant, and the queue pair. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "mgmt/control_private.h"

static bool text_is(const struct wire_text *text, const char *string)
{
	return text->length == strlen(string) && memcmp(text->bytes, string, text->length) == 0;
}

static void text_take(char *out, size_t size, const struct wire_text *text)
{
	size_t length = text->length < size ? text->length : size - 1;

	memcpy(out, text->bytes, length);
	out[length] = '\0';
}

/* Of this server those that the client knows, and that its kind of device has a use for. */
static uint32_t control_client_features(const struct control_client *client, uint32_t known)
{
	const struct control *control = client->control;
	uint32_t features = control->options.info.features & known;

	for (uint32_t i = 0; i < control->options.worker_count; i++) {
		const struct verbs_driver *driver = worker_device(control->workers[i])->driver;

		if (strcmp(driver->name, client->driver) == 0 && driver->gathers)
			return features;
	}
	return features & ~(uint32_t)FEATURE_SEVERAL_MESSAGES;
}

static struct server_info control_client_info(const struct control_client *client)
{
	const struct control *control = client->control;
	struct server_info info = control->options.info;

	info.version = client->version;
	info.features = client->features;
	info.credits = client->credits;
	info.tenant.bytes = client->tenant_known ? control->tenants[client->tenant].name : "";
	info.tenant.length = (uint32_t)strlen(info.tenant.bytes);
	return info;
}

/* Binds the client to a tenant that its credential proves; false: it asked for another one. */
static bool control_client_bind(struct control_client *client, const struct wire_header *header, uint32_t tenant)
{
	const struct control_tenant *bound = &client->control->tenants[tenant];

	if (client->wanted_tenant[0] && strcmp(client->wanted_tenant, bound->name) != 0) {
		kvr_counter_add(&client->control->counters.authentication_failures_total, 1);
		control_client_send_error(client, header, STATUS_NOT_ALLOWED,
			"this credential belongs to tenant \"%s\", not to \"%s\"", bound->name, client->wanted_tenant);
		client->close_after_send = true;
		return false;
	}
	if (!control_client_place(client, header))
		return false;
	client->tenant = tenant;
	client->tenant_known = true;
	client->connection.tenant = tenant;
	client->connection.may_clear = bound->may_clear;
	client->state = CLIENT_READY;
	return true;
}

/* The tenant of a Unix socket peer is the kernel's word for who it is. */
static uint32_t control_tenant_of_uid(const struct control *control, uint32_t uid)
{
	for (uint32_t i = 0; i < control->options.tenant_count; i++) {
		if (control->tenants[i].by_uid && control->tenants[i].uid == uid)
			return i;
	}
	return 0;
}

/* 0 or -errno: a challenge that can be guessed is worse than none. */
static int control_client_challenge(struct control_client *client)
{
	struct control *control = client->control;
	uint64_t word;

	if (control->options.seed) {
		for (unsigned i = 0; i < 4; i++) {
			word = random_next(&control->random);
			memcpy(client->challenge + 8 * i, &word, sizeof(word));
		}
		return 0;
	}
	return fault_point("control_challenge/random") ? -EIO
						       : random_secret(client->challenge, sizeof(client->challenge));
}

void control_client_on_hello(struct control_client *client, const struct wire_header *header, const uint8_t *bytes)
{
	struct control *control = client->control;
	struct hello_reply reply;
	struct wire_error error;
	struct hello hello;
	uint8_t out[1024];

	if (hello_decode(bytes, header->length, &hello, &error)) {
		control_client_send_malformed(client, header, &error);
		return;
	}
	if (hello.client.length > 0)
		text_take(client->name, sizeof(client->name), &hello.client);
	text_take(client->wanted_tenant, sizeof(client->wanted_tenant), &hello.tenant);
	text_take(client->driver, sizeof(client->driver), &hello.driver);
	memcpy(client->connection.name, client->name, sizeof(client->connection.name));
	if (hello.version_min > WIRE_VERSION_MAX || hello.version_max < WIRE_VERSION_MIN) {
		control_client_send_error(client, header, STATUS_UNSUPPORTED_VERSION,
			"the client speaks versions %u to %u, this server %u to %u", hello.version_min,
			hello.version_max, WIRE_VERSION_MIN, WIRE_VERSION_MAX);
		client->close_after_send = true;
		return;
	}
	if (control->options.require_tenant && hello.tenant.length == 0) {
		control_client_send_error(client, header, STATUS_NOT_ALLOWED,
			"this server wants clients to name their tenant (option require-tenant)");
		client->close_after_send = true;
		return;
	}
	client->version = hello.version_max < WIRE_VERSION_MAX ? hello.version_max : WIRE_VERSION_MAX;
	client->features = control_client_features(client, hello.features);
	client->connection.gathers = client->features & FEATURE_SEVERAL_MESSAGES;
	client->credits = control->options.info.credits;
	if (hello.want_credits > 0 && hello.want_credits < client->credits)
		client->credits = hello.want_credits;
	client->connection.credits = client->credits;
	memset(&reply, 0, sizeof(reply));
	reply.header = control_client_reply_header(client, header, STATUS_OK);
	/* The user is known even where the process is not: a client in a container has no number here. */
	if (client->stream->carries_fds && client->stream->peer.uid != (uid_t)-1) {
		if (!control_client_bind(
			    client, header, control_tenant_of_uid(control, (uint32_t)client->stream->peer.uid)))
			return;
	} else if (control->options.trust_tcp) {
		if (!control_client_bind(client, header, 0))
			return;
	} else {
		if (control_client_challenge(client)) {
			control_client_close(client, "no random bytes from the kernel");
			return;
		}
		client->state = CLIENT_CHALLENGE;
		reply.authentication = AUTHENTICATION_CHALLENGE;
	}
	reply.challenge = client->challenge;
	reply.info = control_client_info(client);
	control_client_reply_done(client, header, out, hello_reply_encode(out, sizeof(out), &reply));
}

void control_client_on_authenticate(
	struct control_client *client, const struct wire_header *header, const uint8_t *bytes)
{
	struct control *control = client->control;
	struct authenticate_reply reply;
	struct authenticate message;
	struct wire_error error;
	uint8_t proof[32];
	uint8_t out[1024];

	if (authenticate_decode(bytes, header->length, &message, &error)) {
		control_client_send_malformed(client, header, &error);
		return;
	}
	for (uint32_t i = 0; i < control->options.tenant_count; i++) {
		const struct control_tenant *tenant = &control->tenants[i];

		if (!tenant->key_name[0] || !text_is(&message.key, tenant->key_name))
			continue;
		if (digest_proof(tenant->secret, tenant->secret_length, client->challenge, message.nonce,
			    tenant->key_name, strlen(tenant->key_name), proof) ||
			!digest_equal(proof, message.proof))
			break;
		if (!control_client_bind(client, header, i))
			return;
		memset(&reply, 0, sizeof(reply));
		reply.header = control_client_reply_header(client, header, STATUS_OK);
		reply.info = control_client_info(client);
		control_client_reply_done(client, header, out, authenticate_reply_encode(out, sizeof(out), &reply));
		return;
	}
	/* One answer for an unknown key and a wrong proof: names are not given away. */
	kvr_counter_add(&control->counters.authentication_failures_total, 1);
	control_client_send_error(client, header, STATUS_AUTHENTICATION_FAILED, "the key's name or secret is wrong");
	client->close_after_send = true;
}

/* Of the workers whose device suits the client's address best, the one with the fewest connections. */
static uint32_t control_choose_worker(
	const struct control *control, const struct control_client *client, const struct connect_request *request)
{
	uint32_t best = UINT32_MAX, best_match = 0;

	for (uint32_t i = 0; i < control->options.worker_count; i++) {
		const struct verbs_device *device = worker_device(control->workers[i]);
		uint32_t match = verbs_is_up(device) ? 2 : 1;

		if (strcmp(device->driver->name, client->driver) != 0)
			continue;
		/* One that can't be reached is refused with the device's own words; nothing comes through one that is down. */
		if (device->driver->match && verbs_is_up(device))
			match += device->driver->match(device, request->address, request->address_length);
		if (match > best_match ||
			(match == best_match && control->worker_connections[i] < control->worker_connections[best])) {
			best = i;
			best_match = match;
		}
	}
	return best;
}

void control_client_on_connect(struct control_client *client, const struct wire_header *header, const uint8_t *bytes)
{
	struct control *control = client->control;
	struct connect_request request;
	struct client_job *job = &client->job;
	struct wire_error error;
	uint32_t worker;

	if (connect_request_decode(bytes, header->length, &request, &error)) {
		control_client_send_malformed(client, header, &error);
		return;
	}
	worker = control_choose_worker(control, client, &request);
	if (worker == UINT32_MAX) {
		control_client_send_error(
			client, header, STATUS_UNSUPPORTED, "this server has no \"%s\" device", client->driver);
		return;
	}
	if (request.rail != 0 && !worker_device(control->workers[worker])->driver->several_rails) {
		control_client_send_error(client, header, STATUS_UNSUPPORTED,
			"with the driver \"%s\" a client has one rail, rail %u was asked for", client->driver,
			request.rail);
		return;
	}
	client->connection.worker_index = worker;
	client->connection.home_rail = request.rail;
	client->device = worker_device(control->workers[worker]);
	control->worker_connections[worker]++;
	worker_qp_options(control->workers[worker], &job->qp_options);
	job->qp_options.peer_recv_wr = client->credits;
	job->qp_options.context = &client->connection;
	job->device = client->device;
	job->peer = client->stream->peer;
	memcpy(job->address, request.address, request.address_length);
	job->address_length = request.address_length;
	job->fd_count = 0;
	while (client->fd_count > 0)
		job->fds[job->fd_count++] = control_client_claim_fd(client);
	job->reply_fd_count = 0;
	control_client_submit_job(client, CLIENT_JOB_CONNECT, header);
}

/* On the helper: creating a queue pair enters the kernel. */
void control_client_connect_run(struct client_job *job)
{
	const struct verbs_driver *driver = job->device->driver;
	struct connection *connection = &job->client->connection;
	int error;

	error = driver->create_qp(job->device, &job->qp_options, &connection->qp);
	if (!error)
		error = driver->qp_connect(
			connection->qp, job->address, job->address_length, job->fds, job->fd_count, &job->peer);
	if (!error)
		error = driver->qp_address(connection->qp, job->address, sizeof(job->address), &job->address_length,
			job->reply_fds, &job->reply_fd_count);
	job->job.result = error;
}

void control_client_connect_done(struct control_client *client, int result)
{
	struct client_job *job = &client->job;
	struct connect_reply reply;
	uint8_t out[WIRE_HEADER_BYTES + 64 + WIRE_ADDRESS_MAX];
	ssize_t length;

	/* The driver has duplicated what it needs. */
	while (job->fd_count > 0)
		close(job->fds[--job->fd_count]);
	if (!client->stream)
		return;
	if (result) {
		control_client_send_error(client, &job->header, STATUS_UNSUPPORTED, "no queue pair on %s: %s",
			client->device->name, strerror(-result));
		client->close_after_send = true;
		return;
	}
	memset(&reply, 0, sizeof(reply));
	reply.header = control_client_reply_header(client, &job->header, STATUS_OK);
	reply.rail = client->connection.home_rail;
	reply.address = job->address;
	reply.address_length = job->address_length;
	length = connect_reply_encode(out, sizeof(out), &reply);
	if (length < 0) {
		control_client_reply_done(client, &job->header, out, length);
		client->close_after_send = true;
		return;
	}
	control_client_send(client, out, (size_t)length, job->reply_fds, job->reply_fd_count);
	client->state = CLIENT_CONNECTED;
	client->announced = true;
	control_post(client->control, MANAGEMENT_ATTACH, &client->connection, 0);
	log_info("client %s: connected, tenant %s, worker %u", client->name,
		client->control->tenants[client->tenant].name, client->connection.worker_index);
}
