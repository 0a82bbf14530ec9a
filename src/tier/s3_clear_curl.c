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
#define SAY_INTERVAL_NS (10 * KVR_SECOND)

static bool cut_short(const struct s3 *s3)
{
	return kvr_load_relaxed(&s3->clear.request->status) == -ECANCELED;
}

/* Of the bucket's keys; "" when the place is a bucket alone. */
static const char *key_prefix(const struct s3 *s3)
{
	const char *slash = strchr(s3->where, '/');

	return slash ? slash + 1 : "";
}

static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool key_parse(const struct s3 *s3, const char *key, size_t length, uint8_t hash[32])
{
	const char *prefix = key_prefix(s3);
	size_t skip = strlen(prefix);

	if (length < 64 || length - 64 != (skip ? skip + 1 : 0) || memcmp(key, prefix, skip) != 0 ||
		(skip && key[skip] != '/'))
		return false;
	key += length - 64;
	for (size_t i = 0; i < 32; i++) {
		int high = digit_of(key[2 * i]), low = digit_of(key[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		hash[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

static bool key_found(void *owner, const char *key, uint32_t length)
{
	struct s3 *s3 = owner;
	struct s3_clear *clear = &s3->clear;

	if (clear->listed++ == S3_CLEAR_KEYS)
		return false;
	clear->found_count += key_parse(s3, key, length, clear->found[clear->found_count]);
	return true;
}

void s3_clear_begin(struct s3 *s3, struct l2_request *request)
{
	struct s3_clear *clear = &s3->clear;

	memset(clear, 0, sizeof(*clear));
	clear->request = request;
	clear->state = S3_CLEAR_PAGE;
	clear->say_ns = s3->remote.now_ns + SAY_INTERVAL_NS;
}

static void clear_end(struct s3 *s3)
{
	struct s3_clear *clear = &s3->clear;
	struct l2_request *request = clear->request;
	int status = cut_short(s3) ? -ECANCELED : clear->status;

	log_info("l2 %s: clear: %llu objects removed, %llu keys looked at%s%s", s3->remote.adapter.name,
		(unsigned long long)clear->removed, (unsigned long long)clear->seen, status ? "; cut short: " : "",
		status ? strerror(-status) : "");
	clear->request = NULL;
	clear->state = S3_CLEAR_NONE;
	remote_end(&s3->remote, request, status, false);
}

static struct s3_job *clear_job(struct s3 *s3, struct list_node *free_jobs, enum s3_verb verb)
{
	struct s3_job *job = KVR_CONTAINER_OF(list_pop_first(free_jobs), struct s3_job, node);

	job->request = s3->clear.request;
	job->verb = verb;
	job->damaged = false;
	job->tries = 0;
	s3->clear.under_way++;
	return job;
}

void s3_clear_list_again(struct s3 *s3)
{
	struct s3_clear *clear = &s3->clear;

	clear->found_count = clear->found_next = clear->listed = 0;
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
		clear->status = -EIO; /* no token that fits a page's is too long */
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

	clear->seen += clear->listed;
	clear->more = clear->list.truncated;
	if (!status && clear->more && (++clear->pages >= PAGES_MAX || strcmp(clear->token, clear->list.token) == 0)) {
		remote_complain(&s3->remote, "the server's list of keys has no end");
		status = -EIO;
	}
	if (status) {
		clear->status = status;
		clear->found_count = 0;
		clear->more = false;
	}
	memcpy(clear->token, clear->list.token, sizeof(clear->token));
	clear->state = S3_CLEAR_REMOVING;
}

bool s3_clear_wants(const struct s3_job *job)
{
	const struct l2_request *request = job->request;
	const uint8_t *keys = request->memory;
	struct object_header header;

	if (cut_short(job->s3) || job->position < OBJECT_HEADER_BYTES ||
		object_header_decode(job->header, &header) != 0)
		return false;
	for (uint64_t at = 0; at < request->identity.bytes; at += sizeof(header.identity.model_key))
		if (memcmp(keys + at, header.identity.model_key, sizeof(header.identity.model_key)) == 0)
			return true;
	return false;
}

void s3_clear_job_ended(struct s3_job *job, int status)
{
	struct s3 *s3 = job->s3;
	struct s3_clear *clear = &s3->clear;

	clear->under_way--;
	if (job->verb == S3_LIST)
		page_ended(s3, status);
	else if (status && status != -ENOENT && !clear->status)
		clear->status = status;
	else if (job->verb == S3_DELETE && !status)
		clear->removed++;
}

static void remove_some(struct s3 *s3)
{
	struct s3_clear *clear = &s3->clear;
	bool everything = !clear->request->memory;
	struct list_node *free_jobs = everything ? &s3->small_jobs : &s3->value_jobs;

	while (clear->found_next < clear->found_count && !clear->status && !cut_short(s3) && !list_empty(free_jobs)) {
		struct s3_job *job = clear_job(s3, free_jobs, everything ? S3_DELETE : S3_HEADER);

		job->found = clear->found_next++;
		(void)s3_transfer_prepare(job); /* it fails for a PUT alone */
		s3_transfer_begin(job);
	}
	if ((clear->found_next < clear->found_count && !clear->status) || clear->under_way > 0)
		return;
	if (!clear->more || clear->status) {
		clear_end(s3);
		return;
	}
	clear->state = S3_CLEAR_PAGE;
	if (s3->remote.now_ns < clear->say_ns)
		return;
	clear->say_ns = s3->remote.now_ns + SAY_INTERVAL_NS;
	log_info("l2 %s: clear goes on: %llu objects removed so far", s3->remote.adapter.name,
		(unsigned long long)clear->removed);
}

void s3_clear_step(struct s3 *s3)
{
	struct s3_clear *clear = &s3->clear;
	enum s3_clear_state before;

	do {
		before = clear->state;
		if (before != S3_CLEAR_NONE && clear->under_way == 0 && cut_short(s3))
			clear_end(s3);
		else if (before == S3_CLEAR_PAGE)
			page_begin(s3);
		else if (before == S3_CLEAR_REMOVING)
			remove_some(s3);
	} while (clear->state != before);
}
