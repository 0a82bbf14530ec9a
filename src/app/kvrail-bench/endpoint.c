#include "app/kvrail-bench/endpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(int error, const char *what, char *why, size_t why_size)
{
	const char *words = kvr_error_text();

	snprintf(why, why_size, "%s: %s", what, words[0] ? words : strerror(-error));
	return error;
}

static int open_client(
	struct endpoint *endpoint, const struct endpoint_options *options, const char *name, char *why, size_t why_size)
{
	struct kvr_options kvr;
	int error;

	memset(endpoint, 0, sizeof(*endpoint));
	settings_client(options->server, name, &kvr);
	error = kvr_open(&kvr, &endpoint->client);
	return error ? failed(error, "no connection", why, why_size) : 0;
}

static int register_model(struct endpoint *endpoint, const struct endpoint_options *options,
	const struct kvr_layout *layout, const uint8_t *fingerprint, char *why, size_t why_size)
{
	struct kvr_model model = KVR_MODEL_INIT;
	int error;

	model.name = options->model;
	model.dtype = options->dtype;
	model.engine = options->run;
	model.world_size = options->shape.holders;
	model.rank = endpoint->holder;
	model.readers = options->shape.readers;
	model.reader = endpoint->reader;
	error = kvr_register(endpoint->client, &model, layout, fingerprint, &endpoint->registration);
	return error ? failed(error, "register", why, why_size) : 0;
}

static int make_memory(struct endpoint *endpoint, const struct endpoint_options *options)
{
	uint64_t bytes = fakegpu_bytes(&options->shape, options->blocks);

	if (!options->gpumem)
		return kvr_alloc(endpoint->client, bytes, &endpoint->memory);
	endpoint->gpumem = options->gpumem;
	endpoint->memory = aligned_alloc(FAKEGPU_GUARD_BYTES, kvr_round_up(bytes, FAKEGPU_GUARD_BYTES));
	return endpoint->memory ? gpumem_alloc(endpoint->gpumem, bytes, &endpoint->device_memory) : -ENOMEM;
}

/* A copy of the group's planes, with addresses on the GPU where they are there. To be freed. */
static struct kvr_plane *planes_of_gpu(const struct endpoint *endpoint, const struct kvr_group *group)
{
	struct kvr_plane *planes = calloc(group->plane_count, sizeof(*planes));

	for (uint32_t i = 0; planes && i < group->plane_count; i++) {
		uint64_t offset = (uint64_t)((const uint8_t *)group->planes[i].address -
			(const uint8_t *)endpoint->memory);

		planes[i] = group->planes[i];
		if (endpoint->gpumem)
			planes[i].address = (void *)(uintptr_t)(endpoint->device_memory + offset);
	}
	return planes;
}

int endpoint_open_rank(
	struct endpoint *endpoint, const struct endpoint_options *options, uint32_t rank, char *why, size_t why_size)
{
	struct kvr_layout layout = { .struct_bytes = sizeof(layout), .group_count = 1 };
	struct kvr_plane *planes;
	struct kvr_group group;
	char name[64];
	int error;

	snprintf(name, sizeof(name), "kvrail-bench rank %u", rank);
	error = open_client(endpoint, options, name, why, why_size);
	if (error)
		return error;
	endpoint->holder = rank / options->shape.readers;
	endpoint->reader = rank % options->shape.readers;
	error = make_memory(endpoint, options);
	if (error)
		return failed(error, "paged KV memory", why, why_size);
	error = fakegpu_init(&endpoint->gpu, &options->shape, endpoint->holder, options->blocks, endpoint->memory,
		options->seed + rank);
	if (error)
		return failed(error, "paged KV memory", why, why_size);
	fakegpu_group(&endpoint->gpu, &group);
	planes = planes_of_gpu(endpoint, &group);
	if (!planes)
		return failed(-ENOMEM, "layout", why, why_size);
	group.planes = planes;
	layout.groups = &group;
	error = kvr_layout_fingerprint(&layout, endpoint->fingerprint);
	if (error)
		(void)failed(error, "layout", why, why_size);
	else
		error = register_model(endpoint, options, &layout, NULL, why, why_size);
	free(planes);
	return error;
}

int endpoint_open_scheduler(struct endpoint *endpoint, const struct endpoint_options *options,
	const uint8_t fingerprint[32], char *why, size_t why_size)
{
	int error = open_client(endpoint, options, "kvrail-bench scheduler", why, why_size);

	return error ? error : register_model(endpoint, options, NULL, fingerprint, why, why_size);
}

void endpoint_close(struct endpoint *endpoint)
{
	/* The library frees what it allocated with the client. */
	kvr_close(&endpoint->client);
	fakegpu_fini(&endpoint->gpu);
	if (endpoint->device_memory)
		gpumem_free(endpoint->gpumem, endpoint->device_memory);
	if (endpoint->gpumem)
		free(endpoint->memory);
	memset(endpoint, 0, sizeof(*endpoint));
}

int endpoint_sync(struct endpoint *endpoint, bool to_gpu, uint32_t count, const uint32_t *ids)
{
	const struct fakegpu *gpu = &endpoint->gpu;

	for (uint32_t plane = 0; endpoint->gpumem && plane < gpu->shape.planes; plane++) {
		for (uint32_t i = 0; i < count; i++) {
			uint8_t *block = fakegpu_block(gpu, plane, ids[i]);
			uint64_t there = endpoint->device_memory + (uint64_t)(block - (uint8_t *)endpoint->memory);

			if (gpumem_copy(endpoint->gpumem, to_gpu, there, block, gpu->shape.block_bytes))
				return -EIO;
		}
	}
	return 0;
}

bool endpoint_answered(int error, struct kvr_result *result)
{
	/* A server's time-out and its "not known yet" carry their status. */
	if (result->status == 0 && (error == -EAGAIN || error == -ETIMEDOUT))
		return false;
	if (error && !result->error)
		result->error = error;
	return true;
}
