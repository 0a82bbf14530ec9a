/* memlock.h - how much memory this process may lock, which is what pinning memory for an RDMA device counts against. */
#ifndef KVRAIL_APP_COMMON_MEMLOCK_H
#define KVRAIL_APP_COMMON_MEMLOCK_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

/* RLIMIT_MEMLOCK in bytes; UINT64_MAX: there is no limit, or CAP_IPC_LOCK makes none count. */
uint64_t memlock_limit(void);
/* Words about `needed` bytes under that limit, with what to set where; "" and 0 when it is enough, else -ENOMEM. Pure. */
KVR_MUST_CHECK int memlock_check(uint64_t needed, uint64_t limit, char *why, size_t size);

KVR_END_C

#endif
