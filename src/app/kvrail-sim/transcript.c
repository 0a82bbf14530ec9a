#include "app/kvrail-sim/transcript.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"

int transcript_init(struct transcript *transcript, uint32_t lines, FILE *trace)
{
	memset(transcript, 0, sizeof(*transcript));
	transcript->lines = calloc(lines, sizeof(transcript->lines[0]));
	transcript->capacity = lines;
	transcript->trace = trace;
	return transcript->lines ? 0 : -ENOMEM;
}

void transcript_fini(struct transcript *transcript)
{
	free(transcript->lines);
	transcript->lines = NULL;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void print_line(const struct transcript_line *line, FILE *out)
{
	const uint64_t *n = line->numbers;

	fprintf(out, "%12.3f us  ", (double)line->now_ns / 1000);
	fprintf(out, line->format, (unsigned long long)n[0], (unsigned long long)n[1], (unsigned long long)n[2],
		(unsigned long long)n[3], (unsigned long long)n[4], (unsigned long long)n[5]);
	fputc('\n', out);
}
#pragma GCC diagnostic pop

static uint64_t hash_line(uint64_t hash, const struct transcript_line *line)
{
	hash = random_mix(hash ^ line->now_ns);
	for (const char *at = line->format; *at; at++)
		hash = hash * 31 + (uint8_t)*at;
	for (unsigned i = 0; i < TRANSCRIPT_NUMBERS; i++)
		hash = random_mix(hash + line->numbers[i]);
	return hash;
}

void transcript_add(
	struct transcript *transcript, uint64_t now_ns, const char *format, const uint64_t numbers[TRANSCRIPT_NUMBERS])
{
	struct transcript_line *line = &transcript->lines[transcript->count++ % transcript->capacity];

	line->now_ns = now_ns;
	line->format = format;
	memcpy(line->numbers, numbers, sizeof(line->numbers));
	transcript->hash = hash_line(transcript->hash, line);
	if (transcript->trace)
		print_line(line, transcript->trace);
}

void transcript_print(const struct transcript *transcript, FILE *out)
{
	uint64_t first = transcript->count > transcript->capacity ? transcript->count - transcript->capacity : 0;

	for (uint64_t i = first; i < transcript->count; i++)
		print_line(&transcript->lines[i % transcript->capacity], out);
}
