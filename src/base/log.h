/*
 * log.h - one line a fact: what failed, on which object, with the values. Lower case, the cause and not a guess.
 *
 * The first function that knows the cause logs it; callers pass the code on. Arguments are not formatted unless the
 * level is on, and the format is checked even so. The step functions may log only through log_rate (hot path rule of
 * ARCHITECTURE.md). Thread-safe: a line is one write(2) to standard error, or one call of the sink.
 */
#ifndef KVRAIL_BASE_LOG_H
#define KVRAIL_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* Lines above this level are dropped. Starts as LOG_INFO. The only mutable state at file scope in the project, with the
 * sink. */
void log_set_level(enum log_level level);
enum log_level log_get_level(void);

/* "error", "warn", "info", "debug"; -EINVAL for any other text. */
int log_parse_level(const char *text, enum log_level *level);

/* Where lines go instead of standard error (tests, the library's user). NULL: back to standard error. */
typedef void (*log_sink_fn)(void *context, enum log_level level, const char *line);
void log_set_sink(log_sink_fn sink, void *context);

void log_write(enum log_level level, const char *format, ...) KVR_PRINTF(2, 3);

#define log_at(level, ...)                                    \
	do {                                                  \
		if (KVR_UNLIKELY((level) <= log_get_level())) \
			log_write(level, __VA_ARGS__);        \
	} while (0)
#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_at(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_at(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)

/* At most one line per `interval_ns`; the next line that passes says how many were squashed. One writer per struct. */
struct log_rate {
	uint64_t next_ns;
	uint64_t squashed;
};
/* True when the caller may log now. `*squashed` is how many were held back since the last one. */
bool log_rate_pass(struct log_rate *rate, uint64_t now_ns, uint64_t interval_ns, uint64_t *squashed);

KVR_END_C

#endif
