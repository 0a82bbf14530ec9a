/*
 * Keeping step with the engine: a RETRIEVE tells of each layer by a word in the client's memory (TRANSFER_LAYERS), and a transfer does
 * not begin before such a word has a value (TRANSFER_AFTER).
 *
 * Words of layers are work requests among those of the data: a WRITE does not overtake a WRITE of its queue pair, so whoever sees the
 * word sees the layer. The word that is waited for is read by RDMA READ again and again, the less often the longer it takes, so that it
 * may be written by whatever the engine has: its processor, or a GPU's stream. A slot's way:
 *
 *   MANAGEMENT -> WORD (endpoint.words -> posted -> reached? MOVING : worker.words, until it is due again)
 */
#include <string.h>

#include "worker/internal.h"

#define LOOK_MIN_NS UINT64_C(2000)
#define LOOK_MAX_NS UINT64_C(50000)
#define LOOKS_MAX 16u /* slots that one step looks at */

static uint32_t *word_of(const struct worker *worker, const struct slot *slot)
{
	return &worker->words[slot->request.index];
}

static bool wants(const struct slot *slot, enum transfer_flag flag)
{
	return slot->request.header.flags & flag;
}

/* The key of the range, or false. */
static bool find_key(const struct slot *slot, uint32_t number, uint64_t address, uint64_t bytes, uint32_t *rkey)
{
	const struct layout_region *region = indirect_region(slot, number);

	if (!region || !indirect_region_holds(region, address, bytes))
		return false;
	*rkey = region->rkey;
	return true;
}

bool order_find_memory(struct slot *slot)
{
	const struct transfer_order *order = &slot->request.message.transfer.order;

	return (!wants(slot, TRANSFER_LAYERS) ||
		       find_key(slot, order->layers_region, order->layers_address,
			       (uint64_t)order->layer_count * sizeof(uint32_t), &slot->layer_rkey)) &&
		(!wants(slot, TRANSFER_AFTER) ||
			find_key(slot, order->after_region, order->after_address, sizeof(uint32_t), &slot->after_rkey));
}

bool order_names(const struct slot *slot, uint32_t region)
{
	const struct transfer_order *order = &slot->request.message.transfer.order;

	if (slot->stage != SLOT_MOVING && slot->stage != SLOT_WORD)
		return false;
	return (wants(slot, TRANSFER_LAYERS) && order->layers_region == region) ||
		(wants(slot, TRANSFER_AFTER) && order->after_region == region);
}

bool order_names_any(const struct worker *worker, const struct endpoint *endpoint, uint32_t region)
{
	list_for_each(node, &worker->words_due) {
		const struct slot *slot = KVR_CONTAINER_OF(node, struct slot, node);

		if (slot->request.connection->worker == endpoint && order_names(slot, region))
			return true;
	}
	return false;
}

/* ---- layers ----------------------------------------------------------------------------------------------------- */

void order_begin(struct slot *slot)
{
	const struct transfer_request *message = &slot->request.message.transfer;

	slot->layer_next = 0;
	slot->layer_count = wants(slot, TRANSFER_LAYERS) ? message->order.layer_count : 0;
	slot->layer_planes = slot->layer_count ? slot->request.transfer.layout->plane_count / slot->layer_count : 0;
}

bool order_layer_due(const struct slot *slot)
{
	const struct plan *plan = &slot->plan;

	if (KVR_LIKELY(slot->layer_next == slot->layer_count))
		return false;
	return plan_done(plan) ||
		(uint64_t)(plan->plane - slot->request.transfer.layout->planes) >=
		(uint64_t)(slot->layer_next + 1) * slot->layer_planes;
}

void order_fill_layer(const struct worker *worker, struct slot *slot, struct ibv_send_wr *wr)
{
	const struct transfer_order *order = &slot->request.message.transfer.order;

	wr->opcode = IBV_WR_RDMA_WRITE;
	wr->wr.rdma.remote_addr = order->layers_address + (uint64_t)slot->layer_next * sizeof(uint32_t);
	wr->wr.rdma.rkey = slot->layer_rkey;
	wr->num_sge = 1;
	wr->sg_list[0].addr = (uint64_t)(uintptr_t)slot->request.bytes + TRANSFER_LAYER_VALUE_OFFSET;
	wr->sg_list[0].length = sizeof(uint32_t);
	wr->sg_list[0].lkey = worker->mr->lkey;
	if (worker->inline_bytes >= sizeof(uint32_t))
		wr->send_flags = IBV_SEND_INLINE;
	slot->layer_next++;
}

/* ---- the word that is waited for -------------------------------------------------------------------------------- */

bool order_waits(struct worker *worker, struct slot *slot)
{
	struct endpoint *endpoint = endpoint_of(slot);

	if (KVR_LIKELY(!wants(slot, TRANSFER_AFTER)))
		return false;
	slot->stage = SLOT_WORD;
	slot->word_since_ns = worker->now_ns;
	list_add_last(&endpoint->words, &slot->node);
	send_activate(worker, endpoint);
	return true;
}

void order_fill_word(const struct worker *worker, const struct slot *slot, struct ibv_send_wr *wr)
{
	wr->opcode = IBV_WR_RDMA_READ;
	wr->wr.rdma.remote_addr = slot->request.message.transfer.order.after_address;
	wr->wr.rdma.rkey = slot->after_rkey;
	wr->num_sge = 1;
	wr->sg_list[0].addr = (uint64_t)(uintptr_t)word_of(worker, slot);
	wr->sg_list[0].length = sizeof(uint32_t);
	wr->sg_list[0].lkey = worker->mr->lkey;
}

void order_word_read(struct worker *worker, struct slot *slot)
{
	struct endpoint *endpoint = endpoint_of(slot);
	uint64_t waited = worker->now_ns - slot->word_since_ns;

	if (endpoint->state != ENDPOINT_LIVE)
		return; /* it ends with the connection */
	list_remove(&slot->node);
	if (slot->aborted) {
		transfer_end(worker, slot, false);
	} else if (transfer_word_reached(*word_of(worker, slot), slot->request.message.transfer.order.after_value)) {
		slot->stage = SLOT_MOVING;
		list_add_last(&endpoint->transfers, &slot->node);
		send_activate(worker, endpoint);
	} else {
		worker_count(worker, word_waits_total, 1);
		slot->word_due_ns = worker->now_ns + kvr_min_u64(kvr_max_u64(waited / 8, LOOK_MIN_NS), LOOK_MAX_NS);
		list_add_last(&worker->words_due, &slot->node);
	}
}

bool order_step(struct worker *worker)
{
	bool busy = false;

	for (unsigned i = 0; i < LOOKS_MAX && !list_empty(&worker->words_due); i++) {
		struct slot *slot = KVR_CONTAINER_OF(list_pop_first(&worker->words_due), struct slot, node);
		struct endpoint *endpoint = endpoint_of(slot);

		if (endpoint->state == ENDPOINT_LIVE && worker->now_ns >= slot->word_due_ns) {
			list_add_last(&endpoint->words, &slot->node);
			send_activate(worker, endpoint);
			busy = true;
		} else {
			list_add_last(&worker->words_due, &slot->node);
		}
	}
	return busy;
}

void order_give_up(struct worker *worker, const struct endpoint *endpoint)
{
	list_for_each_safe(node, &worker->words_due) {
		struct slot *slot = KVR_CONTAINER_OF(node, struct slot, node);

		if (slot->request.connection->worker == endpoint)
			transfer_end(worker, slot, true);
	}
}
