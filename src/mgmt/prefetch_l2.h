/* prefetch_l2.h - the L2 engine of src/tier as the management core's prefetch engine. Owner: the management core. */
#ifndef KVRAIL_MGMT_PREFETCH_L2_H
#define KVRAIL_MGMT_PREFETCH_L2_H

#include "mgmt/prefetch.h"
#include "tier/l2.h"

KVR_BEGIN_C

/* What goes into l2_options.callbacks: the owner of a fetch is its prefetch_job. */
extern const struct l2_callbacks prefetch_l2_callbacks;
/* Fills in the engine's table; l2 outlives the management core. */
void prefetch_l2_engine(struct l2 *l2, uint64_t default_deadline_ns, struct prefetch_engine *engine);

KVR_END_C

#endif
