#include "mgmt/state.h"

#include <stdarg.h>
#include <stdio.h>

void worker_push(struct management *management, uint32_t worker, uint32_t kind, const void *object, uint64_t word)
{
	struct ring_message message = { .kind = kind, .word = { (uint64_t)(uintptr_t)object, word } };

	/* The rings are sized for everything that can be under way: a full one means that the books are wrong. */
	if (!ring_push(&management->mailboxes[worker]->to_worker, &message))
		log_error("management: the ring to worker %u is full, message %u is lost", worker, kind);
}

void control_push(struct management *management, uint32_t kind, const void *object, uint64_t word)
{
	struct ring_message message = { .kind = kind, .word = { (uint64_t)(uintptr_t)object, word } };

	if (!ring_push(&management->outbox, &message))
		log_error("management: the ring to the control thread is full, message %u is lost", kind);
}

static void reply_format(struct request_reply *reply, uint16_t status, const char *format, va_list arguments)
{
	reply->status = status;
	vsnprintf(reply->text, sizeof(reply->text), format, arguments);
}

void reply_set(struct request_reply *reply, uint16_t status, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	reply_format(reply, status, format, arguments);
	va_end(arguments);
}

void reply_refuse(struct management *management, struct request *request, uint16_t status, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	reply_format(&request->reply, status, format, arguments);
	va_end(arguments);
	reply_give(management, request);
}

void reply_give(struct management *management, struct request *request)
{
	struct connection *connection = request->connection;
	struct peer *peer = peer_of(connection);
	struct request *cancel = request->canceled_by;

	if (list_linked(&request->in_flight)) {
		list_remove(&request->in_flight);
		peer->in_flight_count--;
		peer->attached_ns = management->now_ns; /* it waited for us until now: its silence begins here */
		management->in_flight--;
	}
	list_remove(&request->node);
	list_remove(&request->waiting);
	wheel_cancel(&management->wheel, &request->timer);
	if (request->reply.status == STATUS_BUSY)
		COUNT(management, busy_total, 1);
	worker_push(management, connection->worker_index, TO_WORKER_REPLY, request, 0);

	/* From here on the request is the worker's. Each CANCEL of it has the next one as its `canceled_by`. */
	while (cancel) {
		struct request *next = cancel->canceled_by;

		cancel->canceled_by = NULL;
		reply_give(management, cancel);
		cancel = next;
	}
	if (peer && connection->closing)
		connection_poke(management, peer);
}
