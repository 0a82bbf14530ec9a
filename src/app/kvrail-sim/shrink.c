/* shrink.c - leaves out steps of a program for as long as it still violates something. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "app/kvrail-sim/world.h"
#include "base/clock.h"

struct shrinking {
	struct world_options options;
	uint32_t *numbers, *trial;
	uint32_t count;
	uint64_t until_ns;
	char text[sizeof(((struct world_report *)0)->text)]; /* of the violation */
};

/* The same words, whatever the numbers. */
static bool same_violation(const char *a, const char *b)
{
	for (;;) {
		while (isdigit((unsigned char)*a))
			a++;
		while (isdigit((unsigned char)*b))
			b++;
		if (*a != *b)
			return false;
		if (!*a)
			return true;
		a++;
		b++;
	}
}

/* Does it still fail without steps [first, first + length)? Then they are left out for good. */
static bool try_without(struct shrinking *shrinking, uint32_t first, uint32_t length)
{
	struct world_options options = shrinking->options;
	struct world_report report;
	uint32_t count = shrinking->count - length;

	memcpy(shrinking->trial, shrinking->numbers, first * sizeof(uint32_t));
	memcpy(shrinking->trial + first, shrinking->numbers + first + length, (count - first) * sizeof(uint32_t));
	options.numbers = shrinking->trial;
	options.steps = count;
	options.trace = NULL;
	if (world_run(&options, &report, NULL) || !report.violated)
		return false;
	if (!shrinking->text[0])
		memcpy(shrinking->text, report.text, sizeof(report.text));
	if (!same_violation(shrinking->text, report.text))
		return false;
	if (report.steps_run < count)
		count = report.steps_run;
	memcpy(shrinking->numbers, shrinking->trial, count * sizeof(uint32_t));
	shrinking->count = count;
	return true;
}

int world_shrink(const struct world_options *options, unsigned seconds, uint32_t **numbers, uint32_t *count)
{
	struct shrinking shrinking = { .options = *options, .count = options->steps };

	*numbers = NULL;
	shrinking.until_ns = clock_now_ns() + seconds * KVR_SECOND;
	shrinking.numbers = calloc(options->steps + 1, sizeof(uint32_t));
	shrinking.trial = calloc(options->steps + 1, sizeof(uint32_t));
	if (!shrinking.numbers || !shrinking.trial) {
		free(shrinking.numbers);
		free(shrinking.trial);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < options->steps; i++)
		shrinking.numbers[i] = options->numbers ? options->numbers[i] : i;
	(void)try_without(&shrinking, 0, 0);
	for (uint32_t length = (shrinking.count + 1) / 2; length > 0; length /= 2) {
		for (uint32_t first = 0; first + length <= shrinking.count && clock_now_ns() < shrinking.until_ns;) {
			if (!try_without(&shrinking, first, length))
				first += length;
		}
	}
	free(shrinking.trial);
	*numbers = shrinking.numbers;
	*count = shrinking.count;
	return 0;
}
