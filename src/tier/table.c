#include "tier/table.h"

#include <assert.h>
#include <errno.h>

#include "base/log.h"

static uint32_t bucket_used(const struct table_bucket *bucket)
{
	uint32_t used = 0;

	while (used < TABLE_BUCKET_SLOTS && bucket->entry[used] != 0)
		used++;
	return used;
}

static void bucket_add(struct table_bucket *bucket, uint32_t hash, uint32_t entry)
{
	uint32_t slot = bucket_used(bucket);

	bucket->hash[slot] = hash;
	bucket->entry[slot] = entry;
}

static void bucket_drop(struct table_bucket *bucket, uint32_t slot)
{
	uint32_t last = bucket_used(bucket) - 1;

	bucket->hash[slot] = bucket->hash[last];
	bucket->entry[slot] = bucket->entry[last];
	bucket->hash[last] = 0;
	bucket->entry[last] = 0;
}

/* Steps from one bucket forward to another in the ring. */
static uint32_t ring_distance(const struct table *table, uint32_t from, uint32_t to)
{
	return to >= from ? to - from : to - from + table->count - table->first;
}

void table_insert(struct table *table, uint32_t hash, uint32_t entry)
{
	uint32_t bucket = table_home(table, hash);

	assert(table->used < (uint64_t)(table->count - table->first) * TABLE_BUCKET_SLOTS);
	while (table_bucket_full(&table->buckets[bucket]))
		bucket = table_after(table, bucket);
	bucket_add(&table->buckets[bucket], hash, entry);
	table->used++;
}

/* A slot of `bucket` whose element may stand in `hole` as well, TABLE_BUCKET_SLOTS: none. */
static uint32_t movable_slot(const struct table *table, uint32_t bucket, uint32_t hole)
{
	const struct table_bucket *b = &table->buckets[bucket];
	uint32_t distance = ring_distance(table, hole, bucket);

	for (uint32_t slot = 0; slot < TABLE_BUCKET_SLOTS && b->entry[slot] != 0; slot++)
		if (ring_distance(table, table_home(table, b->hash[slot]), bucket) >= distance)
			return slot;
	return TABLE_BUCKET_SLOTS;
}

/* `hole` was full and is not any more: elements behind it that passed over it move up. */
static void close_hole(struct table *table, uint32_t hole)
{
	uint32_t bucket = table_after(table, hole);

	while (bucket != hole) {
		struct table_bucket *b = &table->buckets[bucket];
		bool full = table_bucket_full(b);
		uint32_t slot = movable_slot(table, bucket, hole);

		if (slot < TABLE_BUCKET_SLOTS) {
			bucket_add(&table->buckets[hole], b->hash[slot], b->entry[slot]);
			bucket_drop(b, slot);
			hole = bucket;
		}
		if (!full)
			return;
		bucket = table_after(table, bucket);
	}
}

bool table_remove(struct table *table, uint32_t hash, uint32_t entry)
{
	uint32_t bucket = table_home(table, hash);

	for (uint32_t left = table->count - table->first; left > 0; left--) {
		struct table_bucket *b = &table->buckets[bucket];
		bool full = table_bucket_full(b);

		for (uint32_t slot = 0; slot < TABLE_BUCKET_SLOTS; slot++) {
			if (b->entry[slot] != entry)
				continue;
			bucket_drop(b, slot);
			table->used--;
			if (full)
				close_hole(table, bucket);
			return true;
		}
		if (!full)
			return false;
		bucket = table_after(table, bucket);
	}
	return false;
}

void table_move_first(struct table *from, struct table *to)
{
	const struct table_bucket *bucket = &from->buckets[from->first];

	for (uint32_t slot = 0; slot < TABLE_BUCKET_SLOTS && bucket->entry[slot] != 0; slot++) {
		table_insert(to, bucket->hash[slot], bucket->entry[slot]);
		from->used--;
	}
	from->first++;
}

static int verify_bucket(const struct table *table, uint32_t bucket, uint32_t used)
{
	const struct table_bucket *b = &table->buckets[bucket];

	for (uint32_t slot = 0; slot < TABLE_BUCKET_SLOTS; slot++) {
		uint32_t home = table_home(table, b->hash[slot]);

		if ((b->entry[slot] != 0) != (slot < used)) {
			log_error("cache: bucket %u has a gap at slot %u", bucket, slot);
			return -EILSEQ;
		}
		for (; slot < used && home != bucket; home = table_after(table, home)) {
			if (table_bucket_full(&table->buckets[home]))
				continue;
			log_error("cache: entry %u in bucket %u cannot be found over bucket %u", b->entry[slot], bucket,
				home);
			return -EILSEQ;
		}
	}
	return 0;
}

int table_verify(const struct table *table)
{
	uint64_t sum = 0;

	for (uint32_t bucket = table->first; table->buckets && bucket < table->count; bucket++) {
		uint32_t used = bucket_used(&table->buckets[bucket]);

		if (verify_bucket(table, bucket, used))
			return -EILSEQ;
		sum += used;
	}
	if (sum == table->used)
		return 0;
	log_error("cache: the table has %lu entries and counts %lu", (unsigned long)sum, (unsigned long)table->used);
	return -EILSEQ;
}
