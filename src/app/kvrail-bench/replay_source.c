#include "app/kvrail-bench/replay_private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"

static void copy_request(struct trace_request *to, const struct trace_request *from)
{
	memcpy(to, from, offsetof(struct trace_request, blocks) + from->block_count * sizeof(from->blocks[0]));
}

static void source_read(struct replay *replay)
{
	struct trace_error error;
	int result;

	if (replay->settings->requests && replay->taken >= replay->settings->requests) {
		replay->source_ended = true;
		return;
	}
	result = trace_next(replay->trace, replay->next, &error);
	replay->next_read = result == 1;
	replay->source_ended = result != 1;
	if (result < 0)
		complain(&replay->complaints, "%s", error.text);
}

static bool source_over(const struct replay *replay, uint64_t now_ns)
{
	uint64_t limit_ns = replay->settings->seconds * KVR_SECOND;

	return kvr_load_acquire(&replay->complaints.stop) || (limit_ns && now_ns - replay->start_ns >= limit_ns);
}

int replay_take(struct replay *replay, struct trace_request *request, uint64_t *number, uint64_t *due_ns)
{
	double speed = replay->settings->speed_factor;
	uint64_t now_ns = clock_now_ns();
	int result = 0;

	pthread_mutex_lock(&replay->source_mutex);
	if (source_over(replay, now_ns))
		replay->source_ended = true;
	else if (!replay->next_read && !replay->source_ended)
		source_read(replay);
	if (!replay->source_ended) {
		*due_ns = speed > 0 ? replay->start_ns + (uint64_t)((double)replay->next->arrival_ns / speed) : now_ns;
		result = -EAGAIN;
		if (*due_ns <= now_ns) {
			copy_request(request, replay->next);
			replay->next_read = false;
			*number = ++replay->taken;
			result = 1;
		}
	}
	pthread_mutex_unlock(&replay->source_mutex);
	return result;
}

/* ---- the reference ---- */

static uint32_t reference_run(struct replay *replay, const struct replay_slot *slot)
{
	struct reference *reference = replay->reference;
	uint32_t hit = reference_lookup(reference, slot->chunks, slot->chunk_count);
	uint32_t count;

	for (uint32_t first = 0; first < hit; first += count) {
		count = (uint32_t)kvr_min_u64(replay->segment_chunks, hit - first);
		reference_retrieve(reference, slot->chunks, first, count);
	}
	for (uint32_t first = hit; first < slot->chunk_count; first += count) {
		count = (uint32_t)kvr_min_u64(replay->segment_chunks, slot->chunk_count - first);
		reference_store(reference, slot->chunks, first, count);
	}
	reference_end(reference, slot->chunks, slot->chunk_count);
	return hit;
}

void replay_compare(struct replay *replay, const struct replay_slot *slot, struct counters *counters)
{
	uint64_t hit_tokens;
	uint32_t hit;

	pthread_mutex_lock(&replay->source_mutex);
	hit = reference_run(replay, slot);
	hit_tokens = (uint64_t)hit * replay->shape.chunk_tokens;
	kvr_counter_add(&counters->reference_hit_tokens, hit_tokens);
	if (hit != slot->hit && !replay->first_difference) {
		replay->first_difference = slot->number;
		if (replay->exact)
			complain(&replay->complaints,
				"request %llu: the server has %u of %u chunks, the reference %u (first difference)",
				(unsigned long long)slot->number, slot->hit, slot->chunk_count, hit);
	}
	pthread_mutex_unlock(&replay->source_mutex);
}
