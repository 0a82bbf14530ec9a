/* option.c - the table itself: names, defaults, whether it makes sense; and how refusals are worded. */
#include "config/option.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "config/option_private.h"

const struct option_flag option_flags[] = {
	{ "help", OPTION_HELP, "print this and leave" },
	{ "version", OPTION_VERSION, "print the version and leave" },
	{ "check-config", OPTION_CHECK_CONFIG, "check all options and leave" },
	{ "print-config", OPTION_PRINT_CONFIG, "print all options in force as a configuration file and leave" },
};
const size_t option_flag_count = KVR_COUNT_OF(option_flags);

const char *option_word(char buffer[OPTION_WORD], const char *word)
{
	size_t length = strlen(word);

	text_copy(buffer, OPTION_WORD, word);
	if (length >= OPTION_WORD)
		memcpy(buffer + OPTION_WORD - 4, "...", 4);
	for (char *at = buffer; *at; at++) {
		if ((unsigned char)*at < 0x20 || *at == 0x7f)
			*at = '?';
	}
	return buffer;
}

int option_refuse(struct option_error *error, int code, const struct option_source *source, const char *format, ...)
{
	char where[OPTION_WORD];
	va_list arguments;
	int length = 0;

	if (source && source->file && source->line)
		length = snprintf(
			error->text, sizeof(error->text), "%s:%u: ", option_word(where, source->file), source->line);
	else if (source && source->file)
		length = snprintf(error->text, sizeof(error->text), "%s: ", option_word(where, source->file));
	va_start(arguments, format);
	vsnprintf(error->text + length, sizeof(error->text) - (size_t)length, format, arguments);
	va_end(arguments);
	return code;
}

const struct option_spec *option_find(const struct option_table *table, const char *name)
{
	for (size_t i = 0; i < table->spec_count; i++) {
		if (strcmp(table->specs[i].name, name) == 0)
			return &table->specs[i];
	}
	return NULL;
}

int option_refuse_unknown(const struct option_table *table, const char *name, const struct option_source *source,
	struct option_error *error)
{
	const char *names[OPTION_SPECS_MAX + KVR_COUNT_OF(option_flags)];
	const char *dashes = source->file ? "" : "--";
	const char *nearest;
	char word[OPTION_WORD], hint[OPTION_WORD];
	size_t count = 0;

	for (size_t i = 0; i < table->spec_count; i++) {
		if (table->specs[i].type != OPTION_RENAMED)
			names[count++] = table->specs[i].name;
	}
	for (size_t i = 0; !source->file && i < KVR_COUNT_OF(option_flags); i++)
		names[count++] = option_flags[i].name;
	nearest = text_nearest(name, names, count);
	option_word(word, name);
	if (nearest && strcmp(nearest, name) == 0)
		snprintf(hint, sizeof(hint), " is a flag and takes no value");
	else if (nearest)
		snprintf(hint, sizeof(hint), "; did you mean %s%s?", dashes, nearest);
	else
		snprintf(hint, sizeof(hint), "; %s --help lists all", table->program);
	return option_refuse(error, -EINVAL, source, "%s%s%s%s",
		nearest && strcmp(nearest, name) == 0 ? "" : "unknown option ", dashes, word, hint);
}

static bool option_name_good(const char *name)
{
	if (!name || !islower((unsigned char)name[0]))
		return false;
	for (const char *at = name; *at; at++) {
		if (!islower((unsigned char)*at) && !isdigit((unsigned char)*at) && *at != '-')
			return false;
	}
	for (size_t i = 0; i < KVR_COUNT_OF(option_flags); i++) {
		if (strcmp(option_flags[i].name, name) == 0)
			return false;
	}
	return true;
}

/* What is wrong with one line of a table; NULL: nothing. */
static const char *option_spec_fault(const struct option_table *table, const struct option_spec *spec)
{
	uint64_t minimum = 0, maximum = UINT64_MAX;

	if (!option_name_good(spec->name))
		return "its name is not made of small letters, digits and '-', or is that of a flag of all programs";
	if (option_find(table, spec->name) != spec)
		return "its name stands twice in the table";
	if (spec->type == OPTION_RENAMED) {
		const struct option_spec *to = spec->default_text ? option_find(table, spec->default_text) : NULL;

		return to && to->type != OPTION_RENAMED ? NULL : "its successor is not in the table";
	}
	if (!spec->help || !spec->section)
		return "it has no help or no section";
	if (spec->type == OPTION_TEXT && spec->size < 2)
		return "its text has no size";
	if (spec->type == OPTION_CHOICE)
		return spec->minimum && !spec->maximum ? NULL : "a choice has its words as minimum, and no maximum";
	if (spec->type == OPTION_BOOL || spec->type == OPTION_TEXT || spec->type == OPTION_LIST)
		return spec->minimum || spec->maximum ? "its type has no range" : NULL;
	if ((spec->minimum && option_parse_number(spec, spec->minimum, &minimum)) ||
		(spec->maximum && option_parse_number(spec, spec->maximum, &maximum)) || minimum > maximum)
		return "its range is none";
	return NULL;
}

int option_defaults(const struct option_table *table, void *settings, struct option_error *error)
{
	struct option_source source = { "the option table", 0 };

	error->text[0] = '\0';
	if (table->spec_count > OPTION_SPECS_MAX)
		return option_refuse(error, -EINVAL, &source, "more than %u options", OPTION_SPECS_MAX);
	for (size_t i = 0; i < table->spec_count; i++) {
		const struct option_spec *spec = &table->specs[i];
		const char *fault = option_spec_fault(table, spec);

		if (fault)
			return option_refuse(error, -EINVAL, &source, "%s: %s", spec->name ? spec->name : "?", fault);
		if (spec->type == OPTION_RENAMED || !spec->default_text)
			continue;
		if (option_set(spec, spec->default_text, settings, &source, error))
			return -EINVAL;
	}
	return 0;
}

void option_fini(const struct option_table *table, void *settings)
{
	for (size_t i = 0; i < table->spec_count; i++) {
		if (table->specs[i].type == OPTION_LIST)
			option_list_clear(option_list_of(&table->specs[i], settings));
	}
}
