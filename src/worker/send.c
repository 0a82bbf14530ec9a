/*
 * The send queues: what a connection posts in its turn, and what completions give back (internal.h tells of the book).
 *
 * A turn builds a chain without changing anything, posts it with one doorbell, and then books what was really posted.
 * So a post that is refused, wholly or in part, needs nothing undone but the plan of one transfer.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "worker/internal.h"

/* ---- building a chain ------------------------------------------------------------------------------------------- */

static struct ibv_send_wr *add(struct chain *chain, const struct endpoint *endpoint, enum chain_kind kind)
{
	struct ibv_send_wr *wr = &chain->wrs[chain->count];

	wr->wr_id = endpoint->mark_sequence + endpoint->mark_count;
	wr->next = NULL;
	wr->send_flags = 0;
	wr->sg_list = chain->sges[chain->count];
	if (chain->count > 0)
		chain->wrs[chain->count - 1].next = wr;
	memset(&chain->items[chain->count], 0, sizeof(chain->items[0]));
	chain->items[chain->count].kind = kind;
	chain->count++;
	return wr;
}

static void signal_last(struct chain *chain)
{
	chain->wrs[chain->count - 1].send_flags |= IBV_SEND_SIGNALED;
	chain->items[chain->count - 1].signalled = true;
}

static bool has_place(struct chain *chain, const struct worker *worker, const struct endpoint *endpoint)
{
	if (endpoint->places_used + chain->count < worker->options.send_depth)
		return chain->count < WORKER_TURN_WRS_MAX;
	chain->blocked = true;
	return false;
}

uint32_t send_window(const struct endpoint *endpoint)
{
	return kvr_load_relaxed(&endpoint->connection->on_gpu) ? WORKER_WINDOW_BYTES_GPU : WORKER_WINDOW_BYTES;
}

/* A chain's one-sided work requests are all READs, or none is. Two are always under way: the next one's data follows. */
static bool has_read_room(const struct chain *chain, const struct endpoint *endpoint)
{
	return endpoint->reads_in_flight + chain->reads < endpoint->reads_max &&
		(endpoint->reads_in_flight + chain->reads < 2 ||
			endpoint->read_bytes_in_flight + chain->bytes < endpoint->read_window);
}

/* Places, bytes and READs for one more one-sided work request. */
static bool has_room(struct chain *chain, const struct worker *worker, const struct endpoint *endpoint, bool read)
{
	if (!has_place(chain, worker, endpoint))
		return false;
	if (chain->bytes >= chain->bytes_max)
		return false;
	if (read && chain->reads > 0 && chain->reads >= endpoint->reads_signalled)
		return false;
	if (endpoint->bytes_in_flight + chain->bytes >= send_window(endpoint) ||
		(read && !has_read_room(chain, endpoint))) {
		chain->blocked = true;
		return false;
	}
	return true;
}

/* How many replies from this one on share a message, and how long it is. */
static uint32_t replies_of_message(const struct worker *worker, const struct endpoint *endpoint,
	const struct chain *chain, uint32_t index, uint32_t *bytes)
{
	uint32_t most = endpoint->connection->gathers ? worker->limits.max_sge : 1;
	uint32_t buffers = endpoint->buffers_in_flight + chain->buffers;
	uint32_t count = 0;

	for (*bytes = 0; index != POOL_NONE && count < most; index = worker->reply_buffers[index].next) {
		const struct reply_buffer *buffer = &worker->reply_buffers[index];
		uint32_t together = *bytes + buffer->length;

		if (together > (count > 0 ? WIRE_INLINE_BYTES : WORKER_REPLY_BYTES))
			break;
		if (together > worker->inline_bytes && buffers + count >= endpoint->connection->credits)
			break;
		*bytes = together;
		count++;
		if (buffer->last)
			break;
	}
	return count;
}

/* True when the last of them must be signalled, unless something signalled follows. */
static bool add_replies(struct chain *chain, const struct worker *worker, const struct endpoint *endpoint)
{
	uint32_t index = endpoint->reply_first;
	bool must_signal = false;

	while (index != POOL_NONE && has_place(chain, worker, endpoint)) {
		uint32_t bytes, count = replies_of_message(worker, endpoint, chain, index, &bytes);
		bool is_inline = bytes <= worker->inline_bytes;
		struct ibv_send_wr *wr;

		if (count == 0) {
			chain->blocked = true;
			break;
		}
		wr = add(chain, endpoint, CHAIN_REPLY);
		wr->opcode = IBV_WR_SEND;
		wr->num_sge = (int)count;
		wr->send_flags = is_inline ? IBV_SEND_INLINE : 0;
		chain->items[chain->count - 1].replies = count;
		chain->buffers += is_inline ? 0 : count;
		must_signal |= !is_inline; /* to get the buffers back */
		for (uint32_t i = 0; i < count; i++, index = worker->reply_buffers[index].next) {
			const struct reply_buffer *buffer = &worker->reply_buffers[index];

			wr->sg_list[i].addr = (uint64_t)(uintptr_t)worker->replies +
				(uint64_t)index * WORKER_REPLY_BYTES;
			wr->sg_list[i].length = buffer->length;
			wr->sg_list[i].lkey = worker->mr->lkey;
			must_signal |= buffer->last; /* to end the connection */
		}
	}
	return must_signal || endpoint->open.wrs + chain->count >= WORKER_SIGNAL_EVERY;
}

/*
 * Replies that may share a message let small transfers go first, which are posted in this very step: RETRIEVEs are answered
 * right behind their data, and then all with one message.
 */
static bool replies_let_pass(const struct endpoint *endpoint)
{
	const struct slot *next;
	uint64_t chunk_bytes = 0;

	if (!endpoint->connection->gathers || endpoint->reply_first == POOL_NONE || list_empty(&endpoint->transfers) ||
		!list_empty(&endpoint->fetches) || !list_empty(&endpoint->words) || endpoint->rails_live > 0 ||
		endpoint->gathered_bytes >= WORKER_GATHER_BYTES)
		return false;
	next = KVR_CONTAINER_OF(endpoint->transfers.next, struct slot, node);
	for (uint32_t g = 0; g < next->request.transfer.layout->group_count; g++)
		chunk_bytes += next->request.transfer.layout->groups[g].object_bytes;
	return chunk_bytes * next->request.message.transfer.chunk_count <= WORKER_GATHER_BYTES;
}

static void add_fetch(struct chain *chain, const struct worker *worker, const struct endpoint *endpoint)
{
	struct slot *slot = KVR_CONTAINER_OF(endpoint->fetches.next, struct slot, node);
	const uint8_t *buffer = worker->larges + (uint64_t)slot->large_buffer * worker->options.message_bytes_max;
	uint64_t done = slot->posted_bytes;

	while (done < slot->fetch_length && has_room(chain, worker, endpoint, true)) {
		struct ibv_send_wr *wr = add(chain, endpoint, CHAIN_FETCH);
		struct chain_item *item = &chain->items[chain->count - 1];

		item->bytes = (uint32_t)kvr_min_u64(slot->fetch_length - done, worker->limits.max_bytes);
		item->read = true;
		wr->opcode = IBV_WR_RDMA_READ;
		wr->wr.rdma.remote_addr = slot->fetch_address + done;
		wr->wr.rdma.rkey = slot->fetch_rkey;
		wr->num_sge = 1;
		wr->sg_list[0].addr = (uint64_t)(uintptr_t)buffer + done;
		wr->sg_list[0].length = item->bytes;
		wr->sg_list[0].lkey = worker->mr->lkey;
		chain->reads++;
		chain->bytes += item->bytes;
		chain->slot = slot;
		done += item->bytes;
	}
}

static void add_word(struct chain *chain, const struct worker *worker, const struct endpoint *endpoint)
{
	struct slot *slot = KVR_CONTAINER_OF(endpoint->words.next, struct slot, node);

	if (!has_room(chain, worker, endpoint, true))
		return;
	order_fill_word(worker, slot, add(chain, endpoint, CHAIN_WORD));
	chain->items[chain->count - 1].read = true;
	chain->reads++;
	chain->slot = slot;
}

static void add_transfer(struct chain *chain, const struct worker *worker, const struct endpoint *endpoint)
{
	struct rail_work work;
	bool read;

	if (!rails_next_work(endpoint, &work))
		return;
	if (endpoint->rails_live > 0 && rails_may_share(work.slot) &&
		!rails_home_first(worker, endpoint, &work, &chain->blocked))
		return; /* another rail is done sooner, even if its queue is full */
	read = !work.slot->request.transfer.to_client;
	chain->plan = work.plan;
	chain->before = *work.plan;
	chain->layers_before = work.slot->layer_next;
	chain->redo = work.redo;
	while (!(work.redo ? plan_done(work.plan) : transfer_posted(work.slot)) &&
		has_room(chain, worker, endpoint, read)) {
		bool layer = !work.redo && order_layer_due(work.slot);
		struct ibv_send_wr *wr = add(chain, endpoint, layer ? CHAIN_LAYER : CHAIN_TRANSFER);
		struct chain_item *item = &chain->items[chain->count - 1];

		chain->slot = work.slot;
		chain->one_sided++;
		if (KVR_UNLIKELY(layer)) {
			order_fill_layer(worker, work.slot, wr);
		} else {
			item->bytes = (uint32_t)plan_next(work.plan, &worker->limits, wr, wr->sg_list);
			item->read = read;
			chain->reads += read;
			chain->bytes += item->bytes;
		}
		if (work.slot->aborted || (work.redo && chain->one_sided == work.redo->wrs))
			break; /* just the one that will tell; all of the part */
	}
}

static void build(struct worker *worker, struct endpoint *endpoint)
{
	struct chain *chain = &worker->chain;
	bool must_signal;

	chain->count = 0;
	chain->reads = 0;
	chain->buffers = 0;
	chain->bytes = 0;
	chain->one_sided = 0;
	chain->bytes_max = endpoint->rails_live > 0 ? WORKER_RAIL_BYTES : WORKER_TURN_BYTES_MAX;
	chain->blocked = false;
	chain->passed = false;
	chain->slot = NULL;
	chain->redo = NULL;
	if (replies_let_pass(endpoint)) {
		add_transfer(chain, worker, endpoint);
		chain->passed = chain->count > 0;
	}
	if (chain->passed) {
		signal_last(chain);
		return;
	}
	must_signal = add_replies(chain, worker, endpoint);
	if (KVR_UNLIKELY(!list_empty(&endpoint->words)))
		add_word(chain, worker, endpoint);
	else if (!list_empty(&endpoint->fetches))
		add_fetch(chain, worker, endpoint);
	else
		add_transfer(chain, worker, endpoint);
	if (chain->count > 0 && (chain->slot || must_signal))
		signal_last(chain);
}

/* ---- booking what was posted ------------------------------------------------------------------------------------ */

static void push_mark(struct endpoint *endpoint, uint32_t depth, struct slot *slot)
{
	uint32_t place = endpoint->mark_first + endpoint->mark_count;
	struct mark *mark = &endpoint->marks[place < depth ? place : place - depth];

	assert(endpoint->mark_count < depth);
	*mark = endpoint->open;
	mark->slot = slot;
	mark->slot_wrs = slot ? slot->unsignalled : 0;
	if (slot)
		slot->unsignalled = 0;
	endpoint->mark_count++;
	memset(&endpoint->open, 0, sizeof(endpoint->open));
	endpoint->open.buffers = POOL_NONE;
}

static void book_reply(struct worker *worker, struct endpoint *endpoint, bool is_inline)
{
	uint32_t index = endpoint->reply_first;
	struct reply_buffer *buffer = &worker->reply_buffers[index];

	endpoint->reply_first = buffer->next;
	endpoint->replies_waiting--;
	endpoint->open.last |= buffer->last;
	worker_count(worker, replies_total, 1);
	buffer->next = is_inline ? POOL_NONE : endpoint->open.buffers;
	if (is_inline) {
		reply_free_list(worker, index); /* the device has its own copy */
		return;
	}
	endpoint->open.buffers = index;
	endpoint->open.buffer_count++;
	endpoint->buffers_in_flight++;
}

static void book_replies(struct worker *worker, struct endpoint *endpoint, uint32_t count, bool is_inline)
{
	for (uint32_t i = 0; i < count; i++)
		book_reply(worker, endpoint, is_inline);
	if (count > 1)
		worker_count(worker, replies_gathered_total, count - 1);
	endpoint->gathered_bytes = 0;
}

static void book(struct worker *worker, struct endpoint *endpoint, uint32_t posted)
{
	struct chain *chain = &worker->chain;
	struct slot *slot = chain->slot;
	uint32_t one_sided = 0;

	for (uint32_t i = 0; i < posted; i++) {
		const struct chain_item *item = &chain->items[i];

		endpoint->open.wrs++;
		if (item->kind == CHAIN_REPLY || !slot) {
			book_replies(worker, endpoint, item->replies, chain->wrs[i].send_flags & IBV_SEND_INLINE);
		} else {
			endpoint->gathered_bytes += endpoint->reply_first != POOL_NONE ? item->bytes : 0;
			endpoint->open.bytes += item->bytes;
			endpoint->open.reads += item->read;
			endpoint->bytes_in_flight += item->bytes;
			worker->bytes_in_flight += item->bytes;
			if (worker->track_count > 1)
				track_posted(worker, &worker->tracks[0], item->bytes);
			if (item->read) {
				endpoint->open.read_bytes += item->bytes;
				endpoint->read_bytes_in_flight += item->bytes;
				endpoint->reads_in_flight++;
			}
			slot->outstanding++;
			slot->unsignalled++;
			slot->posted_bytes += chain->redo ? 0 : item->bytes;
			one_sided++;
		}
		if (item->signalled)
			push_mark(endpoint, worker->options.send_depth, item->kind == CHAIN_REPLY ? NULL : slot);
	}
	endpoint->places_used += posted;
	if (one_sided > 0) {
		worker_count(worker, work_requests_total, one_sided);
		worker_count(worker, doorbells_total, 1);
	}
	if (chain->redo)
		rails_redone(worker, chain->redo, one_sided);
}

/* The plan goes back to where it was, and forward by what was posted. */
static KVR_COLD void rewind_plan(struct worker *worker, uint32_t posted)
{
	struct chain *chain = &worker->chain;
	struct ibv_send_wr wr;
	struct ibv_sge sges[WORKER_SGE_MAX];

	*chain->plan = chain->before;
	chain->slot->layer_next = chain->layers_before;
	for (uint32_t i = 0; i < posted; i++) {
		if (chain->items[i].kind == CHAIN_TRANSFER)
			plan_next(chain->plan, &worker->limits, &wr, sges);
		else if (chain->items[i].kind == CHAIN_LAYER)
			chain->slot->layer_next++;
	}
}

/* A queue that is full for the moment is told apart from a work request that can never be posted. */
static KVR_COLD void refused(struct worker *worker, struct endpoint *endpoint, int error)
{
	bool for_now = error == ENOMEM || error == EAGAIN || error == EBUSY;

	if (endpoint->places_used == 0)
		endpoint->refusals++;
	if (!for_now || endpoint->refusals > WORKER_REFUSALS_MAX)
		connection_fail(worker, endpoint, "the device refused a post, errno", (unsigned)error);
}

/* Where a chain's slot waits from now on: in front as long as it has something to post. */
void send_move_on(struct worker *worker, struct endpoint *endpoint, struct slot *slot)
{
	bool everything = slot->stage == SLOT_FETCHING ? slot->posted_bytes == slot->fetch_length
		: slot->stage == SLOT_WORD             ? slot->outstanding > 0
						       : transfer_posted(slot);

	if (everything || (slot->stage != SLOT_WORD && slot->aborted && slot->unsignalled == 0)) {
		list_remove(&slot->node);
		list_add_last(&endpoint->posted, &slot->node);
	}
	if (everything && slot->stage == SLOT_MOVING && !slot->aborted)
		reply_early(worker, slot);
}

/* ---- turns ------------------------------------------------------------------------------------------------------ */

static bool has_work(const struct endpoint *endpoint)
{
	return endpoint->reply_first != POOL_NONE || !list_empty(&endpoint->fetches) ||
		!list_empty(&endpoint->transfers) || !list_empty(&endpoint->words) || !list_empty(&endpoint->redo);
}

void send_activate(struct worker *worker, struct endpoint *endpoint)
{
	if (endpoint->state == ENDPOINT_LIVE && !list_linked(&endpoint->active) && has_work(endpoint))
		list_add_last(&worker->active, &endpoint->active);
}

/* Replies have let something pass: until they are out the turn is still its own, whoever else has something to post. */
static void go_on(struct worker *worker, struct endpoint *endpoint, bool now)
{
	endpoint->gathered_bytes = now ? WORKER_GATHER_BYTES : endpoint->gathered_bytes + WORKER_GATHER_COST;
	if (endpoint->state == ENDPOINT_LIVE && !list_linked(&endpoint->active))
		list_add_first(&worker->active, &endpoint->active);
}

static void turn(struct worker *worker, struct endpoint *endpoint)
{
	struct chain *chain = &worker->chain;
	struct ibv_send_wr *bad = NULL;
	uint32_t posted;
	int error = 0;

	if (endpoint->rails_live > 0)
		rails_share(worker, endpoint);
	build(worker, endpoint);
	posted = chain->count;
	if (chain->count > 0)
		error = ibv_post_send(endpoint->qp, chain->wrs, &bad);
	if (KVR_UNLIKELY(error)) {
		posted = bad >= chain->wrs && bad < chain->wrs + chain->count ? (uint32_t)(bad - chain->wrs) : 0;
		if (chain->slot && chain->slot->stage == SLOT_MOVING)
			rewind_plan(worker, posted);
	}
	book(worker, endpoint, posted);
	if (chain->slot)
		send_move_on(worker, endpoint, chain->slot);
	if (chain->blocked)
		worker_count(worker, send_queue_waits_total, 1);
	if (KVR_UNLIKELY(error))
		refused(worker, endpoint, error < 0 ? -error : error);
	else if (posted > 0)
		endpoint->refusals = 0;
	/* Who waits for room comes back with the completion that makes it; replies do not wait for one. */
	if (chain->passed)
		go_on(worker, endpoint, chain->blocked || error);
	else if (!((chain->blocked || error) && endpoint->mark_count + endpoint->rail_marks > 0))
		send_activate(worker, endpoint);
}

bool send_turns(struct worker *worker)
{
	unsigned turns = 0;

	/* New ones go to the end, so nobody has a second turn before all have had one. */
	while (turns < WORKER_TURNS_MAX && !list_empty(&worker->active)) {
		struct list_node *node = list_pop_first(&worker->active);

		turn(worker, KVR_CONTAINER_OF(node, struct endpoint, active));
		turns++;
	}
	return turns > 0;
}

/* ---- completions ------------------------------------------------------------------------------------------------ */

static void slot_completion(struct worker *worker, struct endpoint *endpoint, const struct mark *mark)
{
	struct slot *slot = mark->slot;

	slot->outstanding -= mark->slot_wrs;
	if (slot->outstanding > 0 || slot->shares > 0)
		return;
	if (slot->stage == SLOT_FETCHING && slot->posted_bytes == slot->fetch_length) {
		if (endpoint->state == ENDPOINT_LIVE)
			indirect_fetched(worker, slot);
	} else if (slot->stage == SLOT_MOVING && (transfer_posted(slot) || slot->aborted)) {
		transfer_end(worker, slot, false);
	} else if (slot->stage == SLOT_WORD) {
		order_word_read(worker, slot);
	}
}

void send_completion(struct worker *worker, struct endpoint *endpoint, uint64_t wr_id)
{
	struct mark mark;

	if (KVR_UNLIKELY(endpoint->mark_count == 0))
		return; /* all was given up already when the queue pair became idle */
	if (KVR_UNLIKELY(wr_id != endpoint->mark_sequence)) {
		connection_fail(worker, endpoint, "a completion out of order, work request", (unsigned)wr_id);
		return;
	}
	mark = endpoint->marks[endpoint->mark_first];
	endpoint->mark_first = endpoint->mark_first + 1 < worker->options.send_depth ? endpoint->mark_first + 1 : 0;
	endpoint->mark_count--;
	endpoint->mark_sequence++;
	endpoint->places_used -= mark.wrs;
	endpoint->reads_in_flight -= mark.reads;
	endpoint->read_bytes_in_flight -= mark.read_bytes;
	endpoint->bytes_in_flight -= mark.bytes;
	worker->bytes_in_flight -= mark.bytes;
	if (worker->track_count > 1)
		track_completed(worker, &worker->tracks[0], mark.bytes);
	endpoint->buffers_in_flight -= mark.buffer_count;
	reply_free_list(worker, mark.buffers);
	if (mark.slot)
		slot_completion(worker, endpoint, &mark);
	if (mark.last)
		connection_fail(
			worker, endpoint, "more requests in flight than granted", endpoint->connection->credits);
	send_activate(worker, endpoint);
}
