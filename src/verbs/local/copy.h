/* copy.h - moving bytes of one-sided work requests. */
#ifndef KVRAIL_VERBS_LOCAL_COPY_H
#define KVRAIL_VERBS_LOCAL_COPY_H

#include <stddef.h>
#include <string.h>

#include "base/compiler.h"

KVR_BEGIN_C

static inline void local_copy(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
}

/* Before what was copied is announced: completions, messages. */
static inline void local_copy_flush(void)
{
}

KVR_END_C

#endif
