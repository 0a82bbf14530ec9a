/*
 * queue_send.c - requests on their way out: which may go, and which share a message.
 *
 * Where both sides know how (FEATURE_SEVERAL_MESSAGES), what is queued when something is sent goes along in the same SEND, behind the
 * first one's message and in its buffer. Nothing waits for company, unless the caller says that more is coming (kvr_hold).
 */
#include <errno.h>
#include <string.h>

#include "client/client_private.h"

void queue_submit(struct kvr_client *client, struct slot *slot)
{
	slot->state = SLOT_QUEUED;
	/* A CANCEL has a credit of its own and goes first: whatever it is to stop may hold all the others. */
	if (slot->type == WIRE_CANCEL)
		list_add_first(&client->queue, &slot->node);
	else
		list_add_last(&client->queue, &slot->node);
}

/* A request in a large buffer travels as an INDIRECT message with the same request id. */
static ssize_t queue_wrap(struct kvr_client *client, struct slot *slot)
{
	struct indirect message;
	uint32_t region = region_find(
		client, (uint64_t)(uintptr_t)client->large, client->large_bytes * CLIENT_LARGE_BUFFERS);

	memset(&message, 0, sizeof(message));
	message.header.type = WIRE_INDIRECT;
	message.header.request_id = slot->ticket;
	message.header.boot_id = client->boot_id;
	message.region = client->regions[region].number;
	message.length = slot->length;
	message.address = (uint64_t)(uintptr_t)(client->large + slot->large * client->large_bytes);
	return indirect_encode(slot->bytes, WIRE_INLINE_BYTES, &message);
}

/* The message that says it, in the slot's own buffer. */
static uint32_t queue_message(struct kvr_client *client, struct slot *slot)
{
	return slot->large != UINT32_MAX ? (uint32_t)queue_wrap(client, slot) : slot->length;
}

/* The next request that a credit is left for, with so many more on their way out; NULL: none. A CANCEL may have the last. */
static struct slot *queue_next(const struct kvr_client *client, uint32_t more)
{
	struct slot *slot;

	if (list_empty(&client->queue))
		return NULL;
	slot = KVR_CONTAINER_OF(client->queue.next, struct slot, node);
	if (client->in_flight + more + (slot->type != WIRE_CANCEL && client->credits > 1 ? 1 : 0) >= client->credits)
		return NULL;
	return slot;
}

/* Moves the requests that have room behind the carrier's own message from the queue to the list. The length of them all. */
static uint32_t queue_gather(struct kvr_client *client, struct slot *carrier, uint32_t length, struct list_node *riders)
{
	uint32_t room = (uint32_t)kvr_min_u64(WIRE_INLINE_BYTES, client->server.inline_bytes);
	struct slot *next;

	for (uint32_t count = 1; (next = queue_next(client, count)); count++) {
		uint32_t own = queue_message(client, next);

		if (own > room - length)
			break;
		memcpy(carrier->bytes + length, next->bytes, own);
		length += own;
		list_remove(&next->node);
		list_add_last(riders, &next->node);
	}
	return length;
}

static void queue_sent(struct kvr_client *client, struct slot *slot)
{
	list_remove(&slot->node);
	slot->state = SLOT_SENT;
	client->in_flight++;
}

static bool queue_send(struct kvr_client *client, struct slot *slot)
{
	struct list_node riders, *node;
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	int error;

	list_init(&riders);
	list_remove(&slot->node);
	memset(&wr, 0, sizeof(wr));
	sge.addr = (uint64_t)(uintptr_t)slot->bytes;
	sge.length = queue_message(client, slot);
	if (client->gathers && !list_empty(&client->queue))
		sge.length = queue_gather(client, slot, sge.length, &riders);
	sge.lkey = client->buffer_region->lkey;
	wr.wr_id = (uint64_t)(slot - client->slots);
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.opcode = IBV_WR_SEND;
	wr.send_flags = IBV_SEND_SIGNALED;
	if (sge.length <= 256)
		wr.send_flags |= IBV_SEND_INLINE;
	error = ibv_post_send(client->qp, &wr, &bad);
	if (error) {
		/* All of them end with the connection: by their state, whatever list they are on. */
		while (list_pop_first(&riders))
			;
		connection_lose(client, -error, "a request could not be posted: %s", strerror(error));
		return false;
	}
	queue_sent(client, slot);
	slot->sending = true; /* its buffer, which has the others' messages too */
	while ((node = list_pop_first(&riders)))
		queue_sent(client, KVR_CONTAINER_OF(node, struct slot, node));
	return true;
}

/* More are coming, and nobody is in a hurry. */
static bool queue_held(const struct kvr_client *client)
{
	const struct slot *slot = queue_next(client, 0);

	return client->gathers && client->waiters == 0 && !(slot && slot->type == WIRE_CANCEL);
}

bool queue_send_waiting(struct kvr_client *client)
{
	struct slot *slot;
	bool busy = false;

	if (KVR_UNLIKELY(client->holds > 0) && queue_held(client))
		return false;
	while (client->state == CONNECTION_READY && (slot = queue_next(client, 0))) {
		if (!queue_send(client, slot))
			break;
		busy = true;
	}
	return busy;
}

void client_hold(struct kvr_client *client)
{
	client->holds++;
}

void client_release(struct kvr_client *client)
{
	if (client->holds > 0 && --client->holds == 0 && client->started)
		queue_send_waiting(client);
}
