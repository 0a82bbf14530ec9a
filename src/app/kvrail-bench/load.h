/* load.h - the command `load`. */
#ifndef KVRAIL_APP_BENCH_LOAD_H
#define KVRAIL_APP_BENCH_LOAD_H

#include "app/kvrail-bench/settings.h"
#include "base/compiler.h"

KVR_BEGIN_C

/* As replay_run. */
int load_run(const struct load_settings *settings, const int *interrupted);

KVR_END_C

#endif
