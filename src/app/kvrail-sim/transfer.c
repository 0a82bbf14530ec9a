/* transfer.c - RETRIEVE and STORE: blocks chosen, filled, and named in one of the ways that engines do. */
#include <string.h>

#include "app/kvrail-sim/world_private.h"

#define NONSENSE_BLOCK 0x12345678u

/* A STORE's blocks are filled with a generation of their own, chunk by chunk. False: no memory. */
static bool fill_chunks(struct action *action)
{
	struct process *process = action->process;
	struct world *world = process->world;
	uint32_t per_chunk = world->shapes[process->shape].blocks_per_chunk;

	for (uint32_t c = 0; c < action->count; c++) {
		const uint32_t *blocks = action->blocks + c * per_chunk;
		uint32_t object = model_object_index(
			&action->host->model, action->namespace_index, action->nodes[c], process->rank);

		action->generations[c] = 0;
		if (blocks[0] == KVR_NULL_BLOCK)
			continue;
		action->generations[c] = model_attempt(&action->host->model, object);
		if (!action->generations[c]) {
			world->no_memory = true;
			return false;
		}
		for (uint32_t j = 0; j < per_chunk; j++)
			blocks_fill(process, blocks[j], object, action->generations[c], j);
	}
	return true;
}

static void punch_nulls(struct action *action, const struct transfer_choice *choice)
{
	struct process *process = action->process;
	uint32_t unit = action->kind == ACTION_STORE ? process->world->shapes[process->shape].blocks_per_chunk : 1;

	if (!choice->nulls)
		return;
	for (uint32_t at = 0; at < action->block_count; at += unit) {
		if ((at / unit) % choice->nulls != choice->nulls - 1)
			continue;
		blocks_give(process, action->blocks + at, unit);
		for (uint32_t j = 0; j < unit; j++)
			action->blocks[at + j] = KVR_NULL_BLOCK;
	}
}

/* Ids of blocks that are skipped are not looked at. */
static void punch_nonsense(struct action *action, const struct transfer_choice *choice)
{
	uint32_t tokens = action->process->world->shapes[action->process->shape].block_tokens;
	uint32_t skipped = action->skip / tokens;

	if (!choice->garbage)
		return;
	for (uint32_t at = 0; at < skipped && at < action->block_count; at++) {
		blocks_give(action->process, action->blocks + at, 1);
		action->blocks[at] = NONSENSE_BLOCK + 7 * at;
	}
}

/* What must be delivered: what is certainly there, or certainly held. Kept as generations' place: 1 yes, 0 not known. */
static void expect_chunks(struct action *action)
{
	struct process *process = action->process;

	for (uint32_t c = 0; c < action->count; c++) {
		uint32_t object = model_object_index(
			&action->host->model, action->namespace_index, action->nodes[c], process->rank);

		action->generations[c] = model_certain(&action->host->model, object, action->submitted);
	}
}

static void release_shares(struct action *action)
{
	struct process *process = action->process;
	const struct shape *shape = &process->world->shapes[process->shape];

	if (process->shape != process_engine(process)->shape)
		return;
	for (uint32_t c = action->first; c < action->first + action->count; c++)
		action->session->held.shares[c] &= ~(1u << (process->rank * shape->readers + process->reader));
}

static int transfer_submit(struct action *action, struct kvr_session *own, const struct transfer_choice *choice)
{
	struct kvr_transfer transfer = KVR_TRANSFER_INIT;
	struct process *process = action->process;
	struct kvr_blocks blocks;
	uint32_t *ids = process->world->scratch;

	memcpy(ids, action->blocks, action->block_count * sizeof(uint32_t));
	if (choice->bad_block)
		ids[action->block_count - 1] = process->block_count + 3;
	blocks.ids = ids;
	blocks.count = action->block_count;
	transfer.first_chunk = action->first;
	transfer.chunk_count = action->count;
	transfer.skip_tokens = action->skip;
	transfer.group_count = 1;
	transfer.groups = &blocks;
	transfer.outcomes = action->outcomes;
	return client_submit_transfer(own, action->kind == ACTION_STORE, &transfer, &action->ticket);
}

static bool transfer_prepare(struct action *action, const struct transfer_choice *choice)
{
	struct process *process = action->process;
	struct world *world = process->world;
	uint32_t blocks = choice->count * world->shapes[process->shape].blocks_per_chunk;

	action->first = choice->first;
	action->count = choice->count;
	action->skip = choice->skip;
	action->bad = choice->bad_block || choice->skip > choice->count * WORLD_CHUNK_TOKENS;
	memcpy(action->nodes, world->documents[action->session->document].nodes + choice->first,
		choice->count * sizeof(uint32_t));
	memset(action->generations, 0, choice->count * sizeof(uint32_t));
	memset(action->outcomes, 0, choice->count);
	if (!blocks_take(process, blocks, action->blocks, choice->scattered))
		return false;
	action->block_count = blocks;
	punch_nulls(action, choice);
	punch_nonsense(action, choice);
	if (action->kind == ACTION_STORE)
		return fill_chunks(action);
	expect_chunks(action);
	return true;
}

bool action_transfer(
	struct process *worker, struct world_session *session, bool store, const struct transfer_choice *choice)
{
	struct kvr_session *own = process_session(worker, session);
	struct action *action = own ? action_begin(worker, store ? ACTION_STORE : ACTION_RETRIEVE, session) : NULL;

	if (!action)
		return false;
	if (!transfer_prepare(action, choice) || transfer_submit(action, own, choice)) {
		if (action->kind == ACTION_RETRIEVE)
			memset(action->generations, 0, action->count * sizeof(uint32_t));
		action_undo(action);
		return false;
	}
	if (!store && !action->bad)
		release_shares(action);
	action_sent(action);
	NOTE(worker->world,
		store ? "process %llu: STORE of session %llu, chunks %llu + %llu, first generation %llu, bad %llu"
		      : "process %llu: RETRIEVE of session %llu, chunks %llu + %llu, skips %llu, bad %llu",
		worker->number, session->slot, action->first, action->count,
		store ? action->generations[0] : action->skip, action->bad);
	return true;
}
