#include "tier/keep.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "tier/keep_internal.h"

uint64_t keep_check(const void *bytes, size_t length)
{
	const uint64_t *words = bytes;
	uint64_t sum = UINT64_C(0x6b76722d6b656570);

	for (size_t i = 0; i < length / sizeof(*words); i++) {
		__uint128_t product = (__uint128_t)(sum ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);

		sum = (uint64_t)product ^ (uint64_t)(product >> 64) ^ (i + 1);
	}
	return sum | 1;
}

static uint64_t l1_total(const struct keep_geometry *geometry)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < geometry->area_count; i++)
		bytes += geometry->area_bytes[i];
	return bytes;
}

static uint64_t record_count(const struct keep_geometry *geometry)
{
	return kvr_max_u64(l1_total(geometry) / KEEP_BYTES_PER_RECORD, KEEP_RECORDS_MIN);
}

static uint64_t records_at(void)
{
	return kvr_round_up(KEEP_HEAD_BYTES + KEEP_MODELS * sizeof(struct keep_model_record), 4096);
}

uint64_t keep_index_bytes(const struct keep_geometry *geometry)
{
	return records_at() + record_count(geometry) * sizeof(struct keep_record);
}

static struct keep_head wanted_head(const struct keep_geometry *geometry)
{
	struct keep_head head;

	memset(&head, 0, sizeof(head));
	memcpy(head.magic, KEEP_MAGIC, sizeof(KEEP_MAGIC));
	head.version = KEEP_VERSION;
	head.record_bytes = sizeof(struct keep_record);
	head.records = record_count(geometry);
	head.page_bytes = L1_PAGE_BYTES;
	head.slot_bytes_min = L1_SLOT_BYTES_MIN;
	head.area_count = geometry->area_count;
	head.chunk_tokens = geometry->chunk_tokens;
	memcpy(head.area_bytes, geometry->area_bytes, geometry->area_count * sizeof(head.area_bytes[0]));
	memcpy(head.boot, geometry->boot, sizeof(head.boot));
	head.check = keep_check(&head, offsetof(struct keep_head, check));
	return head;
}

/* What differs; NULL: nothing does. */
static const char *difference(const struct keep_head *head, const struct keep_head *wanted, char *why, size_t size)
{
	if (memcmp(head->magic, wanted->magic, sizeof(head->magic)) != 0)
		snprintf(why, size, "it is no index of kvrail");
	else if (head->version != wanted->version)
		snprintf(why, size, "its format is version %u, this program's %u", head->version, wanted->version);
	else if (head->check != keep_check(head, offsetof(struct keep_head, check)))
		snprintf(why, size, "its head is damaged");
	else if (head->chunk_tokens != wanted->chunk_tokens)
		snprintf(why, size, "it was written with chunks of %u tokens, not %u", head->chunk_tokens,
			wanted->chunk_tokens);
	else if (head->area_count != wanted->area_count ||
		memcmp(head->area_bytes, wanted->area_bytes, sizeof(head->area_bytes)) != 0)
		snprintf(why, size, "L1 had another size or other areas");
	else if (head->records != wanted->records || head->record_bytes != wanted->record_bytes ||
		head->page_bytes != wanted->page_bytes || head->slot_bytes_min != wanted->slot_bytes_min)
		snprintf(why, size, "L1 was divided in another way");
	else
		return NULL;
	return why;
}

/* An empty index. A kill in the middle leaves one without a head, which is empty too. */
static void write_head(struct keep *keep, const struct keep_head *wanted)
{
	keep_withdraw(&keep->head->check);
	for (uint32_t i = 0; i < KEEP_MODELS; i++)
		keep_withdraw(&keep->models[i].check);
	for (uint64_t i = 0; i < wanted->records; i++)
		keep_withdraw(&keep->records[i].check);
	memcpy(keep->head, wanted, offsetof(struct keep_head, check));
	keep_commit(&keep->head->check, wanted->check);
}

static int allocate_tables(struct keep *keep)
{
	keep->record_of = fault_point("keep_open/record_of")
		? NULL
		: malloc(kvr_max_u64(keep->slot_count, 1) * sizeof(uint32_t));
	keep->free_stack = fault_point("keep_open/free_stack") ? NULL : malloc(keep->record_count * sizeof(uint32_t));
	if (!keep->record_of || !keep->free_stack)
		return -ENOMEM;
	/* Written now, so that no step faults a page in later. */
	memset(keep->record_of, 0xff, keep->slot_count * sizeof(uint32_t));
	for (uint32_t i = keep->record_count; i-- > 0;) {
		if (!keep_record_good(&keep->records[i]))
			keep->free_stack[keep->free_count++] = i;
	}
	return 0;
}

int keep_open(void *memory, uint64_t bytes, const struct keep_geometry *geometry, struct keep **keep_out, char *why,
	size_t why_size)
{
	struct keep_head wanted = wanted_head(geometry);
	struct keep *keep;

	if (geometry->area_count == 0 || geometry->area_count > L1_AREAS_MAX || bytes < keep_index_bytes(geometry) ||
		wanted.records >= KEEP_NONE)
		return -EINVAL;
	keep = fault_point("keep_open") ? NULL : calloc(1, sizeof(*keep));
	if (!keep)
		return -ENOMEM;
	keep->head = memory;
	keep->models = (struct keep_model_record *)((char *)memory + KEEP_HEAD_BYTES);
	keep->records = (struct keep_record *)((char *)memory + records_at());
	keep->record_count = (uint32_t)wanted.records;
	keep->restoring = KEEP_NONE;
	memset(keep->place_of_model, 0xff, sizeof(keep->place_of_model));
	for (uint32_t i = 0; i < geometry->area_count; i++) {
		keep->area_slots[i] = keep->slot_count;
		keep->slot_count += geometry->area_bytes[i] / L1_PAGE_BYTES * KEEP_SLOTS_PER_PAGE;
	}
	if (keep->head->check != 0 && memcmp(keep->head->magic, wanted.magic, sizeof(wanted.magic)) == 0 &&
		keep->head->version == wanted.version &&
		memcmp(keep->head->boot, wanted.boot, sizeof(wanted.boot)) != 0)
		write_head(keep, &wanted);
	if (keep->head->check == 0)
		write_head(keep, &wanted);
	if (difference(keep->head, &wanted, why, why_size)) {
		keep_close(&keep);
		return -ESTALE;
	}
	if (allocate_tables(keep)) {
		keep_close(&keep);
		return -ENOMEM;
	}
	*keep_out = keep;
	return 0;
}

void keep_close(struct keep **keep)
{
	if (!*keep)
		return;
	free((*keep)->record_of);
	free((*keep)->free_stack);
	free(*keep);
	*keep = NULL;
}

const struct keep_counters *keep_get_counters(const struct keep *keep)
{
	return &keep->counters;
}

uint64_t keep_objects(const struct keep *keep)
{
	return keep->record_count - keep->free_count;
}

/* ---- models ---- */

bool keep_put_model(struct keep *keep, uint32_t number, const struct keep_model *model)
{
	uint32_t place = KEEP_NONE;

	assert(number < KEEP_MODELS);
	for (uint32_t i = 0; i < KEEP_MODELS; i++) {
		const struct keep_model_record *record = &keep->models[i];

		if (record->check == 0 && place == KEEP_NONE)
			place = i;
		if (record->check != 0 && memcmp(record->model.key, model->key, sizeof(model->key)) == 0) {
			place = i;
			break;
		}
	}
	if (place == KEEP_NONE)
		return false;
	keep->place_of_model[number] = place;
	if (keep->models[place].check == 0) {
		keep->models[place].model = *model;
		keep_commit(&keep->models[place].check, keep_check(model, sizeof(*model)));
	}
	return true;
}

void keep_drop_model(struct keep *keep, uint32_t number)
{
	assert(number < KEEP_MODELS);
	if (keep->place_of_model[number] != KEEP_NONE)
		keep_withdraw(&keep->models[keep->place_of_model[number]].check);
	keep->place_of_model[number] = KEEP_NONE;
}

/* ---- objects ---- */

static void write_record(struct keep *keep, struct keep_record *record, uint32_t place, const uint8_t *salt,
	const uint8_t *digest, l1_ref object)
{
	memcpy(record->salt, salt, sizeof(record->salt));
	memcpy(record->digest, digest, sizeof(record->digest));
	record->bytes = l1_bytes(keep->l1, object);
	record->sequence = ++keep->sequence;
	memcpy(&record->model_tag, keep->models[place].model.key, sizeof(record->model_tag));
	record->model = place;
	record->reserved = 0;
}

static void published(void *context, uint32_t model, const uint8_t *salt, const uint8_t *digest, uint32_t part,
	uint32_t parts, l1_ref object)
{
	uint32_t place = model < KEEP_MODELS ? ((struct keep *)context)->place_of_model[model] : KEEP_NONE;
	struct keep *keep = context;
	struct keep_record *record;
	struct l1_place where;
	uint32_t number;

	l1_place_of(keep->l1, object, &where);
	if (keep->restoring != KEEP_NONE) {
		keep->record_of[keep_slot_index(keep, &where)] = keep->restoring;
		return;
	}
	if (place == KEEP_NONE || keep->free_count == 0) {
		kvr_counter_add(&keep->counters.full, 1);
		return;
	}
	number = keep->free_stack[--keep->free_count];
	record = &keep->records[number];
	write_record(keep, record, place, salt, digest, object);
	record->part = part;
	record->parts = parts;
	record->place = where;
	if (fault_point("keep/killed_before_commit"))
		return;
	keep_commit(&record->check, keep_check(record, offsetof(struct keep_record, check)));
	keep->record_of[keep_slot_index(keep, &where)] = number;
}

static void freed(void *context, l1_ref object)
{
	struct keep *keep = context;
	struct l1_place where;
	uint64_t slot;

	l1_place_of(keep->l1, object, &where);
	slot = keep_slot_index(keep, &where);
	if (keep->record_of[slot] == KEEP_NONE)
		return;
	keep_withdraw(&keep->records[keep->record_of[slot]].check);
	keep->free_stack[keep->free_count++] = keep->record_of[slot];
	keep->record_of[slot] = KEEP_NONE;
}

struct cache_keeper keep_keeper(struct keep *keep)
{
	struct cache_keeper keeper = { keep, published, freed };

	return keeper;
}
