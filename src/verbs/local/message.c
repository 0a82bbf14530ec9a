/* message.c - SENDs: from the send queue into the ring, from the ring into posted receives. */
#include <string.h>

#include "base/atomic.h"
#include "verbs/local/local.h"

static struct local_slot *slot_at(uint8_t *slots, uint32_t stride, uint32_t mask, uint32_t index)
{
	return (struct local_slot *)(void *)(slots + (uint64_t)(index & mask) * stride);
}

/* True when there is a free slot. A head that the peer can't have reached is a violation: *status says so. */
static bool has_room(struct local_qp *qp, uint8_t *status)
{
	uint32_t head;

	if (KVR_LIKELY(qp->tx_tail - qp->tx_head_copy <= qp->tx_mask))
		return true;
	/* pairs with the store-release in publish_head: the peer has read what these slots held */
	head = kvr_load_acquire(&qp->peer->head);
	if (KVR_UNLIKELY(qp->tx_tail - head > qp->tx_mask + 1)) {
		*status = IBV_WC_REM_OP_ERR;
		return false;
	}
	qp->tx_head_copy = head;
	return qp->tx_tail - head <= qp->tx_mask;
}

static uint8_t peer_closed_status(struct local_qp *qp)
{
	uint32_t closed = kvr_load_acquire(&qp->peer->closed);

	if (KVR_LIKELY(closed == LOCAL_OPEN))
		return IBV_WC_SUCCESS;
	return closed == LOCAL_CLOSED_LENGTH ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_RETRY_EXC_ERR;
}

bool local_qp_can_transmit(struct local_qp *qp)
{
	uint8_t status = peer_closed_status(qp);

	return status != IBV_WC_SUCCESS || has_room(qp, &status) || status != IBV_WC_SUCCESS;
}

/* Bytes [offset, offset + bytes) of a message lie in the slot's first line up to LOCAL_FIRST_BYTES, and behind it from
 * there. */
static void put_bytes(struct local_slot *slot, uint32_t offset, const uint8_t *from, uint32_t bytes)
{
	if (offset < LOCAL_FIRST_BYTES) {
		uint32_t part = bytes < LOCAL_FIRST_BYTES - offset ? bytes : LOCAL_FIRST_BYTES - offset;

		memcpy(slot->first + offset, from, part);
		offset += part;
		from += part;
		bytes -= part;
	}
	if (bytes > 0)
		memcpy((uint8_t *)(slot + 1) + (offset - LOCAL_FIRST_BYTES), from, bytes);
}

static void get_bytes(const struct local_slot *slot, uint32_t offset, uint8_t *to, uint32_t bytes)
{
	if (offset < LOCAL_FIRST_BYTES) {
		uint32_t part = bytes < LOCAL_FIRST_BYTES - offset ? bytes : LOCAL_FIRST_BYTES - offset;

		memcpy(to, slot->first + offset, part);
		offset += part;
		to += part;
		bytes -= part;
	}
	if (bytes > 0)
		memcpy(to, (const uint8_t *)(slot + 1) + (offset - LOCAL_FIRST_BYTES), bytes);
}

/* The payload into the slot. Its length has been checked against the slot. */
static uint8_t gather(struct local_qp *qp, const struct local_send *send, struct local_slot *slot)
{
	uint32_t offset = 0;

	if (send->flags & IBV_SEND_INLINE) {
		put_bytes(slot, 0, (const uint8_t *)send->sge, send->length);
		return IBV_WC_SUCCESS;
	}
	for (uint32_t i = 0; i < send->sge_count; i++) {
		const uint8_t *from;

		if (send->sge[i].length == 0)
			continue;
		from = local_resolve(qp->device, &send->sge[i], 0);
		if (!from)
			return IBV_WC_LOC_PROT_ERR;
		put_bytes(slot, offset, from, send->sge[i].length);
		offset += send->sge[i].length;
	}
	return IBV_WC_SUCCESS;
}

bool local_qp_transmit(struct local_qp *qp, struct local_send *send)
{
	bool data = send->opcode != IBV_WR_RDMA_WRITE_WITH_IMM;
	struct local_slot *slot;

	send->status = data && send->length > qp->message_bytes ? (uint8_t)IBV_WC_LOC_LEN_ERR : peer_closed_status(qp);
	if (KVR_UNLIKELY(send->status != IBV_WC_SUCCESS))
		return true;
	if (!has_room(qp, &send->status))
		return send->status != IBV_WC_SUCCESS;
	slot = slot_at(qp->tx_slots, qp->stride, qp->tx_mask, qp->tx_tail);
	if (data)
		send->status = gather(qp, send, slot);
	if (KVR_UNLIKELY(send->status != IBV_WC_SUCCESS))
		return true;
	slot->length = send->length;
	slot->kind = send->opcode == IBV_WR_SEND       ? LOCAL_SLOT_SEND
		: send->opcode == IBV_WR_SEND_WITH_IMM ? LOCAL_SLOT_SEND_IMM
						       : LOCAL_SLOT_WRITE_IMM;
	slot->immediate = send->immediate;
	qp->tx_tail++;
	/* pairs with the load-acquire in take_message */
	kvr_store_release(&slot->sequence, qp->tx_tail);
	qp->wake_due = true;
	return true;
}

/* The payload into the posted receive. `length` has been checked against the slot. */
static enum ibv_wc_status scatter(
	struct local_qp *qp, const struct local_receive *receive, const struct local_slot *slot, uint32_t length)
{
	uint32_t offset = 0;

	for (uint32_t i = 0; i < receive->sge_count && offset < length; i++) {
		const struct ibv_sge *sge = &receive->sge[i];
		uint32_t part = sge->length < length - offset ? sge->length : length - offset;
		uint8_t *to;

		if (part == 0)
			continue;
		to = local_resolve(qp->device, sge, IBV_ACCESS_LOCAL_WRITE);
		if (!to)
			return IBV_WC_LOC_PROT_ERR;
		get_bytes(slot, offset, to, part);
		offset += part;
	}
	return offset == length ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR;
}

static void fill_completion(struct local_qp *qp, struct ibv_wc *wc, const struct local_receive *receive)
{
	wc->wr_id = receive->wr_id;
	wc->status = IBV_WC_SUCCESS;
	wc->opcode = IBV_WC_RECV;
	wc->vendor_err = 0;
	wc->byte_len = 0;
	wc->imm_data = 0;
	wc->qp_num = qp->qp.qp_num;
	wc->src_qp = qp->peer_qp_num;
	wc->wc_flags = 0;
	wc->pkey_index = 0;
	wc->slid = 0;
	wc->sl = 0;
	wc->dlid_path_bits = 0;
}

/* Tells the peer which slots are free, a quarter of the ring at a time: the rest is always enough for it to go on. */
static void publish_head(struct local_qp *qp)
{
	if (qp->rx_head - qp->rx_published < (qp->rx_mask + 1) / 4)
		return;
	qp->rx_published = qp->rx_head;
	/* pairs with the load-acquire in has_room */
	kvr_store_release(&qp->mine->head, qp->rx_head);
	qp->wake_due = true;
}

/* One message into one receive. The slot is the peer's to rewrite at any moment: each header word is read once. */
static void take_message(
	struct local_qp *qp, const struct local_slot *slot, const struct local_receive *receive, struct ibv_wc *wc)
{
	uint32_t length = kvr_load_relaxed(&slot->length);
	uint32_t kind = kvr_load_relaxed(&slot->kind);
	uint32_t immediate = kvr_load_relaxed(&slot->immediate);

	fill_completion(qp, wc, receive);
	if (kind == LOCAL_SLOT_WRITE_IMM && !qp->device->server) {
		wc->opcode = IBV_WC_RECV_RDMA_WITH_IMM;
	} else if (KVR_LIKELY(
			   (kind == LOCAL_SLOT_SEND || kind == LOCAL_SLOT_SEND_IMM) && length <= qp->message_bytes)) {
		wc->status = scatter(qp, receive, slot, length);
	} else {
		wc->status = IBV_WC_REM_OP_ERR;
	}
	if (KVR_UNLIKELY(wc->status != IBV_WC_SUCCESS))
		return;
	wc->byte_len = length;
	if (kind != LOCAL_SLOT_SEND) {
		wc->wc_flags = IBV_WC_WITH_IMM;
		wc->imm_data = immediate;
	}
}

static int flush_receives(struct local_qp *qp, int capacity, struct ibv_wc *wc)
{
	struct local_receive_queue *queue = &qp->own_queue;
	int count = 0;

	while (count < capacity && queue->head != queue->tail) {
		fill_completion(qp, &wc[count], local_receive_at(queue, queue->head));
		wc[count].status = IBV_WC_WR_FLUSH_ERR;
		queue->head++;
		count++;
	}
	return count;
}

int local_qp_receive(struct local_qp *qp, int capacity, struct ibv_wc *wc)
{
	struct local_receive_queue *queue = qp->receive_queue;
	int count = 0;

	if (KVR_UNLIKELY(qp->failed))
		return flush_receives(qp, capacity, wc);
	if (capacity > (int)LOCAL_RECEIVES_PER_TURN)
		capacity = LOCAL_RECEIVES_PER_TURN;
	while (count < capacity && !qp->failed) {
		struct local_slot *slot = slot_at(qp->rx_slots, qp->stride, qp->rx_mask, qp->rx_head);

		/* pairs with the store-release in local_qp_transmit */
		if (kvr_load_acquire(&slot->sequence) != qp->rx_head + 1)
			break;
		if (queue->head == queue->tail)
			break; /* receiver not ready: the message waits where it is */
		take_message(qp, slot, local_receive_next(queue), &wc[count]);
		local_receive_taken(queue);
		qp->rx_head++;
		if (KVR_UNLIKELY(wc[count].status != IBV_WC_SUCCESS))
			local_qp_to_error(
				qp, wc[count].status == IBV_WC_LOC_LEN_ERR ? LOCAL_CLOSED_LENGTH : LOCAL_CLOSED);
		count++;
	}
	if (count > 0) {
		publish_head(qp);
		local_watch_update(qp);
	}
	if (KVR_UNLIKELY(qp->wake_due))
		local_qp_wake_peer(qp);
	return count;
}
