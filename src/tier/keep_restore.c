/* keep_restore.c - a full cache again: runs first, in the order of their pages, then the objects, oldest first. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "tier/keep_internal.h"

struct restoring {
	struct keep *keep;
	struct l1 *l1;
	struct cache *cache;
	uint32_t model_number[KEEP_MODELS]; /* by model record */
	uint32_t *found;                    /* numbers of good records */
	uint32_t *slots;                    /* of one run */
	uint32_t count;
};

static void drop_record(struct restoring *restoring, uint32_t number)
{
	struct keep *keep = restoring->keep;

	keep_withdraw(&keep->records[number].check);
	keep->free_stack[keep->free_count++] = number;
	keep->counters.dropped_objects++;
}

static void take_models(
	struct restoring *restoring, uint32_t (*model)(void *context, const struct keep_model *model), void *context)
{
	struct keep *keep = restoring->keep;

	for (uint32_t i = 0; i < KEEP_MODELS; i++) {
		struct keep_model_record *record = &keep->models[i];

		restoring->model_number[i] = KEEP_NONE;
		if (record->check == 0)
			continue;
		if (record->check == keep_check(&record->model, sizeof(record->model)) &&
			record->model.name[KEEP_NAME_BYTES - 1] == '\0' &&
			record->model.dtype[sizeof(record->model.dtype) - 1] == '\0' &&
			record->model.tenant[sizeof(record->model.tenant) - 1] == '\0')
			restoring->model_number[i] = model(context, &record->model);
		if (restoring->model_number[i] >= KEEP_MODELS) {
			restoring->model_number[i] = KEEP_NONE;
			keep_withdraw(&record->check);
			continue;
		}
		keep->place_of_model[restoring->model_number[i]] = i;
	}
}

static bool record_wanted(const struct restoring *restoring, const struct keep_record *record)
{
	const struct keep *keep = restoring->keep;

	return record->model < KEEP_MODELS && restoring->model_number[record->model] != KEEP_NONE &&
		memcmp(&record->model_tag, keep->models[record->model].model.key, sizeof(record->model_tag)) == 0 &&
		record->place.area < keep->head->area_count && record->part < record->parts &&
		record->parts == keep->models[record->model].model.world_size && record->parts <= CACHE_PARTS_MAX &&
		(uint64_t)record->place.page * L1_PAGE_BYTES < keep->head->area_bytes[record->place.area] &&
		record->place.slot < record->place.run_slots;
}

static void find_records(struct restoring *restoring)
{
	struct keep *keep = restoring->keep;

	for (uint32_t i = 0; i < keep->record_count; i++) {
		const struct keep_record *record = &keep->records[i];

		if (!keep_record_good(record))
			continue;
		keep->sequence = kvr_max_u64(keep->sequence, record->sequence);
		if (record_wanted(restoring, record))
			restoring->found[restoring->count++] = i;
		else
			drop_record(restoring, i);
	}
}

static int by_place(const void *a, const void *b, void *context)
{
	const struct keep *keep = context;
	const struct l1_place *left = &keep->records[*(const uint32_t *)a].place;
	const struct l1_place *right = &keep->records[*(const uint32_t *)b].place;

	if (left->area != right->area)
		return left->area < right->area ? -1 : 1;
	if (left->page != right->page)
		return left->page < right->page ? -1 : 1;
	return left->slot < right->slot ? -1 : left->slot > right->slot;
}

static int by_sequence(const void *a, const void *b, void *context)
{
	const struct keep *keep = context;
	uint64_t left = keep->records[*(const uint32_t *)a].sequence;
	uint64_t right = keep->records[*(const uint32_t *)b].sequence;

	return left < right ? -1 : left > right;
}

/* Records of one run from `at` on: how many. */
static uint32_t run_length(const struct restoring *restoring, uint32_t at)
{
	const struct keep *keep = restoring->keep;
	const struct keep_record *first = &keep->records[restoring->found[at]];
	uint32_t length = 0;

	for (; at + length < restoring->count; length++) {
		const struct keep_record *record = &keep->records[restoring->found[at + length]];

		if (record->place.area != first->place.area || record->place.page != first->place.page)
			break;
	}
	return length;
}

static int restore_run(struct restoring *restoring, uint32_t at, uint32_t length)
{
	const struct keep *keep = restoring->keep;
	const struct keep_record *first = &keep->records[restoring->found[at]];
	uint32_t object_class;
	int error;

	for (uint32_t i = 0; i < length; i++) {
		const struct keep_record *record = &keep->records[restoring->found[at + i]];

		if (record->bytes != first->bytes || record->place.run_slots != first->place.run_slots)
			return -EINVAL;
		restoring->slots[i] = record->place.slot;
	}
	error = l1_class_acquire(restoring->l1, first->bytes, &object_class);
	if (error)
		return error;
	error = l1_restore_run(restoring->l1, object_class, &first->place, restoring->slots, length);
	/* Its run keeps the class. */
	l1_class_release(restoring->l1, object_class);
	return error;
}

static void restore_runs(struct restoring *restoring)
{
	uint32_t kept = 0;

	for (uint32_t at = 0, length; at < restoring->count; at += length) {
		length = run_length(restoring, at);
		if (restore_run(restoring, at, length)) {
			for (uint32_t i = 0; i < length; i++)
				drop_record(restoring, restoring->found[at + i]);
			continue;
		}
		memmove(&restoring->found[kept], &restoring->found[at], length * sizeof(*restoring->found));
		kept += length;
	}
	restoring->count = kept;
}

static void grow(struct cache *cache)
{
	uint64_t bytes = cache_wants_memory(cache);
	void *garbage;

	if (bytes > 0)
		cache_supply_memory(cache, cache_allocate_memory(bytes), bytes);
	while ((garbage = cache_take_garbage(cache)))
		free(garbage);
}

static int publish(struct restoring *restoring, const struct keep_record *record, l1_ref object)
{
	struct cache *cache = restoring->cache;
	uint32_t space = cache_space_acquire(
		cache, restoring->model_number[record->model], record->salt, record->parts);
	uint32_t entry;
	int error = -ENOSPC;

	if (space == CACHE_NONE)
		return error;
	for (unsigned tries = 0; tries < 3 && error == -ENOSPC; tries++) {
		grow(cache);
		error = cache_publish(cache, space, record->digest, record->part, object, &entry);
	}
	cache_space_release(cache, space);
	return error;
}

static void restore_object(struct restoring *restoring, uint32_t number)
{
	struct keep *keep = restoring->keep;
	const struct keep_record *record = &keep->records[number];
	l1_ref object = l1_at(restoring->l1, &record->place);
	uint64_t bytes = record->bytes;
	int error;

	cache_adopt(restoring->cache, object);
	keep->restoring = number;
	error = publish(restoring, record, object);
	keep->restoring = KEEP_NONE;
	if (error) {
		/* -EEXIST: the cache has freed it. */
		if (error != -EEXIST)
			cache_abort(restoring->cache, object);
		drop_record(restoring, number);
		return;
	}
	keep->counters.restored_objects++;
	keep->counters.restored_bytes += bytes;
}

int keep_restore(struct keep *keep, struct l1 *l1, struct cache *cache,
	uint32_t (*model)(void *context, const struct keep_model *model), void *context)
{
	struct restoring restoring = { .keep = keep, .l1 = l1, .cache = cache };
	int error = -ENOMEM;

	keep->l1 = l1;
	restoring.found = fault_point("keep_restore/found") ? NULL : malloc(keep->record_count * sizeof(uint32_t));
	restoring.slots = fault_point("keep_restore/slots") ? NULL : malloc(keep->record_count * sizeof(uint32_t));
	if (restoring.found && restoring.slots) {
		take_models(&restoring, model, context);
		find_records(&restoring);
		qsort_r(restoring.found, restoring.count, sizeof(uint32_t), by_place, keep);
		restore_runs(&restoring);
		qsort_r(restoring.found, restoring.count, sizeof(uint32_t), by_sequence, keep);
		for (uint32_t i = 0; i < restoring.count; i++)
			restore_object(&restoring, restoring.found[i]);
		error = 0;
		if (keep->counters.dropped_objects > 0)
			log_warn("l1: %lu kept objects were dropped: of tenants or models that are not wanted now, or "
				 "damaged",
				(unsigned long)keep->counters.dropped_objects);
	}
	free(restoring.found);
	free(restoring.slots);
	return error;
}
