#include "app/kvrail-bench/load_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/kvrail-bench/trace.h"
#include "base/atomic.h"

#define GENERATION 1

int load_session(struct load_client *client, uint64_t seed, uint32_t chunks, struct kvr_session **session)
{
	struct load *load = client->load;
	uint32_t count = chunks * load->shape.chunk_tokens;
	char id[96];
	int error;

	snprintf(id, sizeof(id), "%s-%u-%llu", load->run, client->number, (unsigned long long)seed);
	for (uint32_t i = 0; i < count; i++)
		client->tokens[i] = trace_token((uint64_t)client->number << 48 | seed, i);
	error = kvr_session_create(client->endpoint.client, client->endpoint.registration, id, NULL, session);
	return error ? error : kvr_session_tokens(*session, client->tokens, count);
}

static uint64_t identity_of(const struct load_client *client, const struct load_chain *chain, uint32_t chunk)
{
	return random_mix((uint64_t)client->number << 48 | chain->seed) + chunk;
}

static int store_chain(struct load_client *client, struct load_chain *chain, const uint32_t *ids)
{
	struct load *load = client->load;
	struct kvr_transfer transfer = KVR_TRANSFER_INIT;
	struct kvr_blocks blocks = { ids, load->chunks * load->shape.chunk_blocks };
	struct kvr_result result;
	int error;

	for (uint32_t chunk = 0; chunk < load->chunks; chunk++)
		fakegpu_fill(&client->endpoint.gpu, identity_of(client, chain, chunk), GENERATION,
			ids + (size_t)chunk * load->shape.chunk_blocks);
	error = endpoint_sync(&client->endpoint, true, blocks.count, ids);
	if (error)
		return error;
	transfer.chunk_count = load->chunks;
	transfer.group_count = 1;
	transfer.groups = &blocks;
	error = kvr_store(chain->session, &transfer, 0, &result);
	return !error && result.chunks != load->chunks ? -ENOMEM : error;
}

static int look_up(struct load_client *client, struct load_chain *chain)
{
	struct kvr_result result;
	kvr_ticket ticket;
	int error = kvr_submit_lookup(chain->session, KVR_LOOKUP_NO_LOCK, &ticket);

	if (!error)
		error = kvr_wait(client->endpoint.client, ticket, UINT64_C(30000000000), &result);
	return !error && result.chunks != client->load->chunks ? -ENOSPC : error;
}

static int fail(int error, const char *what, char *why, size_t why_size)
{
	const char *words = kvr_error_text();

	if (error == -ENOMEM)
		words = "L1 has no room for it; less --set, --chunks or --clients, or kvraild --l1-size";
	if (error == -ENOSPC)
		words = "some of it is gone before all is stored: it does not fit into L1; less --set or "
			"--clients, or kvraild --l1-size";
	snprintf(why, why_size, "%s: %s", what, words[0] ? words : strerror(-error));
	return error;
}

int load_set_store(struct load_client *client, char *why, size_t why_size)
{
	struct load *load = client->load;
	uint32_t count = load->chunks * load->shape.chunk_blocks;
	uint32_t *ids = calloc(count, sizeof(*ids));
	int error = ids ? 0 : -ENOMEM;

	for (uint32_t i = 0; !error && i < load->chains + load->strangers; i++) {
		client->chains[i].seed = client->next_seed++;
		client->chains[i].stored = i < load->chains;
		error = load_session(client, client->chains[i].seed, load->chunks, &client->chains[i].session);
		if (!client->chains[i].stored)
			continue;
		if (!error && !fakegpu_take(&client->endpoint.gpu, count, ids))
			error = -ENOBUFS;
		if (!error) {
			error = store_chain(client, &client->chains[i], ids);
			fakegpu_give(&client->endpoint.gpu, count, ids, false);
		}
	}
	for (uint32_t i = 0; !error && i < load->chains; i++)
		error = look_up(client, &client->chains[i]);
	free(ids);
	return error ? fail(error, "storing the set", why, why_size) : 0;
}

static void verify_chain(struct load_client *client, struct load_chain *chain, const uint32_t *ids, uint8_t *outcomes)
{
	struct load *load = client->load;
	struct kvr_transfer transfer = KVR_TRANSFER_INIT;
	struct kvr_blocks blocks = { ids, load->chunks * load->shape.chunk_blocks };
	struct fakegpu_fault fault = { 0 };
	struct kvr_result result = { .error = 0 };
	char text[200];
	int error;

	fakegpu_poison(&client->endpoint.gpu, blocks.count, ids);
	transfer.chunk_count = load->chunks;
	transfer.group_count = 1;
	transfer.groups = &blocks;
	transfer.outcomes = outcomes;
	error = endpoint_sync(&client->endpoint, true, blocks.count, ids);
	if (!error)
		error = kvr_retrieve(chain->session, &transfer, 0, &result);
	if (!error)
		error = endpoint_sync(&client->endpoint, false, blocks.count, ids);
	if (error) {
		complain(&load->complaints, "verifying: RETRIEVE: %s", result.text[0] ? result.text : strerror(-error));
		return;
	}
	for (uint32_t chunk = 0; chunk < load->chunks; chunk++) {
		if (outcomes[chunk] != KVR_DELIVERED)
			continue; /* evicted by now: what is there is checked */
		fault.chunk = chunk;
		fakegpu_check(&client->endpoint.gpu, identity_of(client, chain, chunk),
			ids + (size_t)chunk * load->shape.chunk_blocks, &fault);
		if (fault.generation != GENERATION && fault.mismatched_bytes == 0)
			fault.mismatched_bytes = load->shape.object_bytes;
		kvr_counter_add(&client->counters.verified_bytes, load->shape.object_bytes);
	}
	if (fault.mismatched_bytes) {
		fakegpu_describe(&fault, text, sizeof(text));
		kvr_counter_add(&client->counters.mismatched_bytes, fault.mismatched_bytes);
		complain(&load->complaints, "verifying: %llu bytes are wrong; the first: %s",
			(unsigned long long)fault.mismatched_bytes, text);
	}
}

void load_set_verify(struct load_client *client)
{
	uint32_t count = client->load->chunks * client->load->shape.chunk_blocks;
	uint32_t *ids = calloc(count, sizeof(*ids));
	uint8_t *outcomes = calloc(client->load->chunks, 1);

	for (uint32_t i = 0; ids && outcomes && i < client->load->chains; i++) {
		if (!client->chains[i].session || !fakegpu_take(&client->endpoint.gpu, count, ids))
			continue;
		verify_chain(client, &client->chains[i], ids, outcomes);
		fakegpu_give(&client->endpoint.gpu, count, ids, false);
	}
	free(ids);
	free(outcomes);
}

void load_set_close(struct load_client *client)
{
	for (uint32_t i = 0; client->chains && i < client->load->chains + client->load->strangers; i++) {
		if (!client->chains[i].session)
			continue;
		(void)kvr_end(client->chains[i].session, 0);
		(void)kvr_session_destroy(&client->chains[i].session);
	}
}
