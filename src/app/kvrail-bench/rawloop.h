/*
 * rawloop.h - ceilings below the server: RDMA WRITE and READ of pages by a bare verbs loop on the same kind of device, as
 * ib_write_bw measures it, with no request, plan or reply around. Both queue pairs are this process' own.
 */
#ifndef KVRAIL_APP_BENCH_RAWLOOP_H
#define KVRAIL_APP_BENCH_RAWLOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

struct rawloop_options {
	const char *driver; /* "local" or "nic": as kvr_get_info calls it */
	const char *device; /* nic: NULL: the first */
	uint64_t page_bytes;
	uint64_t working_set; /* bytes on each side */
	uint64_t seed;
};

struct rawloop;

/* 0, -EOPNOTSUPP (a driver that is not measured), or what the driver says: then there is no such ceiling. */
KVR_MUST_CHECK int rawloop_open(const struct rawloop_options *options, struct rawloop **loop);
/* One slice each way, some milliseconds. 0 or -EIO. */
KVR_MUST_CHECK int rawloop_measure(struct rawloop *loop);
/* Medians of the slices so far, 10^9 bytes a second; 0 without any. write: as a RETRIEVE moves them. */
double rawloop_gbps(const struct rawloop *loop, bool write);
/* NULL is good. */
void rawloop_close(struct rawloop *loop);

KVR_END_C

#endif
