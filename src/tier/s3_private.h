/*
 * s3_private.h - the inside of the s3 adapter, its thread's: jobs, each with a transfer of libcurl.
 *
 *   request -> job -> transfer (multi) -> end
 *                ^        |
 *                +- later-+   (tried again; a damaged object becomes a DELETE)
 */
#ifndef KVRAIL_TIER_S3_PRIVATE_H
#define KVRAIL_TIER_S3_PRIVATE_H

#include "base/clock.h"
#include "base/random.h"
#include "tier/object_body.h"
#include "tier/remote.h"
#include "tier/remote_clear.h"
#include "tier/s3_adapter.h"
#include "tier/s3_list.h"

KVR_BEGIN_C

#define S3_SMALL_JOBS 64 /* HEAD and DELETE under way at once */
#define S3_DEPTH_MAX 256
#define S3_ERROR_BYTES 1024 /* of an error's body that are looked at */
#define S3_KEY_MAX 340      /* "/bucket/prefix/" and 64 digits */

#define S3_CLEAR_KEYS 1000 /* of a page */

/* S3_LIST, S3_HEADER: GETs of CLEAR's, of a page of keys, of an object's header. */
enum s3_verb { S3_GET, S3_PUT, S3_HEAD, S3_DELETE, S3_LIST, S3_HEADER };

struct s3;
struct curl_slist;

struct s3_job {
	struct list_node node; /* of s3.later, or free */
	struct s3 *s3;
	struct l2_request *request;
	enum s3_verb verb;
	bool value;   /* of s3.value_jobs, with a header; else of small_jobs */
	bool damaged; /* a GET found what must go: it is a DELETE now, and ends with -EBADMSG */
	bool fits;    /* GET: it has a length that it may have, and there is a place for it */
	int misfit;   /* else why */
	uint32_t tries;
	uint32_t found;    /* CLEAR's: which of s3_clear.found */
	uint64_t later_ns; /* when it is tried again */
	uint64_t position; /* of the body: header, then object */
	void *easy;
	struct curl_slist *headers;
	uint8_t *header; /* OBJECT_HEADER_BYTES; NULL in small jobs */
	struct object_body body;
	char payload_hash[S3_HASH_BYTES];
	char path[S3_KEY_MAX];
	uint32_t error_length;
	char error[S3_ERROR_BYTES];
};

enum s3_clear_state { S3_CLEAR_NONE, S3_CLEAR_PAGE, S3_CLEAR_LISTING, S3_CLEAR_REMOVING };

struct s3_clear {
	struct remote_clear book;
	enum s3_clear_state state;
	bool more;       /* there is a next page */
	uint32_t listed; /* keys of the page */
	struct s3_list list;
	char token[S3_TOKEN_MAX + 1];
	char query[3 * S3_TOKEN_MAX + 1024];
	uint8_t found[S3_CLEAR_KEYS][32]; /* hashes */
};

struct s3 {
	struct remote remote;
	struct s3_credentials credentials;
	char endpoint[256]; /* "https://host:port" */
	const char *host;   /* in it */
	char where[256];    /* "bucket/prefix" */
	char ca_file[256];
	bool sign_payload;
	uint32_t depth, tries;
	uint64_t timeout_ns, retry_ns;
	struct random random;
	struct object_codec codec;
	void *multi;
	struct s3_job *jobs; /* S3_SMALL_JOBS, then `depth` with headers */
	uint32_t job_count;  /* whose `easy` was made */
	uint8_t *headers;
	struct list_node small_jobs, value_jobs; /* free ones */
	struct list_node later;                  /* to be tried again */
	struct s3_clear clear;
};

/* s3_adapter_curl.c */
void s3_job_end(struct s3_job *job, int status, bool written);

/* s3_clear_curl.c --------------------------------------------------------------------------------------------------- */

/* Nothing else is under way; ends with remote_end. */
void s3_clear_begin(struct s3 *s3, struct l2_request *request);
void s3_clear_step(struct s3 *s3);
/* A page is asked for, perhaps once more. */
void s3_clear_list_again(struct s3 *s3);
/* A job of its request has ended, and is free. */
void s3_clear_job_ended(struct s3_job *job, int status);
/* Its header has come: the object is of the request's models. */
bool s3_clear_wants(const struct s3_job *job);

/* s3_transfer_curl.c ------------------------------------------------------------------------------------------------ */

/* Options that are the same for all transfers of the job's. 0 or -ENOMEM. */
KVR_MUST_CHECK int s3_transfer_init(struct s3_job *job);
/* Once for the request: its path, and what a PUT sends. 0 or a status. */
int s3_transfer_prepare(struct s3_job *job);
/* Signs and begins; what cannot begin ends. */
void s3_transfer_begin(struct s3_job *job);
/* It has ended; curl_code: libcurl's word. */
void s3_transfer_ended(struct s3_job *job, int curl_code);

KVR_END_C

#endif
