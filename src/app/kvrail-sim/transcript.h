/*
 * transcript.h - what happened, line by line. Lines are kept as format and numbers, and made into text only when somebody reads them;
 * the hash over all of them tells whether two runs were the same.
 */
#ifndef KVRAIL_APP_SIM_TRANSCRIPT_H
#define KVRAIL_APP_SIM_TRANSCRIPT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/compiler.h"

KVR_BEGIN_C

#define TRANSCRIPT_NUMBERS 6u

struct transcript_line {
	uint64_t now_ns;
	const char *format; /* its arguments are all unsigned long long, at most TRANSCRIPT_NUMBERS */
	uint64_t numbers[TRANSCRIPT_NUMBERS];
};

struct transcript {
	struct transcript_line *lines; /* ring */
	uint32_t capacity;
	uint64_t count;
	uint64_t hash;
	FILE *trace;
};

KVR_MUST_CHECK int transcript_init(struct transcript *transcript, uint32_t lines, FILE *trace);
void transcript_fini(struct transcript *transcript);
/* format: a constant that outlives the transcript. */
void transcript_add(
	struct transcript *transcript, uint64_t now_ns, const char *format, const uint64_t numbers[TRANSCRIPT_NUMBERS]);
/* The last lines, oldest first. */
void transcript_print(const struct transcript *transcript, FILE *out);

#define TRANSCRIPT(transcript, now_ns, format, ...) \
	transcript_add(transcript, now_ns, format, (const uint64_t[TRANSCRIPT_NUMBERS]){ __VA_ARGS__ })

KVR_END_C

#endif
