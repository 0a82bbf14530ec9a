#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"

/* A longer message is cut and ends in "...". */
#define LOG_MESSAGE_BYTES 1024
#define LOG_LINE_BYTES (LOG_MESSAGE_BYTES + 64)

static int log_threshold = LOG_INFO;
static pthread_mutex_t log_sink_lock = PTHREAD_MUTEX_INITIALIZER;
static log_sink_fn log_sink; /* written under the lock, read without it to see whether there is one */
static void *log_sink_context;
static uint64_t log_dropped; /* lines that standard error did not take */

static const char *const log_level_name[] = { "error", "warn", "info", "debug" };

void log_set_level(enum log_level level)
{
	kvr_store_relaxed(&log_threshold, (int)level);
}

enum log_level log_get_level(void)
{
	return (enum log_level)kvr_load_relaxed(&log_threshold);
}

int log_parse_level(const char *text, enum log_level *level)
{
	for (size_t i = 0; i < KVR_COUNT_OF(log_level_name); i++) {
		if (strcmp(text, log_level_name[i]) == 0) {
			*level = (enum log_level)i;
			return 0;
		}
	}
	return -EINVAL;
}

void log_set_sink(log_sink_fn sink, void *context)
{
	pthread_mutex_lock(&log_sink_lock);
	log_sink_context = context;
	kvr_store_relaxed(&log_sink, sink);
	pthread_mutex_unlock(&log_sink_lock);
}

/* Text of a peer may be part of a message: it must not be able to start a line of its own or to steer a terminal. */
static void log_defuse(char *message)
{
	for (; *message; message++) {
		if ((unsigned char)*message < 0x20 || *message == 0x7f)
			*message = '?';
	}
}

static void log_to_stderr(enum log_level level, const char *message)
{
	char line[LOG_LINE_BYTES];
	uint64_t wall_ns = clock_wall_ns();
	time_t seconds = (time_t)(wall_ns / KVR_SECOND);
	struct pollfd ready = { .fd = STDERR_FILENO, .events = POLLOUT };
	uint64_t dropped;
	char lost[96];
	struct tm utc;
	size_t length;
	int rest;

	gmtime_r(&seconds, &utc);
	length = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &utc);
	rest = snprintf(line + length, sizeof(line) - length, ".%06uZ %s: %s\n",
		(unsigned)(wall_ns % KVR_SECOND / 1000), log_level_name[level], message);
	if (rest < 0)
		return;
	length += (size_t)rest;
	/* A pipe whose reader stalls must not stall the thread that logs: a pipe that says it is writable takes a line whole. What is
	 * dropped is counted, and told with the next line that passes. */
	if (poll(&ready, 1, 0) != 1 || !(ready.revents & POLLOUT)) {
		kvr_fetch_add(&log_dropped, 1);
		return;
	}
	dropped = kvr_exchange(&log_dropped, 0);
	if (dropped > 0) {
		rest = snprintf(lost, sizeof(lost), "(%llu lines were lost: standard error was not read)\n",
			(unsigned long long)dropped);
		if (write(STDERR_FILENO, lost, (size_t)rest) < 0)
			return;
	}
	/* There is nowhere left to report that standard error is gone. */
	while (write(STDERR_FILENO, line, length) < 0 && errno == EINTR)
		;
}

static bool log_to_sink(enum log_level level, const char *message)
{
	bool sent = false;

	if (!kvr_load_relaxed(&log_sink))
		return false;
	pthread_mutex_lock(&log_sink_lock);
	if (log_sink) {
		log_sink(log_sink_context, level, message);
		sent = true;
	}
	pthread_mutex_unlock(&log_sink_lock);
	return sent;
}

void log_write(enum log_level level, const char *format, ...)
{
	char message[LOG_MESSAGE_BYTES];
	int caller_errno = errno;
	va_list arguments;
	int length;

	if ((unsigned)level >= KVR_COUNT_OF(log_level_name))
		level = LOG_ERROR;
	va_start(arguments, format);
	length = vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	if (length < 0)
		snprintf(message, sizeof(message), "unprintable message: %s", format);
	else if ((size_t)length >= sizeof(message))
		memcpy(message + sizeof(message) - 4, "...", 4);
	log_defuse(message);
	if (!log_to_sink(level, message))
		log_to_stderr(level, message);
	errno = caller_errno;
}

bool log_rate_pass(struct log_rate *rate, uint64_t now_ns, uint64_t interval_ns, uint64_t *squashed)
{
	if (now_ns < rate->next_ns) {
		rate->squashed++;
		return false;
	}
	rate->next_ns = now_ns + kvr_min_u64(interval_ns, UINT64_MAX - now_ns);
	*squashed = rate->squashed;
	rate->squashed = 0;
	return true;
}
