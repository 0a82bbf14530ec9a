/*
 * remote_clear.h - what the CLEARs of places on a network share: the book of one that is under way, and what is told of it.
 *
 * Owner: the adapter's thread.
 */
#ifndef KVRAIL_TIER_REMOTE_CLEAR_H
#define KVRAIL_TIER_REMOTE_CLEAR_H

#include "tier/remote.h"

KVR_BEGIN_C

struct remote_clear {
	struct l2_request *request;
	int status;                       /* the first error */
	uint32_t under_way;               /* jobs */
	uint32_t found_count, found_next; /* keys of the page that are ours, and the next of them to be removed */
	uint64_t pages, removed, seen;    /* seen: keys, ours or not */
	uint64_t say_ns;
};

/* Of a new one: everything but the request is 0. */
void remote_clear_begin(struct remote_clear *clear, struct remote *remote, struct l2_request *request);
/* It is canceled: nothing more is begun. */
bool remote_clear_cut_short(const struct remote_clear *clear);
/* Something of the page may still be removed. */
bool remote_clear_has_more(const struct remote_clear *clear);
/* Keeps the first error. */
void remote_clear_keep(struct remote_clear *clear, int status);
/* A page is done: a line of the log now and then. */
void remote_clear_say(struct remote_clear *clear, struct remote *remote);
/* Tells and ends it. */
void remote_clear_end(struct remote_clear *clear, struct remote *remote);

KVR_END_C

#endif
