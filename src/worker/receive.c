#include <string.h>

#include "protocol/message.h"
#include "protocol/wire.h"
#include "worker/internal.h"

#define LOG_INTERVAL_NS ((uint64_t)1000000000)
#define OFFSET_TYPE 8
#define OFFSET_REQUEST_ID 16

/* ---- receive buffers ------------------------------------------------------------------------------------------- */

bool receive_post(struct worker *worker, struct slot *slot)
{
	uint32_t index = slot->request.index;
	struct ibv_sge sge = {
		.addr = (uint64_t)(uintptr_t)receive_buffer(worker, index),
		.length = WIRE_INLINE_BYTES,
		.lkey = worker->mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = WR_ID_RECEIVE | index, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;

	if (ibv_post_srq_recv(worker->srq, &wr, &bad) != 0) {
		if (slot->stage != SLOT_UNPOSTED)
			list_add_last(&worker->unposted, &slot->node);
		slot->stage = SLOT_UNPOSTED;
		return false;
	}
	list_remove(&slot->node);
	slot->stage = SLOT_POSTED;
	return true;
}

bool receive_post_again(struct worker *worker)
{
	bool busy = false;

	for (unsigned i = 0; i < WORKER_POLL_MAX && !list_empty(&worker->unposted); i++) {
		if (!receive_post(worker, KVR_CONTAINER_OF(worker->unposted.next, struct slot, node)))
			break;
		busy = true;
	}
	return busy;
}

/* The device may write to the buffer when nobody reads it any more. */
static void leave_buffer(struct worker *worker, struct slot *carrier)
{
	if (--carrier->riders == 0 && carrier->stage == SLOT_KEPT)
		receive_post(worker, carrier);
}

static void give_back(struct worker *worker, struct slot *slot)
{
	struct slot *carrier = slot->carrier;

	list_remove(&slot->node);
	if (carrier) {
		slot->carrier = NULL;
		slot->stage = SLOT_SPARE;
		list_add_first(&worker->spare, &slot->node);
		leave_buffer(worker, carrier);
	} else if (slot->riders > 0) {
		slot->stage = SLOT_KEPT;
	} else {
		receive_post(worker, slot);
	}
}

void receive_recycle(struct worker *worker, struct slot *slot)
{
	struct endpoint *endpoint = endpoint_of(slot);

	if (slot->request.large) {
		worker_tell(worker, TO_MANAGEMENT_PARTS, slot->request.large, 0);
		slot->request.large = NULL;
	}
	if (slot->early) {
		slot->early = false;
		worker->early--;
		endpoint->early--;
	}
	indirect_release_buffer(worker, slot);
	give_back(worker, slot);
	connection_request_back(worker, endpoint);
}

/* ---- what a message is ------------------------------------------------------------------------------------------ */

static void log_malformed(struct worker *worker, const struct slot *slot, const char *what, uint32_t offset)
{
	uint64_t squashed;

	worker_count(worker, malformed_total, 1);
	if (log_rate_pass(&worker->malformed_rate, worker->now_ns, LOG_INTERVAL_NS, &squashed))
		log_warn("connection %u (%s): malformed message: %s, at byte %u (%llu more not logged)",
			slot->request.connection->number, slot->request.connection->name, what, offset,
			(unsigned long long)squashed);
}

static void refuse_malformed(struct worker *worker, struct slot *slot, const struct wire_error *error)
{
	log_malformed(worker, slot, error->what, error->offset);
	reply_error(worker, slot, (enum kvr_wire_status)error->status, "%s: %s, at byte %u",
		wire_type_name(slot->request.header.type), error->what, error->offset);
}

/* A message without a header that can be answered says that the peer speaks something else, or is out of step. */
static void refuse_header(struct worker *worker, struct slot *slot, const struct wire_error *error)
{
	struct request *request = &slot->request;
	uint32_t magic = 0;

	if (request->length >= WIRE_HEADER_BYTES)
		memcpy(&magic, request->bytes, sizeof(magic));
	if (magic != WIRE_MAGIC) {
		struct endpoint *endpoint = endpoint_of(slot);

		log_malformed(worker, slot, error->what, error->offset);
		receive_recycle(worker, slot);
		connection_fail(worker, endpoint, "a message that is not of this protocol, bytes", request->length);
		return;
	}
	memset(&request->header, 0, sizeof(request->header));
	memcpy(&request->header.type, request->bytes + OFFSET_TYPE, sizeof(request->header.type));
	memcpy(&request->header.request_id, request->bytes + OFFSET_REQUEST_ID, sizeof(request->header.request_id));
	refuse_malformed(worker, slot, error);
}

static void refuse_type(struct worker *worker, struct slot *slot)
{
	uint16_t type = slot->request.header.type;
	const char *name = wire_type_name(type);

	if (strcmp(name, "UNKNOWN") == 0)
		reply_error(worker, slot, STATUS_UNKNOWN_TYPE, "message type %u is not known to this server", type);
	else
		reply_error(
			worker, slot, STATUS_OUT_OF_ORDER, "%s (type %u) is not a request of a queue pair", name, type);
}

/* ---- decoding --------------------------------------------------------------------------------------------------- */

static void answer_ping(struct worker *worker, struct slot *slot)
{
	struct wire_error error;
	struct ping ping;

	if (ping_decode(slot->request.bytes, slot->request.length, &ping, &error)) {
		refuse_malformed(worker, slot, &error);
		return;
	}
	if (slot->request.header.type == WIRE_PING)
		worker_count(worker, pings_total, 1);
	slot->request.reply.status = STATUS_OK;
	reply_send(worker, slot);
}

static int decode_for_management(struct request *request, struct wire_error *error)
{
	const void *bytes = request->bytes;
	size_t length = request->length;

	switch (request->header.type) {
	case WIRE_LOOKUP:
		return lookup_request_decode(bytes, length, &request->message.lookup, error);
	case WIRE_QUERY:
		return query_request_decode(bytes, length, &request->message.query, error);
	case WIRE_RETRIEVE:
	case WIRE_STORE:
		return transfer_request_decode(bytes, length, &request->message.transfer, error);
	case WIRE_FREE_LOCKS:
		return free_locks_request_decode(bytes, length, &request->message.free_locks, error);
	case WIRE_CANCEL:
		return cancel_request_decode(bytes, length, &request->message.cancel, error);
	case WIRE_END_SESSION:
		return end_session_request_decode(bytes, length, &request->message.end_session, error);
	default:
		return clear_request_decode(bytes, length, &request->message.clear, error);
	}
}

static void hand_over(struct worker *worker, struct slot *slot)
{
	struct request *request = &slot->request;
	struct wire_error error;

	if (decode_for_management(request, &error)) {
		refuse_malformed(worker, slot, &error);
		return;
	}
	if (KVR_UNLIKELY(request->header.flags) &&
		(request->header.type == WIRE_RETRIEVE || request->header.type == WIRE_STORE) &&
		!order_find_memory(slot)) {
		reply_error(worker, slot, STATUS_INVALID_MEMORY,
			"%s: the words that order it lie outside the memory regions of this connection",
			wire_type_name(request->header.type));
		return;
	}
	memset(&request->reply, 0, offsetof(struct request_reply, text));
	request->reply.text[0] = '\0';
	memset(&request->transfer, 0, sizeof(request->transfer));
	slot->stage = SLOT_MANAGEMENT;
	worker_tell(worker, TO_MANAGEMENT_REQUEST, request, 0);
}

void receive_dispatch(struct worker *worker, struct slot *slot, bool inner)
{
	struct request *request = &slot->request;
	struct wire_error error;

	if (wire_header_decode(request->bytes, request->length, &request->header, &error)) {
		refuse_header(worker, slot, &error);
		return;
	}
	if (request->header.boot_id != 0 && request->header.boot_id != worker->options.boot_id) {
		reply_error(worker, slot, STATUS_WRONG_BOOT, "the server has been restarted since: register again");
		return;
	}
	switch (request->header.type) {
	case WIRE_PING:
	case WIRE_GET_INFO:
		answer_ping(worker, slot);
		break;
	case WIRE_INDIRECT:
		if (inner)
			reply_error(worker, slot, STATUS_MALFORMED, "INDIRECT: what it names is an INDIRECT again");
		else
			indirect_begin(worker, slot);
		break;
	case WIRE_LOOKUP:
	case WIRE_QUERY:
	case WIRE_RETRIEVE:
	case WIRE_STORE:
	case WIRE_FREE_LOCKS:
	case WIRE_CANCEL:
	case WIRE_END_SESSION:
	case WIRE_CLEAR:
		hand_over(worker, slot);
		break;
	default:
		refuse_type(worker, slot);
		break;
	}
}

/* ---- completions of receives ------------------------------------------------------------------------------------ */

static void receive_message(
	struct worker *worker, struct endpoint *endpoint, struct slot *slot, const uint8_t *bytes, uint32_t length)
{
	struct connection *connection = endpoint->connection;
	struct request *request = &slot->request;
	/* A client that keeps to its credits sends again when it has a reply, which therefore no longer waits.
	 * Counting those keeps a client that takes no replies from filling the server with them. */
	bool too_many = endpoint->out - endpoint->early + endpoint->replies_waiting >= connection->credits;

	request->connection = connection;
	request->bytes = bytes;
	request->length = length;
	request->arrived_ns = worker->now_ns;
	endpoint->out++;
	kvr_store_relaxed(&connection->last_seen_ns, worker->now_ns);
	kvr_counter_add(&connection->requests, 1);
	worker_count(worker, requests_total, 1);
	if (KVR_UNLIKELY(too_many)) {
		/* Its requests take receive buffers that were promised to others: tell it, and end it. */
		struct wire_error error;

		endpoint->doomed = true;
		if (wire_header_decode(request->bytes, length, &request->header, &error))
			memset(&request->header, 0, sizeof(request->header));
		reply_error(
			worker, slot, STATUS_CREDITS_EXCEEDED, "more than %u requests in flight", connection->credits);
		return;
	}
	receive_dispatch(worker, slot, false);
}

static void receive_rider(
	struct worker *worker, struct endpoint *endpoint, struct slot *carrier, const uint8_t *bytes, uint32_t length)
{
	struct list_node *node = list_pop_first(&worker->spare);
	struct slot *slot;

	if (KVR_UNLIKELY(!node)) {
		connection_fail(
			worker, endpoint, "more requests in flight than granted", endpoint->connection->credits);
		return;
	}
	slot = KVR_CONTAINER_OF(node, struct slot, node);
	slot->carrier = carrier;
	carrier->riders++;
	worker_count(worker, requests_gathered_total, 1);
	receive_message(worker, endpoint, slot, bytes, length);
}

static void receive_send(struct worker *worker, struct endpoint *endpoint, struct slot *carrier, uint32_t length)
{
	const uint8_t *bytes = receive_buffer(worker, carrier->request.index);
	uint32_t at = endpoint->connection->gathers ? wire_first_length(bytes, length) : length;

	if (KVR_LIKELY(at == length)) {
		receive_message(worker, endpoint, carrier, bytes, length);
		return;
	}
	carrier->riders++; /* its own request may be over at once */
	receive_message(worker, endpoint, carrier, bytes, at);
	for (uint32_t here; at < length && endpoint->state == ENDPOINT_LIVE && !endpoint->doomed; at += here) {
		here = wire_first_length(bytes + at, length - at);
		receive_rider(worker, endpoint, carrier, bytes + at, here);
	}
	leave_buffer(worker, carrier);
}

void receive_completion(struct worker *worker, const struct ibv_wc *wc)
{
	uint64_t index = wc->wr_id & ~WR_ID_RECEIVE;
	struct endpoint *endpoint = endpoint_find(worker, wc->qp_num);
	struct slot *slot;

	if (!endpoint)
		worker_count(worker, unknown_queue_pair_total, 1);
	if (index >= worker->slot_count || worker->slots[index].stage != SLOT_POSTED)
		return; /* nothing of ours: a completion that was made up, or came twice */
	slot = &worker->slots[index];

	if (KVR_LIKELY(wc->status == IBV_WC_SUCCESS && endpoint && endpoint->state == ENDPOINT_LIVE &&
		    !endpoint->doomed)) {
		receive_send(worker, endpoint, slot, wc->byte_len);
		return;
	}
	/* The shared receive queue lives on, whatever became of the queue pair: its buffer goes back there. */
	receive_post(worker, slot);
	if (wc->status == IBV_WC_SUCCESS || wc->status == IBV_WC_WR_FLUSH_ERR)
		return;
	if (endpoint)
		connection_fail_completion(worker, endpoint, wc->status);
}
