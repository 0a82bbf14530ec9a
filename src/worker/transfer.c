/* RETRIEVE and STORE transfers, from TRANSFER to TRANSFER_DONE. What is posted of them, and when, decides send.c. */
#include <string.h>

#include "worker/internal.h"

static void set_outcomes(const struct request *request, enum chunk_outcome outcome)
{
	uint8_t *outcomes = request->transfer.outcomes;

	for (uint32_t i = 0; i < request->message.transfer.chunk_count; i++)
		if (outcomes[i] == CHUNK_PENDING)
			outcomes[i] = (uint8_t)outcome;
}

static void count_moved(struct worker *worker, const struct request *request)
{
	struct connection *connection = request->connection;
	uint64_t bytes = request->transfer.moved_bytes;

	if (request->transfer.to_client) {
		worker_count(worker, retrieve_bytes_total, bytes);
		kvr_counter_add(&connection->bytes_out, bytes);
	} else {
		worker_count(worker, store_bytes_total, bytes);
		kvr_counter_add(&connection->bytes_in, bytes);
	}
}

void transfer_end(struct worker *worker, struct slot *slot, bool failed)
{
	struct request *request = &slot->request;
	bool whole = !failed && transfer_posted(slot) && !slot->torn;

	/* Nobody will see the early reply of what failed: its queue pair has. */
	if (failed && slot->early)
		memset(request->transfer.outcomes, CHUNK_FAILED, request->message.transfer.chunk_count);
	if (whole)
		set_outcomes(request, request->transfer.to_client ? CHUNK_DELIVERED : CHUNK_STORED);
	else
		set_outcomes(request, failed ? CHUNK_FAILED : CHUNK_CANCELED);
	request->transfer.moved_bytes = failed ? 0 : slot->posted_bytes;
	worker_count(worker, transfers_total, 1);
	if (!whole)
		worker_count(worker, transfer_failures_total, 1);
	count_moved(worker, request);
	list_remove(&slot->node);
	slot->stage = SLOT_MANAGEMENT;
	if (!endpoint_of(slot)->closing) /* CLOSED answers a FORGET too */
		indirect_check_forget(worker, endpoint_of(slot));
	worker_tell(worker, TO_MANAGEMENT_TRANSFER_DONE, request, 0);
}

void transfer_begin(struct worker *worker, struct slot *slot)
{
	struct endpoint *endpoint = endpoint_of(slot);
	struct request *request = &slot->request;

	slot->stage = SLOT_MOVING;
	slot->aborted = false;
	slot->torn = false;
	slot->shares = 0;
	slot->outstanding = 0;
	slot->unsignalled = 0;
	slot->posted_bytes = 0;
	plan_init(&slot->plan, &request->message.transfer, &request->transfer);
	order_begin(slot);
	/* A client may have taken the memory of its words away meanwhile. */
	if (endpoint->state != ENDPOINT_LIVE || (KVR_UNLIKELY(request->header.flags) && !order_find_memory(slot))) {
		transfer_end(worker, slot, true);
	} else if (transfer_posted(slot)) {
		transfer_end(worker, slot, false);
	} else if (!order_waits(worker, slot)) {
		list_add_last(&endpoint->transfers, &slot->node);
		send_activate(worker, endpoint);
	}
}

void transfer_abort(struct worker *worker, struct slot *slot)
{
	struct endpoint *endpoint = endpoint_of(slot);

	/* It may have ended already, its TRANSFER_DONE on the way. */
	if ((slot->stage != SLOT_MOVING && slot->stage != SLOT_WORD) || slot->aborted)
		return;
	slot->aborted = true;
	rails_drop(worker, endpoint, slot);
	if (slot->torn && transfer_posted(slot) && slot->outstanding == 0 && slot->shares == 0) {
		transfer_end(worker, slot, endpoint->state != ENDPOINT_LIVE); /* that was all that was left of it */
		return;
	}
	/* What was posted must complete. Behind unsignalled work requests one more has to go out, or nothing would
	 * tell. */
	if (slot->unsignalled > 0 || transfer_posted(slot) || (slot->stage == SLOT_WORD && slot->outstanding > 0))
		return;
	list_remove(&slot->node);
	if (slot->outstanding == 0 && slot->shares == 0)
		transfer_end(worker, slot, endpoint->state != ENDPOINT_LIVE);
	else
		list_add_last(&endpoint->posted, &slot->node);
}
