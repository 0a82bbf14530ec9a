/* session.c - the client's own part of a session: its name, its salt, and the digests of its chunks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/client_private.h"

int client_session_create(
	struct kvr_client *client, uint32_t registration, const char *id, const char *salt, struct kvr_session **out)
{
	struct kvr_session *session;
	size_t length = id ? strlen(id) : 0;

	if (length == 0 || length > WIRE_SESSION_ID_MAX || registration >= CLIENT_REGISTRATIONS_MAX ||
		!client->registrations[registration].used) {
		error_text_set("a session needs a registration and an id of 1 to %u bytes", WIRE_SESSION_ID_MAX);
		return -EINVAL;
	}
	session = calloc(1, sizeof(*session));
	if (!session) {
		error_text_set("no memory for a session");
		return -ENOMEM;
	}
	session->client = client;
	session->registration = registration;
	session->serial = client->registrations[registration].serial;
	session->id_length = (uint32_t)length;
	memcpy(session->id, id, length);
	digest_salt(&client->digester, salt ? salt : "", salt ? strlen(salt) : 0, session->salt);
	list_add_last(&client->sessions, &session->node);
	*out = session;
	return 0;
}

int client_session_destroy(struct kvr_session **pointer)
{
	struct kvr_session *session = *pointer;

	if (!session)
		return 0;
	if (session->in_flight > 0) {
		error_text_set("%u requests of the session are under way", session->in_flight);
		return -EBUSY;
	}
	list_remove(&session->node);
	free(session->digests);
	free(session);
	*pointer = NULL;
	return 0;
}

static int session_reserve(struct kvr_session *session, size_t chunks)
{
	uint32_t capacity = session->chunk_capacity ? session->chunk_capacity : 16;
	uint64_t limit = kvr_min_u64(session->client->server.chunks_max, WIRE_CHUNKS_MAX);
	uint8_t *digests;

	if (chunks > limit) {
		error_text_set("%zu chunks in a session, at most %u are possible: leave the tokens behind them out",
			chunks, (unsigned)limit);
		return -E2BIG;
	}
	if (chunks <= session->chunk_capacity)
		return 0;
	while (capacity < chunks)
		capacity *= 2;
	digests = realloc(session->digests, (size_t)capacity * WIRE_DIGEST_BYTES);
	if (!digests) {
		error_text_set("no memory for the digests of %zu chunks", chunks);
		return -ENOMEM;
	}
	session->digests = digests;
	session->chunk_capacity = capacity;
	return 0;
}

int client_session_tokens(struct kvr_session *session, const uint32_t *tokens, size_t count)
{
	uint32_t chunk_tokens = session->client->chunk_tokens;
	uint32_t known = session->chunk_count;
	const uint8_t *parent;
	int error;

	if (count / chunk_tokens < known) {
		error_text_set("%zu tokens for a session that has %u chunks already", count, known);
		return -EINVAL;
	}
	error = session_reserve(session, count / chunk_tokens);
	if (error || count / chunk_tokens == known)
		return error;
	parent = known > 0 ? session->digests + (size_t)(known - 1) * WIRE_DIGEST_BYTES : NULL;
	session->chunk_count += digest_chain(&session->client->digester, parent, tokens + (size_t)known * chunk_tokens,
		count - (size_t)known * chunk_tokens, chunk_tokens,
		session->digests + (size_t)known * WIRE_DIGEST_BYTES);
	return 0;
}

int client_session_digests(struct kvr_session *session, const uint8_t *digests, uint32_t chunk_count)
{
	int error;

	if (chunk_count < session->chunk_count || (chunk_count > 0 && !digests) ||
		(session->chunk_count > 0 &&
			memcmp(session->digests, digests, (size_t)session->chunk_count * WIRE_DIGEST_BYTES) != 0)) {
		error_text_set("digests may be added to a session, not changed");
		return -EINVAL;
	}
	error = session_reserve(session, chunk_count);
	if (error || chunk_count == 0)
		return error;
	memcpy(session->digests, digests, (size_t)chunk_count * WIRE_DIGEST_BYTES);
	session->chunk_count = chunk_count;
	return 0;
}

int client_session_copy_digests(
	const struct kvr_session *session, uint32_t first_chunk, uint32_t chunk_count, uint8_t *digests)
{
	if (first_chunk > session->chunk_count || chunk_count > session->chunk_count - first_chunk) {
		error_text_set("chunks %u to %llu of a session that has %u", first_chunk,
			(unsigned long long)first_chunk + chunk_count, session->chunk_count);
		return -ERANGE;
	}
	if (chunk_count > 0)
		memcpy(digests, session->digests + (size_t)first_chunk * WIRE_DIGEST_BYTES,
			(size_t)chunk_count * WIRE_DIGEST_BYTES);
	return 0;
}
