#include "app/common/program.h"

#include <errno.h>
#include <stdio.h>

bool program_print(const struct text *text)
{
	if (text->failed)
		return false;
	if (text->length > 0 && fwrite(text->bytes, 1, text->length, stdout) != text->length)
		return false;
	return fflush(stdout) == 0;
}

static int refuse(const struct option_table *table, const struct option_error *error)
{
	fprintf(stderr, "%s: %s\n", table->program, error->text);
	return PROGRAM_USAGE;
}

/* What was asked for instead of running. */
static int answer(const struct option_table *table, const void *settings, enum option_special special)
{
	struct text out = { NULL, 0, 0, false };
	bool printed;

	if (special == OPTION_HELP)
		option_help(table, &out);
	else if (special == OPTION_VERSION)
		text_append(&out, "%s " KVRAIL_VERSION "\n", table->program);
	else if (special == OPTION_PRINT_CONFIG)
		option_print(table, settings, &out);
	else
		text_append(&out, "%s: the options are good\n", table->program);
	printed = program_print(&out);
	text_fini(&out);
	return printed ? PROGRAM_GOOD : PROGRAM_FAILED;
}

int program_begin(const struct option_table *table, int *argc, char **argv, void *settings,
	int (*check)(void *settings, struct option_error *error))
{
	enum option_special special = OPTION_RUN;
	struct option_error error;

	if (option_defaults(table, settings, &error))
		return refuse(table, &error);
	if (option_read_arguments(table, argc, argv, settings, &special, &error))
		return refuse(table, &error);
	if (special == OPTION_HELP || special == OPTION_VERSION)
		return answer(table, settings, special);
	if (check && check(settings, &error))
		return refuse(table, &error);
	return special == OPTION_RUN ? PROGRAM_RUN : answer(table, settings, special);
}
