/* devices.h - what of the machine a figure can depend on besides its processors: adapters, GPUs, disks, and where threads run. */
#ifndef KVRAIL_APP_BENCH_DEVICES_H
#define KVRAIL_APP_BENCH_DEVICES_H

#include <stdint.h>

#include "base/compiler.h"
#include "base/text.h"

KVR_BEGIN_C

/* "devices": [{"kind": "rdma" | "network" | "gpu" | "disk", "name": ..., "numa_node": ...}, ...], a member of a JSON object.
 * numa_node: -1 where it is not known. Reads files for some 10 ms. */
void devices_append_json(struct text *out);
/* The same in words, by ", ", for a line of text; "none known" without any. */
void devices_append_words(struct text *out);

/* "placement": {"cores": "0-3", "numa_nodes": "0", "server": [{"thread": ..., "cores": ..., "numa_nodes": ...}]}: what this process
 * and the threads of that one may run on. server_pid 0: "server" is null. */
void placement_append_json(uint64_t server_pid, struct text *out);

KVR_END_C

#endif
