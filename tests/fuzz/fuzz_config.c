/*
 * fuzz_config.c - configuration text against the table of kvraild's kinds of options. What is accepted must print to a text that
 * reads back to the same print.
 */
#include <stdlib.h>
#include <string.h>

#include "config/option.h"

struct settings {
	uint64_t size, time, number;
	uint32_t small, choice;
	bool yes;
	char text[24];
	struct option_list list;
};

#define AT(field) offsetof(struct settings, field)

static const struct option_spec specs[] = {
	{ "size", OPTION_SIZE, AT(size), 0, "1GiB", "64KiB", "64TiB", "Numbers", "a size" },
	{ "time", OPTION_TIME, AT(time), 0, "300s", "1ns", "24h", "Numbers", "a time" },
	{ "number", OPTION_U64, AT(number), 0, NULL, NULL, NULL, "Numbers", "a number" },
	{ "small", OPTION_U32, AT(small), 0, "7", "1", "1000", "Numbers", "a small number" },
	{ "choice", OPTION_CHOICE, AT(choice), 0, "two", "one|two|three", NULL, "Words", "a word" },
	{ "yes", OPTION_BOOL, AT(yes), 0, "no", NULL, NULL, "Words", "yes or no" },
	{ "text", OPTION_TEXT, AT(text), 24, "t", NULL, NULL, "Words", "a text" },
	{ "list", OPTION_LIST, AT(list), 0, NULL, NULL, NULL, "Words", "several texts" },
	{ "old", OPTION_RENAMED, 0, 0, "text", NULL, NULL, NULL, NULL },
};
static const struct option_table table = { "fuzzed", "a program", "[options]", specs, KVR_COUNT_OF(specs) };

/* Reads over the defaults and prints; false when refused, with a reason. */
static bool read_and_print(const char *bytes, size_t length, struct text *printed)
{
	struct settings settings;
	struct option_error error;
	int result;

	memset(&settings, 0, sizeof(settings));
	if (option_defaults(&table, &settings, &error))
		abort();
	result = option_read_text(&table, "input", bytes, length, &settings, &error);
	if (result && error.text[0] == '\0')
		abort();
	if (result == 0)
		option_print(&table, &settings, printed);
	option_fini(&table, &settings);
	return result == 0;
}

/* The first line of the input, cut at blanks, as arguments. */
static void read_arguments(const char *bytes, size_t length)
{
	char copy[256], *argv[34], *at = copy, program[] = "fuzzed";
	enum option_special special;
	struct option_error error;
	struct settings settings;
	int argc = 0;

	length = length < sizeof(copy) - 1 ? length : sizeof(copy) - 1;
	memcpy(copy, bytes, length);
	copy[length] = '\0';
	copy[strcspn(copy, "\n")] = '\0';
	argv[argc++] = program;
	while (*at && argc < 32) {
		argv[argc++] = at;
		at += strcspn(at, " ");
		if (*at)
			*at++ = '\0';
	}
	argv[argc] = NULL;
	memset(&settings, 0, sizeof(settings));
	if (option_defaults(&table, &settings, &error))
		abort();
	if (option_read_arguments(&table, &argc, argv, &settings, &special, &error) && error.text[0] == '\0')
		abort();
	option_fini(&table, &settings);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct text first = { NULL, 0, 0, false }, second = { NULL, 0, 0, false };

	if (read_and_print((const char *)data, size, &first)) {
		if (!read_and_print(first.bytes, first.length, &second) || first.length != second.length ||
			memcmp(first.bytes, second.bytes, first.length) != 0)
			abort();
	}
	read_arguments((const char *)data, size);
	text_fini(&first);
	text_fini(&second);
	return 0;
}
