/*
 * l2_sum.c - checksums of what clients have brought, made by a helper as soon as an object is published.
 *
 *   published: NONE --queue--> PENDING, pinned --helper--> its checksum, kept while the object is in L1 --> goes with its STORE
 *                   \-- the queue is full: NONE, and the place that stores the object makes one
 *   STORE ends with -EBADMSG: the bytes are not what had come --> BAD: dropped, or when nobody holds the object any more
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/helper.h"
#include "tier/checksum.h"
#include "tier/l2_internal.h"

static void run(struct helper_job *job)
{
	struct l2_sum *sum = KVR_CONTAINER_OF(job, struct l2_sum, job);

	sum->checksum = checksum_bytes(sum->memory, sum->bytes);
	job->result = 0;
}

int l2_sum_init(struct l2 *l2)
{
	uint64_t count = l1_slot_count(l2->options.l1);
	int error;

	if (!l2->options.sum_arrivals || !checksum_available() || l2->options.policy == L2_STORE_NONE)
		return 0;
	l2->sums = fault_point("l2_sum/table") ? NULL : malloc(count * sizeof(*l2->sums));
	if (!l2->sums)
		return -ENOMEM;
	memset(l2->sums, 0, count * sizeof(*l2->sums)); /* touched now, not in a step */
	error = pool_init(&l2->sums_pool, sizeof(struct l2_sum), l2->options.sum_queue);
	if (!error)
		error = helper_create("kvr-checksum", l2->options.sum_threads, l2->options.sum_queue, &l2->summer);
	return error;
}

void l2_sum_fini(struct l2 *l2)
{
	helper_destroy(&l2->summer); /* runs them all */
	for (uint32_t i = 0; i < l2->sums_pool.count; i++) {
		struct l2_sum *sum = pool_at(&l2->sums_pool, i);

		if (sum->object)
			cache_unpin(l2->options.cache, sum->entry);
	}
	pool_fini(&l2->sums_pool);
	free(l2->sums);
	l2->sums = NULL;
}

static uint64_t *place_of(const struct l2 *l2, l1_ref object)
{
	return &l2->sums[l1_slot_index(object)];
}

uint64_t l2_sum_of(const struct l2 *l2, l1_ref object)
{
	return l2->sums ? *place_of(l2, object) : L2_SUM_NONE;
}

void l2_sum_set(struct l2 *l2, l1_ref object, uint64_t checksum)
{
	if (l2->sums)
		*place_of(l2, object) = checksum >= L2_SUM_FIRST ? checksum : L2_SUM_NONE;
}

void l2_sum_begin(struct l2 *l2, uint32_t entry, l1_ref object)
{
	uint64_t bytes = l1_bytes(l2->options.l1, object);
	struct l2_sum *sum = NULL;

	if (!l2->sums)
		return;
	if (!l2_closed(l2) && l2->sum_bytes + bytes <= l2->options.store_bytes_max)
		sum = pool_take(&l2->sums_pool);
	if (!sum) {
		L2_COUNT(l2, sum_skipped, 1);
		return;
	}
	memset(sum, 0, sizeof(*sum));
	sum->job.run = run;
	sum->entry = entry;
	sum->object = object;
	sum->memory = l1_address(l2->options.l1, object);
	sum->bytes = bytes;
	if (!helper_submit(l2->summer, &sum->job)) { /* cannot be: it takes as many as the pool has */
		sum->object = 0;
		pool_give(&l2->sums_pool, sum);
		L2_COUNT(l2, sum_skipped, 1);
		return;
	}
	cache_pin(l2->options.cache, entry);
	l2->sum_bytes += bytes;
	*place_of(l2, object) = L2_SUM_PENDING;
}

bool l2_sum_step(struct l2 *l2)
{
	/* Without a thread it is done in collect: a little in each turn. */
	uint32_t limit = l2->options.sum_threads ? L2_STEP_SUMS : 1;
	bool busy = false;

	if (!l2->sums || pool_used(&l2->sums_pool) == 0)
		return false;
	for (uint32_t n = 0; n < limit; n++) {
		struct helper_job *job = helper_collect(l2->summer);
		struct l2_sum *sum;

		if (!job)
			break;
		sum = KVR_CONTAINER_OF(job, struct l2_sum, job);
		l2_sum_set(l2, sum->object, sum->checksum);
		l2->sum_bytes -= sum->bytes;
		cache_unpin(l2->options.cache, sum->entry);
		sum->object = 0;
		pool_give(&l2->sums_pool, sum);
		L2_COUNT(l2, summed, 1);
		busy = true;
	}
	return busy;
}

void l2_sum_bad(struct l2 *l2, uint32_t entry, l1_ref object)
{
	uint64_t squashed;

	if (*place_of(l2, object) != L2_SUM_BAD) {
		*place_of(l2, object) = L2_SUM_BAD;
		L2_COUNT(l2, l1_corrupt, 1);
		if (log_rate_pass(&l2->sum_log, l2->now_ns, KVR_SECOND, &squashed))
			log_warn("L2: the bytes of an object changed in L1 after they had come: it is dropped and not "
				 "written. Look for errors of the memory (edac-util, mcelog) (%llu lines like this "
				 "held back)",
				(unsigned long long)squashed);
	}
	if (!cache_drop(l2->options.cache, entry))
		cache_make_temporary(l2->options.cache, entry);
}
