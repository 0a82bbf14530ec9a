/*
 * INDIRECT: a request that is larger than a receive buffer lies in the client's memory and is fetched by RDMA READ.
 *
 * Large buffers are few and are held until the reply. Who finds none waits: requests of a connection in their order,
 * connections in turn, and none may hold more than its share, so that one client's long lookups do not shut out the
 * others.
 */
#include "worker/internal.h"

static uint8_t *large_buffer(const struct worker *worker, uint32_t index)
{
	return worker->larges + (uint64_t)index * worker->options.message_bytes_max;
}

/* Joins those that wait for a large buffer, when it may have one more. */
static void want_buffer(struct worker *worker, struct endpoint *endpoint)
{
	if (endpoint->state == ENDPOINT_LIVE && !list_empty(&endpoint->waiting) && !list_linked(&endpoint->large) &&
		endpoint->large_held < worker->large_share)
		list_add_last(&worker->large_waiters, &endpoint->large);
}

static void fetch(struct worker *worker, struct endpoint *endpoint, struct slot *slot)
{
	slot->large_buffer = worker->free_larges[--worker->free_large_count];
	endpoint->large_held++;
	slot->stage = SLOT_FETCHING;
	slot->aborted = false;
	slot->torn = false;
	slot->shares = 0;
	slot->outstanding = 0;
	slot->unsignalled = 0;
	slot->posted_bytes = 0;
	list_remove(&slot->node);
	list_add_last(&endpoint->fetches, &slot->node);
	send_activate(worker, endpoint);
}

/* Gives the free buffers to those that wait, one connection after the other. */
static void grant_buffers(struct worker *worker)
{
	struct list_node *node;

	while (worker->free_large_count > 0 && (node = list_pop_first(&worker->large_waiters))) {
		struct endpoint *endpoint = KVR_CONTAINER_OF(node, struct endpoint, large);

		fetch(worker, endpoint, KVR_CONTAINER_OF(endpoint->waiting.next, struct slot, node));
		want_buffer(worker, endpoint);
	}
}

void indirect_release_buffer(struct worker *worker, struct slot *slot)
{
	struct endpoint *endpoint = endpoint_of(slot);

	if (slot->large_buffer == POOL_NONE)
		return;
	worker->free_larges[worker->free_large_count++] = slot->large_buffer;
	slot->large_buffer = POOL_NONE;
	endpoint->large_held--;
	want_buffer(worker, endpoint);
	grant_buffers(worker);
}

const struct layout_region *indirect_region(const struct slot *slot, uint32_t number)
{
	const struct connection *connection = slot->request.connection;

	if (number >= connection->region_count || endpoint_of(slot)->forgetting == number ||
		!kvr_load_acquire(&connection->regions[number].present))
		return NULL;
	return &connection->regions[number];
}

bool indirect_region_holds(const struct layout_region *region, uint64_t address, uint64_t bytes)
{
	return address >= region->address && bytes <= region->length &&
		address - region->address <= region->length - bytes;
}

/* Finds the region that holds the request, or answers why there is none. */
static bool find_memory(struct worker *worker, struct slot *slot, const struct indirect *message)
{
	const struct layout_region *region = indirect_region(slot, message->region);

	if (message->length > worker->options.message_bytes_max) {
		reply_error(worker, slot, STATUS_TOO_BIG, "INDIRECT: %u bytes, this server takes %u", message->length,
			worker->options.message_bytes_max);
		return false;
	}
	if (!region) {
		reply_error(
			worker, slot, STATUS_INVALID_MEMORY, "INDIRECT: there is no memory region %u", message->region);
		return false;
	}
	if (!indirect_region_holds(region, message->address, message->length)) {
		reply_error(worker, slot, STATUS_INVALID_MEMORY, "INDIRECT: outside memory region %u", message->region);
		return false;
	}
	slot->fetch_address = message->address;
	slot->fetch_length = message->length;
	slot->fetch_rkey = region->rkey;
	slot->fetch_region = message->region;
	return true;
}

void indirect_begin(struct worker *worker, struct slot *slot)
{
	struct endpoint *endpoint = endpoint_of(slot);
	struct indirect message;
	struct wire_error error;

	if (indirect_decode(slot->request.bytes, slot->request.length, &message, &error)) {
		reply_error(worker, slot, (enum kvr_wire_status)error.status, "INDIRECT: %s, at byte %u", error.what,
			error.offset);
		return;
	}
	if (!find_memory(worker, slot, &message))
		return;
	worker_count(worker, indirect_total, 1);
	slot->stage = SLOT_WAITING;
	list_add_last(&endpoint->waiting, &slot->node);
	want_buffer(worker, endpoint);
	grant_buffers(worker);
	if (slot->stage == SLOT_WAITING)
		worker_count(worker, indirect_waits_total, 1);
}

void indirect_fetched(struct worker *worker, struct slot *slot)
{
	struct endpoint *endpoint = endpoint_of(slot);
	struct request *request = &slot->request;
	const uint8_t *bytes = large_buffer(worker, slot->large_buffer);
	struct wire_header header;
	struct wire_error error;

	list_remove(&slot->node);
	indirect_check_forget(worker, endpoint);
	/* Our copy, so what is checked stays as it is, but nothing in it can be believed. The outer header answers
	 * until the inner is known to be one. */
	if (wire_header_decode(bytes, slot->fetch_length, &header, &error)) {
		worker_count(worker, malformed_total, 1);
		reply_error(worker, slot, (enum kvr_wire_status)error.status,
			"INDIRECT: the request inside: %s, at byte %u", error.what, error.offset);
		return;
	}
	if (header.length != slot->fetch_length) {
		worker_count(worker, malformed_total, 1);
		reply_error(worker, slot, STATUS_MALFORMED, "INDIRECT: names %u bytes, the request inside has %u",
			slot->fetch_length, header.length);
		return;
	}
	request->bytes = bytes;
	request->length = slot->fetch_length;
	receive_dispatch(worker, slot, true);
}

static bool uses(const struct slot *slot, uint32_t region)
{
	if (slot->stage == SLOT_WAITING || slot->stage == SLOT_FETCHING)
		return slot->fetch_region == region;
	return order_names(slot, region);
}

static bool one_uses(const struct list_node *slots, uint32_t region)
{
	list_for_each(node, slots) {
		const struct slot *slot = KVR_CONTAINER_OF(node, struct slot, node);

		if (uses(slot, region))
			return true;
	}
	return false;
}

void indirect_check_forget(struct worker *worker, struct endpoint *endpoint)
{
	uint32_t region = endpoint->forgetting;

	if (KVR_LIKELY(region == POOL_NONE))
		return;
	if (one_uses(&endpoint->waiting, region) || one_uses(&endpoint->fetches, region) ||
		one_uses(&endpoint->words, region) || one_uses(&endpoint->transfers, region) ||
		one_uses(&endpoint->posted, region) || order_names_any(worker, endpoint, region))
		return;
	endpoint->forgetting = POOL_NONE;
	worker_tell(worker, TO_MANAGEMENT_FORGOTTEN, endpoint->connection, region);
}

void indirect_forget(struct worker *worker, struct endpoint *endpoint, uint32_t region)
{
	endpoint->forgetting = region;
	indirect_check_forget(worker, endpoint);
}
