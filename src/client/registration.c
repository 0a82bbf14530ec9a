/* registration.c - memory regions and registrations: what is wanted, and what the server knows on this connection. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client_private.h"

#define REGION_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* One that nobody uses any more is on its way out: what lies at its address now may be other memory, which its key does not reach. */
static bool region_usable(const struct client_region *region)
{
	return region->mr && (region->users > 0 || region->allocated) && !region->unwanted;
}

uint32_t region_find(const struct kvr_client *client, uint64_t address, uint64_t length)
{
	for (uint32_t i = 0; i < CLIENT_REGIONS_MAX; i++) {
		const struct client_region *region = &client->regions[i];

		if (region_usable(region) && address >= region->address && length <= region->length &&
			address - region->address <= region->length - length)
			return i;
	}
	return UINT32_MAX;
}

static struct ibv_mr **region_mr(struct kvr_client *client, struct client_region *region, uint32_t rail)
{
	size_t index = (size_t)(region - client->regions);

	return rail == 0 ? &region->mr : &client->rail_mrs[index * (client->rail_count - 1) + rail - 1];
}

static void region_deregister(struct kvr_client *client, struct client_region *region)
{
	for (uint32_t i = 0; i < client->rail_count; i++) {
		struct ibv_mr **mr = region_mr(client, region, i);

		if (*mr)
			client->device->driver->deregister_memory(*mr);
		*mr = NULL;
	}
}

void region_free(struct kvr_client *client, struct client_region *region)
{
	region_deregister(client, region);
	if (region->allocated)
		client->device->driver->release(
			client->rails[0].device, (void *)(uintptr_t)region->address, region->length);
}

/* With each device. */
static int region_register(struct kvr_client *client, struct client_region *region, uint64_t address, uint64_t length)
{
	bool by_adapter = region->on_gpu && !region->by_handle;

	for (uint32_t i = 0; i < client->rail_count; i++) {
		struct verbs_device *device = client->rails[i].device;
		struct ibv_mr **mr = region_mr(client, region, i);
		int error = by_adapter ? client_gpu_register(client, device, address, length, REGION_ACCESS, mr)
				       : device->driver->register_memory(
						 device, (void *)(uintptr_t)address, length, REGION_ACCESS, mr);

		if (!error)
			continue;
		*mr = NULL;
		region_deregister(client, region);
		if (by_adapter)
			return error;
		error_text_set("%llu bytes at 0x%llx can't be registered with %s: %s", (unsigned long long)length,
			(unsigned long long)address, client->rails[i].device->name, strerror(-error));
		return error;
	}
	return 0;
}

int region_make(struct kvr_client *client, uint64_t address, uint64_t length, uint32_t *index)
{
	struct client_region *region = client->regions;
	int error;

	while (region < client->regions + CLIENT_REGIONS_MAX && region->mr)
		region++;
	if (region == client->regions + CLIENT_REGIONS_MAX) {
		error_text_set("all %u memory regions of the client are in use: put planes into larger allocations, "
			       "or unregister what is not needed",
			CLIENT_REGIONS_MAX);
		return -ENOSPC;
	}
	memset(region, 0, sizeof(*region));
	region->on_gpu = client_gpu_holds(client, address);
	region->by_handle = region->on_gpu && client->device->driver->moved_by_peer;
	error = region->by_handle ? client_gpu_export(client, address, length, &region->gpu) : 0;
	if (error)
		return error;
	error = region_register(client, region, address, length);
	if (error)
		return error;
	region->address = address;
	region->length = length;
	*index = (uint32_t)(region - client->regions);
	client->unsettled = true;
	return 0;
}

/* Gone from the device once the server has forgotten it too. */
void region_release(struct kvr_client *client, uint32_t index)
{
	struct client_region *region = &client->regions[index];

	if (region->users > 0 || (region->allocated && !region->unwanted) || region->announced || region->announcing)
		return;
	region_free(client, region);
}

void registration_free(struct kvr_client *client, struct client_registration *registration)
{
	client->unsettled = true;
	for (uint32_t i = 0; i < registration->plane_count; i++) {
		uint32_t region = registration->planes[i].region;

		client->regions[region].users--;
		region_release(client, region);
	}
	free((void *)(uintptr_t)registration->model.name);
	free((void *)(uintptr_t)registration->model.dtype);
	free(registration->planes);
	memset(registration, 0, sizeof(*registration));
}

void registration_forget_all(struct kvr_client *client)
{
	client->operation = OPERATION_NONE;
	client->unsettled = true;
	for (uint32_t i = 0; i < CLIENT_REGIONS_MAX; i++) {
		client->regions[i].announced = false;
		client->regions[i].announcing = false;
		client->regions[i].refused = false;
		if (client->regions[i].mr)
			region_release(client, i);
	}
	for (uint32_t i = 0; i < CLIENT_REGISTRATIONS_MAX; i++) {
		struct client_registration *registration = &client->registrations[i];

		registration->standing = false;
		registration->failed = false;
		/* One that never stood, or was on its way out, goes; its ticket ends with the others. */
		if (registration->used && registration->ticket)
			registration_free(client, registration);
	}
}

/* ---- one control message at a time, until the server knows what is wanted ---- */

static void operation_memory(struct kvr_client *client, uint32_t index)
{
	uint8_t bytes[WIRE_HEADER_BYTES + 512];
	struct client_region *region = &client->regions[index];
	struct memory_request request;
	struct verbs_export description;
	int error = 0;

	memset(&request, 0, sizeof(request));
	memset(&description, 0, sizeof(description));
	if (!region->by_handle)
		error = client->device->driver->export_memory(region->mr, &description);
	if (error) {
		connection_lose(client, error, "memory can't be described to the server: %s", strerror(-error));
		return;
	}
	request.header = connection_header(client, WIRE_MEMORY);
	request.address = region->address;
	request.length = region->length;
	request.offset = description.offset;
	request.kind = description.kind;
	request.rkey_count = description.kind == MEMORY_REMOTE ? client->rail_count : 0;
	request.rkeys[0] = description.rkey;
	for (uint32_t i = 1; i < request.rkey_count; i++) {
		struct verbs_export other;

		error = client->device->driver->export_memory(*region_mr(client, region, i), &other);
		if (error)
			break;
		request.rkeys[i] = other.rkey;
	}
	if (error) {
		connection_lose(client, error, "memory can't be described to the server: %s", strerror(-error));
		return;
	}
	if (region->by_handle) {
		request.kind = MEMORY_DEVICE;
		request.device = region->gpu.ordinal;
		request.offset = region->gpu.offset;
		request.handle = region->gpu.handle;
		request.handle_length = sizeof(region->gpu.handle);
	}
	if (description.kind == MEMORY_SHARED && description.fd >= 0) {
		client->out_fd = description.fd;
		client->out_fd_at = client->outbox.length;
	}
	region->announcing = true;
	connection_send(client, bytes, memory_request_encode(bytes, sizeof(bytes), &request));
}

static void operation_forget(struct kvr_client *client, uint32_t index)
{
	uint8_t bytes[WIRE_HEADER_BYTES + 32];
	struct forget_memory message;

	memset(&message, 0, sizeof(message));
	message.header = connection_header(client, WIRE_FORGET_MEMORY);
	message.region = client->regions[index].number;
	connection_send(client, bytes, forget_memory_encode(bytes, sizeof(bytes), &message));
}

static void operation_register(struct kvr_client *client, uint32_t index)
{
	struct client_registration *own = &client->registrations[index];
	struct register_request request;
	size_t bytes_max = WIRE_HEADER_BYTES + 1024 + 2 * WIRE_NAME_MAX + WIRE_GROUPS_MAX * WIRE_GROUP_BYTES +
		(size_t)own->plane_count * 2 * WIRE_PLANE_BYTES;
	uint8_t groups[WIRE_GROUPS_MAX * WIRE_GROUP_BYTES];
	uint8_t *bytes = malloc(bytes_max);
	uint8_t *planes = malloc((size_t)own->plane_count * WIRE_PLANE_BYTES + 1);

	memset(&request, 0, sizeof(request));
	if (!bytes || !planes) {
		free(bytes);
		free(planes);
		connection_lose(client, -ENOMEM, "no memory for a REGISTER");
		return;
	}
	request.header = connection_header(client, WIRE_REGISTER);
	request.identity.model.bytes = own->model.name;
	request.identity.model.length = (uint32_t)strlen(own->model.name);
	request.identity.dtype.bytes = own->model.dtype;
	request.identity.dtype.length = (uint32_t)strlen(own->model.dtype);
	request.identity.fingerprint = own->fingerprint;
	request.identity.world_size = own->model.world_size;
	request.identity.rank = own->model.rank;
	request.identity.readers = own->model.readers ? own->model.readers : 1;
	request.identity.reader = own->model.reader;
	request.group_count = own->group_count;
	request.plane_count = own->plane_count;
	for (uint32_t g = 0; g < own->group_count; g++)
		register_write_group(groups + g * WIRE_GROUP_BYTES, &own->groups[g]);
	for (uint32_t i = 0; i < own->plane_count; i++) {
		struct wire_plane plane = own->planes[i];

		plane.region = client->regions[plane.region].number;
		register_write_plane(planes + (size_t)i * WIRE_PLANE_BYTES, &plane);
	}
	request.groups = groups;
	request.planes = planes;
	connection_send(client, bytes, register_request_encode(bytes, bytes_max, &request));
	free(bytes);
	free(planes);
}

static void operation_unregister(struct kvr_client *client, uint32_t index)
{
	uint8_t bytes[WIRE_HEADER_BYTES + 32];
	struct unregister_request message;

	memset(&message, 0, sizeof(message));
	message.header = connection_header(client, WIRE_UNREGISTER);
	message.registration = client->registrations[index].number;
	connection_send(client, bytes, unregister_request_encode(bytes, sizeof(bytes), &message));
}

/* What is missing, in the order that makes it possible: memory, then registrations; what is not wanted any more goes last. */
static enum control_operation operation_next(const struct kvr_client *client, uint32_t *index)
{
	for (uint32_t i = 0; i < CLIENT_REGIONS_MAX; i++) {
		*index = i;
		if (client->regions[i].mr && client->regions[i].users > 0 && !client->regions[i].announced &&
			!client->regions[i].refused)
			return OPERATION_MEMORY;
	}
	for (uint32_t i = 0; i < CLIENT_REGISTRATIONS_MAX; i++) {
		const struct client_registration *registration = &client->registrations[i];

		*index = i;
		if (registration->used && registration->wanted && !registration->standing && !registration->failed)
			return OPERATION_REGISTER;
		if (registration->used && !registration->wanted)
			return OPERATION_UNREGISTER;
	}
	*index = client_rails_wanted(client);
	if (*index != UINT32_MAX)
		return OPERATION_RAIL;
	for (uint32_t i = 0; i < CLIENT_REGIONS_MAX; i++) {
		*index = i;
		if (client->regions[i].mr && client->regions[i].users == 0 && client->regions[i].announced)
			return OPERATION_FORGET;
	}
	return OPERATION_NONE;
}

bool registration_step(struct kvr_client *client)
{
	static void (*const begin[])(struct kvr_client * client, uint32_t index) = {
		[OPERATION_MEMORY] = operation_memory,
		[OPERATION_FORGET] = operation_forget,
		[OPERATION_REGISTER] = operation_register,
		[OPERATION_UNREGISTER] = operation_unregister,
		[OPERATION_RAIL] = client_rails_ask,
	};

	if (client->operation != OPERATION_NONE)
		return false;
	if (client->unsettled)
		client->operation = operation_next(client, &client->operation_index);
	if (client->operation != OPERATION_NONE) {
		begin[client->operation](client, client->operation_index);
		return true;
	}
	client->unsettled = false;
	if (client->state == CONNECTION_RESTORING) {
		client->state = CONNECTION_READY;
		client->ready_ns = client->now_ns;
		client->reconnects += client->generation > 1 ? 1 : 0;
		return true;
	}
	return false;
}

/* ---- answers ---- */

static void registration_refused(struct kvr_client *client, struct client_registration *registration, int code,
	uint16_t status, const struct wire_text *text)
{
	struct slot *slot = slot_find(client, registration->ticket);

	if (slot && registration->wanted) {
		slot_done(client, slot, code, status, text->bytes, text->length);
		registration_free(client, registration);
	} else if (!registration->wanted) { /* that it does not stand is what its UNREGISTER is after */
		if (slot)
			slot_done(client, slot, 0, STATUS_OK, "", 0);
		registration_free(client, registration);
	} else if (status ==
		STATUS_BUSY) { /* not for good: once more, with a new connection and the back-off of those */
		connection_lose(client, code, "the server has no room for registration %u: %.*s",
			(unsigned)(registration - client->registrations), (int)text->length, text->bytes);
	} else {
		log_warn("client: the server refused registration %u after a reconnect: %.*s",
			(unsigned)(registration - client->registrations), (int)text->length, text->bytes);
		registration->failed = true;
		snprintf(registration->failure, sizeof(registration->failure), "%.*s", (int)text->length, text->bytes);
	}
}

static void operation_refused(struct kvr_client *client, const struct wire_header *header, const uint8_t *bytes)
{
	struct error_reply reply;
	struct wire_error error;
	uint32_t index = client->operation_index;
	int code = status_to_errno(header->status);

	if (error_reply_decode(bytes, header->length, &reply, &error)) {
		connection_lose(client, -EPROTO, "an error reply is malformed: %s", error.what);
		return;
	}
	if (client->operation == OPERATION_RAIL) {
		log_debug("client: rail %u was refused: %.*s", index, (int)reply.text.length, reply.text.bytes);
		client_rails_refused(client, index);
		return;
	}
	/* Memory that the server can't reach fails the registrations that use it. */
	for (uint32_t i = 0; i < CLIENT_REGISTRATIONS_MAX; i++) {
		struct client_registration *registration = &client->registrations[i];
		bool concerned = registration->used && !registration->standing &&
			(client->operation == OPERATION_REGISTER ? i == index : client->operation == OPERATION_MEMORY);

		for (uint32_t p = 0; concerned && client->operation == OPERATION_MEMORY; p++) {
			concerned = p < registration->plane_count;
			if (concerned && registration->planes[p].region == index)
				break;
		}
		if (!concerned)
			continue;
		registration_refused(client, registration, code, header->status, &reply.text);
	}
	if (client->operation == OPERATION_MEMORY && client->regions[index].mr)
		client->regions[index].refused = true;
	if (client->operation == OPERATION_MEMORY && client->large &&
		client->regions[index].address == (uint64_t)(uintptr_t)client->large)
		connection_lose(client, code, "the server can't reach the memory that long requests go through: %.*s",
			(int)reply.text.length, reply.text.bytes);
	/* Whether that memory is quiet is known only when the connection has ended. */
	if (client->operation == OPERATION_UNREGISTER || client->operation == OPERATION_FORGET)
		connection_lose(client, -EPROTO, "the server refused %s: %.*s",
			client->operation == OPERATION_FORGET ? "FORGET_MEMORY" : "UNREGISTER", (int)reply.text.length,
			reply.text.bytes);
}

static void operation_done(struct kvr_client *client, const struct wire_header *header, const uint8_t *bytes)
{
	struct client_registration *registration = &client->registrations[client->operation_index];
	struct client_region *region = &client->regions[client->operation_index];
	struct register_reply registered;
	struct memory_reply memory;
	struct wire_error error;
	struct slot *slot;

	switch (client->operation) {
	case OPERATION_MEMORY:
		if (memory_reply_decode(bytes, header->length, &memory, &error)) {
			connection_lose(client, -EPROTO, "MEMORY_REPLY: %s", error.what);
			return;
		}
		region->announced = true;
		region->number = memory.region;
		break;
	case OPERATION_RAIL:
		client_rails_connected(client, client->operation_index, header, bytes);
		break;
	case OPERATION_FORGET:
		region->announced = false;
		region_release(client, client->operation_index);
		break;
	case OPERATION_REGISTER:
		if (register_reply_decode(bytes, header->length, &registered, &error)) {
			connection_lose(client, -EPROTO, "REGISTER_REPLY: %s", error.what);
			return;
		}
		registration->number = registered.registration;
		registration->object_bytes = registered.object_bytes;
		registration->standing = true;
		if (!registration->wanted)
			break; /* its UNREGISTER follows */
		slot = slot_find(client, registration->ticket);
		registration->ticket = 0;
		if (slot)
			slot_done(client, slot, 0, STATUS_OK, "", 0);
		break;
	default:
		slot = slot_find(client, registration->ticket);
		registration_free(client, registration);
		if (slot)
			slot_done(client, slot, 0, STATUS_OK, "", 0);
		break;
	}
}

void registration_message(struct kvr_client *client, const struct wire_header *header, const uint8_t *bytes)
{
	static const uint16_t expected[] = {
		[OPERATION_NONE] = 0,
		[OPERATION_MEMORY] = WIRE_MEMORY_REPLY,
		[OPERATION_FORGET] = WIRE_FORGET_MEMORY_REPLY,
		[OPERATION_REGISTER] = WIRE_REGISTER_REPLY,
		[OPERATION_UNREGISTER] = WIRE_UNREGISTER_REPLY,
		[OPERATION_RAIL] = WIRE_CONNECT_REPLY,
	};

	if (client->operation == OPERATION_NONE || header->type != expected[client->operation] ||
		header->request_id != client->control_id) {
		connection_lose(client, -EPROTO, "the server sent %s out of order", wire_type_name(header->type));
		return;
	}
	if (client->operation == OPERATION_MEMORY)
		client->regions[client->operation_index].announcing = false;
	if (header->status == STATUS_OK)
		operation_done(client, header, bytes);
	else
		operation_refused(client, header, bytes);
	client->operation = OPERATION_NONE;
}
