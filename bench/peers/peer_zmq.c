/*
 * peer_zmq.c - ZeroMQ request and reply with msgpack, as Python servers of this field talk: a batch of blocks is one message.
 *
 *   ["set", [name ...], [bytes ...]] -> ["ok"]       ["get", [name ...]] -> [bytes ...]      ["ping"] -> ["ok"]
 *   ["learn", [token ...]] -> [chunks]               ["lookup", hash, [token ...]] -> [chunks]
 *
 * lookup without hash: the token list goes there, is decoded and counted, no more. With hash: the server makes the digests of
 * the chunks and compares them with those it learned. The server here is in C, with no lock and one thread; zmq_server.py
 * speaks the same.
 */
#include <errno.h>
#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#include "base/random.h"
#include "peer.h"
#include "protocol/digest.h"

#define VALUES_MAX ((size_t)1 << 18)

struct state {
	void *context, *socket;
};

static void pack_words(msgpack_packer *packer, const char *words)
{
	msgpack_pack_str(packer, strlen(words));
	msgpack_pack_str_body(packer, words, strlen(words));
}

static void free_bytes(void *bytes, void *hint)
{
	(void)hint;
	free(bytes);
}

/* Sends what was packed, without another copy, and empties it. */
static int send_packed(void *socket, msgpack_sbuffer *buffer)
{
	size_t size = buffer->size;
	zmq_msg_t message;

	if (zmq_msg_init_data(&message, msgpack_sbuffer_release(buffer), size, free_bytes, NULL) ||
		zmq_msg_send(&message, socket, 0) < 0)
		return peer_failed("zmq: send", -errno);
	return 0;
}

/* ---- the client ---- */

static int zmq_peer_open(struct peer *peer, const char *address)
{
	struct state *state = calloc(1, sizeof(*state));

	if (!state)
		return -ENOMEM;
	peer->state = state;
	state->context = zmq_ctx_new();
	state->socket = state->context ? zmq_socket(state->context, ZMQ_REQ) : NULL;
	if (!state->socket || zmq_connect(state->socket, address))
		return peer_failed("zmq: connect", -errno);
	return 0;
}

/* `reply` is the caller's to close, `root` points into it and into *zone. */
static int ask(struct state *state, msgpack_sbuffer *buffer, zmq_msg_t *reply, msgpack_unpacked *root)
{
	size_t at = 0;
	int error = send_packed(state->socket, buffer);

	zmq_msg_init(reply);
	msgpack_unpacked_init(root);
	if (error)
		return error;
	if (zmq_msg_recv(reply, state->socket, 0) < 0)
		return peer_failed("zmq: receive", -errno);
	if (msgpack_unpack_next(root, zmq_msg_data(reply), zmq_msg_size(reply), &at) != MSGPACK_UNPACK_SUCCESS ||
		root->data.type != MSGPACK_OBJECT_ARRAY)
		return peer_failed("zmq: reply", -EBADMSG);
	return 0;
}

static void forget(zmq_msg_t *reply, msgpack_unpacked *root)
{
	msgpack_unpacked_destroy(root);
	zmq_msg_close(reply);
}

static void pack_names(msgpack_packer *packer, const struct pages *pages, uint32_t first, uint32_t end)
{
	msgpack_pack_array(packer, end - first);
	for (uint32_t i = first; i < end; i++) {
		char key[PEER_KEY_BYTES];

		peer_key(key, pages, i);
		pack_words(packer, key);
	}
}

static void pack_blocks(msgpack_packer *packer, const struct pages *pages, uint32_t first, uint32_t end)
{
	msgpack_pack_array(packer, end - first);
	for (uint32_t i = first; i < end; i++) {
		msgpack_pack_bin(packer, pages->page_bytes);
		msgpack_pack_bin_body(packer, pages_block(pages, i), pages->page_bytes);
	}
}

static int place(const msgpack_object_array *blocks, const struct pages *pages, uint32_t first)
{
	for (uint32_t i = 0; i < blocks->size; i++) {
		const msgpack_object *block = &blocks->ptr[i];

		if (block->type != MSGPACK_OBJECT_BIN || block->via.bin.size != pages->page_bytes)
			return peer_failed("zmq: a block", -EBADMSG);
		memcpy(pages_block(pages, first + i), block->via.bin.ptr, pages->page_bytes);
	}
	return 0;
}

/* The pages [first, end) by one message each way. */
static int move_batch(struct peer *peer, const struct pages *pages, uint32_t first, uint32_t end, bool set)
{
	msgpack_unpacked root;
	msgpack_sbuffer buffer;
	msgpack_packer packer;
	zmq_msg_t reply;
	int error;

	msgpack_sbuffer_init(&buffer);
	msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
	msgpack_pack_array(&packer, set ? 3 : 2);
	pack_words(&packer, set ? "set" : "get");
	pack_names(&packer, pages, first, end);
	if (set)
		pack_blocks(&packer, pages, first, end);
	error = ask(peer->state, &buffer, &reply, &root);
	if (!error && !set)
		error = root.data.via.array.size == end - first ? place(&root.data.via.array, pages, first)
								: peer_failed("zmq: get", -EBADMSG);
	forget(&reply, &root);
	return error;
}

static int move(struct peer *peer, const struct pages *pages, bool set)
{
	uint32_t batch = peer_batch(pages);
	int error = 0;

	for (uint32_t first = 0; !error && first < pages->count; first += batch)
		error = move_batch(peer, pages, first, (uint32_t)kvr_min_u64(first + batch, pages->count), set);
	return error;
}

static int zmq_peer_set(struct peer *peer, const struct pages *pages, uint32_t round)
{
	(void)round;
	return move(peer, pages, true);
}

static int zmq_peer_get(struct peer *peer, const struct pages *pages, uint32_t round)
{
	(void)round;
	return move(peer, pages, false);
}

static int zmq_peer_ping(struct peer *peer)
{
	msgpack_unpacked root;
	msgpack_sbuffer buffer;
	msgpack_packer packer;
	zmq_msg_t reply;
	int error;

	msgpack_sbuffer_init(&buffer);
	msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
	msgpack_pack_array(&packer, 1);
	pack_words(&packer, "ping");
	error = ask(peer->state, &buffer, &reply, &root);
	forget(&reply, &root);
	return error;
}

static int ask_tokens(struct peer *peer, const char *words, const bool *hash, const uint32_t *tokens)
{
	msgpack_unpacked root;
	msgpack_sbuffer buffer;
	msgpack_packer packer;
	zmq_msg_t reply;
	int error;

	msgpack_sbuffer_init(&buffer);
	msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
	msgpack_pack_array(&packer, hash ? 3 : 2);
	pack_words(&packer, words);
	if (hash && *hash)
		msgpack_pack_true(&packer);
	else if (hash)
		msgpack_pack_false(&packer);
	msgpack_pack_array(&packer, PEER_LOOKUP_TOKENS);
	for (uint32_t i = 0; i < PEER_LOOKUP_TOKENS; i++)
		msgpack_pack_uint32(&packer, tokens[i]);
	error = ask(peer->state, &buffer, &reply, &root);
	if (!error && (root.data.via.array.size != 1 || root.data.via.array.ptr[0].via.u64 != PEER_LOOKUP_CHUNKS))
		error = peer_failed("zmq: lookup", -EIO);
	forget(&reply, &root);
	return error;
}

static int zmq_peer_learn(struct peer *peer, const uint32_t *tokens)
{
	return ask_tokens(peer, "learn", NULL, tokens);
}

static int zmq_peer_lookup(struct peer *peer, const uint32_t *tokens, bool known)
{
	bool hash = !known;

	return ask_tokens(peer, "lookup", &hash, tokens);
}

static void zmq_peer_close(struct peer *peer)
{
	struct state *state = peer->state;

	if (state && state->socket)
		zmq_close(state->socket);
	if (state && state->context)
		zmq_ctx_term(state->context);
	free(state);
	peer->state = NULL;
}

const struct peer peer_zmq = {
	.name = "zmq",
	.how = "a message of 8 MiB each way, ZeroMQ request and reply, msgpack",
	.open = zmq_peer_open,
	.set = zmq_peer_set,
	.get = zmq_peer_get,
	.ping = zmq_peer_ping,
	.learn = zmq_peer_learn,
	.lookup = zmq_peer_lookup,
	.close = zmq_peer_close,
};

/* ---- the server ---- */

struct value {
	char key[PEER_KEY_BYTES]; /* "": this place is free */
	size_t size, capacity;
	char *bytes;
};

struct serving {
	struct value *values; /* VALUES_MAX places: open addressing */
	struct digester digester;
	uint8_t learned[PEER_LOOKUP_CHUNKS * WIRE_DIGEST_BYTES], asked[PEER_LOOKUP_CHUNKS * WIRE_DIGEST_BYTES];
	uint32_t tokens[PEER_LOOKUP_TOKENS];
	msgpack_sbuffer buffer;
	msgpack_packer packer;
};

static struct value *find_value(struct serving *serving, const msgpack_object *name, bool make)
{
	const msgpack_object_str *key = &name->via.str;
	uint64_t hash = 0;

	if (name->type != MSGPACK_OBJECT_STR || key->size == 0 || key->size >= PEER_KEY_BYTES)
		return NULL;
	for (uint32_t i = 0; i < key->size; i++)
		hash = random_mix(hash * 31 + (uint8_t)key->ptr[i]);
	for (size_t i = 0; i < VALUES_MAX; i++) {
		struct value *value = &serving->values[(hash + i) % VALUES_MAX];

		if (!value->key[0] && make)
			memcpy(value->key, key->ptr, key->size);
		if (!value->key[0])
			return NULL;
		if (strlen(value->key) == key->size && memcmp(value->key, key->ptr, key->size) == 0)
			return value;
	}
	return NULL;
}

static bool serve_set(struct serving *serving, const msgpack_object_array *request)
{
	const msgpack_object_array *names = &request->ptr[1].via.array, *blocks = &request->ptr[2].via.array;

	for (uint32_t i = 0; i < names->size && i < blocks->size; i++) {
		struct value *value = find_value(serving, &names->ptr[i], true);
		const msgpack_object_bin *block = &blocks->ptr[i].via.bin;

		if (!value)
			return false;
		if (value->capacity < block->size) {
			free(value->bytes);
			value->bytes = malloc(block->size);
			value->capacity = value->bytes ? block->size : 0;
		}
		value->size = block->size;
		if (!value->bytes)
			return false;
		memcpy(value->bytes, block->ptr, block->size);
	}
	msgpack_pack_array(&serving->packer, 1);
	pack_words(&serving->packer, "ok");
	return true;
}

static bool serve_get(struct serving *serving, const msgpack_object_array *request)
{
	const msgpack_object_array *names = &request->ptr[1].via.array;

	msgpack_pack_array(&serving->packer, names->size);
	for (uint32_t i = 0; i < names->size; i++) {
		const struct value *value = find_value(serving, &names->ptr[i], false);

		if (!value)
			return false;
		msgpack_pack_bin(&serving->packer, value->size);
		msgpack_pack_bin_body(&serving->packer, value->bytes, value->size);
	}
	return true;
}

static bool serve_tokens(struct serving *serving, const msgpack_object_array *list, bool hash, uint8_t *digests)
{
	uint32_t chunks = list->size / PEER_CHUNK_TOKENS;

	if (list->size > PEER_LOOKUP_TOKENS)
		return false;
	for (uint32_t i = 0; i < list->size; i++)
		serving->tokens[i] = (uint32_t)list->ptr[i].via.u64;
	if (hash)
		(void)digest_chain(&serving->digester, NULL, serving->tokens, list->size, PEER_CHUNK_TOKENS, digests);
	for (uint32_t i = 0; hash && i < chunks; i++) {
		if (memcmp(&serving->learned[(size_t)i * WIRE_DIGEST_BYTES], &digests[(size_t)i * WIRE_DIGEST_BYTES],
			    WIRE_DIGEST_BYTES) != 0)
			chunks = i;
	}
	msgpack_pack_array(&serving->packer, 1);
	msgpack_pack_uint32(&serving->packer, chunks);
	return true;
}

static bool serve(struct serving *serving, const msgpack_object *root)
{
	const msgpack_object_array *request = &root->via.array;
	const msgpack_object_str *op;
	uint32_t size;

	if (root->type != MSGPACK_OBJECT_ARRAY || request->size == 0 || request->ptr[0].type != MSGPACK_OBJECT_STR)
		return false;
	op = &request->ptr[0].via.str;
	size = request->size;
#define OP(words, parts) (op->size == strlen(words) && memcmp(op->ptr, words, op->size) == 0 && size == (parts))
	if (OP("set", 3) && request->ptr[1].type == MSGPACK_OBJECT_ARRAY &&
		request->ptr[2].type == MSGPACK_OBJECT_ARRAY)
		return serve_set(serving, request);
	if (OP("get", 2) && request->ptr[1].type == MSGPACK_OBJECT_ARRAY)
		return serve_get(serving, request);
	if (OP("learn", 2) && request->ptr[1].type == MSGPACK_OBJECT_ARRAY)
		return serve_tokens(serving, &request->ptr[1].via.array, true, serving->learned);
	if (OP("lookup", 3) && request->ptr[2].type == MSGPACK_OBJECT_ARRAY)
		return serve_tokens(serving, &request->ptr[2].via.array, request->ptr[1].via.boolean, serving->asked);
	if (!OP("ping", 1))
		return false;
#undef OP
	msgpack_pack_array(&serving->packer, 1);
	pack_words(&serving->packer, "ok");
	return true;
}

static int serve_one(struct serving *serving, void *socket)
{
	msgpack_unpacked root;
	zmq_msg_t request;
	size_t at = 0;
	bool good;

	zmq_msg_init(&request);
	if (zmq_msg_recv(&request, socket, 0) < 0)
		return peer_failed("zmq: receive", -errno);
	msgpack_sbuffer_init(&serving->buffer);
	msgpack_packer_init(&serving->packer, &serving->buffer, msgpack_sbuffer_write);
	msgpack_unpacked_init(&root);
	good = msgpack_unpack_next(&root, zmq_msg_data(&request), zmq_msg_size(&request), &at) ==
			MSGPACK_UNPACK_SUCCESS &&
		serve(serving, &root.data);
	msgpack_unpacked_destroy(&root);
	zmq_msg_close(&request);
	return good ? send_packed(socket, &serving->buffer) : peer_failed("zmq: request", -EBADMSG);
}

int zmq_serve(const char *address)
{
	struct serving *serving = calloc(1, sizeof(*serving));
	void *context = zmq_ctx_new(), *socket = context ? zmq_socket(context, ZMQ_REP) : NULL;

	if (serving)
		serving->values = calloc(VALUES_MAX, sizeof(*serving->values));
	if (!serving || !serving->values || !socket || zmq_bind(socket, address) || digester_init(&serving->digester)) {
		peer_failed("zmq: bind", -errno);
		if (serving)
			free(serving->values);
		free(serving);
		return 1;
	}
	puts("ready");
	fflush(stdout);
	while (serve_one(serving, socket) == 0)
		;
	return 1;
}
