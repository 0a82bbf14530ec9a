/*
 * s3_clear_curl.c - CLEAR: the keys below our prefix are listed, page by page, and what is ours is removed.
 *
 *   GET ?list-type=2 -> DELETE of each key of the page -> next page ...
 *                    -> with model keys: GET of its header's bytes first
 *
 * Ours is the prefix and 64 hex digits; with model keys, what also has the header of such an object. It may be cut short at
 * any time: what is left is whole.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tier/object_format.h"
#include "tier/s3_private.h"

#define PAGES_MAX (UINT64_C(1) << 24) /* a list that never ends is none */

/* Of the bucket's keys; "" when the place is a bucket alone. */
static const char *key_prefix(const struct s3 *s3)
{
	const char *slash = strchr(s3->where, '/');

	return slash ? slash + 1 : "";
}

static bool key_parse(const struct s3 *s3, const char *key, size_t length, uint8_t hash[32])
{
	const char *prefix = key_prefix(s3);
	size_t skip = strlen(prefix);

	if (length < 64 || length - 64 != (skip ? skip + 1 : 0) || memcmp(key, prefix, skip) != 0 ||
		(skip && key[skip] != '/'))
		return false;
	return object_hash_parse(key + length - 64, hash);
}

static bool key_found(void *owner, const char *key, uint32_t length)
{
	struct s3 *s3 = owner;
	struct s3_clear *clear = &s3->clear;

	if (clear->listed++ == S3_CLEAR_KEYS)
		return false;
	clear->book.found_count += key_parse(s3, key, length, clear->found[clear->book.found_count]);
	return true;
}

void s3_clear_begin(struct s3 *s3, struct l2_request *request)
{
	struct s3_clear *clear = &s3->clear;

	memset(clear, 0, sizeof(*clear));
	remote_clear_begin(&clear->book, &s3->remote, request);
	clear->state = S3_CLEAR_PAGE;
}

static void clear_end(struct s3 *s3)
{
	s3->clear.state = S3_CLEAR_NONE;
	remote_clear_end(&s3->clear.book, &s3->remote);
}

static struct s3_job *clear_job(struct s3 *s3, struct list_node *free_jobs, enum s3_verb verb)
{
	struct s3_job *job = KVR_CONTAINER_OF(list_pop_first(free_jobs), struct s3_job, node);

	job->request = s3->clear.book.request;
	job->verb = verb;
	job->damaged = false;
	job->tries = 0;
	s3->clear.book.under_way++;
	return job;
}

void s3_clear_list_again(struct s3 *s3)
{
	struct s3_clear *clear = &s3->clear;

	clear->book.found_count = clear->book.found_next = clear->listed = 0;
	s3_list_init(&clear->list, key_found, s3);
}

static void page_begin(struct s3 *s3)
{
	struct s3_clear *clear = &s3->clear;
	const char *prefix = key_prefix(s3);
	char whole[sizeof(s3->where) + 1];
	struct s3_job *job;

	if (list_empty(&s3->small_jobs))
		return;
	snprintf(whole, sizeof(whole), "%s%s", prefix, *prefix ? "/" : "");
	if (!s3_list_query(whole, clear->token, clear->query, sizeof(clear->query))) {
		clear->book.status = -EIO; /* no token that fits a page's is too long */
		clear_end(s3);
		return;
	}
	clear->state = S3_CLEAR_LISTING;
	job = clear_job(s3, &s3->small_jobs, S3_LIST);
	snprintf(job->path, sizeof(job->path), "/%.*s", (int)strcspn(s3->where, "/"), s3->where);
	s3_hash(&s3->remote.digester, "", 0, "", 0, job->payload_hash);
	s3_transfer_begin(job);
}

static void page_ended(struct s3 *s3, int status)
{
	struct s3_clear *clear = &s3->clear;

	clear->book.seen += clear->listed;
	clear->more = clear->list.truncated;
	if (!status && clear->more &&
		(++clear->book.pages >= PAGES_MAX || strcmp(clear->token, clear->list.token) == 0)) {
		remote_complain(&s3->remote, "the server's list of keys has no end");
		status = -EIO;
	}
	if (status) {
		clear->book.status = status;
		clear->book.found_count = 0;
		clear->more = false;
	}
	memcpy(clear->token, clear->list.token, sizeof(clear->token));
	clear->state = S3_CLEAR_REMOVING;
}

bool s3_clear_wants(const struct s3_job *job)
{
	const struct remote_clear *book = &job->s3->clear.book;
	struct object_header header;

	return !remote_clear_cut_short(book) && job->position >= OBJECT_HEADER_BYTES &&
		object_header_decode(job->header, &header) == 0 && object_is_cleared(book->request, &header.identity);
}

void s3_clear_job_ended(struct s3_job *job, int status)
{
	struct s3 *s3 = job->s3;
	struct s3_clear *clear = &s3->clear;

	clear->book.under_way--;
	if (job->verb == S3_LIST)
		page_ended(s3, status);
	else if (status && status != -ENOENT)
		remote_clear_keep(&clear->book, status);
	else if (job->verb == S3_DELETE && !status)
		clear->book.removed++;
}

static void remove_some(struct s3 *s3)
{
	struct s3_clear *clear = &s3->clear;
	bool everything = !clear->book.request->memory;
	struct list_node *free_jobs = everything ? &s3->small_jobs : &s3->value_jobs;

	while (remote_clear_has_more(&clear->book) && !clear->book.status && !list_empty(free_jobs)) {
		struct s3_job *job = clear_job(s3, free_jobs, everything ? S3_DELETE : S3_HEADER);

		job->found = clear->book.found_next++;
		(void)s3_transfer_prepare(job); /* it fails for a PUT alone */
		s3_transfer_begin(job);
	}
	if ((clear->book.found_next < clear->book.found_count && !clear->book.status) || clear->book.under_way > 0)
		return;
	if (!clear->more || clear->book.status) {
		clear_end(s3);
		return;
	}
	clear->state = S3_CLEAR_PAGE;
	remote_clear_say(&clear->book, &s3->remote);
}

void s3_clear_step(struct s3 *s3)
{
	struct s3_clear *clear = &s3->clear;
	enum s3_clear_state before;

	do {
		before = clear->state;
		if (before != S3_CLEAR_NONE && clear->book.under_way == 0 && remote_clear_cut_short(&clear->book))
			clear_end(s3);
		else if (before == S3_CLEAR_PAGE)
			page_begin(s3);
		else if (before == S3_CLEAR_REMOVING)
			remove_some(s3);
	} while (clear->state != before);
}
