/*
 * copy.h - moving the bytes of one-sided work requests.
 *
 * KV blocks are read once and written once, and working sets are many times the last-level cache: a plain store first
 * reads the line that it is about to overwrite whole. Streaming stores leave that out, a third of the memory traffic,
 * and keep the cache for others. Measured with bench_memcpy (zen 3, 512 MiB each side, random order, this against
 * memcpy of the same list): 1.4 times as fast with 4 KiB and 32 KiB blocks, 1.5 with 1 MiB, 1.1 with 1 KiB; the
 * prefetch (1 KiB ahead, into the next block where this one ends) is worth 10 to 20 % of that, and 16-byte stores do as well as
 * 32-byte ones. Under LOCAL_STREAM_BYTES memcpy is faster.
 */
#ifndef KVRAIL_VERBS_LOCAL_COPY_H
#define KVRAIL_VERBS_LOCAL_COPY_H

#include <stddef.h>

#include "base/compiler.h"

KVR_BEGIN_C

#define LOCAL_STREAM_BYTES 1024u
/* How far ahead of the copy is prefetched. */
#define LOCAL_PREFETCH_BYTES 1024u

/* As memcpy. `after`: what will probably be copied from next. It is only prefetched: any address will do, NULL too. */
void local_copy(void *to, const void *from, size_t bytes, const void *after);
/* Streaming stores are not ordered with other stores: between the last local_copy and what announces its bytes to
 * anybody (a message, a completion) comes this. */
void local_copy_flush(void);

KVR_END_C

#endif
