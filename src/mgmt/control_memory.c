/* control_memory.c - MEMORY and FORGET_MEMORY: making a client's memory reachable, on the helper. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "mgmt/control_private.h"

static uint16_t status_of_import(int error)
{
	switch (-error) {
	case EPERM:
	case EOPNOTSUPP:
	case ENODEV:
	case ENOTRECOVERABLE:
		return STATUS_MEMORY_UNUSABLE;
	case ENOMEM:
	case ENOSPC:
		return STATUS_BUSY;
	default:
		return STATUS_INVALID_MEMORY;
	}
}

static const char *text_of_import(int error)
{
	switch (-error) {
	case EPERM:
		return "shared memory must be a memfd sealed against shrinking (F_SEAL_SHRINK)";
	case EOPNOTSUPP:
		return "this kind of memory can't be reached by this server's device";
	case ENODEV:
		return "the server does not reach that GPU: its status page, or its log, says which ones it has and why";
	case ENOTRECOVERABLE:
		return "the server has lost that GPU: it has to be restarted to use it again; its status page says why it was lost";
	case EBADMSG:
		return "the handle of the GPU memory is none of this version";
	case EFAULT:
		return "the shared memory is shorter than the region";
	case ENOMEM:
		return "the server has no memory to map it";
	case ENOSPC:
		return "too many regions on this connection";
	default:
		return strerror(-error);
	}
}

void control_client_on_memory(struct control_client *client, const struct wire_header *header, const uint8_t *bytes)
{
	struct client_job *job = &client->job;
	struct memory_request request;
	struct wire_error error;
	uint32_t region = 0;
	int fd = -1;

	if (memory_request_decode(bytes, header->length, &request, &error)) {
		control_client_send_malformed(client, header, &error);
		return;
	}
	if (request.kind == MEMORY_SHARED) {
		fd = control_client_claim_fd(client);
		if (fd < 0) {
			control_client_send_error(client, header, STATUS_INVALID_MEMORY,
				"shared memory needs its descriptor beside the message");
			return;
		}
	}
	if (request.rkey_count > 0 && request.rkey_count <= client->connection.home_rail) {
		control_client_send_error(client, header, STATUS_INVALID_MEMORY,
			"%u keys: none is for rail %u, where this client is connected", request.rkey_count,
			client->connection.home_rail);
		return;
	}
	while (region < CONTROL_REGIONS_MAX && client->connection.regions[region].present)
		region++;
	if (region == CONTROL_REGIONS_MAX) {
		if (fd >= 0)
			close(fd);
		control_client_send_error(
			client, header, STATUS_BUSY, "a client may have %u memory regions", CONTROL_REGIONS_MAX);
		return;
	}
	memset(&job->memory, 0, sizeof(job->memory));
	job->memory.address = request.address;
	job->memory.length = request.length;
	job->memory.offset = request.offset;
	job->memory.kind = request.kind;
	job->memory.rkey = request.rkey_count > 0 ? request.rkeys[client->connection.home_rail] : 0;
	memcpy(job->rkeys, request.rkeys, sizeof(job->rkeys));
	job->memory.fd = fd;
	job->memory.handle_length = request.handle_length;
	if (request.handle_length > 0)
		memcpy(job->memory.handle, request.handle, request.handle_length);
	job->region = region;
	control_client_submit_job(client, CLIENT_JOB_IMPORT, header);
}

void control_client_import_run(struct client_job *job)
{
	struct control_client *client = job->client;

	job->job.result = client->device->driver->import_memory(client->connection.qp, &job->memory, &job->import);
}

void control_client_import_done(struct control_client *client, int result)
{
	struct client_job *job = &client->job;
	struct layout_region *region = &client->connection.regions[job->region];
	struct memory_reply reply;
	uint8_t out[WIRE_HEADER_BYTES + 64];

	if (job->memory.fd >= 0)
		close(job->memory.fd);
	if (result) {
		kvr_counter_add(&client->control->counters.memory_import_failures_total, 1);
		if (client->stream)
			control_client_send_error(
				client, &job->header, status_of_import(result), "%s", text_of_import(result));
		return;
	}
	kvr_counter_add(&client->control->counters.memory_imports_total, 1);
	client->region_count++;
	client->region_bytes += job->memory.length;
	region->address = job->import.address;
	region->length = job->import.length;
	region->rkey = job->import.rkey;
	memcpy(region->rkeys, job->rkeys, sizeof(region->rkeys));
	if (job->memory.kind == MEMORY_DEVICE)
		kvr_store_relaxed(&client->connection.on_gpu, 1);
	kvr_store_release(&region->present, true);
	if (!client->stream)
		return;
	memset(&reply, 0, sizeof(reply));
	reply.header = control_client_reply_header(client, &job->header, STATUS_OK);
	reply.region = job->region;
	control_client_reply_done(client, &job->header, out, memory_reply_encode(out, sizeof(out), &reply));
}

static bool control_client_region_used(const struct control_client *client, uint32_t region)
{
	for (uint32_t i = 0; i < CONTROL_REGISTRATIONS_MAX; i++) {
		const struct registration *registration = client->registrations[i];

		for (uint32_t p = 0; registration && registration->layout && p < registration->layout->plane_count;
			p++) {
			if (registration->layout->planes[p].region == region)
				return true;
		}
	}
	return false;
}

void control_client_on_forget_memory(
	struct control_client *client, const struct wire_header *header, const uint8_t *bytes)
{
	struct forget_memory message;
	struct wire_error error;

	if (forget_memory_decode(bytes, header->length, &message, &error)) {
		control_client_send_malformed(client, header, &error);
		return;
	}
	if (message.region >= CONTROL_REGIONS_MAX || !client->connection.regions[message.region].present) {
		control_client_send_error(
			client, header, STATUS_INVALID_MEMORY, "there is no region %u", message.region);
		return;
	}
	if (control_client_region_used(client, message.region)) {
		control_client_send_error(
			client, header, STATUS_BUSY, "a registration uses region %u: unregister first", message.region);
		return;
	}
	client->job.region = message.region;
	kvr_store_release(&client->connection.regions[message.region].present, false);
	client->job.header = *header;
	client->answer_pending = true;
	control_post(client->control, MANAGEMENT_FORGET, &client->connection, message.region);
}

/* On the helper that may be stuck: unmapping takes the kernel as long as it likes (pitfalls C01). Also when the
 * client is on its way out: what was imported is given back before the queue pair goes. */
void control_client_forgotten(struct control_client *client)
{
	client->answer_pending = false;
	control_client_submit_job(client, CLIENT_JOB_FORGET, NULL);
}

void control_client_forget_run(struct client_job *job)
{
	struct control_client *client = job->client;

	client->device->driver->forget_memory(client->connection.qp, client->connection.regions[job->region].rkey);
	job->job.result = 0;
}

void control_client_forget_done(struct control_client *client, int result)
{
	struct client_job *job = &client->job;
	struct empty_reply reply;
	uint8_t out[WIRE_HEADER_BYTES + 32];

	(void)result;
	client->region_count--;
	client->region_bytes -= client->connection.regions[job->region].length;
	if (!client->stream)
		return;
	memset(&reply, 0, sizeof(reply));
	reply.header = control_client_reply_header(client, &job->header, STATUS_OK);
	control_client_reply_done(client, &job->header, out, empty_reply_encode(out, sizeof(out), &reply));
}
