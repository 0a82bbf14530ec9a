/* replay.h - the command `replay`. */
#ifndef KVRAIL_APP_BENCH_REPLAY_H
#define KVRAIL_APP_BENCH_REPLAY_H

#include "app/kvrail-bench/settings.h"
#include "base/compiler.h"

KVR_BEGIN_C

/* *interrupted becomes 1 (atomically, from a signal) when the run should end early, in good order. Prints progress to
 * standard error and results to standard output. The program's exit code. */
int replay_run(const struct replay_settings *settings, const int *interrupted);

KVR_END_C

#endif
