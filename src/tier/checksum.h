/*
 * checksum.h - the checksum that goes with an object from L1 to L2 and back: XXH3 (64 bits, no seed), by libxxhash.
 *
 * It finds bit rot, torn writes and mistaken files; it does not stop somebody who means to deceive. Runs at about
 * memory speed, so large objects belong on a helper thread or an adapter's own. Any thread.
 */
#ifndef KVRAIL_TIER_CHECKSUM_H
#define KVRAIL_TIER_CHECKSUM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

/* False in a build without libxxhash: there checksum_bytes gives 0, and adapters do not open. */
bool checksum_available(void);
uint64_t checksum_bytes(const void *bytes, uint64_t length);

KVR_END_C

#endif
