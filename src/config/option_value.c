/* option_value.c - one value: text to number and back, and its range. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "config/option_private.h"

static const struct {
	const char *word;
	bool value;
} bool_words[] = {
	{ "yes", true },
	{ "no", false },
	{ "true", true },
	{ "false", false },
	{ "on", true },
	{ "off", false },
	{ "1", true },
	{ "0", false },
};

/* The index of `word` in "one|two|three", -1 when it is none of them. */
static int choice_index(const char *words, const char *word)
{
	size_t length = strlen(word);
	int index = 0;

	for (const char *at = words; at; index++) {
		const char *bar = strchr(at, '|');
		size_t size = bar ? (size_t)(bar - at) : strlen(at);

		if (size == length && memcmp(at, word, length) == 0)
			return index;
		at = bar ? bar + 1 : NULL;
	}
	return -1;
}

static void append_choice(const char *words, uint32_t index, struct text *out)
{
	const char *at = words;

	while (at && index-- > 0) {
		at = strchr(at, '|');
		at = at ? at + 1 : NULL;
	}
	if (at)
		text_append_bytes(out, at, strcspn(at, "|"));
}

static int parse_bool(const char *value, uint64_t *number)
{
	for (size_t i = 0; i < KVR_COUNT_OF(bool_words); i++) {
		if (strcmp(bool_words[i].word, value) == 0) {
			*number = bool_words[i].value;
			return 0;
		}
	}
	return -EINVAL;
}

int option_parse_number(const struct option_spec *spec, const char *value, uint64_t *number)
{
	int error;

	switch (spec->type) {
	case OPTION_BOOL:
		return parse_bool(value, number);
	case OPTION_U32:
		error = text_parse_u64(value, number);
		return !error && *number > UINT32_MAX ? -ERANGE : error;
	case OPTION_U64:
		return text_parse_u64(value, number);
	case OPTION_SIZE:
		return text_parse_size(value, number);
	case OPTION_TIME:
		return text_parse_time(value, number);
	case OPTION_CHOICE:
		error = choice_index(spec->minimum, value);
		*number = (uint64_t)(error < 0 ? 0 : error);
		return error < 0 ? -EINVAL : 0;
	default:
		return -EINVAL;
	}
}

static bool in_range(const struct option_spec *spec, uint64_t number)
{
	uint64_t bound = 0;

	if (spec->type == OPTION_BOOL || spec->type == OPTION_CHOICE)
		return true;
	if (spec->minimum && option_parse_number(spec, spec->minimum, &bound) == 0 && number < bound)
		return false;
	return !(spec->maximum && option_parse_number(spec, spec->maximum, &bound) == 0 && number > bound);
}

void option_append_range(const struct option_spec *spec, struct text *out)
{
	if (spec->type == OPTION_BOOL) {
		text_append(out, "yes or no");
	} else if (spec->type == OPTION_CHOICE) {
		for (const char *at = spec->minimum; *at; at++)
			text_append(out, *at == '|' ? ", " : "%c", *at);
	} else if (spec->minimum && spec->maximum) {
		text_append(out, "%s to %s", spec->minimum, spec->maximum);
	} else if (spec->minimum) {
		text_append(out, "at least %s", spec->minimum);
	} else if (spec->maximum) {
		text_append(out, "at most %s", spec->maximum);
	}
}

/* What a value of the type looks like, after a value that does not. */
static const char *type_complaint(const struct option_spec *spec, const char *value)
{
	const char *reason;

	switch (spec->type) {
	case OPTION_SIZE:
		reason = text_size_refusal(value);
		return reason ? reason : "is no size";
	case OPTION_TIME:
		return "is no time: a number with its unit, as 10us, 250ms, 5s, 2m, 1h";
	case OPTION_BOOL:
		return "is neither yes nor no";
	case OPTION_CHOICE:
		return "is not one of its words";
	default:
		return "is no whole number";
	}
}

/* "l1-size = 1" of a file, "--l1-size 1" of the command line. */
static void append_setting(
	const struct option_spec *spec, const char *value, const struct option_source *source, struct text *out)
{
	char word[OPTION_WORD];

	text_append(out, source->file ? "%s = %s" : "--%s %s", spec->name, option_word(word, value));
}

static int refuse_value(const struct option_spec *spec, const char *value, const char *complaint,
	const struct option_source *source, struct option_error *error)
{
	struct text words = { NULL, 0, 0, false };

	append_setting(spec, value, source, &words);
	text_append(&words, "%s%s",
		strncmp(complaint, "is ", 3) == 0 || strncmp(complaint, "has ", 4) == 0 ? " " : ": ", complaint);
	if (spec->minimum || spec->maximum || spec->type == OPTION_BOOL) {
		text_append(&words, "; allowed: ");
		option_append_range(spec, &words);
	}
	option_refuse(error, -EINVAL, source, "%s", words.failed ? "out of memory" : words.bytes);
	text_fini(&words);
	return -EINVAL;
}

/* Control characters could not be written to a file and read back, and have no place in a name or path. */
static bool has_control(const char *value)
{
	for (; *value; value++) {
		if ((unsigned char)*value < 0x20 || *value == 0x7f)
			return true;
	}
	return false;
}

static int set_list(const struct option_spec *spec, const char *value, void *settings,
	const struct option_source *source, struct option_error *error)
{
	struct option_list *list = option_list_of(spec, settings);

	if (list->count == OPTION_LIST_MAX)
		return refuse_value(spec, value, "is one too many: 64 are the most", source, error);
	list->items[list->count] = fault_point("option_set/item") ? NULL : strdup(value);
	if (!list->items[list->count])
		return option_refuse(error, -ENOMEM, source, "%s: out of memory", spec->name);
	list->count++;
	return 0;
}

static int set_text(const struct option_spec *spec, const char *value, void *settings,
	const struct option_source *source, struct option_error *error)
{
	if (has_control(value))
		return refuse_value(spec, value, "has a control character", source, error);
	if (spec->type == OPTION_LIST)
		return set_list(spec, value, settings, source, error);
	if (strlen(value) >= spec->size)
		return refuse_value(spec, value, "is too long", source, error);
	memcpy((char *)settings + spec->offset, value, strlen(value) + 1);
	return 0;
}

int option_set(const struct option_spec *spec, const char *value, void *settings, const struct option_source *source,
	struct option_error *error)
{
	char *field = (char *)settings + spec->offset;
	uint64_t number = 0;
	uint32_t small;
	bool yes;
	int result;

	if (spec->type == OPTION_TEXT || spec->type == OPTION_LIST)
		return set_text(spec, value, settings, source, error);
	result = option_parse_number(spec, value, &number);
	if (result == -ERANGE || (result == 0 && !in_range(spec, number)))
		return refuse_value(spec, value, "is out of range", source, error);
	if (result)
		return refuse_value(spec, value, type_complaint(spec, value), source, error);
	small = (uint32_t)number;
	yes = number != 0;
	if (spec->type == OPTION_BOOL)
		memcpy(field, &yes, sizeof(yes));
	else if (spec->type == OPTION_U32 || spec->type == OPTION_CHOICE)
		memcpy(field, &small, sizeof(small));
	else
		memcpy(field, &number, sizeof(number));
	return 0;
}

void option_list_clear(struct option_list *list)
{
	while (list->count > 0) {
		list->count--;
		free(list->items[list->count]);
		list->items[list->count] = NULL;
	}
}

/* The largest unit in which it is a whole number. */
static void append_units(
	uint64_t value, const char *const *names, const uint64_t *units, size_t count, struct text *out)
{
	for (size_t i = 0; i < count; i++) {
		if (value > 0 && value % units[i] == 0) {
			text_append(out, "%" PRIu64 "%s", value / units[i], names[i]);
			return;
		}
	}
	text_append(out, "%" PRIu64, value);
}

static void append_size(uint64_t bytes, struct text *out)
{
	static const char *const names[] = { "TiB", "GiB", "MiB", "KiB" };
	static const uint64_t units[] = { UINT64_C(1) << 40, UINT64_C(1) << 30, UINT64_C(1) << 20, UINT64_C(1) << 10 };

	append_units(bytes, names, units, KVR_COUNT_OF(units), out);
}

static void append_time(uint64_t ns, struct text *out)
{
	static const char *const names[] = { "h", "m", "s", "ms", "us", "ns" };
	static const uint64_t units[] = { UINT64_C(3600000000000), UINT64_C(60000000000), UINT64_C(1000000000), 1000000,
		1000, 1 };

	append_units(ns, names, units, KVR_COUNT_OF(units), out);
}

/* Quoted where a file could not hold it as it stands. */
static void append_text(const char *value, struct text *out)
{
	size_t length = strlen(value);

	if (length > 0 && !strpbrk(value, "#\"\\") && value[0] != ' ' && value[length - 1] != ' ') {
		text_append(out, "%s", value);
		return;
	}
	text_append(out, "\"");
	for (; *value; value++)
		text_append(out, *value == '"' || *value == '\\' ? "\\%c" : "%c", *value);
	text_append(out, "\"");
}

void option_append_value(const struct option_spec *spec, const void *settings, uint32_t item, struct text *out)
{
	const char *field = (const char *)settings + spec->offset;
	const struct option_list *list = (const void *)field;
	uint64_t number = 0;
	uint32_t small = 0;
	bool yes = false;

	switch (spec->type) {
	case OPTION_BOOL:
		memcpy(&yes, field, sizeof(yes));
		text_append(out, yes ? "yes" : "no");
		break;
	case OPTION_U32:
		memcpy(&small, field, sizeof(small));
		text_append(out, "%" PRIu32, small);
		break;
	case OPTION_CHOICE:
		memcpy(&small, field, sizeof(small));
		append_choice(spec->minimum, small, out);
		break;
	case OPTION_U64:
	case OPTION_SIZE:
	case OPTION_TIME:
		memcpy(&number, field, sizeof(number));
		if (spec->type == OPTION_SIZE)
			append_size(number, out);
		else if (spec->type == OPTION_TIME)
			append_time(number, out);
		else
			text_append(out, "%" PRIu64, number);
		break;
	case OPTION_TEXT:
		append_text(field, out);
		break;
	case OPTION_LIST:
		append_text(item < list->count ? list->items[item] : "", out);
		break;
	case OPTION_RENAMED:
		break;
	}
}
