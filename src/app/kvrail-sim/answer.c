/* answer.c - is what was answered true? */
#include <errno.h>
#include <string.h>

#include "app/kvrail-sim/world_private.h"
#include "protocol/status.h"

/* ---- errors --------------------------------------------------------------------------------------------------- */

/* Was what FREE is to release held for certain, from its submission until now? */
static bool free_certain(const struct action *action)
{
	return action->expected != UINT32_MAX && !action->crossed && action->session->released == action->submitted &&
		held_valid(action->process->world, action->session) && process_clean(action->process) &&
		action->process->clean_since < action->session->held.since;
}

/* A worker may have looked up, only counting: who asks for the result then hears that it is gone. */
static bool somebody_lost(const struct action *action)
{
	const struct engine *engine = process_engine(action->process);
	const struct process *first = &action->process->world->processes[engine->first_process];

	for (uint32_t i = 0; i <= engine->worker_count; i++)
		if (first[i].disturbed > action->submitted)
			return true;
	return false;
}

/* Errors that the action may end with, as things stand. */
static bool error_allowed(const struct action *action, const struct kvr_result *result)
{
	const struct process *process = action->process;
	struct world *world = process->world;
	const struct world_session *session = action->session;
	bool ended = session && (action->crossed || session->ended);

	switch (result->status) {
	case STATUS_CONNECTION_LOST:
		return process_excused(process);
	case STATUS_CANCELED:
		return action->canceled || ended || action->overtaken || (session && session->reused_id) ||
			(action->kind == ACTION_QUERY && (session->lookup_canceled || somebody_lost(action))) ||
			process->disturbed > action->submitted ||
			world->processes[process_engine(process)->first_process].disturbed > action->submitted;
	case STATUS_CHAIN_MISMATCH:
		return session && session->reused_id;
	case STATUS_UNKNOWN_SESSION:
		return action->kind == ACTION_QUERY || action->kind == ACTION_FREE;
	case STATUS_NO_LOCK:
		return action->kind == ACTION_FREE && !free_certain(action);
	case STATUS_NO_QUOTA:
		return action->kind == ACTION_STORE && world->quotas;
	case STATUS_NO_MEMORY:
		return action->kind == ACTION_STORE && !world->roomy;
	case STATUS_INVALID_BLOCK:
		return action->bad;
	case STATUS_INVALID_RANGE:
		/* FREE may name chunks that a session, begun anew in the server, does not have yet. */
		return action->kind == ACTION_FREE || action->bad;
	case STATUS_NOT_ALLOWED:
		return action->kind == ACTION_CLEAR && process_engine(process)->tenant != 0;
	case STATUS_TRANSFER_FAILED:
		/* A place of L2 that fails now and then. */
		return action->kind == ACTION_CLEAR && action->host->place_count;
	case STATUS_NOT_REGISTERED:
		return process->disturbed > action->submitted;
	case STATUS_SHUTTING_DOWN:
		return action->host->draining || process->disturbed > action->submitted;
	case STATUS_PENDING:
		return action->host->place_count &&
			(action->kind == ACTION_QUERY || (action->flags & KVR_LOOKUP_NO_WAIT));
	case STATUS_BUSY:
		return world->chain_max > 64 || action->host->server_options.sessions_max < 128;
	default:
		return false;
	}
}

/* ---- STORE ---------------------------------------------------------------------------------------------------- */

static bool store_outcome(struct action *action, uint32_t chunk)
{
	struct world *world = action->process->world;
	uint32_t generation = action->generations[chunk];
	uint8_t outcome = action->outcomes[chunk];

	if (!generation)
		return outcome == KVR_SKIPPED;
	switch (outcome) {
	case KVR_STORED:
		model_stored(&action->host->model, generation, action->submitted, action->epoch, world->sequence);
		world->report->stored_chunks++;
		return true;
	case KVR_PRESENT:
		return model_present(&action->host->model, generation, action->epoch, world->sequence);
	case KVR_NO_MEMORY:
		model_never(&action->host->model, generation);
		return !world->roomy;
	case KVR_NO_QUOTA:
		model_never(&action->host->model, generation);
		return world->quotas;
	case KVR_CANCELED:
		model_never(&action->host->model, generation);
		return action->canceled || action->process->disturbed > action->submitted;
	case KVR_FAILED_CHUNK:
		model_never(&action->host->model, generation);
		return process_excused(action->process);
	default:
		return false;
	}
}

static void store_answer(struct action *action, const struct kvr_result *result)
{
	struct process *process = action->process;
	struct world *world = process->world;
	uint32_t per_chunk = world->shapes[process->shape].blocks_per_chunk;

	for (uint32_t c = 0; c < action->count; c++) {
		uint32_t object = model_object_index(
			&action->host->model, action->namespace_index, action->nodes[c], process->rank);

		/* The server only reads them. */
		for (uint32_t j = 0; j < per_chunk && action->generations[c]; j++)
			if (!blocks_holds(
				    process, action->blocks[c * per_chunk + j], object, action->generations[c], j))
				world_violated(world, "process %u: STORE changed the blocks of chunk %u",
					process->number, action->first + c);
		if (result->error) {
			/* A lost connection leaves it open whether it was stored; a refusal does not. */
			if (action->generations[c] && result->status != STATUS_CONNECTION_LOST)
				model_never(&action->host->model, action->generations[c]);
		} else if (!store_outcome(action, c)) {
			world_violated(world, "process %u: STORE says %u of chunk %u, which cannot be", process->number,
				action->outcomes[c], action->first + c);
		}
	}
}

/* ---- RETRIEVE ------------------------------------------------------------------------------------------------- */

/* The token at which the block begins, counted from the first of the range, tells whether it was skipped. */
static bool block_skipped(const struct action *action, uint32_t at)
{
	uint32_t tokens = action->process->world->shapes[action->process->shape].block_tokens;

	return (at + 1) * tokens <= action->skip;
}

static bool block_real(const struct action *action, uint32_t at)
{
	return action->blocks[at] < action->process->block_count;
}

/* Every byte is of one generation, which may have been there; what was not to be written was not. */
static void check_delivered(struct action *action, uint32_t chunk)
{
	struct process *process = action->process;
	struct world *world = process->world;
	uint32_t per_chunk = world->shapes[process->shape].blocks_per_chunk;
	uint32_t object = model_object_index(
		&action->host->model, action->namespace_index, action->nodes[chunk], process->rank);
	uint32_t generation = 0;
	bool known = false;

	for (uint32_t j = 0; j < per_chunk; j++) {
		uint32_t at = chunk * per_chunk + j;
		const char *wrong;

		if (!block_real(action, at))
			continue;
		if (block_skipped(action, at)) {
			if (!blocks_poisoned(process, action->blocks[at]))
				world_violated(world, "process %u: RETRIEVE wrote to block %u, which it was to skip",
					process->number, action->blocks[at]);
			continue;
		}
		if (!known) {
			generation = content_generation(blocks_at(process, 0, action->blocks[at]));
			wrong = model_check(&action->host->model, object, generation, action->submitted);
			if (wrong)
				world_violated(world, "process %u: RETRIEVE delivered %s: chunk %u, generation %u",
					process->number, wrong, action->first + chunk, generation);
			known = true;
		}
		if (!blocks_holds(process, action->blocks[at], object, generation, j))
			world_violated(world, "process %u: RETRIEVE delivered wrong bytes in block %u of chunk %u",
				process->number, j, action->first + chunk);
		if (world_stopped(world))
			return;
	}
}

static void check_untouched(struct action *action, uint32_t chunk)
{
	struct process *process = action->process;
	uint32_t per_chunk = process->world->shapes[process->shape].blocks_per_chunk;

	for (uint32_t j = 0; j < per_chunk; j++) {
		uint32_t at = chunk * per_chunk + j;

		if (block_real(action, at) && !blocks_poisoned(process, action->blocks[at]))
			world_violated(process->world,
				"process %u: RETRIEVE says %u of chunk %u, and wrote to its block %u all the same",
				process->number, action->outcomes[chunk], action->first + chunk, j);
	}
}

/* A miss is a lie when the chunk was certainly there, or certainly held. */
static void check_missing(struct action *action, uint32_t chunk)
{
	struct process *process = action->process;
	struct world *world = process->world;
	uint32_t object = model_object_index(
		&action->host->model, action->namespace_index, action->nodes[chunk], process->rank);
	const struct world_session *holder;

	if (action->generations[chunk] && model_certain(&action->host->model, object, action->submitted))
		world_violated(world, "process %u: RETRIEVE says that chunk %u is missing, which nothing took away",
			process->number, action->first + chunk);
	holder = held_by(action, action->nodes[chunk]);
	if (holder)
		world_violated(world,
			"process %u: RETRIEVE says that chunk %u is missing, which session %u of engine %u has locked",
			process->number, action->first + chunk, holder->slot, holder->engine);
	world->report->missing_chunks++;
}

static void retrieve_outcome(struct action *action, uint32_t chunk)
{
	struct world *world = action->process->world;
	bool skipped = (chunk + 1) * WORLD_CHUNK_TOKENS <= action->skip;

	switch (action->outcomes[chunk]) {
	case KVR_DELIVERED:
		check_delivered(action, chunk);
		world->report->delivered_chunks++;
		return;
	case KVR_SKIPPED:
		check_untouched(action, chunk);
		if (skipped)
			return;
		for (uint32_t j = 0; j < world->shapes[action->process->shape].blocks_per_chunk; j++) {
			uint32_t at = chunk * world->shapes[action->process->shape].blocks_per_chunk + j;

			if (!block_skipped(action, at) && action->blocks[at] != KVR_NULL_BLOCK)
				world_violated(world, "process %u: RETRIEVE skipped chunk %u, which it was to deliver",
					action->process->number, action->first + chunk);
		}
		return;
	case KVR_MISSING:
		check_untouched(action, chunk);
		check_missing(action, chunk);
		return;
	case KVR_CANCELED:
		if (action->canceled || action->process->disturbed > action->submitted)
			return;
		break;
	case KVR_FAILED_CHUNK:
		if (process_excused(action->process))
			return;
		break;
	default:
		break;
	}
	world_violated(world, "process %u: RETRIEVE says %u of chunk %u, which cannot be", action->process->number,
		action->outcomes[chunk], action->first + chunk);
}

static void retrieve_answer(struct action *action, const struct kvr_result *result)
{
	for (uint32_t c = 0; c < action->count && !world_stopped(action->process->world); c++) {
		if (!result->error)
			retrieve_outcome(action, c);
		else if (result->status != STATUS_CONNECTION_LOST && result->status != STATUS_CANCELED)
			check_untouched(action, c);
	}
}

/* ---- LOOKUP and the rest --------------------------------------------------------------------------------------- */

static void lookup_answer(struct action *action, const struct kvr_result *result)
{
	struct process *process = action->process;
	struct world *world = process->world;
	struct world_session *session = action->session;
	uint32_t ranks = world->shapes[process->shape].world_size;

	/* The answer of a server that has been restarted since says what was there before. */
	for (uint32_t c = 0;
		c < result->chunks && c < action->count && action->host->model.restarted < action->submitted; c++) {
		for (uint32_t rank = 0; rank < ranks; rank++) {
			if (!model_possible(&action->host->model,
				    model_object_index(
					    &action->host->model, action->namespace_index, action->nodes[c], rank)))
				world_violated(world,
					"process %u: LOOKUP matched chunk %u, whose rank %u was never stored",
					process->number, c, rank);
		}
	}
	if (result->chunks > action->count)
		world_violated(world, "process %u: LOOKUP of %u chunks matched %u", process->number, action->count,
			result->chunks);
	if (action->expected != UINT32_MAX && action->epoch == action->host->model.epoch &&
		result->chunks < action->expected && process->disturbed < action->submitted &&
		action->witness->disturbed < action->submitted && !action->crossed)
		world_violated(world, "process %u: LOOKUP matched %u chunks, where %u are there for certain",
			process->number, result->chunks, action->expected);
	if (action->crossed || session->lookups > 1 || process->shape != process_engine(process)->shape)
		return;
	session->matched_known = true;
	session->matched = result->chunks;
	if ((action->flags & KVR_LOOKUP_NO_LOCK) || !action->all_ranks || session->released != action->submitted ||
		session->reused_id || action->canceled)
		return;
	session->held.since = action->submitted;
	session->held.known = world->sequence;
	session->held.until_ns = action->submitted_ns +
		kvr_min_u64(action->host->server_options.lock_ttl_ns, action->host->server_options.session_ttl_ns);
	for (uint32_t c = 0; c < world->chain_max; c++)
		session->held.shares[c] = c < result->chunks ? UINT32_MAX : 0;
}

static void answer_other(struct action *action, const struct kvr_result *result)
{
	struct world *world = action->process->world;

	if (action->kind == ACTION_CLEAR) {
		action->host->model.epoch++;
		return;
	}
	if (action->kind == ACTION_QUERY && action->process->shape == process_engine(action->process)->shape &&
		action->expected != UINT32_MAX && !action->crossed && result->chunks != action->expected &&
		action->process->disturbed < action->submitted && held_any(world, action->session))
		world_violated(world, "process %u: QUERY says %u, the LOOKUP said %u", action->process->number,
			result->chunks, action->expected);
	if (action->kind == ACTION_FREE && free_certain(action) && result->chunks < action->expected)
		world_violated(world, "process %u: FREE released %u locks, where %u were held for certain",
			action->process->number, result->chunks, action->expected);
}

/* ---- all ------------------------------------------------------------------------------------------------------ */

static void note_answer(const struct action *action, const struct kvr_result *result)
{
#define ANSWER(name) "process %llu: answer to " name " of session %llu: error %llu, status %llu, chunks %llu"
	static const char *const formats[ACTION_KINDS] = {
		[ACTION_LOOKUP] = ANSWER("LOOKUP"),
		[ACTION_QUERY] = ANSWER("QUERY"),
		[ACTION_RETRIEVE] = ANSWER("RETRIEVE"),
		[ACTION_STORE] = ANSWER("STORE"),
		[ACTION_FREE] = ANSWER("FREE"),
		[ACTION_END] = ANSWER("END"),
	};
#undef ANSWER
	const struct process *process = action->process;
	uint64_t error = (uint64_t)-result->error;

	if (action->kind == ACTION_CLEAR)
		NOTE(process->world, "process %llu: answer to CLEAR: error %llu, status %llu, chunks %llu",
			process->number, error, result->status, result->chunks);
	else if (action->session && formats[action->kind])
		NOTE(process->world, formats[action->kind], process->number, action->session->slot, error,
			result->status, result->chunks);
}

void answer_check(struct action *action, const struct kvr_result *result)
{
	static const char *const names[ACTION_KINDS] = { "LOOKUP", "QUERY", "RETRIEVE", "STORE", "FREE", "END", "CLEAR",
		"PING" };
	struct process *process = action->process;
	struct world *world = process->world;

	note_answer(action, result);
	if (result->error) {
		world->report->errors++;
		process->refused += result->status == STATUS_BUSY;
		if (!error_allowed(action, result))
			world_violated(world, "process %u: a %s ended with %s (%d), which cannot be: %s",
				process->number, names[action->kind], status_name((uint16_t)result->status),
				result->error, result->text);
	} else if (action->bad) {
		world_violated(world, "process %u: a request that is wrong was accepted", process->number);
	}
	/* A request that had not been sent yet is canceled here, without the server. */
	if (result->status != STATUS_CONNECTION_LOST && !action->canceled && action->submitted > process->proved) {
		if (!process_clean(process))
			process->clean_since = world->sequence;
		process->proved = action->submitted;
	}
	if (action->kind == ACTION_STORE)
		store_answer(action, result);
	else if (action->kind == ACTION_RETRIEVE)
		retrieve_answer(action, result);
	else if (action->kind == ACTION_LOOKUP && !result->error)
		lookup_answer(action, result);
	else if (!result->error)
		answer_other(action, result);
	blocks_give(process, action->blocks, action->block_count);
	action->block_count = 0;
}

void answer_lost(struct action *action)
{
	/* Blocks go with the process; what it stored may have been stored. */
	if (action->session)
		held_forget(action->session);
}
