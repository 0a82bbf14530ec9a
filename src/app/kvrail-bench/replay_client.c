/* replay_client.c - an engine: one thread, a connection for the scheduler and one for each rank, and requests in
 * flight. */
#include "app/kvrail-bench/replay_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/atomic.h"
#include "base/clock.h"

#define SPIN_NS (50 * KVR_US)
#define SLEEP_MAX_NS KVR_MS

int replay_client_open(struct replay_client *client, char *why, size_t why_size)
{
	struct replay *replay = client->replay;
	uint32_t depth = replay->settings->depth;
	int error = 0;

	measure_init(&client->measure);
	client->ranks = calloc(replay->shape.ranks, sizeof(*client->ranks));
	client->slots = calloc(depth, sizeof(*client->slots));
	text_copy(why, why_size, "out of memory");
	if (!client->ranks || !client->slots)
		return -ENOMEM;
	for (uint32_t i = 0; !error && i < depth; i++)
		error = replay_slot_init(&client->slots[i], replay, client->number * depth + i);
	for (uint32_t rank = 0; !error && rank < replay->shape.ranks; rank++)
		error = endpoint_open_rank(&client->ranks[rank], &replay->endpoints, rank, why, why_size);
	if (!error)
		error = endpoint_open_scheduler(
			&client->scheduler, &replay->endpoints, client->ranks[0].fingerprint, why, why_size);
	return error;
}

void replay_client_close(struct replay_client *client)
{
	struct replay *replay = client->replay;

	measure_fini(&client->measure);
	if (client->hopeless)
		return;
	if (client->scheduler.client)
		endpoint_close(&client->scheduler);
	for (uint32_t rank = 0; client->ranks && rank < replay->shape.ranks; rank++)
		endpoint_close(&client->ranks[rank]);
	for (uint32_t i = 0; client->slots && i < replay->settings->depth; i++)
		replay_slot_fini(&client->slots[i], replay);
	free(client->ranks);
	free(client->slots);
}

/* Between requests of all clients, so nothing else moves bytes. */
void replay_measure_ceiling(void *context)
{
	struct replay *replay = context;

	if (replay->ceiling.objects)
		ceiling_measure(&replay->ceiling, &replay->clients[0].ranks[0].gpu, replay_verifies(replay));
}

struct round {
	bool progress;
	bool over;       /* there are no more requests */
	uint32_t active; /* slots with a request */
	uint64_t due_ns; /* when the next request may begin, if that is what there is to wait for */
};

static void slot_turn(struct replay_client *client, struct replay_slot *slot, bool may_begin, struct round *round)
{
	uint64_t due_ns = 0, now_ns;
	int result;

	if (slot->step == STEP_FREE && may_begin && !round->over && !round->due_ns) {
		result = replay_take(client->replay, slot->request, &slot->number, &due_ns);
		if (result == 1) {
			now_ns = clock_now_ns();
			if (client->replay->settings->speed_factor > 0)
				histogram_add(&client->measure.lag, now_ns - kvr_min_u64(now_ns, due_ns));
			replay_slot_begin(client, slot);
			round->progress = true;
		} else if (result == 0) {
			round->over = true;
		} else {
			round->due_ns = due_ns;
		}
	} else if (slot->step != STEP_FREE) {
		round->progress |= replay_slot_poll(client, slot);
	}
	round->active += slot->step != STEP_FREE;
}

static void wait_for_news(struct replay_client *client, const struct round *round)
{
	uint64_t now_ns = clock_now_ns();
	struct timespec pause;

	for (uint32_t i = 0; round->active > 0 && i < client->replay->settings->depth; i++) {
		if (client->slots[i].step != STEP_FREE) {
			replay_slot_wait(client, &client->slots[i]);
			return;
		}
	}
	if (round->due_ns > now_ns) {
		pause.tv_sec = 0;
		pause.tv_nsec = (long)kvr_min_u64(round->due_ns - now_ns, SLEEP_MAX_NS);
		nanosleep(&pause, NULL);
	}
}

void *replay_client_main(void *context)
{
	struct replay_client *client = context;
	struct replay *replay = client->replay;
	uint64_t idle_ns = 0;
	bool over = false;

	while (!client->hopeless) {
		bool due = gate_due(&replay->gate);
		struct round round = { .over = over };

		for (uint32_t i = 0; i < replay->settings->depth && !client->hopeless; i++)
			slot_turn(client, &client->slots[i], !due, &round);
		over = round.over;
		if (over && round.active == 0)
			break;
		if (due && round.active == 0) {
			gate_arrive(&replay->gate, replay_measure_ceiling, replay);
		} else if (round.progress) {
			idle_ns = 0;
		} else if (idle_ns == 0) {
			idle_ns = clock_now_ns();
		} else if (clock_now_ns() - idle_ns > SPIN_NS) {
			wait_for_news(client, &round);
		} else {
			kvr_cpu_pause();
		}
	}
	gate_leave(&replay->gate, replay_measure_ceiling, replay);
	return NULL;
}
