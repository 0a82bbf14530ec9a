#include "app/kvrail-bench/replay_private.h"

#include "base/atomic.h"

static void report_fault(struct replay_client *client, const struct replay_slot *slot, uint32_t rank,
	const struct fakegpu_fault *fault, const char *what)
{
	char text[200];

	fakegpu_describe(fault, text, sizeof(text));
	kvr_counter_add(&client->counters.mismatched_bytes, fault->mismatched_bytes);
	complain(&client->replay->complaints, "request %llu, rank %u: %llu bytes %s; the first: %s",
		(unsigned long long)slot->number, rank, (unsigned long long)fault->mismatched_bytes, what, text);
}

/* Whole and of one generation it is; but of one that can be? */
static void check_generation(struct replay_client *client, const struct replay_slot *slot, uint32_t rank,
	uint32_t chunk, uint64_t generation)
{
	struct replay *replay = client->replay;
	uint64_t floor = slot->floors[(size_t)client->ranks[rank].holder * slot->chunk_count + chunk];

	if (replay->settings->old_copies ||
		(generation > floor && generation < generations_ceiling(replay->generations)))
		return;
	kvr_counter_add(&client->counters.mismatched_bytes, replay->shape.object_bytes);
	complain(&replay->complaints,
		"request %llu, rank %u, chunk %u: an old copy, of generation %llu; those up to %llu are gone",
		(unsigned long long)slot->number, rank, chunk, (unsigned long long)generation,
		(unsigned long long)floor);
}

void replay_verify(struct replay_client *client, struct replay_slot *slot, uint32_t rank)
{
	const struct fakegpu *gpu = &client->ranks[rank].gpu;
	uint32_t blocks = gpu->shape.chunk_blocks;
	struct fakegpu_fault guards = { 0 };

	for (uint32_t i = 0; i < slot->count; i++) {
		struct fakegpu_fault fault = { .chunk = slot->first + i };

		if (slot->outcomes[rank][i] != KVR_DELIVERED)
			continue;
		fakegpu_check(gpu, slot->chunks[slot->first + i], slot->ids[rank] + (size_t)i * blocks, &fault);
		kvr_counter_add(&client->counters.verified_bytes, gpu->shape.object_bytes);
		if (fault.mismatched_bytes)
			report_fault(client, slot, rank, &fault, "of a chunk are wrong");
		else
			check_generation(client, slot, rank, slot->first + i, fault.generation);
	}
	fakegpu_check_guards(gpu, slot->count * blocks, slot->ids[rank], &guards);
	if (guards.mismatched_bytes)
		report_fault(client, slot, rank, &guards, "beside the destinations were written");
}
