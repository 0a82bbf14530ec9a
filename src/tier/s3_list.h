/*
 * s3_list.h - a page of ListObjectsV2, byte by byte as it comes. Pure: no I/O, no memory but the struct's.
 *
 *   <ListBucketResult> ... <IsTruncated>true</IsTruncated> <NextContinuationToken>...</NextContinuationToken>
 *     <Contents><Key>prefix/9f86d0...</Key> ...</Contents> ... </ListBucketResult>
 *
 * Only these three texts are looked at. What is longer than any of ours is passed over, whatever a server sends.
 */
#ifndef KVRAIL_TIER_S3_LIST_H
#define KVRAIL_TIER_S3_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

#define S3_LIST_TAG_MAX 31
#define S3_TOKEN_MAX 1024 /* characters of a continuation token: a longer one is none */

enum s3_list_state { S3_LIST_TEXT, S3_LIST_TAG };

struct s3_list {
	/* Each key of at most S3_TOKEN_MAX bytes, as it is in the XML (entities not decoded). False: no room. */
	bool (*key)(void *owner, const char *key, uint32_t length);
	void *owner;
	enum s3_list_state state;
	uint32_t tag_length, text_length; /* more than fits: one more than that */
	char tag[S3_LIST_TAG_MAX + 1];
	char text[S3_TOKEN_MAX + 1];  /* since the last tag */
	char token[S3_TOKEN_MAX + 1]; /* of the next page, entities decoded; "": none was named */
	bool truncated;               /* there is a next page */
	bool begun, whole;            /* the list was opened, and closed */
	bool bad;                     /* not such a page; nothing of it counts */
};

void s3_list_init(struct s3_list *list, bool (*key)(void *owner, const char *key, uint32_t length), void *owner);
void s3_list_take(struct s3_list *list, const char *bytes, size_t count);
/* Whole, and with a token when there is a next page. */
bool s3_list_good(const struct s3_list *list);

/* The query that asks for a page: token "": the first one; prefix: of keys, "": all. Its values are encoded. False: it does
 * not fit. */
KVR_MUST_CHECK bool s3_list_query(const char *prefix, const char *token, char *out, size_t size);

KVR_END_C

#endif
