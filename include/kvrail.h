/*
 * kvrail.h - the client of the kvrail KV-cache server, as an inference engine links it.
 *
 * In short:
 *
 *     struct kvr_options options = KVR_OPTIONS_INIT;
 *     struct kvr_client *client;
 *     kvr_open(&options, &client);                          // connect, say hello
 *     kvr_register(client, &model, &layout, NULL, &registration); // once: where this worker's paged KV memory is
 *
 *     kvr_session_create(client, registration, "request-17", NULL, &session);
 *     kvr_session_tokens(session, tokens, count);           // hashes whole chunks; only new ones the next time
 *     kvr_lookup(session, timeout, &result);                // result.chunks are in the cache and locked for us
 *     kvr_retrieve(session, &transfer, timeout, &result);   // into these blocks of ours
 *     kvr_store(session, &transfer, timeout, &result);      // what was computed anew
 *     kvr_end(session, timeout);                            // and kvr_session_destroy
 *
 * Every operation also comes as submit -> ticket, to be polled or waited for: several may be in flight.
 * docs/examples/hello.c is a complete program.
 *
 * Returns. 0, or a negative errno value; the words are in kvr_result.text, or kvr_error_text() for calls without a
 * result.
 * Outputs are set only on success, but results always. kvr_result.status tells who speaks: 0, the library (the request
 * was not sent, or its ticket is not done); else the server, or the loss of the connection, and the ticket is done.
 *
 * Threads. All calls on one client and its sessions may come from any thread; calls on one client exclude each other
 * for short moments. Two threads may wait for different tickets at once; of two that wait for one ticket, one gets the
 * result and the other -ENOENT. kvr_close waits for nobody: no other call may be running. The library has no thread of
 * its own: nothing happens between calls, except what the server does with memory (a client that is never polled does
 * not reconnect either).
 * fork: a child must not use a client of its parent: every call returns -ECHILD there, and kvr_close only nulls the
 * pointer.
 *
 * What blocks: kvr_open (connect_timeout_ns; and the resolver, for a host name), kvr_register and kvr_unregister (until
 * the server has mapped or let go of the memory, which can take seconds for hundreds of gigabytes; they end with the
 * connection), the blocking forms of the operations, kvr_wait, kvr_close (about a second, when the server does not
 * answer). All others return after a short moment; kvr_alloc touches all of its memory.
 *
 * Memory. While a RETRIEVE or STORE is under way, the blocks it names belong to the server: until its ticket is done
 * (poll or wait returned something other than -EAGAIN, -ETIMEDOUT with result.status 0). A time-out of kvr_wait gives
 * nothing back; kvr_cancel followed by waiting does. When the connection is lost, tickets end with -ECONNRESET once
 * nothing can touch their blocks any more.
 *
 * Losses. With options.reconnect the client connects again by itself, while it is being polled or waited on, and
 * announces its memory and registrations again: their numbers stay good, sessions too. Requests that were under way end
 * with -ECONNRESET and are not repeated. Locks of lookups are gone: look up again before you count on a chunk. After a
 * restart of the server (another kvr_info.boot_id) the cache may be empty. A registration that the server refuses now
 * fails its requests with -ENODEV and the server's words; unregister it, and register anew. Refusals that trying again
 * can't change (credentials, versions, another chunk size) end in KVR_FAILED: close the client and open another.
 *
 * Limits. Of one client: 256 tickets (done ones count until they are taken), 4 requests above 8 KiB at a time, 64
 * registrations, 1,024 memory regions (planes that lie in one allocation share one). -EBUSY or -ENOSPC with words
 * beyond.
 *
 * Names. chunk: so many tokens (kvr_info.chunk_tokens, 256 by default), the unit of hashing and matching. block: the
 * engine's page.
 * session: one request of the engine, known by a text id to all its processes.
 */
#ifndef KVRAIL_H
#define KVRAIL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVR_VERSION "0.1.0"

#if defined(__GNUC__)
#define KVR_API __attribute__((visibility("default")))
#else
#define KVR_API
#endif

struct kvr_client;
struct kvr_session;

/* ---- connecting ----------------------------------------------------------------------------------------------- */

struct kvr_options {
	size_t struct_bytes; /* sizeof(struct kvr_options): later versions add fields at the end */
	/* "unix:/run/kvrail/kvrail.sock", "kvrail://host:7471"; NULL: $KVRAIL_URL, else the default socket, which is
	 * $XDG_RUNTIME_DIR/kvrail.sock, or /run/kvrail/kvrail.sock for root and without that variable. */
	const char *url;
	const char *driver; /* "local" or "nic"; NULL: local for unix:, nic for kvrail: */
	const char *
		device; /* nic: device name, or several, as "mlx5_0,mlx5_1": data goes through all; NULL: the first usable */
	const char *name;     /* for the server's status page; NULL: the program's name and process id */
	const char *tenant;   /* the tenant we expect to be; another one is an error. NULL: any */
	const char *key_name; /* shared secret, over TCP: its name ... */
	const char *key_file; /* ... and the file whose first line it is. Both or none */
	uint32_t in_flight;   /* requests at the server at once, up to 127; 0: what it grants. Others wait here */
	uint64_t connect_timeout_ns; /* of one attempt; 0: 5 s */
	uint64_t request_timeout_ns; /* of the blocking calls when called with timeout 0; 0: 30 s */
	uint32_t reconnect; /* 1: after a loss, connect and register again (back-off of 100 ms .. 5 s, jittered) */
	/* Whoever waits polls so long (0: 50 us), then polls and lets others have the core for so long (0: 200 us), then
	 * sleeps: longer where an answer takes longer than that and waking up costs much. */
	uint64_t spin_ns, yield_ns;
};
#define KVR_OPTIONS_INIT                                                          \
	{                                                                         \
		sizeof(struct kvr_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0 \
	}

/*
 * options NULL: all defaults. Texts are copied. One attempt: whoever wants to wait for a server opens again after a
 * while.
 * -ENOENT, -ECONNREFUSED: no server there; -ETIMEDOUT: it does not answer; -EACCES: refused, wrong secret; -EPERM: this
 * user, or that tenant, may not; -EPROTONOSUPPORT: no common version; -EPROTO: something else answers there; -EUSERS:
 * full; -ESHUTDOWN: going down; -EAGAIN: too many are connecting; -ENODEV: no such driver or device; -ENOMEM; -EINVAL:
 * options; errors of the key file.
 */
KVR_API int kvr_open(const struct kvr_options *options, struct kvr_client **client);
/*
 * Nulls *client; NULL is harmless. Tickets, sessions and kvr_alloc's memory are gone. Waits until the server has let go
 * of our memory, but not longer than about a second: after a warning in the log, memory that did not come from
 * kvr_alloc may still be read or written by a server that goes on later.
 */
KVR_API void kvr_close(struct kvr_client **client);

enum kvr_health {
	KVR_HEALTHY = 0,
	KVR_CONNECTING = 1, /* lost, and trying again, when polled or waited on: requests fail with -ECONNRESET */
	KVR_FAILED = 2,     /* lost, and will not try again; or this is a child of fork */
};
KVR_API enum kvr_health kvr_health(const struct kvr_client *client);

struct kvr_info {
	uint32_t chunk_tokens;
	uint32_t chunks_max;   /* of a session, and of one request */
	uint32_t in_flight;    /* requests that can be with the server at once */
	uint32_t lock_seconds; /* life of the locks that a lookup takes */
	uint64_t boot_id;      /* another one after the server was restarted */
	uint64_t reconnects;
	char server[64]; /* "kvraild 0.1.0" */
	char tenant[64];
	char driver[16];
};
KVR_API int kvr_get_info(struct kvr_client *client, struct kvr_info *info);
/* Words about the last call of this thread on any client, "" when there was no error; never NULL, valid until this
 * thread's next call. */
KVR_API const char *kvr_error_text(void);
/* One round trip to a poll core and back. */
KVR_API int kvr_ping(struct kvr_client *client, uint64_t timeout_ns);

/* ---- memory and registration ---------------------------------------------------------------------------------- */

/* Memory that the server reaches best (local driver: shared, huge pages if there are). Zeroed, page-aligned. -ENOMEM,
 * -ENOSPC, -EINVAL.
 * Other memory can be registered as well; over the local driver it is copied by system calls, at a lower speed. */
KVR_API int kvr_alloc(struct kvr_client *client, size_t bytes, void **memory);
/* Not while a registration uses it (-EBUSY). -EINVAL: not kvr_alloc's. */
KVR_API int kvr_free(struct kvr_client *client, void *memory);

/* Everything that decides whether two engines' bytes are the same: equal identities share, others never meet. */
struct kvr_model {
	size_t struct_bytes;
	const char *name;    /* model, with adapter and weights version */
	const char *dtype;   /* of the KV bytes: "bfloat16", "fp8_e4m3", ... */
	const char *engine;  /* engine and version, or whatever else matters for the bytes; NULL: none. Hashed in */
	uint32_t world_size; /* ranks that hold a part of every chunk (tensor x pipeline); MLA: pipeline only */
	uint32_t rank;
	uint32_t readers; /* processes that read the same object (MLA: tensor parallel size); 0: 1 */
	uint32_t reader;
};
#define KVR_MODEL_INIT                                        \
	{                                                     \
		sizeof(struct kvr_model), 0, 0, 0, 1, 0, 1, 0 \
	}

/* Block b of a plane: block_bytes bytes at address + b * block_stride. */
struct kvr_plane {
	void *address;
	uint64_t block_stride;
	uint64_t block_bytes;
};

/* Blocks that share one block-id space, number of tokens and attention window. */
#define KVR_WINDOW_FULL UINT32_MAX
struct kvr_group {
	uint32_t tokens_per_block;
	uint32_t window_tokens; /* KVR_WINDOW_FULL: full attention */
	uint32_t block_count;
	uint32_t plane_count;
	const struct kvr_plane *planes; /* in layer order */
};

struct kvr_layout {
	size_t struct_bytes;
	uint32_t group_count; /* version 1 of the server takes 1 */
	const struct kvr_group *groups;
};

/*
 * Says which KV cache this is, and where this process has its part of it. All arrays and texts are copied; the memory
 * itself must stay mapped until kvr_unregister or kvr_close.
 * fingerprint: 32 bytes that stand for the layout; NULL: kvr_layout_fingerprint(layout). Only equal fingerprints meet.
 * layout NULL: a scheduler, which looks up, frees, ends and clears, and moves nothing; it must give the fingerprint of
 * its workers.
 * *registration: this client's number for it, good until kvr_unregister, also over reconnects.
 * Planes may lie in GPU memory (a server on this host, with its --gpu; docs/GPU.md): then STORE is called when the data
 * is there for all streams, RETRIEVE when nothing uses the blocks any more (or both `after` a mark), and kernels
 * launched after a RETRIEVE has ended, or one of its layers has come, see its data. Unregister before you free it.
 * -EINVAL (arguments), -EPROTOTYPE (another layout under that identity), -EFAULT, -ENOTSUP (memory can't be reached),
 * -EOPNOTSUPP, -EBUSY, -ENOSPC (limits), -ECONNRESET.
 */
KVR_API int kvr_register(struct kvr_client *client, const struct kvr_model *model, const struct kvr_layout *layout,
	const uint8_t fingerprint[32], uint32_t *registration);
/* Waits until no transfer uses the memory: when it returns 0, or -ECONNRESET, the memory is the caller's. Requests of
 * sessions on it fail with -ENODEV from the call on. -ENODEV: no such registration. */
KVR_API int kvr_unregister(struct kvr_client *client, uint32_t registration);
/* SHA-256 of what a layout is, without addresses and numbers of blocks: equal for all workers of a model that store
 * alike. */
KVR_API int kvr_layout_fingerprint(const struct kvr_layout *layout, uint8_t fingerprint[32]);

/* The layouts of the engines, by the names that LMCache gives them (NB blocks, NL layers, BS block size in tokens, NH
 * heads, HS head size). */
enum kvr_layout_name {
	KVR_NB_NL_TWO_BS_NH_HS = 1,    /* one tensor: vLLM cross-layer */
	KVR_NB_NL_TWO_NH_BS_HS = 2,    /* one tensor: TensorRT-LLM */
	KVR_NL_X_TWO_NB_BS_NH_HS = 3,  /* NL tensors: vLLM flash attention (NHD); K and V are planes of their own */
	KVR_NL_X_TWO_NB_NH_BS_HS = 4,  /* the same, HND */
	KVR_NL_X_NB_TWO_BS_NH_HS = 5,  /* NL tensors: vLLM flashinfer (NHD) */
	KVR_NL_X_NB_TWO_NH_BS_HS = 6,  /* the same, HND */
	KVR_NL_X_NB_BS_HS = 7,         /* NL tensors: MLA */
	KVR_TWO_X_NL_X_NBBS_NH_HS = 8, /* K tensors of all layers, then V tensors, tokens not cut into blocks: SGLang */
	KVR_TWO_X_NL_X_NB_BS_NH_HS = 9, /* the same, cut into blocks */
	KVR_NL_X_NBBS_ONE_HS = 10,      /* NL tensors of tokens: SGLang MLA */
	KVR_NL_X_NB_BYTES = 11,         /* NL tensors [NB, bytes]: opaque pages */
};

struct kvr_tensor {
	void *address;
	uint32_t dimensions; /* 1 .. 6 */
	uint32_t element_bytes;
	uint64_t shape[6];
	uint64_t stride[6]; /* in elements; all 0: contiguous */
};

/* Turns tensors into one group's planes: planes[0 .. plane_capacity-1] and *group are the caller's; group->planes is
 * set to `planes`.
 * Strides may pad blocks, but a block's own bytes must be contiguous (-EINVAL with words otherwise). -ENOSPC:
 * plane_capacity too small. */
KVR_API int kvr_layout_make(enum kvr_layout_name name, const struct kvr_tensor *tensors, uint32_t tensor_count,
	uint32_t tokens_per_block, struct kvr_plane *planes, uint32_t plane_capacity, struct kvr_group *group);

/* ---- sessions ------------------------------------------------------------------------------------------------- */

/* Local only: the server hears of it with the first request. id: 1 .. 128 bytes, one for each request of the engine:
 * all processes that name it share its chain and locks; salt: NULL or "" for none (another salt never matches); both
 * copied. -EINVAL, -ENOMEM. */
KVR_API int kvr_session_create(struct kvr_client *client, uint32_t registration, const char *id, const char *salt,
	struct kvr_session **session);
/* Local only: ends nothing on the server (kvr_end does). Not while its tickets are under way (-EBUSY). Nulls *session;
 * NULL is harmless. */
KVR_API int kvr_session_destroy(struct kvr_session **session);
/* The session's tokens from the first one on: `count` of them, of which those of chunks hashed by earlier calls must be
 * unchanged (they are not looked at). Tokens behind the last whole chunk wait for the next call. Fewer chunks than
 * before: -EINVAL.
 * -E2BIG: more than chunks_max chunks. */
KVR_API int kvr_session_tokens(struct kvr_session *session, const uint32_t *tokens, size_t count);
/* For callers that hash themselves (docs/PROTOCOL.md says how): the digests of all chunks so far, 32 bytes each. */
KVR_API int kvr_session_digests(struct kvr_session *session, const uint8_t *digests, uint32_t chunk_count);
KVR_API uint32_t kvr_session_chunks(const struct kvr_session *session);
/* The digests of chunks first_chunk .. first_chunk + chunk_count - 1, 32 bytes each, into `digests`: what a later session
 * that begins with the same tokens is given by kvr_session_digests, in place of hashing them again. -ERANGE. */
KVR_API int kvr_session_copy_digests(
	const struct kvr_session *session, uint32_t first_chunk, uint32_t chunk_count, uint8_t *digests);

/* ---- operations ----------------------------------------------------------------------------------------------- */

/* What became of a chunk. */
enum kvr_outcome {
	KVR_DELIVERED = 1,    /* retrieve: its blocks are in our memory */
	KVR_SKIPPED = 2,      /* retrieve: wholly inside skip_tokens; store: all its blocks are KVR_NULL_BLOCK */
	KVR_MISSING = 3,      /* retrieve: not in the cache (any more) */
	KVR_STORED = 4,       /* store: is in the cache now */
	KVR_PRESENT = 5,      /* store: was there already */
	KVR_NO_MEMORY = 6,    /* store: no room: everything is locked or in use */
	KVR_FAILED_CHUNK = 7, /* the data did not arrive: the contents of its blocks are undefined */
	KVR_CANCELED = 8,     /* canceled before it was begun */
	KVR_NO_QUOTA = 9,     /* store: no room within the tenant's quota */
};

struct kvr_result {
	int error; /* 0 or negative errno: also what the call returned */
	/* The server's code (docs/PROTOCOL.md, section 6). 0: done, or an error of the library's own; 1: done for some
	 * chunks. */
	uint32_t status;
	/* Lookup: matched, from the first chunk on; retrieve, store: that ended well, wherever; free: locks released;
	 * clear: dropped. */
	uint32_t chunks;
	uint32_t tokens;  /* chunks * chunk_tokens */
	uint32_t from_l2; /* lookup: of these, brought from L2; clear: kept because in use */
	char text[200];   /* words for an error, else empty */
};

/* A point that the engine will reach, below; 0 is none. */
typedef uint64_t kvr_mark;

struct kvr_blocks { /* of one group: chunk_count * chunk_tokens / tokens_per_block ids, in token order */
	const uint32_t *ids;
	uint32_t count;
};
#define KVR_NULL_BLOCK UINT32_MAX

struct kvr_transfer {
	size_t struct_bytes;
	uint32_t first_chunk;
	uint32_t chunk_count;
	/* Retrieve: leave so many leading tokens of the range alone. Ids of blocks wholly inside are not looked at; a
	 * block that is partly inside is written whole. */
	uint32_t skip_tokens;
	uint32_t group_count;
	const struct kvr_blocks *groups;
	/* chunk_count of enum kvr_outcome; NULL: not wanted. Must stay until the ticket is done; written before that
	 * when the result's error is 0, else left alone. */
	uint8_t *outcomes;
	/* Retrieve: tell of each of so many layers when its data is there (kvr_wait_layer, kvr_stream_wait_layer). The
	 * registration's planes, in their order, are cut into layers of equally many planes; up to 512. 0: no. */
	uint32_t layers;
	/* Not before this mark is reached; 0: at once. */
	kvr_mark after;
};
#define KVR_TRANSFER_INIT                                           \
	{                                                           \
		sizeof(struct kvr_transfer), 0, 0, 0, 0, 0, 0, 0, 0 \
	}

/*
 * Blocking forms: submit, then wait. timeout_ns 0: the client's request_timeout_ns. `result` may be NULL. On time-out
 * the request is canceled; kvr_retrieve and kvr_store return when the server has let go of the memory, with -ETIMEDOUT
 * (or with 0, if it was done after all; or when the connection is gone, with -ECONNRESET): later than the time limit,
 * if the server is stuck. The others return -ETIMEDOUT at once; a lookup may have taken its locks nevertheless, which
 * kvr_end or their life (lock_seconds) ends.
 * kvr_retrieve and kvr_store return 0 also when only some chunks ended well (status 1): compare result.chunks, or look
 * at the outcomes.
 * A chunk that was not DELIVERED leaves its blocks undefined: recompute it. Errors of all of them: -ECONNRESET, -EBUSY
 * (limits), -ENODEV (the registration), -ENOMEM, those of the status, and -EINVAL, -ERANGE, -EFAULT, -EMSGSIZE for
 * arguments.
 */
KVR_API int kvr_lookup(struct kvr_session *session, uint64_t timeout_ns, struct kvr_result *result);
KVR_API int kvr_retrieve(struct kvr_session *session, const struct kvr_transfer *transfer, uint64_t timeout_ns,
	struct kvr_result *result);
KVR_API int kvr_store(struct kvr_session *session, const struct kvr_transfer *transfer, uint64_t timeout_ns,
	struct kvr_result *result);
/* Releases our share (this rank's and reader's; all_ranks: everybody's) of the locks on a range. -ENOLCK: there was
 * none. */
KVR_API int kvr_free_locks(struct kvr_session *session, uint32_t first_chunk, uint32_t chunk_count, int all_ranks,
	uint64_t timeout_ns, struct kvr_result *result);
/* Releases what the session still holds and forgets it. Ending what is not there is no error. */
KVR_API int kvr_end(struct kvr_session *session, uint64_t timeout_ns);
/* Drops what is not in use, from L1 and L2: of one registration's model, or of the whole tenant (UINT32_MAX). -EPERM; -EIO: L1 is
 * cleared, and a place of L2 could not be. */
KVR_API int kvr_clear(struct kvr_client *client, uint32_t registration, uint64_t timeout_ns, struct kvr_result *result);

typedef uint64_t kvr_ticket;

/* 0, or what the blocking forms return for arguments: then there is no ticket. Tickets are never 0. A ticket must be
 * taken (poll or wait until it is done), or its place is not free again. Requests of one client go out in order, but
 * may be answered in any.
 *
 * NO_WAIT: a lookup that answers at once; while L2 is asked its ticket is done with -EAGAIN and status 2 (PENDING), and
 * kvr_submit_query tells later. NO_LOCK: counts only. */
#define KVR_LOOKUP_NO_WAIT 1u
#define KVR_LOOKUP_NO_LOCK 2u
KVR_API int kvr_submit_lookup(struct kvr_session *session, uint32_t flags, kvr_ticket *ticket);
/* The result of the session's last lookup; waits on the server for up to wait_ns. early: the count known before the
 * loads have ended. */
KVR_API int kvr_submit_query(struct kvr_session *session, uint64_t wait_ns, int early, kvr_ticket *ticket);
/* `transfer` and its arrays are read during the call only, except outcomes. */
KVR_API int kvr_submit_retrieve(struct kvr_session *session, const struct kvr_transfer *transfer, kvr_ticket *ticket);
KVR_API int kvr_submit_store(struct kvr_session *session, const struct kvr_transfer *transfer, kvr_ticket *ticket);
KVR_API int kvr_submit_free_locks(
	struct kvr_session *session, uint32_t first_chunk, uint32_t chunk_count, int all_ranks, kvr_ticket *ticket);
KVR_API int kvr_submit_end(struct kvr_session *session, kvr_ticket *ticket);
KVR_API int kvr_submit_ping(struct kvr_client *client, kvr_ticket *ticket);

/* Makes progress and looks. -EAGAIN with status 0: not done. -ENOENT with status 0: no such ticket, or its result was
 * taken. Else it is done and the ticket is gone. Returns result->error; *result is always filled. */
KVR_API int kvr_poll(struct kvr_client *client, kvr_ticket ticket, struct kvr_result *result);
/* As kvr_poll, waiting up to timeout_ns (0: looks once). -ETIMEDOUT with status 0: still under way. Spins briefly, then
 * sleeps. */
KVR_API int kvr_wait(struct kvr_client *client, kvr_ticket ticket, uint64_t timeout_ns, struct kvr_result *result);
/* Asks the server to stop it. The ticket must still be waited for; it ends with -ECANCELED, or as it would have (a
 * transfer: also with status 1 and outcomes KVR_CANCELED). Harmless when it is done, or was canceled already. -ENOENT,
 * -EBUSY (try again), -ECONNRESET (it ends anyway). */
KVR_API int kvr_cancel(struct kvr_client *client, kvr_ticket ticket);
/*
 * For callers with several small requests at once: those submitted between hold and release go out together, over a
 * network in one message where they fit, and so do their replies where they come together. Every hold is followed by a
 * release, soon: until then requests wait, unless a thread waits for a ticket or layer of this client (kvr_wait and the
 * blocking forms; kvr_poll does not). Of several holds, also of other threads, the last release counts. No effect with
 * the driver "local", whose messages cost nothing, and with servers that know nothing of it. 0, -ECHILD.
 */
KVR_API int kvr_hold(struct kvr_client *client);
KVR_API int kvr_release(struct kvr_client *client);

/* ---- in step with the engine ------------------------------------------------------------------------------------ */

/*
 * A RETRIEVE with `layers` brings them in order, and the engine may use one while those behind it are still on their
 * way: work that is launched after kvr_wait_layer has returned 0, or on the stream behind kvr_stream_wait_layer, sees
 * the layer's data. It still has to take the ticket and look at the result: when the request fails, is canceled, or the
 * connection is lost, everybody who waits for a layer is let through as soon as the client notices (it is polled or
 * waited on), and what was computed is to be thrown away.
 *
 * A transfer `after` a mark does not touch the blocks before the mark is reached: a STORE is submitted before the
 * engine has computed them, a RETRIEVE before it has done with what was in them. A mark can be named by any number of
 * transfers, also by those that are submitted after it was reached. One that is never reached holds its transfers until
 * they are canceled or the connection ends. Up to 1,024 marks may be waiting to be reached.
 *
 * Streams are those of CUDA (CUstream, cudaStream_t; also NULL and the per-thread default stream): the calls put a
 * wait, or a write, of a word of this client's memory into the stream and return at once. The context of the stream
 * must be current. kvr_close comes after the streams have done with both. -EOPNOTSUPP: no CUDA in this process, or too
 * old a driver; -EIO: it refused, with its words.
 */

/* 0: the layer is there; -ETIMEDOUT; -ENOENT: no such ticket, or its result was taken; -ERANGE: no such layer; else the
 * request is done with that error. Leaves the ticket. timeout_ns 0 looks once. */
KVR_API int kvr_wait_layer(struct kvr_client *client, kvr_ticket ticket, uint32_t layer, uint64_t timeout_ns);
/* The same for what is launched on the stream from now on. The last layer is the end of all data. */
KVR_API int kvr_stream_wait_layer(struct kvr_client *client, kvr_ticket ticket, uint32_t layer, void *stream);
/* -EBUSY: too many wait to be reached; -ECONNRESET: not connected yet. */
KVR_API int kvr_mark_new(struct kvr_client *client, kvr_mark *mark);
/* It is reached now. -EINVAL: no mark of this client. */
KVR_API int kvr_mark_reach(struct kvr_client *client, kvr_mark mark);
/* It is reached when all that was launched on the stream before has ended. */
KVR_API int kvr_stream_mark(struct kvr_client *client, kvr_mark mark, void *stream);

/* For event loops: a descriptor that is readable while there may be news: a ticket that is done and not taken, data to
 * be looked at, a connection that was lost, must be tried again, or is back. kvr_poll makes it unreadable again: after
 * each event poll all tickets (or, without any, call kvr_poll with ticket 0). The same one over reconnects; the
 * client's: kvr_close closes it. -1 with words: none. */
KVR_API int kvr_event_fd(struct kvr_client *client);

#ifdef __cplusplus
}
#endif

#endif
