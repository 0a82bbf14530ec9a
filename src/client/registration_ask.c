/* registration_ask.c - what the user asks for: registrations checked, their regions made, and what the server is to be told. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/client_private.h"

static uint64_t plane_bytes(const struct kvr_plane *plane, uint32_t block_count)
{
	return (uint64_t)(block_count - 1) * plane->block_stride + plane->block_bytes;
}

/* The region of a plane: of an area that is known, or a new one over the plane and the planes that follow it without a gap. */
static int registration_add_plane(struct kvr_client *client, struct client_registration *registration,
	const struct kvr_group *group, uint32_t index)
{
	const struct kvr_plane *plane = &group->planes[index];
	struct wire_plane *wire = &registration->planes[registration->plane_count];
	uint64_t address = (uint64_t)(uintptr_t)plane->address;
	uint64_t length;
	uint32_t region;
	int error;

	if (!plane->address || plane->block_bytes == 0 || plane->block_bytes > UINT32_MAX ||
		plane->block_stride < plane->block_bytes || plane->block_stride > UINT64_MAX / group->block_count / 2 ||
		plane_bytes(plane, group->block_count) > UINT64_MAX - address) {
		error_text_set(
			"plane %u at %p: %llu bytes a block, %llu apart: a block has 1 byte to 4 GiB, the stride "
			"is at least that, and all blocks lie in the address space",
			index, plane->address, (unsigned long long)plane->block_bytes,
			(unsigned long long)plane->block_stride);
		return -EINVAL;
	}
	length = plane_bytes(plane, group->block_count);
	region = region_find(client, address, length);
	if (region == UINT32_MAX) {
		uint64_t limit = client_gpu_end(client, address);
		uint64_t end = address + length;

		for (uint32_t i = index + 1; i < group->plane_count; i++) {
			uint64_t next = (uint64_t)(uintptr_t)group->planes[i].address;
			uint64_t next_end = next + plane_bytes(&group->planes[i], group->block_count);

			if (next < address || next > end || next_end > limit)
				break;
			end = kvr_max_u64(end, next_end);
		}
		error = region_make(client, address, end - address, &region);
		if (error)
			return error;
	}
	client->regions[region].users++;
	client->regions[region].refused = false; /* for this one the server is asked again */
	wire->address = address;
	wire->block_stride = plane->block_stride;
	wire->block_bytes = (uint32_t)plane->block_bytes;
	wire->region = region;
	registration->plane_count++;
	return 0;
}

static int registration_take_layout(
	struct kvr_client *client, struct client_registration *registration, const struct kvr_layout *layout)
{
	uint32_t planes = 0;

	if (layout->struct_bytes < sizeof(*layout) || layout->group_count == 0 || !layout->groups ||
		layout->group_count > WIRE_GROUPS_MAX) {
		error_text_set("a layout has its struct_bytes set, and 1 to %u groups", WIRE_GROUPS_MAX);
		return -EINVAL;
	}
	for (uint32_t g = 0; g < layout->group_count; g++) {
		const struct kvr_group *group = &layout->groups[g];

		if (group->plane_count == 0 || group->plane_count > WIRE_PLANES_MAX || !group->planes ||
			group->block_count == 0 || group->window_tokens == 0 || group->tokens_per_block == 0 ||
			client->server.chunk_tokens % group->tokens_per_block != 0) {
			error_text_set("group %u: %u planes, %u blocks of %u tokens, window %u: none may be 0, and the "
				       "%u tokens of a chunk must be whole blocks",
				g, group->plane_count, group->block_count, group->tokens_per_block,
				group->window_tokens, client->server.chunk_tokens);
			return -EINVAL;
		}
		planes += group->plane_count;
	}
	if (planes > WIRE_PLANES_MAX) {
		error_text_set("%u planes, at most %u", planes, WIRE_PLANES_MAX);
		return -EINVAL;
	}
	registration->planes = calloc(planes, sizeof(struct wire_plane));
	if (!registration->planes)
		return -ENOMEM;
	for (uint32_t g = 0; g < layout->group_count; g++) {
		const struct kvr_group *group = &layout->groups[g];

		registration->groups[g].tokens_per_block = group->tokens_per_block;
		registration->groups[g].window_tokens = group->window_tokens;
		registration->groups[g].block_count = group->block_count;
		registration->groups[g].plane_count = group->plane_count;
		registration->group_count++;
		for (uint32_t i = 0; i < group->plane_count; i++) {
			int error = registration_add_plane(client, registration, group, i);

			if (error)
				return error;
		}
	}
	return 0;
}

/* What the bytes mean: the layout's or the caller's fingerprint, and the engine's name. */
static int registration_fingerprint(struct kvr_client *client, struct client_registration *registration,
	const struct kvr_model *model, const struct kvr_layout *layout, const uint8_t fingerprint[32])
{
	uint8_t base[32];
	int error = 0;

	if (fingerprint)
		memcpy(base, fingerprint, sizeof(base));
	else if (layout)
		error = kvr_layout_fingerprint(layout, base);
	else
		error = -EINVAL;
	if (error) {
		if (!layout)
			error_text_set("a registration without a layout needs a worker's fingerprint");
		return error;
	}
	digester_hash(&client->digester, base, sizeof(base), model->engine ? model->engine : "",
		model->engine ? strlen(model->engine) : 0, registration->fingerprint);
	return 0;
}

static bool name_usable(const char *name)
{
	return name && name[0] && strlen(name) <= WIRE_NAME_MAX;
}

static int model_check(const struct kvr_model *model)
{
	uint32_t readers = model->readers ? model->readers : 1;

	if (model->struct_bytes < sizeof(*model)) {
		error_text_set("model.struct_bytes is not set: use KVR_MODEL_INIT");
		return -EINVAL;
	}
	if (!name_usable(model->name) || !name_usable(model->dtype)) {
		error_text_set("a model has a name and a dtype, of 1 to %u bytes each", WIRE_NAME_MAX);
		return -EINVAL;
	}
	if (model->world_size == 0 || model->world_size > WIRE_WORLD_SIZE_MAX || model->rank >= model->world_size) {
		error_text_set("rank %u of world_size %u: world_size is 1 to %u, rank below it", model->rank,
			model->world_size, WIRE_WORLD_SIZE_MAX);
		return -EINVAL;
	}
	if (readers > WIRE_READERS_MAX || model->reader >= readers) {
		error_text_set("reader %u of %u readers: readers is 1 to %u, reader below it", model->reader, readers,
			WIRE_READERS_MAX);
		return -EINVAL;
	}
	return 0;
}

int client_submit_register(struct kvr_client *client, const struct kvr_model *model, const struct kvr_layout *layout,
	const uint8_t fingerprint[32], uint32_t *index, kvr_ticket *ticket)
{
	struct client_registration *registration = client->registrations;
	struct slot *slot;
	int error;

	if (client->state != CONNECTION_READY) {
		error_text_set("not connected: %s", client->failure_text);
		return -ECONNRESET;
	}
	error = model_check(model);
	if (error)
		return error;
	while (registration < client->registrations + CLIENT_REGISTRATIONS_MAX && registration->used)
		registration++;
	slot = registration < client->registrations + CLIENT_REGISTRATIONS_MAX ? slot_take(client, WIRE_REGISTER)
									       : NULL;
	if (!slot) {
		error_text_set("%u registrations or %u requests exist: the client holds no more",
			CLIENT_REGISTRATIONS_MAX, CLIENT_SLOTS);
		return -EBUSY;
	}
	registration->used = registration->wanted = true;
	registration->serial = ++client->next_serial;
	registration->model = *model;
	registration->model.name = strdup(model->name);
	registration->model.dtype = strdup(model->dtype);
	registration->model.engine = NULL;
	error = registration->model.name && registration->model.dtype ? 0 : -ENOMEM;
	if (!error)
		error = registration_fingerprint(client, registration, model, layout, fingerprint);
	if (!error && layout)
		error = registration_take_layout(client, registration, layout);
	if (error) {
		registration_free(client, registration);
		slot_free(client, slot);
		return error;
	}
	slot->state = SLOT_CONTROL;
	client->unsettled = true;
	registration->ticket = slot->ticket;
	*index = (uint32_t)(registration - client->registrations);
	*ticket = slot->ticket;
	return 0;
}

int client_submit_unregister(struct kvr_client *client, uint32_t index, kvr_ticket *ticket)
{
	struct client_registration *registration = index < CLIENT_REGISTRATIONS_MAX ? &client->registrations[index]
										    : NULL;
	struct slot *slot;

	if (!registration || !registration->used || registration->ticket) {
		error_text_set("there is no registration %u, or it is just being made or unmade", index);
		return -ENODEV;
	}
	slot = slot_take(client, WIRE_UNREGISTER);
	if (!slot) {
		error_text_set("%u requests are under way or wait to be taken", CLIENT_SLOTS);
		return -EBUSY;
	}
	*ticket = slot->ticket;
	/* The server knows nothing of it, and is not just being told. */
	if (!registration->standing && !(client->operation == OPERATION_REGISTER && client->operation_index == index)) {
		registration_free(client, registration);
		slot_done(client, slot, 0, STATUS_OK, "", 0);
		return 0;
	}
	slot->state = SLOT_CONTROL;
	client->unsettled = true;
	registration->ticket = slot->ticket;
	registration->wanted = false;
	return 0;
}
