/*
 * control_rail.c - CONNECT of a client that is connected: one more queue pair, on another device of the server.
 *
 * The client asks for each of its devices, again after a failure with a back-off of its own; the rail that it had by that number is
 * taken apart first. Which device of the server is at the other end is chosen by addresses, and whether data gets through only a try
 * tells (worker/rails.c), so a pair that came to nothing is followed by another one.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "mgmt/control_private.h"

struct candidate {
	uint32_t device, match;
};

static bool device_taken(const struct control_client *client, uint32_t number, uint32_t device)
{
	for (uint32_t i = 0; i < WIRE_RAILS_MAX; i++) {
		const struct connection_rail *rail = &client->connection.rails[i];

		if (i != number && rail->qp && rail->device == device)
			return true;
	}
	return false;
}

/* The worker's devices that are left for it, the best first; how many. */
static uint32_t list_candidates(const struct control_client *client, const struct connect_request *request,
	struct candidate candidates[WIRE_RAILS_MAX])
{
	const struct worker *worker = client->control->workers[client->connection.worker_index];
	const struct verbs_device *device;
	uint32_t count = 0;

	for (uint32_t i = 1; (device = worker_rail_device(worker, i)) != NULL; i++) {
		uint32_t match = device->driver->match
			? device->driver->match(device, request->address, request->address_length)
			: 1;
		uint32_t place = count;

		if (match == 0 || device_taken(client, request->rail, i))
			continue;
		if (!verbs_is_up(device))
			match = 1; /* behind those that work */
		for (; place > 0 && candidates[place - 1].match < match; place--)
			candidates[place] = candidates[place - 1];
		candidates[place] = (struct candidate){ i, match };
		count++;
	}
	return count;
}

/* 0: there is none. One that worked before is taken again. */
static uint32_t choose_device(struct control_client *client, const struct connect_request *request)
{
	struct connection_rail *rail = &client->connection.rails[request->rail];
	struct candidate candidates[WIRE_RAILS_MAX];
	uint32_t count = list_candidates(client, request, candidates);

	if (rail->qp && !kvr_load_relaxed(&rail->proved))
		client->rail_attempts[request->rail]++;
	return count ? candidates[client->rail_attempts[request->rail] % count].device : 0;
}

static void begin_job(struct control_client *client)
{
	struct client_job *job = &client->job;

	job->old_qp = client->connection.rails[job->rail].qp;
	job->rail_qp = NULL;
	client->connection.rails[job->rail].qp = NULL;
	control_client_submit_job(client, CLIENT_JOB_RAIL, NULL);
}

void control_client_on_rail(struct control_client *client, const struct wire_header *header, const uint8_t *bytes)
{
	struct client_job *job = &client->job;
	struct connect_request request;
	struct wire_error error;
	uint32_t device;

	if (connect_request_decode(bytes, header->length, &request, &error)) {
		control_client_send_malformed(client, header, &error);
		return;
	}
	if (request.rail == client->connection.home_rail) {
		control_client_send_error(client, header, STATUS_OUT_OF_ORDER,
			"rail %u is the one that requests go through", request.rail);
		return;
	}
	device = choose_device(client, &request);
	if (device == 0) {
		control_client_send_error(client, header, STATUS_UNSUPPORTED,
			"this server has no device for rail %u: a client has as many rails as both sides have devices "
			"that could reach each other",
			request.rail);
		return;
	}
	job->header = *header;
	job->rail = request.rail;
	job->rail_device = device;
	job->device = worker_rail_device(client->control->workers[client->connection.worker_index], device);
	worker_rail_options(client->control->workers[client->connection.worker_index], device, &job->qp_options);
	job->qp_options.context = &client->connection;
	job->peer = client->stream->peer;
	job->fd_count = job->reply_fd_count = 0;
	memcpy(job->address, request.address, request.address_length);
	job->address_length = request.address_length;
	if (!client->connection.rails[request.rail].qp) {
		begin_job(client);
		return;
	}
	client->answer_pending = true;
	control_post(client->control, MANAGEMENT_RAIL_CLOSE, &client->connection, request.rail);
}

/* Also when the client is on its way out: then its queue pair goes with the others. */
void control_client_rail_closed(struct control_client *client)
{
	client->answer_pending = false;
	if (client->stream)
		begin_job(client);
}

/* On the helper. */
void control_client_rail_run(struct client_job *job)
{
	const struct verbs_driver *driver = job->device->driver;
	int error;

	if (job->old_qp)
		driver->destroy_qp(job->old_qp);
	job->old_qp = NULL;
	error = driver->create_qp(job->device, &job->qp_options, &job->rail_qp);
	if (error)
		job->rail_qp = NULL;
	if (!error)
		error = driver->qp_connect(job->rail_qp, job->address, job->address_length, NULL, 0, &job->peer);
	if (!error)
		error = driver->qp_address(job->rail_qp, job->address, sizeof(job->address), &job->address_length,
			job->reply_fds, &job->reply_fd_count);
	if (error && job->rail_qp) {
		driver->destroy_qp(job->rail_qp);
		job->rail_qp = NULL;
	}
	job->job.result = error;
}

void control_client_rail_done(struct control_client *client, int result)
{
	struct client_job *job = &client->job;
	struct connection_rail *rail = &client->connection.rails[job->rail];
	uint8_t out[WIRE_HEADER_BYTES + 64 + WIRE_ADDRESS_MAX];
	struct connect_reply reply;

	if (result) {
		client->rail_attempts[job->rail]++;
		if (client->stream)
			control_client_send_error(client, &job->header, STATUS_UNSUPPORTED, "no queue pair on %s: %s",
				job->device->name, strerror(-result));
		return;
	}
	rail->qp = job->rail_qp;
	rail->device = job->rail_device;
	kvr_store_relaxed(&rail->proved, 0);
	if (!client->stream)
		return;
	memset(&reply, 0, sizeof(reply));
	reply.header = control_client_reply_header(client, &job->header, STATUS_OK);
	reply.rail = job->rail;
	reply.address = job->address;
	reply.address_length = job->address_length;
	control_client_reply_done(client, &job->header, out, connect_reply_encode(out, sizeof(out), &reply));
	control_post(client->control, MANAGEMENT_RAIL_OPEN, &client->connection, job->rail);
}

void control_client_destroy_rails(struct control_client *client)
{
	for (uint32_t i = 0; i < WIRE_RAILS_MAX; i++) {
		struct connection_rail *rail = &client->connection.rails[i];

		if (rail->qp)
			client->device->driver->destroy_qp(rail->qp);
		rail->qp = NULL;
	}
}

static const char *why_out(const struct connection_rail *rail)
{
	const char *why = kvr_load_relaxed(&rail->state) == CONNECTION_RAIL_FAILED ? kvr_load_relaxed(&rail->why)
										   : NULL;

	return why ? why : "";
}

uint32_t control_client_list_rails(
	const struct control_client *client, struct control_rail_status rails[WIRE_RAILS_MAX])
{
	static const char *const names[] = {
		[CONNECTION_RAIL_NONE] = "out",
		[CONNECTION_RAIL_PROBING] = "probing",
		[CONNECTION_RAIL_LIVE] = "live",
		[CONNECTION_RAIL_FAILED] = "out",
	};
	const struct connection *connection = &client->connection;
	uint32_t count = 0;

	if (client->state != CLIENT_CONNECTED)
		return 0;
	rails[count] = (struct control_rail_status){ .rail = connection->home_rail, .state = "home", .why = "" };
	text_copy(rails[count++].device, sizeof(rails[0].device), client->device->name);
	for (uint32_t i = 0; i < WIRE_RAILS_MAX; i++) {
		const struct connection_rail *rail = &connection->rails[i];
		const struct verbs_device *device = worker_rail_device(
			client->control->workers[connection->worker_index], rail->device);

		if (!rail->qp || !device || count == WIRE_RAILS_MAX)
			continue;
		rails[count] = (struct control_rail_status){ .rail = i,
			.state = names[kvr_load_relaxed(&rail->state)],
			.why = why_out(rail),
			.bytes = kvr_load_relaxed(&rail->bytes) };
		text_copy(rails[count++].device, sizeof(rails[0].device), device->name);
	}
	return count;
}
