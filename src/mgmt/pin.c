/*
 * pin.c - prefixes that the operator keeps in L1: held by pins of their own until they are undone, whatever sessions do.
 *
 * Jobs are done one after the other, in slices. What is in L1 when its turn comes is pinned, from the first chunk up to the
 * first that is missing. A pin that would pass the limit is undone whole.
 */
#include "mgmt/state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static KVR_COLD void refuse(struct pin_job *job, const char *format, ...) KVR_PRINTF(2, 3);

static KVR_COLD void refuse(struct pin_job *job, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(job->refusal, sizeof(job->refusal), format, arguments);
	va_end(arguments);
}

static struct pin *find_pin(struct management *management, const char *name)
{
	list_for_each(node, &management->pins) {
		struct pin *pin = KVR_CONTAINER_OF(node, struct pin, node);

		if (strcmp(pin->name, name) == 0)
			return pin;
	}
	return NULL;
}

static bool model_fits(const struct model *model, const struct pin *pin)
{
	return model->tenant == pin->tenant && strcmp(model->name, pin->model) == 0 &&
		(!pin->dtype[0] || strcmp(model->dtype, pin->dtype) == 0);
}

/* The one that is registered, where there are several of that name. */
static struct model *find_model(struct management *management, struct pin_job *job)
{
	struct model *found = NULL, *registered = NULL;
	uint32_t count = 0, registered_count = 0;

	list_for_each(node, &management->models) {
		struct model *model = KVR_CONTAINER_OF(node, struct model, node);

		if (!model_fits(model, job->pin))
			continue;
		found = model;
		count++;
		if (model->registration_count) {
			registered = model;
			registered_count++;
		}
	}
	if (registered_count == 1)
		return registered;
	if (count == 1)
		return found;
	if (count == 0)
		refuse(job, "the tenant has no model of that name%s", job->pin->dtype[0] ? " and dtype" : "");
	else
		refuse(job, "%u models of the tenant have that name: %s", count,
			job->pin->dtype[0] ? "they differ in other things than their dtype" : "say which dtype");
	return NULL;
}

/* ---- beginning ---- */

static void begin_pin(struct management *management, struct pin_job *job)
{
	struct pin *pin = job->pin;
	struct model *model;

	if (find_pin(management, pin->name)) {
		refuse(job, "there is a pin of that name already: unpin it first");
		return;
	}
	if (management->pin_count == PINS_MAX) {
		refuse(job, "there are %u pins, which is the maximum: unpin one", PINS_MAX);
		return;
	}
	model = find_model(management, job);
	if (!model)
		return;
	pin->space = cache_space_acquire(management->cache, model->number, pin->salt, model->world_size);
	if (pin->space == CACHE_NONE)
		refuse(job, "the chunk table has its maximum of key spaces");
}

void pin_job_add(struct management *management, struct pin_job *job)
{
	job->refusal[0] = '\0';
	job->pinned = 0;
	job->bytes = 0;
	list_init(&job->node);
	list_add_last(&management->pin_jobs, &job->node);
	if (job->pin) {
		list_init(&job->pin->node);
		job->pin->pinned = 0;
		job->pin->bytes = 0;
		job->pin->space = CACHE_NONE;
	}
}

/* ---- slices ---- */

static uint32_t entry_of(const struct pin *pin, uint32_t chunk)
{
	uint32_t entry;

	memcpy(&entry, pin->digests[chunk], sizeof(entry));
	return entry;
}

/* True: there is nothing more to pin, or it was refused. */
static bool pin_slice(struct management *management, struct pin_job *job)
{
	struct pin *pin = job->pin;
	uint32_t stop = (uint32_t)kvr_min_u64(pin->count, (uint64_t)pin->pinned + SLICE_CHUNKS);

	management->budget -= stop - pin->pinned;
	while (pin->pinned < stop) {
		uint32_t entry = cache_find(management->cache, pin->space, pin->digests[pin->pinned]);
		uint64_t bytes;

		if (entry == CACHE_NONE || !cache_complete(management->cache, entry))
			return true;
		bytes = cache_entry_bytes(management->cache, entry);
		if (bytes > management->options.pinned_bytes_max - management->pinned_bytes) {
			refuse(job,
				"all pins together may take %llu bytes of L1 (option pin-limit), and %llu are taken",
				(unsigned long long)management->options.pinned_bytes_max,
				(unsigned long long)(management->pinned_bytes - pin->bytes));
			return true;
		}
		cache_pin(management->cache, entry);
		memcpy(pin->digests[pin->pinned], &entry, sizeof(entry));
		pin->pinned++;
		pin->bytes += bytes;
		management->pinned_chunks++;
		management->pinned_bytes += bytes;
	}
	return pin->pinned == pin->count;
}

/* From the last chunk to the first, so that late ones are evicted first. True when none is left. */
static bool unpin_slice(struct management *management, struct pin *pin)
{
	uint32_t limit = SLICE_CHUNKS;

	for (; pin->pinned > 0 && limit > 0; limit--) {
		cache_unpin(management->cache, entry_of(pin, --pin->pinned));
		management->pinned_chunks--;
	}
	management->budget -= SLICE_CHUNKS - limit;
	if (pin->pinned > 0)
		return false;
	management->pinned_bytes -= pin->bytes;
	pin->bytes = 0;
	cache_space_release(management->cache, pin->space);
	pin->space = CACHE_NONE;
	return true;
}

static void finish(struct management *management, struct pin_job *job)
{
	list_remove(&job->node);
	control_push(management, CONTROL_PIN_DONE, job, 0);
}

static void pin_step(struct management *management, struct pin_job *job)
{
	struct pin *pin = job->pin;

	if (pin->space == CACHE_NONE && !job->refusal[0])
		begin_pin(management, job);
	if (!job->refusal[0] && !pin_slice(management, job))
		return;
	if (!job->refusal[0] && pin->pinned == 0)
		refuse(job, "no chunk of that prefix is in L1: have it stored first");
	if (job->refusal[0]) {
		if (pin->space == CACHE_NONE || unpin_slice(management, pin))
			finish(management, job);
		return;
	}
	job->pinned = pin->pinned;
	job->bytes = pin->bytes;
	job->pin = NULL;
	list_add_last(&management->pins, &pin->node);
	management->pin_count++;
	finish(management, job);
}

static void unpin_step(struct management *management, struct pin_job *job)
{
	struct pin *pin = find_pin(management, job->name);

	if (!pin) {
		refuse(job, "there is no pin of that name");
		finish(management, job);
		return;
	}
	if (job->pinned == 0) {
		job->pinned = pin->pinned;
		job->bytes = pin->bytes;
	}
	if (!unpin_slice(management, pin))
		return;
	list_remove(&pin->node);
	management->pin_count--;
	job->pin = pin; /* the control thread frees it */
	finish(management, job);
}

bool pin_job_step(struct management *management)
{
	struct pin_job *job;

	if (list_empty(&management->pin_jobs) || ring_space(&management->outbox) <= OUTBOX_RESERVE)
		return false;
	job = KVR_CONTAINER_OF(management->pin_jobs.next, struct pin_job, node);
	if (job->name[0])
		unpin_step(management, job);
	else
		pin_step(management, job);
	return true;
}

void pins_free(struct management *management)
{
	list_for_each_safe(node, &management->pins)
		free(KVR_CONTAINER_OF(node, struct pin, node));
	list_init(&management->pins);
}
