/*
 * rails.c - the further queue pairs of a connection, one for each device beside its home: the server moves data through them.
 *
 * The client asks for them, one CONNECT each, and asks again after a failure, with a back-off and jitter. That one has failed is the
 * server's to find out; every reply says it. What the server had sent through it may still be in the network, so replies are not read
 * before our queue pair has stopped taking anything (held).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/client_private.h"

#define RAIL_REFUSED_NS (60 * KVR_SECOND) /* to one that the server has no place for */

int client_rails_create(struct kvr_client *client)
{
	const struct verbs_driver *driver = client->device->driver;

	if (client->rail_count > 1) {
		client->rail_mrs = calloc(
			(size_t)CLIENT_REGIONS_MAX * (client->rail_count - 1), sizeof(struct ibv_mr *));
		if (!client->rail_mrs)
			return -ENOMEM;
	}
	for (uint32_t i = 0; i < client->rail_count; i++) {
		struct client_rail *rail = &client->rails[i];
		int error = driver->register_memory(rail->device, client->buffers, client->buffer_bytes,
			IBV_ACCESS_LOCAL_WRITE, &rail->buffer_region);

		if (error) {
			rail->buffer_region = NULL;
			return error;
		}
		error = driver->create_cq(rail->device, 2 * CLIENT_SLOTS + 2 * CLIENT_CREDITS_MAX, &rail->cq);
		if (error) {
			rail->cq = NULL;
			return error;
		}
	}
	client_rails_set_home(client, client->home);
	return 0;
}

void client_rails_destroy(struct kvr_client *client)
{
	for (uint32_t i = 0; i < client->rail_count; i++) {
		struct client_rail *rail = &client->rails[i];

		if (rail->cq)
			rail->device->driver->destroy_cq(rail->cq);
		if (rail->buffer_region)
			rail->device->driver->deregister_memory(rail->buffer_region);
	}
	free(client->rail_mrs);
}

void client_rails_set_home(struct kvr_client *client, uint32_t home)
{
	client->home = home;
	client->home_down_ns = 0;
	client->device = client->rails[home].device;
	client->cq = client->rails[home].cq;
	client->buffer_region = client->rails[home].buffer_region;
}

static void rail_drop(struct client_rail *rail)
{
	if (rail->started)
		rail->device->driver->qp_stop(rail->qp);
	if (rail->qp)
		rail->device->driver->destroy_qp(rail->qp);
	rail->qp = NULL;
	rail->started = false;
	rail->state = RAIL_DOWN;
}

/* As connection_plan_retry: half of it is jitter, and one that did not stand for long counts as another failure. */
static void rail_plan_retry(struct kvr_client *client, struct client_rail *rail)
{
	if (rail->up_ns != 0 && client->now_ns - rail->up_ns >= CLIENT_BACKOFF_MAX_NS)
		rail->backoff_ns = 0;
	rail->up_ns = 0;
	rail->backoff_ns = kvr_min_u64(kvr_max_u64(2 * rail->backoff_ns, CLIENT_BACKOFF_MIN_NS), CLIENT_BACKOFF_MAX_NS);
	rail->retry_ns = client->now_ns + rail->backoff_ns / 2 + random_below(&client->random, rail->backoff_ns / 2);
}

static void rail_lose(struct kvr_client *client, struct client_rail *rail)
{
	rail->device->driver->qp_fail(rail->qp);
	rail->state = RAIL_CLOSING;
	client->rails_closing++;
	rail_plan_retry(client, rail);
}

void client_rails_out(struct kvr_client *client, uint32_t numbers)
{
	for (uint32_t i = 0; i < client->rail_count; i++) {
		struct client_rail *rail = &client->rails[i];

		if (!(numbers >> i & 1) || rail->state != RAIL_UP)
			continue;
		log_info("client: rail %u, %s, is out: the server gets no data through it", i, rail->device->name);
		rail_lose(client, rail);
	}
}

void client_rails_lose_all(struct kvr_client *client)
{
	for (uint32_t i = 0; i < client->rail_count; i++) {
		struct client_rail *rail = &client->rails[i];

		if (rail->state == RAIL_UP)
			rail_lose(client, rail);
		else if (rail->state == RAIL_ASKED)
			rail_drop(rail); /* nothing ever came through it */
	}
}

static bool rail_look(struct kvr_client *client, struct client_rail *rail)
{
	struct ibv_wc wc[4];

	/* Nothing was ever posted: a driver may want to be polled all the same. */
	while (ibv_poll_cq(rail->cq, (int)KVR_COUNT_OF(wc), wc) == (int)KVR_COUNT_OF(wc))
		;
	if (!rail->device->driver->qp_idle(rail->qp))
		return false;
	rail_drop(rail);
	client->rails_closing--;
	return true;
}

bool client_rails_gone(struct kvr_client *client)
{
	for (uint32_t i = 0; client->rails_closing > 0 && i < client->rail_count; i++) {
		if (client->rails[i].state == RAIL_CLOSING)
			rail_look(client, &client->rails[i]);
	}
	return client->rails_closing == 0;
}

bool client_rails_look_at_home(struct kvr_client *client)
{
	uint32_t word = kvr_load_relaxed(&client->device->health);
	enum verbs_health health = verbs_health_of(word);

	if (KVR_LIKELY(word == client->home_health && client->home_down_ns == 0))
		return false;
	if (word != client->home_health)
		client->home_down_ns = health == VERBS_PORT_DOWN ? client->now_ns : 0;
	client->home_health = word;
	if (health == VERBS_LOST)
		connection_lose(client, -ENODEV, "%s: the device is lost", client->device->name);
	else if (health == VERBS_MOVED)
		connection_lose(client, -ENETDOWN, "%s: its address has changed", client->device->name);
	else if (client->home_down_ns > 0 && client->now_ns - client->home_down_ns >= CLIENT_HOME_PATIENCE_NS)
		connection_lose(client, -ENETDOWN, "%s: its port is down", client->device->name);
	else
		return false;
	return true;
}

uint32_t client_rails_next_home(const struct kvr_client *client)
{
	for (uint32_t i = 1; i < client->rail_count; i++) {
		uint32_t next = (client->home + i) % client->rail_count;

		if (verbs_is_up(client->rails[next].device))
			return next;
	}
	return (client->home + 1) % client->rail_count;
}

uint32_t client_rails_wanted(const struct kvr_client *client)
{
	for (uint32_t i = 0; i < client->rail_count; i++) {
		if (i != client->home && client->rails[i].state == RAIL_DOWN &&
			client->now_ns >= client->rails[i].retry_ns)
			return i;
	}
	return UINT32_MAX;
}

/* Through a device of ours that is down nothing would come: not even asked for. */
static void put_off_those_down(struct kvr_client *client)
{
	for (uint32_t i = 0; i < client->rail_count; i++) {
		struct client_rail *rail = &client->rails[i];

		if (i != client->home && rail->state == RAIL_DOWN && client->now_ns >= rail->retry_ns &&
			!verbs_is_up(rail->device))
			rail_plan_retry(client, rail);
	}
}

bool client_rails_step(struct kvr_client *client)
{
	uint32_t before = client->rails_closing;

	if (before > 0 && client_rails_gone(client))
		queue_read_held(client);
	put_off_those_down(client);
	if (client_rails_wanted(client) != UINT32_MAX)
		client->unsettled = true;
	return client->rails_closing != before;
}

void client_rails_refused(struct kvr_client *client, uint32_t number)
{
	struct client_rail *rail = &client->rails[number];

	rail_drop(rail);
	rail_plan_retry(client, rail);
	rail->retry_ns = client->now_ns + RAIL_REFUSED_NS / 2 + random_below(&client->random, RAIL_REFUSED_NS / 2);
}

void client_rails_ask(struct kvr_client *client, uint32_t number)
{
	uint8_t bytes[WIRE_HEADER_BYTES + 64 + WIRE_ADDRESS_MAX];
	struct client_rail *rail = &client->rails[number];
	const struct verbs_driver *driver = rail->device->driver;
	struct verbs_qp_options options;
	uint8_t address[WIRE_ADDRESS_MAX];
	struct connect_request request;
	int fds[STREAM_FDS_MAX];
	unsigned fd_count = 0;
	int error;

	memset(&options, 0, sizeof(options));
	options.send_cq = options.recv_cq = rail->cq;
	options.max_send_wr = options.max_recv_wr = options.max_sge = 1;
	options.context = client;
	memset(&request, 0, sizeof(request));
	error = driver->create_qp(rail->device, &options, &rail->qp);
	if (error)
		rail->qp = NULL;
	else
		error = driver->qp_address(rail->qp, address, sizeof(address), &request.address_length, fds, &fd_count);
	if (error) {
		log_warn("client: rail %u: no queue pair on %s: %s", number, rail->device->name, strerror(-error));
		rail_drop(rail);
		rail_plan_retry(client, rail);
		client->operation = OPERATION_NONE;
		return;
	}
	rail->state = RAIL_ASKED;
	request.header = connection_header(client, WIRE_CONNECT);
	request.rail = number;
	request.address = address;
	connection_send(client, bytes, connect_request_encode(bytes, sizeof(bytes), &request));
}

void client_rails_connected(
	struct kvr_client *client, uint32_t number, const struct wire_header *header, const uint8_t *bytes)
{
	struct client_rail *rail = &client->rails[number];
	const struct verbs_driver *driver = rail->device->driver;
	struct connect_reply reply;
	struct wire_error error;
	int result;

	if (connect_reply_decode(bytes, header->length, &reply, &error)) {
		connection_lose(client, -EPROTO, "CONNECT_REPLY: %s", error.what);
		return;
	}
	result = driver->qp_connect(rail->qp, reply.address, reply.address_length, NULL, 0, &client->stream->peer);
	if (result) {
		log_warn("client: rail %u on %s could not be connected: %s", number, rail->device->name,
			strerror(-result));
		rail_drop(rail);
		rail_plan_retry(client, rail);
		return;
	}
	driver->qp_start(rail->qp);
	rail->started = true;
	rail->state = RAIL_UP;
	rail->up_ns = client->now_ns;
}

uint64_t client_rails_next_ns(const struct kvr_client *client)
{
	uint64_t next_ns = client->rails_closing > 0 ? client->now_ns + KVR_MS : UINT64_MAX;

	for (uint32_t i = 0; client->rail_count > 1 && i < client->rail_count; i++) {
		if (i != client->home && client->rails[i].state == RAIL_DOWN)
			next_ns = kvr_min_u64(next_ns, client->rails[i].retry_ns);
	}
	return next_ns;
}
