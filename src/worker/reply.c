#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "protocol/message.h"
#include "protocol/wire.h"
#include "worker/internal.h"

/* ---- reply buffers ---------------------------------------------------------------------------------------------- */

void reply_free_list(struct worker *worker, uint32_t first)
{
	while (first != POOL_NONE) {
		struct reply_buffer *buffer = &worker->reply_buffers[first];
		uint32_t next = buffer->next;

		buffer->next = worker->reply_free;
		worker->reply_free = first;
		first = next;
	}
}

static void append(struct worker *worker, struct endpoint *endpoint, uint32_t index)
{
	worker->reply_buffers[index].next = POOL_NONE;
	if (endpoint->reply_first == POOL_NONE)
		endpoint->reply_first = index;
	else
		worker->reply_buffers[endpoint->reply_last].next = index;
	endpoint->reply_last = index;
	endpoint->replies_waiting++;
}

/* ---- encoding --------------------------------------------------------------------------------------------------- */

static struct wire_text text_of(const char *text, size_t most)
{
	return (struct wire_text){ text, (uint32_t)strnlen(text, most) };
}

static ssize_t encode_error(const struct request *request, const struct wire_header *header, uint8_t *bytes)
{
	struct error_reply reply = { .header = *header };

	reply.text = text_of(request->reply.text, sizeof(request->reply.text));
	if (reply.text.length == 0)
		reply.text = text_of(status_text(header->status), WIRE_ERROR_TEXT_MAX);
	return error_reply_encode(bytes, WORKER_REPLY_BYTES, &reply);
}

static ssize_t encode_info(
	struct worker *worker, const struct request *request, const struct wire_header *header, uint8_t *bytes)
{
	const struct worker_options *options = &worker->options;
	struct authenticate_reply reply = { .header = *header, .info = options->info };
	const char *tenant = options->tenant_name ? options->tenant_name(options->context, request->connection->tenant)
						  : "";

	reply.info.credits = request->connection->credits;
	if (!request->connection->gathers)
		reply.info.features &= ~(uint32_t)FEATURE_SEVERAL_MESSAGES;
	reply.info.tenant = text_of(tenant, WIRE_NAME_MAX);
	return info_reply_encode(bytes, WORKER_REPLY_BYTES, &reply);
}

static ssize_t encode_transfer(const struct request *request, const struct wire_header *header, uint8_t *bytes)
{
	struct transfer_reply reply = {
		.header = *header,
		.chunk_count = request->message.transfer.chunk_count,
		.good_count = request->reply.first,
		.outcomes = request->transfer.outcomes,
	};

	return transfer_reply_encode(bytes, WORKER_REPLY_BYTES, &reply);
}

static ssize_t encode_numbers(const struct request *request, const struct wire_header *header, uint8_t *bytes)
{
	struct lookup_reply lookup = { *header, request->reply.first, request->reply.second };
	struct count_reply count = { *header, request->reply.first, request->reply.second };

	if (request->header.type == WIRE_LOOKUP || request->header.type == WIRE_QUERY)
		return lookup_reply_encode(bytes, WORKER_REPLY_BYTES, &lookup);
	return count_reply_encode(bytes, WORKER_REPLY_BYTES, &count);
}

static ssize_t encode(struct worker *worker, const struct request *request, uint8_t *bytes)
{
	struct wire_header header = {
		.type = (uint16_t)(request->header.type + 1),
		.status = request->reply.status,
		.request_id = request->header.request_id,
		.boot_id = worker->options.boot_id,
		/* Whoever has this reply may use the blocks again: only when nothing can come by a rail that has failed. */
		.flags = (uint16_t)endpoint_of(KVR_CONTAINER_OF(request, const struct slot, request))->rails_out,
	};
	struct empty_reply empty = { header };

	if (!status_has_body(header.status))
		return encode_error(request, &header, bytes);
	switch (request->header.type) {
	case WIRE_GET_INFO:
		return encode_info(worker, request, &header, bytes);
	case WIRE_LOOKUP:
	case WIRE_QUERY:
	case WIRE_FREE_LOCKS:
	case WIRE_CLEAR:
		return encode_numbers(request, &header, bytes);
	case WIRE_RETRIEVE:
	case WIRE_STORE:
		return encode_transfer(request, &header, bytes);
	default:
		return empty_reply_encode(bytes, WORKER_REPLY_BYTES, &empty);
	}
}

/* A reply that breaks the wire format's rules is a fault of this server: the client hears that instead. */
static KVR_COLD ssize_t encode_fault(struct worker *worker, struct request *request, uint8_t *bytes)
{
	uint64_t squashed;

	if (log_rate_pass(&worker->refusal_rate, worker->now_ns, (uint64_t)1000000000, &squashed))
		log_error("connection %u: the reply to a %s, status %s, cannot be encoded (%llu more not logged)",
			request->connection->number, wire_type_name(request->header.type),
			status_name(request->reply.status), (unsigned long long)squashed);
	request->reply.status = STATUS_INTERNAL;
	request->reply.text[0] = '\0';
	return encode(worker, request, bytes);
}

/* ---- sending ---------------------------------------------------------------------------------------------------- */

static void encode_into(struct worker *worker, struct slot *slot, uint32_t index)
{
	struct endpoint *endpoint = endpoint_of(slot);
	struct reply_buffer *buffer = &worker->reply_buffers[index];
	uint8_t *bytes = worker->replies + (uint64_t)index * WORKER_REPLY_BYTES;
	ssize_t length = encode(worker, &slot->request, bytes);

	if (KVR_UNLIKELY(length < 0))
		length = encode_fault(worker, &slot->request, bytes);
	if (slot->request.reply.status != STATUS_OK && !status_has_body(slot->request.reply.status))
		worker_count(worker, error_replies_total, 1);
	buffer->length = (uint32_t)length;
	buffer->last = slot->request.reply.status == STATUS_CREDITS_EXCEEDED;
	append(worker, endpoint, index);
}

static void encode_and_recycle(struct worker *worker, struct slot *slot, uint32_t index)
{
	struct endpoint *endpoint = endpoint_of(slot);

	encode_into(worker, slot, index);
	/* The client may send its next request as soon as it has this reply: there must be a buffer for it by then. */
	receive_recycle(worker, slot);
	send_activate(worker, endpoint);
}

void reply_send(struct worker *worker, struct slot *slot)
{
	uint32_t index = worker->reply_free;

	if (endpoint_of(slot)->state != ENDPOINT_LIVE) {
		receive_recycle(worker, slot);
		return;
	}
	if (KVR_UNLIKELY(index == POOL_NONE || !list_empty(&worker->unanswered))) {
		slot->stage = SLOT_REPLYING;
		list_add_last(&worker->unanswered, &slot->node);
		return;
	}
	worker->reply_free = worker->reply_buffers[index].next;
	encode_and_recycle(worker, slot, index);
}

static void set_delivered(struct request *request)
{
	uint32_t count = request->message.transfer.chunk_count, good = 0;
	uint8_t *outcomes = request->transfer.outcomes;

	for (uint32_t i = 0; i < count; i++) {
		if (outcomes[i] == CHUNK_PENDING)
			outcomes[i] = CHUNK_DELIVERED;
		good += outcomes[i] == CHUNK_DELIVERED || outcomes[i] == CHUNK_SKIPPED;
	}
	request->reply.first = good;
	request->reply.status = good == count ? STATUS_OK : STATUS_PARTIAL;
	kvr_store_relaxed(&request->transfer.answered, 1);
}

void reply_early(struct worker *worker, struct slot *slot)
{
	uint32_t index = worker->reply_free;

	if (!slot->request.transfer.early || slot->early || slot->shares > 0 || slot->torn || index == POOL_NONE ||
		!list_empty(&worker->unanswered) || worker->early >= worker->early_max)
		return;
	worker->reply_free = worker->reply_buffers[index].next;
	set_delivered(&slot->request);
	slot->early = true;
	worker->early++;
	endpoint_of(slot)->early++;
	worker_count(worker, early_replies_total, 1);
	encode_into(worker, slot, index);
}

bool reply_send_waiting(struct worker *worker)
{
	bool busy = false;

	for (unsigned i = 0; i < WORKER_POLL_MAX && !list_empty(&worker->unanswered); i++) {
		struct slot *slot = KVR_CONTAINER_OF(worker->unanswered.next, struct slot, node);
		uint32_t index = worker->reply_free;

		if (endpoint_of(slot)->state != ENDPOINT_LIVE) {
			receive_recycle(worker, slot);
		} else if (index != POOL_NONE) {
			list_remove(&slot->node);
			worker->reply_free = worker->reply_buffers[index].next;
			encode_and_recycle(worker, slot, index);
		} else {
			break;
		}
		busy = true;
	}
	return busy;
}

void reply_error(struct worker *worker, struct slot *slot, enum kvr_wire_status status, const char *format, ...)
{
	struct request_reply *reply = &slot->request.reply;
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(reply->text, sizeof(reply->text), format, arguments);
	va_end(arguments);
	reply->status = (uint16_t)status;
	reply_send(worker, slot);
}
