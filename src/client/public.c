/* public.c - kvrail.h's operations: each locks, asks the stepped client, and waits where it is to wait. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/atomic.h"
#include "client/client_private.h"

/* ---- memory and registrations ---- */

KVR_API int kvr_alloc(struct kvr_client *client, size_t bytes, void **memory)
{
	uint64_t length = kvr_round_up(bytes, 4096);
	uint32_t region;
	void *address;
	int error = client_enter(client);

	if (error)
		return error;
	error = bytes == 0             ? -EINVAL
		: bytes > SIZE_MAX / 2 ? -ENOMEM
				       : client->device->driver->allocate(client->device, length, &address);
	if (!error) {
		error = region_make(client, (uint64_t)(uintptr_t)address, length, &region);
		if (error) {
			client->device->driver->release(client->device, address, length);
		} else {
			client->regions[region].allocated = true;
			*memory = address;
		}
	} else {
		error_text_set("%zu bytes could not be allocated: %s", bytes, strerror(-error));
	}
	client_leave(client);
	return error;
}

KVR_API int kvr_free(struct kvr_client *client, void *memory)
{
	uint32_t index;
	int error = client_enter(client);

	if (error)
		return error;
	index = region_find(client, (uint64_t)(uintptr_t)memory, 1);
	if (index == UINT32_MAX || !client->regions[index].allocated ||
		client->regions[index].address != (uint64_t)(uintptr_t)memory) {
		error_text_set("%p is not what kvr_alloc gave, or was freed already", memory);
		error = -EINVAL;
	} else if (client->regions[index].users > 0) {
		error_text_set("a registration uses this memory: kvr_unregister it first");
		error = -EBUSY;
	} else {
		/* Goes now, or when the server has forgotten it. */
		client->regions[index].unwanted = true;
		region_release(client, index);
	}
	client_leave(client);
	return error;
}

KVR_API int kvr_register(struct kvr_client *client, const struct kvr_model *model, const struct kvr_layout *layout,
	const uint8_t fingerprint[32], uint32_t *registration)
{
	struct kvr_result result;
	kvr_ticket ticket;
	uint32_t index;
	int error = client_enter(client);

	if (error)
		return error;
	error = client_submit_register(client, model, layout, fingerprint, &index, &ticket);
	client_leave(client);
	/* No time limit of its own: large memory takes long, and a lost connection ends the wait. */
	while (!error && (error = kvr_wait(client, ticket, KVR_SECOND, &result)) == -ETIMEDOUT)
		error = 0;
	if (!error)
		*registration = index;
	return error;
}

/* The server maps GPU memory until it is told to forget it, and who frees mapped memory leaves it there for good. */
static bool unregister_done(struct kvr_client *client, void *context)
{
	(void)context;
	return !client_gpu_forgetting(client);
}

KVR_API int kvr_unregister(struct kvr_client *client, uint32_t registration)
{
	struct kvr_result result;
	kvr_ticket ticket;
	int error = client_enter(client);

	if (error)
		return error;
	error = client_submit_unregister(client, registration, &ticket);
	client_leave(client);
	while (!error && (error = kvr_wait(client, ticket, KVR_SECOND, &result)) == -ETIMEDOUT)
		error = 0;
	while (!error && client_wait_until(client, KVR_SECOND, unregister_done, NULL) == -ETIMEDOUT)
		;
	return error;
}

/* ---- sessions ---- */

KVR_API int kvr_session_create(struct kvr_client *client, uint32_t registration, const char *id, const char *salt,
	struct kvr_session **session)
{
	int error = client_enter(client);

	if (error)
		return error;
	error = client_session_create(client, registration, id, salt, session);
	client_leave(client);
	return error;
}

KVR_API int kvr_session_destroy(struct kvr_session **session)
{
	struct kvr_client *client = session && *session ? (*session)->client : NULL;
	int error = client ? client_enter(client) : 0;

	if (error || !client)
		return error;
	error = client_session_destroy(session);
	client_leave(client);
	return error;
}

KVR_API int kvr_session_tokens(struct kvr_session *session, const uint32_t *tokens, size_t count)
{
	int error = client_enter(session->client);

	if (error)
		return error;
	error = client_session_tokens(session, tokens, count);
	client_leave(session->client);
	return error;
}

KVR_API int kvr_session_digests(struct kvr_session *session, const uint8_t *digests, uint32_t chunk_count)
{
	int error = client_enter(session->client);

	if (error)
		return error;
	error = client_session_digests(session, digests, chunk_count);
	client_leave(session->client);
	return error;
}

KVR_API uint32_t kvr_session_chunks(const struct kvr_session *session)
{
	uint32_t count;

	if (client_enter(session->client))
		return 0;
	count = session->chunk_count;
	client_leave(session->client);
	return count;
}

KVR_API int kvr_session_copy_digests(
	const struct kvr_session *session, uint32_t first_chunk, uint32_t chunk_count, uint8_t *digests)
{
	int error = client_enter(session->client);

	if (error)
		return error;
	error = client_session_copy_digests(session, first_chunk, chunk_count, digests);
	client_leave(session->client);
	return error;
}

/* ---- operations: each submit locks, asks, and gives the queue a first push ---- */

#define SUBMIT(session_client, call)                    \
	struct kvr_client *own_client = session_client; \
	int error = client_enter(own_client);           \
	if (error)                                      \
		return error;                           \
	error = call;                                   \
	client_step(own_client, clock_now_ns());        \
	client_leave(own_client);                       \
	return error

KVR_API int kvr_submit_lookup(struct kvr_session *session, uint32_t flags, kvr_ticket *ticket)
{
	SUBMIT(session->client, client_submit_lookup(session, flags, ticket));
}

KVR_API int kvr_submit_query(struct kvr_session *session, uint64_t wait_ns, int early, kvr_ticket *ticket)
{
	SUBMIT(session->client, client_submit_query(session, wait_ns, early != 0, ticket));
}

KVR_API int kvr_submit_retrieve(struct kvr_session *session, const struct kvr_transfer *transfer, kvr_ticket *ticket)
{
	SUBMIT(session->client, client_submit_transfer(session, false, transfer, ticket));
}

KVR_API int kvr_submit_store(struct kvr_session *session, const struct kvr_transfer *transfer, kvr_ticket *ticket)
{
	SUBMIT(session->client, client_submit_transfer(session, true, transfer, ticket));
}

KVR_API int kvr_submit_free_locks(
	struct kvr_session *session, uint32_t first_chunk, uint32_t chunk_count, int all_ranks, kvr_ticket *ticket)
{
	SUBMIT(session->client, client_submit_free_locks(session, first_chunk, chunk_count, all_ranks != 0, ticket));
}

KVR_API int kvr_submit_end(struct kvr_session *session, kvr_ticket *ticket)
{
	SUBMIT(session->client, client_submit_end(session, ticket));
}

KVR_API int kvr_submit_ping(struct kvr_client *client, kvr_ticket *ticket)
{
	SUBMIT(client, client_submit_ping(client, ticket));
}

KVR_API int kvr_hold(struct kvr_client *client)
{
	int error = client_enter(client);

	if (error)
		return error;
	client_hold(client);
	client_leave(client);
	return 0;
}

KVR_API int kvr_release(struct kvr_client *client)
{
	int error = client_enter(client);

	if (error)
		return error;
	client_release(client);
	client_leave(client);
	return 0;
}

/* ---- blocking forms ---- */

static bool client_abandon(struct kvr_client *client, kvr_ticket ticket)
{
	bool gone;

	if (client_enter(client))
		return true;
	gone = request_abandon(client, ticket);
	client_step(client, clock_now_ns());
	client_leave(client);
	return gone;
}

/* The blocking calls' end: on time-out the request is canceled, and one that moves data is waited for until the server has let go. */
static int client_finish(struct kvr_client *client, kvr_ticket ticket, uint64_t timeout_ns, struct kvr_result *result)
{
	struct kvr_result own;
	int error;

	if (!result)
		result = &own;
	error = kvr_wait(client, ticket, timeout_ns ? timeout_ns : client->options.user->request_timeout_ns, result);
	/* Again and again, should the CANCEL have found no room. */
	while (error == -ETIMEDOUT && result->status == 0 && !client_abandon(client, ticket))
		error = kvr_wait(client, ticket, KVR_SECOND, result);
	if (error != -ECANCELED && !(error == -ETIMEDOUT && result->status == 0))
		return error;
	result->error = error = -ETIMEDOUT;
	error_text_set("the server did not answer in time; the request was canceled");
	snprintf(result->text, sizeof(result->text), "%s", kvr_error_text());
	return error;
}

static int client_failed(struct kvr_result *result, int error)
{
	if (result) {
		memset(result, 0, sizeof(*result));
		result->error = error;
		snprintf(result->text, sizeof(result->text), "%s", kvr_error_text());
	}
	return error;
}

KVR_API int kvr_lookup(struct kvr_session *session, uint64_t timeout_ns, struct kvr_result *result)
{
	kvr_ticket ticket;
	int error = kvr_submit_lookup(session, 0, &ticket);

	return error ? client_failed(result, error) : client_finish(session->client, ticket, timeout_ns, result);
}

KVR_API int kvr_retrieve(struct kvr_session *session, const struct kvr_transfer *transfer, uint64_t timeout_ns,
	struct kvr_result *result)
{
	kvr_ticket ticket;
	int error = kvr_submit_retrieve(session, transfer, &ticket);

	return error ? client_failed(result, error) : client_finish(session->client, ticket, timeout_ns, result);
}

KVR_API int kvr_store(struct kvr_session *session, const struct kvr_transfer *transfer, uint64_t timeout_ns,
	struct kvr_result *result)
{
	kvr_ticket ticket;
	int error = kvr_submit_store(session, transfer, &ticket);

	return error ? client_failed(result, error) : client_finish(session->client, ticket, timeout_ns, result);
}

KVR_API int kvr_free_locks(struct kvr_session *session, uint32_t first_chunk, uint32_t chunk_count, int all_ranks,
	uint64_t timeout_ns, struct kvr_result *result)
{
	kvr_ticket ticket;
	int error = kvr_submit_free_locks(session, first_chunk, chunk_count, all_ranks, &ticket);

	return error ? client_failed(result, error) : client_finish(session->client, ticket, timeout_ns, result);
}

KVR_API int kvr_end(struct kvr_session *session, uint64_t timeout_ns)
{
	kvr_ticket ticket;
	int error = kvr_submit_end(session, &ticket);

	return error ? error : client_finish(session->client, ticket, timeout_ns, NULL);
}

KVR_API int kvr_ping(struct kvr_client *client, uint64_t timeout_ns)
{
	kvr_ticket ticket;
	int error = kvr_submit_ping(client, &ticket);

	return error ? error : client_finish(client, ticket, timeout_ns, NULL);
}

static int submit_clear(struct kvr_client *client, uint32_t registration, kvr_ticket *ticket)
{
	SUBMIT(client, client_submit_clear(client, registration, ticket));
}

KVR_API int kvr_clear(struct kvr_client *client, uint32_t registration, uint64_t timeout_ns, struct kvr_result *result)
{
	kvr_ticket ticket;
	int error = submit_clear(client, registration, &ticket);

	return error ? client_failed(result, error) : client_finish(client, ticket, timeout_ns, result);
}
