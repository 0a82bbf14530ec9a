/*
 * client.h - the client as an object that is stepped: what kvrail.h wraps with sockets, a clock and a lock, and what the simulator
 * runs without any of them.
 *
 * One caller at a time (kvrail.h's lock, or the simulator's thread). Time is a parameter; waiting is the caller's.
 */
#ifndef KVRAIL_CLIENT_CLIENT_H
#define KVRAIL_CLIENT_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/random.h"
#include "base/stream.h"
#include "kvrail.h"
#include "protocol/wire.h"
#include "verbs/driver.h"

KVR_BEGIN_C

struct client_options {
	const struct kvr_options *user; /* copied; url and driver are not looked at here */
	struct verbs_device *device;    /* stays the caller's */
	/* Further devices of the same driver, which has `several_rails`: the server may move data through all, and requests go through
	 * another one when a connection is lost. The caller's. */
	struct verbs_device *rails[WIRE_RAILS_MAX - 1];
	uint32_t rail_count;
	/* Begins a connection to the server: 0 and *stream, or -errno. Called by client_step on every attempt. */
	int (*connect)(void *context, struct stream **stream);
	void *context;
	uint64_t seed; /* jitter of reconnects */
	bool plain;    /* each request travels by itself, as with a server that knows nothing else */
};

/* 0, -ENOMEM, -EINVAL. The first connection attempt is made by the first step. */
KVR_MUST_CHECK int client_create(const struct client_options *options, struct kvr_client **client);
/* Closes; every ticket in flight ends with -ECONNRESET and is gone. */
void client_destroy(struct kvr_client **client);

/* One bounded turn: control stream, completions, queued requests, time limits, reconnects. True when it did something. */
bool client_step(struct kvr_client *client, uint64_t now_ns);
/* Nothing will happen before this time unless the device or the stream has news. */
uint64_t client_next_ns(const struct kvr_client *client);
/* Arms the completion queue; true: nothing came meanwhile, sleeping is safe. */
bool client_arm(struct kvr_client *client);

/* States of getting connected: for waiting in kvr_open and kvr_register. */
bool client_ready(const struct kvr_client *client);
/* No request is on its way, a CANCEL that nobody waits for included. */
bool client_quiet(const struct kvr_client *client);
/* The error that made the last attempt fail, 0 while there is none; with words. */
int client_failure(const struct kvr_client *client, const char **text);

/* Asynchronous forms of the calls that use the control stream. The ticket is polled with client_take. */
KVR_MUST_CHECK int client_submit_register(struct kvr_client *client, const struct kvr_model *model,
	const struct kvr_layout *layout, const uint8_t fingerprint[32], uint32_t *registration, kvr_ticket *ticket);
KVR_MUST_CHECK int client_submit_unregister(struct kvr_client *client, uint32_t registration, kvr_ticket *ticket);
KVR_MUST_CHECK int client_submit_clear(struct kvr_client *client, uint32_t registration, kvr_ticket *ticket);
KVR_MUST_CHECK int client_submit_cancel(struct kvr_client *client, kvr_ticket target);
KVR_MUST_CHECK int client_submit_ping(struct kvr_client *client, kvr_ticket *ticket);

/* kvr_hold and kvr_release: requests wait for each other, so that they share messages. */
void client_hold(struct kvr_client *client);
void client_release(struct kvr_client *client);

/* Takes a finished ticket's result: 0; -EAGAIN while it is under way; -ENOENT. */
KVR_MUST_CHECK int client_take(struct kvr_client *client, kvr_ticket ticket, struct kvr_result *result);

/* Sessions: the kvr_session_* and kvr_submit_* calls on sessions lock the client (kvrail.h) around these. */
KVR_MUST_CHECK int client_session_create(struct kvr_client *client, uint32_t registration, const char *id,
	const char *salt, struct kvr_session **session);
KVR_MUST_CHECK int client_session_destroy(struct kvr_session **session);
KVR_MUST_CHECK int client_session_tokens(struct kvr_session *session, const uint32_t *tokens, size_t count);
KVR_MUST_CHECK int client_session_digests(struct kvr_session *session, const uint8_t *digests, uint32_t chunk_count);
KVR_MUST_CHECK int client_session_copy_digests(
	const struct kvr_session *session, uint32_t first_chunk, uint32_t chunk_count, uint8_t *digests);
KVR_MUST_CHECK int client_submit_lookup(struct kvr_session *session, uint32_t flags, kvr_ticket *ticket);
KVR_MUST_CHECK int client_submit_query(struct kvr_session *session, uint64_t wait_ns, bool early, kvr_ticket *ticket);
KVR_MUST_CHECK int client_submit_transfer(
	struct kvr_session *session, bool store, const struct kvr_transfer *transfer, kvr_ticket *ticket);
/* Words by which transfers keep step with the engine: kvrail.h's calls of that name. */
KVR_MUST_CHECK int client_mark_new(struct kvr_client *client, kvr_mark *mark);
KVR_MUST_CHECK int client_mark_reach(struct kvr_client *client, kvr_mark mark);
KVR_MUST_CHECK int client_submit_free_locks(
	struct kvr_session *session, uint32_t first_chunk, uint32_t chunk_count, bool all_ranks, kvr_ticket *ticket);
KVR_MUST_CHECK int client_submit_end(struct kvr_session *session, kvr_ticket *ticket);

KVR_END_C

#endif
