#include "app/kvrail-bench/endpoint.h"

#include <errno.h>
#include <stdio.h>
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

int endpoint_open_rank(
	struct endpoint *endpoint, const struct endpoint_options *options, uint32_t rank, char *why, size_t why_size)
{
	struct kvr_layout layout = { .struct_bytes = sizeof(layout), .group_count = 1 };
	struct kvr_group group;
	char name[64];
	int error;

	snprintf(name, sizeof(name), "kvrail-bench rank %u", rank);
	error = open_client(endpoint, options, name, why, why_size);
	if (error)
		return error;
	endpoint->holder = rank / options->shape.readers;
	endpoint->reader = rank % options->shape.readers;
	error = kvr_alloc(endpoint->client, fakegpu_bytes(&options->shape, options->blocks), &endpoint->memory);
	if (error)
		return failed(error, "paged KV memory", why, why_size);
	error = fakegpu_init(&endpoint->gpu, &options->shape, endpoint->holder, options->blocks, endpoint->memory,
		options->seed + rank);
	if (error)
		return failed(error, "paged KV memory", why, why_size);
	fakegpu_group(&endpoint->gpu, &group);
	layout.groups = &group;
	error = kvr_layout_fingerprint(&layout, endpoint->fingerprint);
	if (error)
		return failed(error, "layout", why, why_size);
	return register_model(endpoint, options, &layout, NULL, why, why_size);
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
	memset(endpoint, 0, sizeof(*endpoint));
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
