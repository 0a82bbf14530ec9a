/*
 * blame.h - what the status of an error completion says: whose fault it is, and the one thing to do about it.
 *
 * Only the first error of a queue pair is a cause. Those behind it are flushes, consequences, and say nothing.
 */
#ifndef KVRAIL_VERBS_BLAME_H
#define KVRAIL_VERBS_BLAME_H

#include <infiniband/verbs.h>

#include "base/compiler.h"

KVR_BEGIN_C

enum verbs_blame {
	VERBS_BLAME_NONE,   /* no error, or the consequence of one */
	VERBS_BLAME_LOCAL,  /* this side asked for what can't be done: the same again fails again */
	VERBS_BLAME_PEER,   /* the other side refused, or is not ready, or has gone */
	VERBS_BLAME_LINK,   /* packets do not arrive */
	VERBS_BLAME_MEMORY, /* a key or range that is not, or no longer, the region's */
	VERBS_BLAMES,
};

enum verbs_action {
	VERBS_ACTION_NONE,
	VERBS_ACTION_RECONNECT,      /* soon: it may be over already */
	VERBS_ACTION_RECONNECT_LATE, /* after the longest pause: until somebody changes something it fails again */
};

struct verbs_verdict {
	enum verbs_blame blame;
	enum verbs_action action;
	const char *words; /* what happened, for a person; never NULL */
	const char *hint;  /* what to look at; "" when there is nothing */
};

/* Any thread; static texts. Statuses that this table does not know are blamed on this side. */
const struct verbs_verdict *verbs_judge(enum ibv_wc_status status);
/* "local", "peer", "link", "memory", "none". */
const char *verbs_blame_text(enum verbs_blame blame);

KVR_END_C

#endif
