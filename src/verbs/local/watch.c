/*
 * watch.c - what a poll looks at of queue pairs that have no message: where the next one will lie and which sequence it will have,
 * one behind the other in an array. Of the queue pair itself nothing is touched then, so that a turn with many idle clients costs a
 * cache line of each, all of which can be asked for at once.
 *
 * Whoever makes a queue pair makes sure that there is room for it: a larger array waits in `larger` until the polling thread takes it.
 * What it took before is kept until the completion queue goes: all of them together are as large as the last.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/fault.h"
#include "verbs/local/local.h"

#define WATCHES_MIN 16u

int local_watch_reserve(struct local_cq *cq)
{
	struct local_device *device = local_device_of(cq->cq.context);
	int rc = 0;

	pthread_mutex_lock(&device->lock);
	if (cq->qps == cq->room) {
		uint32_t capacity = cq->room ? 2 * cq->room : WATCHES_MIN;
		struct local_watches *larger = fault_point("local_watch_reserve")
			? NULL
			: malloc(sizeof(*larger) + capacity * sizeof(larger->entries[0]));

		if (larger) {
			larger->capacity = capacity;
			cq->room = capacity;
			/* pairs with the exchange in local_watch_add; what nobody has taken yet nobody needs */
			free(kvr_exchange(&cq->larger, larger));
		} else {
			rc = -ENOMEM;
		}
	}
	cq->qps += rc == 0;
	pthread_mutex_unlock(&device->lock);
	return rc;
}

void local_watch_release(struct local_cq *cq)
{
	struct local_device *device = local_device_of(cq->cq.context);

	pthread_mutex_lock(&device->lock);
	cq->qps--;
	pthread_mutex_unlock(&device->lock);
}

void local_watch_close(struct local_cq *cq)
{
	while (cq->watches) {
		struct local_watches *smaller = cq->watches->smaller;

		free(cq->watches);
		cq->watches = smaller;
	}
	free(kvr_exchange(&cq->larger, (struct local_watches *)NULL));
}

static void take_larger(struct local_cq *cq)
{
	struct local_watches *larger = kvr_exchange(&cq->larger, (struct local_watches *)NULL);

	if (cq->watch_count > 0)
		memcpy(larger->entries, cq->watches->entries, cq->watch_count * sizeof(larger->entries[0]));
	larger->smaller = cq->watches;
	cq->watches = larger;
}

void local_watch_update(struct local_qp *qp)
{
	struct local_watch *watch;

	if (!qp->is_started)
		return;
	watch = &local_cq_of(qp->qp.recv_cq)->watches->entries[qp->watch];
	watch->sequence = (const uint32_t *)(const void *)(qp->rx_slots +
		(uint64_t)(qp->rx_head & qp->rx_mask) * qp->stride);
	watch->expected = qp->rx_head + 1;
	/* Receives that are flushed; and sends that complete in another queue go on when this one is polled. */
	watch->always = qp->failed || qp->qp.send_cq != qp->qp.recv_cq;
}

void local_watch_add(struct local_qp *qp)
{
	struct local_cq *cq = local_cq_of(qp->qp.recv_cq);

	if (!cq->watches || cq->watch_count == cq->watches->capacity)
		take_larger(cq);
	qp->watch = cq->watch_count++;
	cq->watches->entries[qp->watch].qp = qp;
	local_watch_update(qp);
}

void local_watch_remove(struct local_qp *qp)
{
	struct local_cq *cq = local_cq_of(qp->qp.recv_cq);
	struct local_watch *entries = cq->watches->entries;

	cq->watch_count--;
	if (qp->watch < cq->watch_count) {
		entries[qp->watch] = entries[cq->watch_count];
		entries[qp->watch].qp->watch = qp->watch;
	}
	if (cq->watch_next >= cq->watch_count)
		cq->watch_next = 0;
}
