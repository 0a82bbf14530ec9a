/* handshake.c - HELLO, AUTHENTICATE, CONNECT, from the client's side. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/client_private.h"

static struct wire_text text_of(const char *string)
{
	struct wire_text text;

	text.bytes = string ? string : "";
	text.length = (uint32_t)strlen(text.bytes);
	return text;
}

static void text_keep(char *out, size_t size, const struct wire_text *text)
{
	size_t length = text->length < size ? text->length : size - 1;

	memcpy(out, text->bytes, length);
	out[length] = '\0';
}

/* One more than the user's requests: a CANCEL must always find a credit. */
static uint32_t handshake_credits(const struct kvr_client *client)
{
	uint32_t in_flight = client->options.user->in_flight;

	return in_flight > 0 && in_flight < CLIENT_CREDITS_MAX ? in_flight + 1 : CLIENT_CREDITS_MAX;
}

/* What we know and, with this device, have a use for. */
static uint32_t handshake_features(const struct kvr_client *client)
{
	bool gathers = client->device->driver->gathers && !client->options.plain;

	return FEATURE_FLAG_PER_LAYER | (gathers ? FEATURE_SEVERAL_MESSAGES : 0);
}

void handshake_begin(struct kvr_client *client)
{
	uint8_t bytes[WIRE_HEADER_BYTES + 4 * WIRE_NAME_MAX];
	struct hello hello;

	memset(&hello, 0, sizeof(hello));
	client->boot_id = 0;
	hello.header = connection_header(client, WIRE_HELLO);
	hello.version_min = WIRE_VERSION_MIN;
	hello.version_max = WIRE_VERSION_MAX;
	hello.features = handshake_features(client);
	hello.want_credits = handshake_credits(client);
	hello.driver = text_of(client->device->driver->name);
	hello.client = text_of(client->options.user->name);
	hello.tenant = text_of(client->options.user->tenant);
	client->state = CONNECTION_HELLO;
	connection_send(client, bytes, hello_encode(bytes, sizeof(bytes), &hello));
}

/* A refusal ends the attempt; some are final (connection.c looks at the errno). */
static void handshake_refused(struct kvr_client *client, const uint8_t *bytes, const struct wire_header *header)
{
	struct error_reply reply;
	struct wire_error error;

	if (error_reply_decode(bytes, header->length, &reply, &error))
		connection_lose(client, -EPROTO, "the server's refusal is malformed: %s", error.what);
	else
		connection_lose(client, status_to_errno(header->status), "the server refused: %s: %.*s",
			status_text(header->status), (int)reply.text.length, reply.text.bytes);
}

static void handshake_take_info(struct kvr_client *client, const struct server_info *info)
{
	client->server = *info;
	text_keep(client->server_name, sizeof(client->server_name), &info->server);
	text_keep(client->tenant_name, sizeof(client->tenant_name), &info->tenant);
	client->server.server = text_of(client->server_name);
	client->server.tenant = text_of(client->tenant_name);
	client->credits = (uint32_t)kvr_min_u64(info->credits, handshake_credits(client));
	client->gathers = info->features & handshake_features(client) & FEATURE_SEVERAL_MESSAGES;
}

static bool handshake_acceptable(struct kvr_client *client)
{
	const struct server_info *info = &client->server;
	const char *tenant = client->options.user->tenant;

	if (tenant && tenant[0] && strcmp(tenant, client->tenant_name) != 0) {
		connection_lose(client, -EACCES, "this credential is tenant \"%s\", not \"%s\" as the options say",
			client->tenant_name, tenant);
		return false;
	}
	if (info->chunk_tokens > CLIENT_CHUNK_TOKENS_MAX) {
		connection_lose(client, -EPROTO, "the server has chunks of %u tokens, this client takes up to %u",
			info->chunk_tokens, CLIENT_CHUNK_TOKENS_MAX);
		return false;
	}
	/* Digests and layouts of before are cut for the old size. */
	if (client->chunk_tokens != 0 && client->chunk_tokens != info->chunk_tokens) {
		connection_lose(client, -EPROTOTYPE,
			"the server's chunks had %u tokens and now have %u: open the client anew", client->chunk_tokens,
			info->chunk_tokens);
		return false;
	}
	client->chunk_tokens = info->chunk_tokens;
	return true;
}

static void handshake_connect(struct kvr_client *client)
{
	uint8_t bytes[WIRE_HEADER_BYTES + 64 + WIRE_ADDRESS_MAX];
	const struct verbs_driver *driver = client->device->driver;
	uint8_t address[WIRE_ADDRESS_MAX];
	struct connect_request request;
	int fds[STREAM_FDS_MAX];
	unsigned fd_count = 0;
	int error;

	if (!handshake_acceptable(client))
		return;
	error = queue_connect(client);
	memset(&request, 0, sizeof(request));
	if (!error)
		error = driver->qp_address(
			client->qp, address, sizeof(address), &request.address_length, fds, &fd_count);
	if (error) {
		connection_lose(client, error, "no queue pair on %s: %s", client->device->name, strerror(-error));
		return;
	}
	request.header = connection_header(client, WIRE_CONNECT);
	request.rail = client->home;
	request.address = address;
	client->state = CONNECTION_CONNECT;
	connection_send(client, bytes, connect_request_encode(bytes, sizeof(bytes), &request));
}

static void handshake_prove(struct kvr_client *client, const uint8_t challenge[32])
{
	uint8_t bytes[WIRE_HEADER_BYTES + 128 + WIRE_NAME_MAX];
	const char *key = client->options.user->key_name;
	struct authenticate message;
	uint8_t nonce[32], proof[32];
	int error;

	if (!key || client->secret_length == 0) {
		connection_lose(client, -EACCES, "the server wants a shared secret: set key_name and key_file");
		return;
	}
	error = random_secret(nonce, sizeof(nonce));
	if (!error)
		error = digest_proof(client->secret, client->secret_length, challenge, nonce, key, strlen(key), proof);
	if (error) {
		connection_lose(client, error, "no proof could be made: %s", strerror(-error));
		return;
	}
	memset(&message, 0, sizeof(message));
	message.header = connection_header(client, WIRE_AUTHENTICATE);
	message.nonce = nonce;
	message.proof = proof;
	message.key = text_of(key);
	client->state = CONNECTION_PROOF;
	connection_send(client, bytes, authenticate_encode(bytes, sizeof(bytes), &message));
}

static void handshake_hello_reply(struct kvr_client *client, const struct wire_header *header, const uint8_t *bytes)
{
	struct hello_reply reply;
	struct wire_error error;

	if (hello_reply_decode(bytes, header->length, &reply, &error)) {
		connection_lose(client, -EPROTO, "HELLO_REPLY: %s", error.what);
		return;
	}
	client->boot_id = header->boot_id;
	handshake_take_info(client, &reply.info);
	if (reply.authentication == AUTHENTICATION_CHALLENGE)
		handshake_prove(client, reply.challenge);
	else
		handshake_connect(client);
}

static void handshake_authenticate_reply(
	struct kvr_client *client, const struct wire_header *header, const uint8_t *bytes)
{
	struct authenticate_reply reply;
	struct wire_error error;

	if (authenticate_reply_decode(bytes, header->length, &reply, &error)) {
		connection_lose(client, -EPROTO, "AUTHENTICATE_REPLY: %s", error.what);
		return;
	}
	handshake_take_info(client, &reply.info);
	handshake_connect(client);
}

static void handshake_connect_reply(struct kvr_client *client, const struct wire_header *header, const uint8_t *bytes)
{
	const struct verbs_driver *driver = client->device->driver;
	struct connect_reply reply;
	struct wire_error error;
	int result;

	if (connect_reply_decode(bytes, header->length, &reply, &error)) {
		connection_lose(client, -EPROTO, "CONNECT_REPLY: %s", error.what);
		return;
	}
	result = driver->qp_connect(
		client->qp, reply.address, reply.address_length, client->fds, client->fd_count, &client->stream->peer);
	while (client->fd_count > 0)
		close(client->fds[--client->fd_count]);
	if (result) {
		connection_lose(client, result, "the queue pair could not be connected: %s", strerror(-result));
		return;
	}
	queue_post_receives(client);
	if (client->state == CONNECTION_CLOSING)
		return;
	driver->qp_start(client->qp);
	client->started = true;
	client->state = CONNECTION_RESTORING;
}

void handshake_message(struct kvr_client *client, const struct wire_header *header, const uint8_t *bytes)
{
	static const struct {
		enum connection_state state;
		uint16_t type;
		void (*handle)(struct kvr_client *client, const struct wire_header *header, const uint8_t *bytes);
	} table[] = {
		{ CONNECTION_HELLO, WIRE_HELLO_REPLY, handshake_hello_reply },
		{ CONNECTION_PROOF, WIRE_AUTHENTICATE_REPLY, handshake_authenticate_reply },
		{ CONNECTION_CONNECT, WIRE_CONNECT_REPLY, handshake_connect_reply },
	};

	for (unsigned i = 0; i < KVR_COUNT_OF(table); i++) {
		if (table[i].state != client->state || table[i].type != header->type)
			continue;
		if (header->status == STATUS_OK && header->request_id != client->control_id)
			break;
		if (header->status == STATUS_OK)
			table[i].handle(client, header, bytes);
		else
			handshake_refused(client, bytes, header);
		return;
	}
	connection_lose(client, -EPROTO, "the server sent %s out of order", wire_type_name(header->type));
}
