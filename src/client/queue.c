/* queue.c - tickets, and requests and replies on the queue pair. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client_private.h"
#include "verbs/blame.h"

static uint32_t slot_index(const struct kvr_client *client, const struct slot *slot)
{
	return (uint32_t)(slot - client->slots);
}

struct slot *slot_take(struct kvr_client *client, uint16_t type)
{
	struct list_node *node = list_pop_first(&client->free_slots);
	struct slot *slot;

	if (!node)
		return NULL;
	slot = KVR_CONTAINER_OF(node, struct slot, node);
	/* 48 bits: no ticket comes a second time, and none is 0. */
	if ((++client->next_generation << 16) == 0)
		client->next_generation = 1;
	slot->ticket = (client->next_generation << 16) | slot_index(client, slot);
	slot->state = SLOT_QUEUED;
	slot->type = type;
	slot->sending = slot->taken = slot->discard = slot->with_chain = slot->again = false;
	slot->length = 0;
	slot->large = UINT32_MAX;
	slot->session = NULL;
	slot->outcomes = NULL;
	slot->chunk_count = slot->chain_end = 0;
	slot->layer_count = 0;
	memset(&slot->result, 0, sizeof(slot->result));
	return slot;
}

static void slot_release_large(struct kvr_client *client, struct slot *slot)
{
	if (slot->large != UINT32_MAX)
		client->large_free[client->large_free_count++] = slot->large;
	slot->large = UINT32_MAX;
}

/* A buffer that the device may still read stays out until its send has completed. */
void slot_free(struct kvr_client *client, struct slot *slot)
{
	slot->taken = true;
	if (slot->sending)
		return;
	slot_release_large(client, slot);
	if (slot->layer_count > 0)
		order_free(client, slot);
	slot->state = SLOT_FREE;
	slot->ticket = 0;
	list_add_first(&client->free_slots, &slot->node);
}

struct slot *slot_find(struct kvr_client *client, kvr_ticket ticket)
{
	uint32_t index = (uint32_t)(ticket & 0xffff);

	if (index >= CLIENT_SLOTS || ticket == 0 || client->slots[index].ticket != ticket || client->slots[index].taken)
		return NULL;
	return &client->slots[index];
}

static void slot_leave_session(struct slot *slot)
{
	if (slot->session)
		slot->session->in_flight--;
	slot->session = NULL;
}

/* Nobody waits any more: what touches none of the caller's memory goes when it has ended, and its session is free of it now. */
void slot_abandon(struct kvr_client *client, struct slot *slot)
{
	slot_leave_session(slot);
	slot->discard = true;
	if (slot->state != SLOT_DONE)
		return;
	client->done_count--;
	slot_free(client, slot);
}

void slot_done(
	struct kvr_client *client, struct slot *slot, int error, uint16_t status, const char *text, size_t text_length)
{
	struct kvr_result *result = &slot->result;

	list_remove(&slot->node);
	slot->state = SLOT_DONE;
	slot_release_large(client, slot);
	if (slot->layer_count > 0)
		order_done(client, slot);
	result->error = error;
	result->status = status;
	if (text_length >= sizeof(result->text))
		text_length = sizeof(result->text) - 1;
	memcpy(result->text, text, text_length);
	result->text[text_length] = '\0';
	slot_leave_session(slot);
	client->done_count += slot->discard ? 0 : 1;
	if (slot->discard)
		slot_free(client, slot);
}

int queue_create(struct kvr_client *client)
{
	uint64_t count = CLIENT_SLOTS + CLIENT_CREDITS_MAX;

	client->slots = calloc(CLIENT_SLOTS, sizeof(struct slot));
	client->buffer_bytes = count * WIRE_INLINE_BYTES;
	client->buffers = aligned_alloc(4096, client->buffer_bytes);
	if (!client->slots || !client->buffers)
		return -ENOMEM;
	memset(client->buffers, 0, client->buffer_bytes);
	list_init(&client->free_slots);
	list_init(&client->queue);
	list_init(&client->short_of_room);
	for (uint32_t i = 0; i < CLIENT_SLOTS; i++) {
		client->slots[i].bytes = client->buffers + (uint64_t)i * WIRE_INLINE_BYTES;
		list_init(&client->slots[i].node);
		list_add_last(&client->free_slots, &client->slots[i].node);
	}
	return client_rails_create(client);
}

void queue_destroy(struct kvr_client *client)
{
	client_rails_destroy(client);
	free(client->buffers);
	free(client->slots);
	free(client->scratch);
}

/* The message area, once: what does not fit a receive buffer of the server is fetched from it. The words of order.c are behind it. */
static int queue_create_large(struct kvr_client *client)
{
	uint64_t bytes = kvr_round_up(client->server.message_bytes_max, 4096);
	uint64_t all;
	uint32_t region;
	void *address;
	int error;

	if (client->large)
		return 0;
	if (bytes > WIRE_MESSAGE_BYTES_MAX)
		bytes = WIRE_MESSAGE_BYTES_MAX;
	all = bytes * CLIENT_LARGE_BUFFERS + kvr_round_up(CLIENT_WORDS_BYTES, 4096);
	error = client->device->driver->allocate(client->rails[0].device, all, &address);
	if (error)
		return error;
	error = region_make(client, (uint64_t)(uintptr_t)address, all, &region);
	if (error) {
		client->device->driver->release(client->rails[0].device, address, all);
		return error;
	}
	client->regions[region].users++;
	client->regions[region].allocated = true;
	client->large = address;
	client->words = (uint32_t *)(void *)(client->large + bytes * CLIENT_LARGE_BUFFERS);
	client->large_bytes = bytes;
	for (uint32_t i = 0; i < CLIENT_LARGE_BUFFERS; i++)
		client->large_free[i] = i;
	client->large_free_count = CLIENT_LARGE_BUFFERS;
	return 0;
}

int queue_connect(struct kvr_client *client)
{
	struct verbs_qp_options options;
	int error = queue_create_large(client);

	if (error)
		return error;
	memset(&options, 0, sizeof(options));
	options.send_cq = client->cq;
	options.recv_cq = client->cq;
	options.max_send_wr = CLIENT_SLOTS;
	options.max_recv_wr = CLIENT_CREDITS_MAX;
	options.max_sge = 1;
	options.max_inline_bytes = 256;
	options.max_message_bytes = WIRE_INLINE_BYTES;
	options.peer_recv_wr = client->credits;
	options.context = client;
	client->in_flight = 0;
	client->sends_posted = 0;
	return client->device->driver->create_qp(client->device, &options, &client->qp);
}

static void queue_post_receive(struct kvr_client *client, uint32_t index)
{
	struct ibv_recv_wr wr, *bad;
	struct ibv_sge sge;
	int error;

	sge.addr = (uint64_t)(uintptr_t)(client->buffers + (uint64_t)(CLIENT_SLOTS + index) * WIRE_INLINE_BYTES);
	sge.length = WIRE_INLINE_BYTES;
	sge.lkey = client->buffer_region->lkey;
	memset(&wr, 0, sizeof(wr));
	wr.wr_id = CLIENT_RECEIVE_FLAG | index;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	error = ibv_post_recv(client->qp, &wr, &bad);
	if (error)
		connection_lose(client, -error, "a receive could not be posted: %s", strerror(error));
}

void queue_post_receives(struct kvr_client *client)
{
	for (uint32_t i = 0; i < client->credits && client->state != CONNECTION_CLOSING; i++)
		queue_post_receive(client, i);
}

uint8_t *queue_room(struct kvr_client *client, struct slot *slot, size_t length, int *error)
{
	uint64_t limit = kvr_min_u64(client->large_bytes, client->server.message_bytes_max);

	if (length <= WIRE_INLINE_BYTES && length <= client->server.inline_bytes)
		return slot->bytes;
	*error = length > limit ? -EMSGSIZE : -EBUSY;
	if (length > limit || client->large_free_count == 0)
		return NULL;
	slot->large = client->large_free[--client->large_free_count];
	return client->large + slot->large * client->large_bytes;
}

static int queue_take_transfer(struct slot *slot, const struct transfer_reply *reply, struct wire_error *error)
{
	if (reply->chunk_count != slot->chunk_count) {
		error->offset = WIRE_HEADER_BYTES;
		error->what = "chunk_count: not the request's";
		return -EBADMSG;
	}
	slot->result.chunks = reply->good_count;
	if (slot->outcomes)
		memcpy(slot->outcomes, reply->outcomes, reply->chunk_count);
	return 0;
}

/* The body of a good reply into the slot's result. 0 or -EBADMSG. */
static int queue_take_body(
	struct slot *slot, const struct wire_header *header, const void *bytes, struct wire_error *error)
{
	struct transfer_reply transfer;
	struct lookup_reply lookup;
	struct count_reply count;
	struct empty_reply empty;
	int result;

	switch (slot->type) {
	case WIRE_LOOKUP:
	case WIRE_QUERY:
		result = lookup_reply_decode(bytes, header->length, &lookup, error);
		if (!result) {
			slot->result.chunks = lookup.matched_chunks;
			slot->result.from_l2 = lookup.from_l2_chunks;
		}
		return result;
	case WIRE_RETRIEVE:
	case WIRE_STORE:
		result = transfer_reply_decode(bytes, header->length, &transfer, error);
		return result ? result : queue_take_transfer(slot, &transfer, error);
	case WIRE_FREE_LOCKS:
	case WIRE_CLEAR:
		result = count_reply_decode(bytes, header->length, &count, error);
		if (!result) {
			slot->result.chunks = count.count;
			slot->result.from_l2 = count.kept;
		}
		return result;
	default:
		return empty_reply_decode(bytes, header->length, &empty, error);
	}
}

static void queue_reply_good(
	struct kvr_client *client, struct slot *slot, const struct wire_header *header, const void *bytes)
{
	struct kvr_session *session = slot->session;
	struct wire_error error;

	if (queue_take_body(slot, header, bytes, &error)) {
		connection_lose(
			client, -EPROTO, "%s byte %u: %s", wire_type_name(header->type), error.offset, error.what);
		return;
	}
	slot->result.tokens = slot->result.chunks * client->server.chunk_tokens;
	if (session && slot->chain_end > 0 &&
		(session->known_connection != client->generation || session->known_chunks < slot->chain_end)) {
		session->known_connection = client->generation;
		session->known_chunks = slot->chain_end;
	}
	if (session && slot->type == WIRE_END_SESSION)
		session->known_chunks = 0;
	if (KVR_UNLIKELY(client->flush_context) && slot->type == WIRE_RETRIEVE) {
		char reason[200];

		if (client_gpu_flush(client, reason, sizeof(reason))) {
			slot_done(client, slot, -EIO, STATUS_TRANSFER_FAILED, reason, strlen(reason));
			return;
		}
	}
	slot_done(client, slot, status_to_errno(header->status), header->status, "", 0);
}

static void queue_reply(struct kvr_client *client, const uint8_t *bytes, uint32_t length)
{
	struct wire_header header;
	struct error_reply refusal;
	struct wire_error error;
	struct slot *slot;

	if (length < WIRE_HEADER_BYTES || wire_header_decode(bytes, length, &header, &error)) {
		connection_lose(client, -EPROTO, "a reply is malformed");
		return;
	}
	if (header.boot_id != client->boot_id) {
		connection_lose(client, -ESTALE, "the server was restarted");
		return;
	}
	slot = (header.request_id & 0xffff) < CLIENT_SLOTS ? &client->slots[header.request_id & 0xffff] : NULL;
	/* One that is to be sent again has had its reply. */
	if (!slot || slot->ticket != header.request_id || slot->state != SLOT_SENT || slot->again) {
		log_debug("client: a %s that nobody waits for", wire_type_name(header.type));
		return;
	}
	/* A request that the server could not fetch is answered in the name of the INDIRECT. */
	if (header.type != slot->type + 1 &&
		!(slot->large != UINT32_MAX && header.type == WIRE_INDIRECT + 1 && !status_has_body(header.status))) {
		connection_lose(client, -EPROTO, "the server answered a %s with a %s", wire_type_name(slot->type),
			wire_type_name(header.type));
		return;
	}
	client->in_flight--;
	if (status_has_body(header.status)) {
		queue_reply_good(client, slot, &header, bytes);
		return;
	}
	if (error_reply_decode(bytes, header.length, &refusal, &error)) {
		connection_lose(client, -EPROTO, "an error reply is malformed: %s", error.what);
		return;
	}
	/* Another process has ended the session meanwhile, and perhaps begun it anew with fewer chunks. */
	if ((header.status == STATUS_UNKNOWN_SESSION || header.status == STATUS_INVALID_RANGE) &&
		request_again(client, slot))
		return;
	slot_done(client, slot, status_to_errno(header.status), header.status, refusal.text.bytes, refusal.text.length);
}

/* The messages of a SEND, one after the other. */
static void queue_replies(struct kvr_client *client, const uint8_t *bytes, uint32_t length)
{
	for (uint32_t here; length > 0 && client->state != CONNECTION_CLOSING; bytes += here, length -= here) {
		here = client->gathers ? wire_first_length(bytes, length) : length;
		queue_reply(client, bytes, here);
	}
}

/* Flushes are consequences: only the first error is told, and decides how soon the client comes back (pitfalls I01). */
static void queue_failed(struct kvr_client *client, enum ibv_wc_status status)
{
	const struct verbs_verdict *verdict = verbs_judge(status);

	if (verdict->action == VERBS_ACTION_RECONNECT_LATE && client->state != CONNECTION_CLOSING)
		client->come_back_late = true;
	connection_lose(client, -ECONNRESET, "the queue pair failed: %s (%s, completion status %d)%s%s", verdict->words,
		verbs_blame_text(verdict->blame), (int)status, verdict->hint[0] ? ": " : "", verdict->hint);
}

static const uint8_t *receive_at(const struct kvr_client *client, uint32_t index)
{
	return client->buffers + (uint64_t)(CLIENT_SLOTS + index) * WIRE_INLINE_BYTES;
}

/* Every reply names the rails that are out. Until ours of that number are idle it is not read. */
static bool queue_hold(struct kvr_client *client, uint32_t index, uint32_t length)
{
	const uint8_t *bytes = receive_at(client, index);
	struct wire_header header;
	struct wire_error error;

	for (uint32_t at = 0, here; at < length; at += here) {
		here = client->gathers ? wire_first_length(bytes + at, length - at) : length;
		if (!wire_header_decode(bytes + at, here, &header, &error) && header.flags)
			client_rails_out(client, header.flags);
	}
	if (client->rails_closing == 0)
		return false;
	client->held[client->held_count].index = index;
	client->held[client->held_count++].length = length;
	return true;
}

static void queue_send_again(struct kvr_client *client, struct slot *slot)
{
	static const char unsent[] =
		"the server had forgotten the session, and its chain could not be sent again: it is too long, or there is no memory";

	if (!request_again(client, slot))
		slot_done(client, slot, -ENOENT, STATUS_UNKNOWN_SESSION, unsent, sizeof(unsent) - 1);
}

/* Before the caller can take the large buffers that have become free. */
static void queue_send_again_waiting(struct kvr_client *client)
{
	while (client->state == CONNECTION_READY && client->large_free_count > 0 && !list_empty(&client->short_of_room))
		queue_send_again(client, KVR_CONTAINER_OF(list_pop_first(&client->short_of_room), struct slot, node));
}

static void queue_completion(struct kvr_client *client, const struct ibv_wc *wc)
{
	uint32_t index = (uint32_t)wc->wr_id;

	if (!(wc->wr_id & CLIENT_RECEIVE_FLAG)) {
		struct slot *slot = &client->slots[index];

		slot->sending = false;
		if (slot->taken && slot->state != SLOT_FREE)
			slot_free(client, slot);
		else if (slot->again)
			queue_send_again(client, slot);
	}
	if (wc->status != IBV_WC_SUCCESS) {
		queue_failed(client, wc->status);
		return;
	}
	if (!(wc->wr_id & CLIENT_RECEIVE_FLAG) || client->state == CONNECTION_CLOSING)
		return;
	if (client->rail_count > 1 && queue_hold(client, index, wc->byte_len))
		return;
	queue_replies(client, receive_at(client, index), wc->byte_len);
	if (client->state != CONNECTION_CLOSING)
		queue_post_receive(client, index);
}

void queue_read_held(struct kvr_client *client)
{
	uint32_t count = client->held_count;

	client->held_count = 0;
	for (uint32_t i = 0; i < count && client->state != CONNECTION_CLOSING; i++) {
		queue_replies(client, receive_at(client, client->held[i].index), client->held[i].length);
		if (client->state != CONNECTION_CLOSING)
			queue_post_receive(client, client->held[i].index);
	}
}

bool queue_step(struct kvr_client *client)
{
	struct ibv_wc wc[16];
	int count;

	if (!client->started)
		return false;
	count = ibv_poll_cq(client->cq, (int)KVR_COUNT_OF(wc), wc);
	for (int i = 0; i < count; i++)
		queue_completion(client, &wc[i]);
	queue_send_again_waiting(client);
	return queue_send_waiting(client) || count > 0;
}

void queue_end_all(struct kvr_client *client, int error, const char *text)
{
	for (uint32_t i = 0; i < CLIENT_SLOTS; i++) {
		struct slot *slot = &client->slots[i];

		slot->sending = false; /* the queue pair is gone */
		if (slot->state == SLOT_QUEUED || slot->state == SLOT_SENT || slot->state == SLOT_CONTROL)
			slot_done(client, slot, error, STATUS_CONNECTION_LOST, text, strlen(text));
		else if (slot->state == SLOT_DONE && slot->taken)
			slot_free(client, slot);
	}
	client->in_flight = 0;
	client->held_count = 0;
}
