/*
 * kvrail.h - the client of the kvrail KV-cache server, as an inference engine links it.
 *
 * In short:
 *
 *     struct kvr_options options = KVR_OPTIONS_INIT;
 *     struct kvr_client *client;
 *     kvr_open(&options, &client);                          // connect, say hello
 *     kvr_register(client, &model, &layout, &registration); // once: where this worker's paged KV memory is
 *
 *     kvr_session_create(client, registration, "request-17", NULL, &session);
 *     kvr_session_tokens(session, tokens, count);           // hashes whole chunks; only new ones the next time
 *     kvr_lookup(session, timeout, &result);                // result.chunks are in the cache and locked for us
 *     kvr_retrieve(session, &transfer, timeout, &result);   // into these blocks of ours
 *     kvr_store(session, &transfer, timeout, &result);      // what was computed anew
 *     kvr_end(session, timeout);                            // and kvr_session_destroy
 *
 * Every operation also comes as submit -> ticket, to be polled or waited for: several may be in flight.
 *
 * Returns. 0, or a negative errno value; the words are in kvr_result.text, or kvr_error_text(client) for calls without a result.
 * Outputs are set only on success, but results always.
 *
 * Threads. All calls on one client and its sessions may come from any thread; calls on one client exclude each other for
 * short moments. Two threads may wait for different tickets at once. kvr_close waits for nobody: no other call may be running.
 * fork: a child must not use a client of its parent: every call returns -ECHILD there, kvr_close frees only memory.
 *
 * Memory. While a RETRIEVE or STORE is under way, the blocks it names belong to the server: until its ticket is done (poll or
 * wait returned something other than -EAGAIN, -ETIMEDOUT). A time-out of kvr_wait gives nothing back; kvr_cancel followed by waiting does.
 *
 * Names. chunk: so many tokens (kvr_info.chunk_tokens, 256 by default), the unit of hashing and matching. block: the engine's page.
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
	size_t struct_bytes;        /* sizeof(struct kvr_options): later versions add fields at the end */
	const char *url;            /* "unix:/run/kvrail/kvrail.sock", "kvrail://host:7471"; NULL: $KVRAIL_URL, else the default socket */
	const char *driver;         /* "local" or "nic"; NULL: local for unix:, nic for kvrail: */
	const char *device;         /* nic: device name; NULL: the first usable */
	const char *name;           /* for the server's status page; NULL: the program's name and process id */
	const char *tenant;         /* the tenant we expect to be; another one is an error. NULL: any */
	const char *key_name;       /* shared secret, over TCP: its name and its bytes ... */
	const char *key_file;       /* ... or the file that holds them */
	uint32_t in_flight;         /* requests in flight at once; 0: what the server grants. More wait inside the library */
	uint64_t connect_timeout_ns; /* of one attempt; 0: 5 s */
	uint64_t request_timeout_ns; /* of the blocking calls when called with timeout 0; 0: 30 s */
	uint32_t reconnect;         /* 1: after the connection is lost, try again with back-off (100 ms .. 5 s, jittered) and register again */
};
#define KVR_OPTIONS_INIT { sizeof(struct kvr_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 }

/* -ENOENT, -ECONNREFUSED: no server there; -ETIMEDOUT; -EACCES: refused; -EPROTONOSUPPORT: no common version; -EUSERS: full; -ENOMEM; -EINVAL. */
KVR_API int kvr_open(const struct kvr_options *options, struct kvr_client **client);
/* Sessions of the client must be destroyed before. Nulls *client; NULL is harmless. */
KVR_API void kvr_close(struct kvr_client **client);

enum kvr_health {
	KVR_HEALTHY = 0,
	KVR_CONNECTING = 1,  /* lost, and trying again: requests fail with -ECONNRESET at once */
	KVR_FAILED = 2,      /* lost, and will not try again */
};
KVR_API enum kvr_health kvr_health(const struct kvr_client *client);

struct kvr_info {
	uint32_t chunk_tokens;
	uint32_t chunks_max;      /* of a session, and of one request */
	uint32_t in_flight;
	uint32_t lock_seconds;    /* life of the locks that a lookup takes */
	uint64_t boot_id;         /* another one after the server was restarted */
	uint64_t reconnects;
	char server[64];          /* "kvraild 0.1.0" */
	char tenant[64];
	char driver[16];
};
KVR_API int kvr_get_info(struct kvr_client *client, struct kvr_info *info);
/* Words about the last error of a call of this thread on any client; never NULL, valid until this thread's next call. */
KVR_API const char *kvr_error_text(void);
/* One round trip to a poll core and back. */
KVR_API int kvr_ping(struct kvr_client *client, uint64_t timeout_ns);

/* ---- memory and registration ---------------------------------------------------------------------------------- */

/* Memory that the server reaches best (local driver: shared, huge pages if there are). Zeroed. -ENOMEM. */
KVR_API int kvr_alloc(struct kvr_client *client, size_t bytes, void **memory);
/* Not while a registration uses it (-EBUSY). */
KVR_API int kvr_free(struct kvr_client *client, void *memory);

/* Everything that decides whether two engines' bytes are the same: equal identities share, others never meet. */
struct kvr_model {
	size_t struct_bytes;
	const char *name;           /* model, with adapter and weights version */
	const char *dtype;          /* of the KV bytes: "bfloat16", "fp8_e4m3", ... */
	const char *engine;         /* engine and version, or whatever else matters for the bytes; NULL: none. Hashed in */
	uint32_t world_size;        /* ranks that hold a part of every chunk (tensor x pipeline); MLA: pipeline only */
	uint32_t rank;
	uint32_t readers;           /* processes that read the same object (MLA: tensor parallel size); 0: 1 */
	uint32_t reader;
};
#define KVR_MODEL_INIT { sizeof(struct kvr_model), 0, 0, 0, 1, 0, 1, 0 }

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
	uint32_t window_tokens;     /* KVR_WINDOW_FULL: full attention */
	uint32_t block_count;
	uint32_t plane_count;
	const struct kvr_plane *planes; /* in layer order */
};

struct kvr_layout {
	size_t struct_bytes;
	uint32_t group_count;       /* version 1 of the server takes 1 */
	const struct kvr_group *groups;
};

/* layout NULL: a scheduler, which looks up, frees and ends; its fingerprint must be a worker's: give the same `like` layout's with
 * kvr_layout_fingerprint, or NULL layouts and a `fingerprint`. Registering again after a reconnect is the library's doing: the number
 * stays good. -EINVAL, -EPROTOTYPE (other layout under that identity), -EFAULT, -ENOTSUP (memory can't be reached), -EUSERS, -EOPNOTSUPP. */
KVR_API int kvr_register(struct kvr_client *client, const struct kvr_model *model, const struct kvr_layout *layout,
	const uint8_t fingerprint[32], uint32_t *registration);
/* Waits until no transfer uses the memory. */
KVR_API int kvr_unregister(struct kvr_client *client, uint32_t registration);
/* SHA-256 of what a layout is, without addresses and numbers of blocks: equal for all workers of a model that store alike. */
KVR_API int kvr_layout_fingerprint(const struct kvr_layout *layout, uint8_t fingerprint[32]);

/* The layouts of the engines, by the names that LMCache gives them (NB blocks, NL layers, BS block size in tokens, NH heads, HS head size). */
enum kvr_layout_name {
	KVR_NB_NL_TWO_BS_NH_HS = 1,   /* one tensor: vLLM cross-layer */
	KVR_NB_NL_TWO_NH_BS_HS = 2,   /* one tensor: TensorRT-LLM */
	KVR_NL_X_TWO_NB_BS_NH_HS = 3, /* NL tensors: vLLM flash attention (NHD); K and V are planes of their own */
	KVR_NL_X_TWO_NB_NH_BS_HS = 4, /* the same, HND */
	KVR_NL_X_NB_TWO_BS_NH_HS = 5, /* NL tensors: vLLM flashinfer (NHD) */
	KVR_NL_X_NB_TWO_NH_BS_HS = 6, /* the same, HND */
	KVR_NL_X_NB_BS_HS = 7,        /* NL tensors: MLA */
	KVR_TWO_X_NL_X_NBBS_NH_HS = 8, /* K tensors of all layers, then V tensors, tokens not cut into blocks: SGLang */
	KVR_TWO_X_NL_X_NB_BS_NH_HS = 9, /* the same, cut into blocks */
	KVR_NL_X_NBBS_ONE_HS = 10,    /* NL tensors of tokens: SGLang MLA */
	KVR_NL_X_NB_BYTES = 11,       /* NL tensors [NB, bytes]: opaque pages */
};

struct kvr_tensor {
	void *address;
	uint32_t dimensions;          /* 1 .. 6 */
	uint32_t element_bytes;
	uint64_t shape[6];
	uint64_t stride[6];           /* in elements; all 0: contiguous */
};

/* Turns tensors into one group's planes: planes[0 .. plane_capacity-1] and *group are the caller's; group->planes is set to `planes`.
 * Strides may pad blocks, but a block's own bytes must be contiguous (-EINVAL with words otherwise). -ENOSPC: plane_capacity too small. */
KVR_API int kvr_layout_make(enum kvr_layout_name name, const struct kvr_tensor *tensors, uint32_t tensor_count,
	uint32_t tokens_per_block, struct kvr_plane *planes, uint32_t plane_capacity, struct kvr_group *group);

/* ---- sessions ------------------------------------------------------------------------------------------------- */

/* Local only: the server hears of it with the first request. id: 1 .. 128 bytes; salt: NULL or "" for none; both copied. -EINVAL, -ENOMEM. */
KVR_API int kvr_session_create(struct kvr_client *client, uint32_t registration, const char *id, const char *salt,
	struct kvr_session **session);
/* Local only: ends nothing on the server. Not while its tickets are in flight (-EBUSY). Nulls *session. */
KVR_API int kvr_session_destroy(struct kvr_session **session);
/* The session's tokens from the first one on: `count` of them, of which those of chunks hashed by earlier calls must be unchanged
 * (they are not looked at). A shorter list is -EINVAL. -E2BIG: more than chunks_max chunks. */
KVR_API int kvr_session_tokens(struct kvr_session *session, const uint32_t *tokens, size_t count);
/* For callers that hash themselves (docs/PROTOCOL.md says how): the digests of all chunks so far, 32 bytes each. */
KVR_API int kvr_session_digests(struct kvr_session *session, const uint8_t *digests, uint32_t chunk_count);
KVR_API uint32_t kvr_session_chunks(const struct kvr_session *session);

/* ---- operations ----------------------------------------------------------------------------------------------- */

/* What became of a chunk. */
enum kvr_outcome {
	KVR_DELIVERED = 1, KVR_SKIPPED = 2, KVR_MISSING = 3, KVR_STORED = 4, KVR_PRESENT = 5, KVR_NO_MEMORY = 6, KVR_FAILED_CHUNK = 7,
	KVR_CANCELED = 8
};

struct kvr_result {
	int error;            /* 0 or negative errno: also what the call returned */
	uint32_t status;      /* the server's code (docs/PROTOCOL.md); 0: done, 1: done for some chunks */
	uint32_t chunks;      /* lookup: matched; retrieve, store: that ended well; free: locks released; clear: dropped */
	uint32_t tokens;      /* chunks * chunk_tokens */
	uint32_t from_l2;     /* lookup: of these, brought from L2; clear: kept because in use */
	char text[200];       /* words for an error, else empty */
};

struct kvr_blocks {       /* of one group: chunk_count * chunk_tokens / tokens_per_block ids, in token order */
	const uint32_t *ids;
	uint32_t count;
};
#define KVR_NULL_BLOCK UINT32_MAX

struct kvr_transfer {
	size_t struct_bytes;
	uint32_t first_chunk;
	uint32_t chunk_count;
	uint32_t skip_tokens;       /* retrieve: leave so many leading tokens of the range alone; ids of wholly skipped blocks are not looked at */
	uint32_t group_count;
	const struct kvr_blocks *groups;
	uint8_t *outcomes;          /* chunk_count of enum kvr_outcome; NULL: not wanted. Written before the ticket is done */
};
#define KVR_TRANSFER_INIT { sizeof(struct kvr_transfer), 0, 0, 0, 0, 0, 0 }

/* Blocking forms: submit, then wait. timeout_ns 0: the client's request_timeout_ns. On time-out the request is canceled and the call returns
 * when the server has let go of the memory, with -ETIMEDOUT (or when the connection is gone, with -ECONNRESET). */
KVR_API int kvr_lookup(struct kvr_session *session, uint64_t timeout_ns, struct kvr_result *result);
KVR_API int kvr_retrieve(struct kvr_session *session, const struct kvr_transfer *transfer, uint64_t timeout_ns, struct kvr_result *result);
KVR_API int kvr_store(struct kvr_session *session, const struct kvr_transfer *transfer, uint64_t timeout_ns, struct kvr_result *result);
/* Releases our share (this rank's and reader's; all_ranks: everybody's) of the locks on a range. -ENOLCK: there was none. */
KVR_API int kvr_free_locks(struct kvr_session *session, uint32_t first_chunk, uint32_t chunk_count, int all_ranks, uint64_t timeout_ns,
	struct kvr_result *result);
/* Releases what the session still holds and forgets it. Ending what is not there is no error. */
KVR_API int kvr_end(struct kvr_session *session, uint64_t timeout_ns);
/* Drops what is not in use: of one registration's model, or of the whole tenant (UINT32_MAX). -EPERM. */
KVR_API int kvr_clear(struct kvr_client *client, uint32_t registration, uint64_t timeout_ns, struct kvr_result *result);

typedef uint64_t kvr_ticket;

/* A lookup that answers at once (-EAGAIN in the result while L2 is asked); kvr_submit_query tells later. */
#define KVR_LOOKUP_NO_WAIT 1u
#define KVR_LOOKUP_NO_LOCK 2u
KVR_API int kvr_submit_lookup(struct kvr_session *session, uint32_t flags, kvr_ticket *ticket);
/* The result of the session's last lookup; waits on the server for up to wait_ns. early: the count known before the loads have ended. */
KVR_API int kvr_submit_query(struct kvr_session *session, uint64_t wait_ns, int early, kvr_ticket *ticket);
/* `transfer` and its arrays are read during the call only, except outcomes. */
KVR_API int kvr_submit_retrieve(struct kvr_session *session, const struct kvr_transfer *transfer, kvr_ticket *ticket);
KVR_API int kvr_submit_store(struct kvr_session *session, const struct kvr_transfer *transfer, kvr_ticket *ticket);
KVR_API int kvr_submit_free_locks(struct kvr_session *session, uint32_t first_chunk, uint32_t chunk_count, int all_ranks, kvr_ticket *ticket);
KVR_API int kvr_submit_end(struct kvr_session *session, kvr_ticket *ticket);
KVR_API int kvr_submit_ping(struct kvr_client *client, kvr_ticket *ticket);

/* Makes progress and looks. -EAGAIN: not done. -ENOENT: no such ticket (or its result was taken). Else it is done, the ticket is gone, and
 * *result is filled; returns result->error. */
KVR_API int kvr_poll(struct kvr_client *client, kvr_ticket ticket, struct kvr_result *result);
/* As kvr_poll, waiting up to timeout_ns. -ETIMEDOUT: still under way. Spins briefly, then sleeps. */
KVR_API int kvr_wait(struct kvr_client *client, kvr_ticket ticket, uint64_t timeout_ns, struct kvr_result *result);
/* Asks the server to stop it. The ticket must still be waited for; it ends with -ECANCELED, or as it would have. -ENOENT. */
KVR_API int kvr_cancel(struct kvr_client *client, kvr_ticket ticket);
/* A descriptor that becomes readable when kvr_poll may have news (for event loops); -1: none. Poll once more after adding it. */
KVR_API int kvr_event_fd(struct kvr_client *client);

#ifdef __cplusplus
}
#endif

#endif
