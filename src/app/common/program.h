/* program.h - how every program of the project begins: options, --help, --version, --print-config, and exit codes. */
#ifndef KVRAIL_APP_COMMON_PROGRAM_H
#define KVRAIL_APP_COMMON_PROGRAM_H

#include "config/option.h"

KVR_BEGIN_C

enum { PROGRAM_GOOD = 0, PROGRAM_FAILED = 1, PROGRAM_USAGE = 2 };

/* Not an exit code: go on. */
#define PROGRAM_RUN (-1)

/*
 * Reads defaults, file and command line into the zeroed *settings, lets `check` (may be NULL) look at them as a whole, and does what
 * the flags of all programs ask. PROGRAM_RUN, or an exit code after the text was printed: to standard output when it was asked for,
 * a line "PROGRAM: what was wrong" to standard error otherwise. Call option_fini in each case.
 * check: 0 or a negative errno with *error.
 */
int program_begin(const struct option_table *table, int *argc, char **argv, void *settings,
	int (*check)(void *settings, struct option_error *error));

/* Prints to standard output. False when that failed (a closed pipe, a full disk), which makes an exit code 1. */
bool program_print(const struct text *text);

KVR_END_C

#endif
