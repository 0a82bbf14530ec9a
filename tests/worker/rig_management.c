#include "worker/rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void rig_tell(struct rig *rig, enum to_worker kind, void *object, uint64_t word)
{
	struct ring_message message = { .kind = kind, .word = { (uint64_t)(uintptr_t)object, word } };

	assert_true(ring_push(&rig->mailbox->to_worker, &message));
}

void rig_begin_transfer(struct rig *rig, struct request *request)
{
	struct rig_client *client = request->connection->control;
	const struct transfer_request *message = &request->message.transfer;
	struct transfer *transfer = &request->transfer;
	struct wire_error error;

	assert_int_equal(layout_check_blocks(client->layout, message, &error), 0);
	memset(transfer, 0, sizeof(*transfer));
	transfer->layout = client->layout;
	transfer->to_client = request->header.type == WIRE_RETRIEVE;
	transfer->early = rig->early && transfer->to_client && message->chunk_count <= REQUEST_INLINE_PARTS;
	transfer->parts = request->inline_parts;
	transfer->outcomes = request->inline_outcomes;
	if (message->chunk_count > REQUEST_INLINE_PARTS) {
		transfer->parts = calloc(message->chunk_count, sizeof(*transfer->parts) + 1);
		transfer->outcomes = (uint8_t *)&transfer->parts[message->chunk_count];
		request->large = transfer->parts;
	}
	for (uint32_t i = 0; i < message->chunk_count; i++) {
		assert_true(message->first_chunk + i < RIG_CHUNKS);
		transfer->outcomes[i] = CHUNK_PENDING;
		transfer->parts[i] = (struct transfer_part){ .address = rig_object(rig, message->first_chunk + i),
			.lkey = rig->l1_mr->lkey };
	}
	rig_tell(rig, TO_WORKER_TRANSFER, request, 0);
}

void rig_reply(struct rig *rig, struct request *request, uint16_t status)
{
	request->reply.status = status;
	request->reply.text[0] = '\0';
	request->reply.first = 0;
	request->reply.second = 0;
	if (request->header.type == WIRE_LOOKUP)
		request->reply.first = request->message.lookup.session.digest_count;
	if (request->transfer.outcomes)
		for (uint32_t i = 0; i < request->message.transfer.chunk_count; i++)
			request->reply.first += request->transfer.outcomes[i] <= CHUNK_SKIPPED ||
				request->transfer.outcomes[i] == CHUNK_STORED;
	if (request->transfer.outcomes && status == STATUS_OK &&
		request->reply.first < request->message.transfer.chunk_count)
		request->reply.status = STATUS_PARTIAL;
	rig_tell(rig, TO_WORKER_REPLY, request, 0);
}

void rig_abort(struct rig *rig, struct request *request)
{
	rig_tell(rig, TO_WORKER_ABORT, request, 0);
}

static struct request *take_first(struct request **queue, uint32_t *count)
{
	struct request *first = queue[0];

	memmove(queue, queue + 1, --*count * sizeof(*queue));
	return first;
}

struct request *rig_take_request(struct rig *rig)
{
	RIG_UNTIL(rig, rig->inbox_count > 0);
	return take_first(rig->inbox, &rig->inbox_count);
}

struct request *rig_take_done(struct rig *rig)
{
	RIG_UNTIL(rig, rig->done_count > 0);
	return take_first(rig->done, &rig->done_count);
}

static void take_new(struct rig *rig, struct request *request)
{
	assert_false(((struct rig_client *)request->connection->control)->closed);
	request->large = NULL;
	rig->requests++;
	if (!rig->auto_answer) {
		assert_true(rig->inbox_count < RIG_INBOX);
		rig->inbox[rig->inbox_count++] = request;
	} else if (request->header.type == WIRE_RETRIEVE || request->header.type == WIRE_STORE) {
		rig_begin_transfer(rig, request);
	} else {
		rig_reply(rig, request, STATUS_OK);
	}
}

static void take_moved(struct rig *rig, struct request *request)
{
	const struct rig_client *client = request->connection->control;

	assert_false(client->closed);
	/* What failed on a failed connection comes back when nothing of it touches memory any more, never before
	 * (pitfalls C05). */
	if (request->transfer.moved_bytes == 0 && request->connection->worker &&
		((struct endpoint *)request->connection->worker)->state != ENDPOINT_LIVE &&
		slot_of(request)->posted_bytes)
		assert_true(verbs_sim.qp_idle(client->server_qp));
	for (uint32_t i = 0; i < request->message.transfer.chunk_count; i++)
		assert_int_not_equal(request->transfer.outcomes[i], CHUNK_PENDING);
	rig->transfers_done++;
	if (rig->auto_answer) {
		rig_reply(rig, request, STATUS_OK);
	} else {
		assert_true(rig->done_count < RIG_INBOX);
		rig->done[rig->done_count++] = request;
	}
}

static void take_connection_message(struct rig *rig, const struct ring_message *message)
{
	struct connection *connection = (void *)(uintptr_t)message->word[0];
	struct rig_client *client = connection->control;

	assert_false(client->closed);
	switch (message->kind) {
	case TO_MANAGEMENT_LOST:
		assert_int_equal(client->lost_count++, 0); /* once */
		client->lost = true;
		if (rig->auto_close)
			rig_close(client);
		break;
	case TO_MANAGEMENT_CLOSED:
		client->closed = true;
		break;
	case TO_MANAGEMENT_FORGOTTEN:
		client->forgotten++;
		client->forgotten_region = message->word[1];
		break;
	default:
		fail_msg("message %u", message->kind);
	}
}

void rig_management_step(struct rig *rig)
{
	struct ring_message message;

	while (ring_pop(&rig->mailbox->to_management, &message)) {
		void *object = (void *)(uintptr_t)message.word[0];

		switch (message.kind) {
		case TO_MANAGEMENT_REQUEST:
			take_new(rig, object);
			break;
		case TO_MANAGEMENT_TRANSFER_DONE:
			take_moved(rig, object);
			break;
		case TO_MANAGEMENT_PARTS:
			rig->parts_back++;
			free(object);
			break;
		default:
			take_connection_message(rig, &message);
			break;
		}
	}
}
