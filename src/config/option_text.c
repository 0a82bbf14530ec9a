/* option_text.c - what a table says of itself: help, a configuration file, the reference page, the manual page. */
#include <string.h>

#include "config/option_private.h"

#define HELP_COLUMN 28
#define HELP_WIDTH 100

static const char units_text[] =
	"SIZE is a number of bytes, or one with KiB, MiB, GiB or TiB behind it (multiples of 1024). "
	"TIME is a number with its unit: ns, us, ms, s, m or h.";

/* What stands for the value: "SIZE", "busy|adaptive"; NULL where a flag needs none. */
static const char *value_name(const struct option_spec *spec)
{
	switch (spec->type) {
	case OPTION_BOOL:
	case OPTION_RENAMED:
		return NULL;
	case OPTION_U32:
	case OPTION_U64:
		return "N";
	case OPTION_SIZE:
		return "SIZE";
	case OPTION_TIME:
		return "TIME";
	case OPTION_TEXT:
	case OPTION_LIST:
		return "TEXT";
	case OPTION_CHOICE:
		return spec->minimum;
	}
	return NULL;
}

/* True for the first option of its section in the table; options of one section need not stand together. */
static bool opens_section(const struct option_table *table, size_t index)
{
	if (table->specs[index].type == OPTION_RENAMED)
		return false;
	for (size_t i = 0; i < index; i++) {
		if (table->specs[i].type != OPTION_RENAMED &&
			strcmp(table->specs[i].section, table->specs[index].section) == 0)
			return false;
	}
	return true;
}

/* The next option of the same section behind `index`, or spec_count. */
static size_t next_in_section(const struct option_table *table, size_t index)
{
	size_t i = index + 1;

	while (i < table->spec_count &&
		(table->specs[i].type == OPTION_RENAMED ||
			strcmp(table->specs[i].section, table->specs[index].section) != 0))
		i++;
	return i;
}

/* Words from `column` on, broken at HELP_WIDTH and continued at HELP_COLUMN. */
static void append_wrapped(struct text *out, size_t column, size_t indent, const char *words)
{
	while (*words) {
		size_t length = strcspn(words, " ");

		if (column > indent && column + 1 + length > HELP_WIDTH) {
			text_append(out, "\n%*s", (int)indent, "");
			column = indent;
		} else if (column > indent) {
			text_append(out, " ");
			column++;
		}
		text_append_bytes(out, words, length);
		column += length;
		words += length;
		words += strspn(words, " ");
	}
	text_append(out, "\n");
}

static void append_help_line(struct text *out, const char *name, const char *value, const char *words)
{
	size_t start = out->length, width;

	text_append(out, "  --%s%s%s", name, value ? " " : "", value ? value : "");
	width = out->length - start;
	if (width + 2 > HELP_COLUMN) {
		text_append(out, "\n");
		width = 0;
	}
	text_append(out, "%*s", (int)(HELP_COLUMN - width), "");
	append_wrapped(out, HELP_COLUMN, HELP_COLUMN, words);
}

/* Help, default and range as one line of words. */
static void describe(const struct option_spec *spec, struct text *words)
{
	bool has_range = spec->minimum || spec->maximum;

	text_append(words, "%s", spec->help);
	if (spec->type == OPTION_CHOICE)
		has_range = false; /* its words stand where the value does */
	if (!spec->default_text && !has_range && spec->type != OPTION_LIST)
		return;
	text_append(words, " (");
	if (spec->type == OPTION_LIST)
		text_append(words, "may be given several times");
	if (spec->default_text)
		text_append(words, "%sdefault %s", spec->type == OPTION_LIST ? "; " : "", spec->default_text);
	if (has_range) {
		text_append(words, spec->default_text ? "; " : "");
		option_append_range(spec, words);
	}
	text_append(words, ")");
}

static const char *words_of(const struct text *text)
{
	return text->bytes ? text->bytes : "";
}

void option_help(const struct option_table *table, struct text *out)
{
	text_append(out, "%s - %s\n\nusage: %s %s\n", table->program, table->summary, table->program, table->usage);
	for (size_t i = 0; i < table->spec_count; i++) {
		if (!opens_section(table, i))
			continue;
		text_append(out, "\n%s\n", table->specs[i].section);
		for (size_t k = i; k < table->spec_count; k = next_in_section(table, k)) {
			struct text words = { NULL, 0, 0, false };

			describe(&table->specs[k], &words);
			append_help_line(out, table->specs[k].name, value_name(&table->specs[k]), words_of(&words));
			text_fini(&words);
		}
	}
	text_append(out, "\nFlags\n");
	for (size_t i = 0; i < option_flag_count; i++)
		append_help_line(out, option_flags[i].name, NULL, option_flags[i].help);
	text_append(out, "\n");
	append_wrapped(out, 0, 0, units_text);
}

static void print_one(const struct option_spec *spec, const void *settings, struct text *out)
{
	const struct option_list *list = (const void *)((const char *)settings + spec->offset);
	uint32_t count = spec->type == OPTION_LIST ? list->count : 1;

	text_append(out, "# %s\n", spec->help);
	if (count == 0)
		text_append(out, "# %s =\n", spec->name);
	for (uint32_t i = 0; i < count; i++) {
		text_append(out, "%s = ", spec->name);
		option_append_value(spec, settings, i, out);
		if (spec->default_text)
			text_append(out, "  # default %s", spec->default_text);
		text_append(out, "\n");
	}
}

void option_print(const struct option_table *table, const void *settings, struct text *out)
{
	text_append(out, "# %s: %s\n", table->program, table->summary);
	for (size_t i = 0; i < table->spec_count; i++) {
		if (!opens_section(table, i))
			continue;
		text_append(out, "\n# ---- %s ----\n", table->specs[i].section);
		for (size_t k = i; k < table->spec_count; k = next_in_section(table, k)) {
			if (strcmp(table->specs[k].name, "config") != 0)
				print_one(&table->specs[k], settings, out);
		}
	}
}

/* In a Markdown table a bar would end the cell. */
static void append_cell(struct text *out, const char *words)
{
	for (; *words; words++)
		text_append(out, *words == '|' ? "\\%c" : "%c", *words);
}

static void reference_row(const struct option_spec *spec, struct text *out)
{
	const char *value = value_name(spec);
	struct text range = { NULL, 0, 0, false };

	text_append(out, "| `--%s%s", spec->name, value ? " " : "");
	append_cell(out, value ? value : "");
	text_append(out, "` | ");
	if (spec->default_text)
		text_append(out, "`%s`", spec->default_text);
	text_append(out, " | ");
	option_append_range(spec, &range);
	append_cell(out, words_of(&range));
	text_append(out, " | ");
	append_cell(out, spec->help);
	if (spec->type == OPTION_LIST)
		text_append(out, "; may be given several times");
	text_append(out, " |\n");
	text_fini(&range);
}

void option_reference(const struct option_table *table, struct text *out)
{
	text_append(out, "## %s\n\n%s.\n\n    %s ", table->program, table->summary, table->program);
	/* Its further lines belong to the same block. */
	for (const char *at = table->usage; *at; at++)
		text_append(out, *at == '\n' ? "\n    " : "%c", *at);
	text_append(out, "\n\n%s\n", units_text);
	for (size_t i = 0; i < table->spec_count; i++) {
		if (!opens_section(table, i))
			continue;
		text_append(out, "\n### %s\n\n| option | default | allowed | what it is |\n|---|---|---|---|\n",
			table->specs[i].section);
		for (size_t k = i; k < table->spec_count; k = next_in_section(table, k))
			reference_row(&table->specs[k], out);
	}
	text_append(out, "\n### Flags\n\n| flag | what it does |\n|---|---|\n");
	for (size_t i = 0; i < option_flag_count; i++)
		text_append(out, "| `--%s` | %s |\n", option_flags[i].name, option_flags[i].help);
	for (size_t i = 0; i < table->spec_count; i++) {
		if (table->specs[i].type == OPTION_RENAMED)
			text_append(out, "\n`--%s` is now called `--%s`.\n", table->specs[i].name,
				table->specs[i].default_text);
	}
}

/* In roff a dash is a hyphen, a backslash an escape, and a dot at the start of a line a request. */
static void append_roff(struct text *out, const char *words)
{
	for (const char *at = words; *at; at++) {
		if (*at == '-')
			text_append(out, "\\-");
		else if (*at == '\\')
			text_append(out, "\\e");
		else if ((*at == '.' || *at == '\'') && (at == words || at[-1] == '\n'))
			text_append(out, "\\&%c", *at);
		else
			text_append(out, "%c", *at);
	}
}

static void manual_entry(struct text *out, const char *name, const char *value, const char *words)
{
	text_append(out, ".TP\n.B \\-\\-");
	append_roff(out, name);
	if (value) {
		text_append(out, " \\fI");
		append_roff(out, value);
		text_append(out, "\\fR");
	}
	text_append(out, "\n");
	append_roff(out, words);
	text_append(out, "\n");
}

void option_manual(const struct option_table *table, struct text *out)
{
	for (size_t i = 0; i < table->spec_count; i++) {
		if (!opens_section(table, i))
			continue;
		text_append(out, ".SS ");
		append_roff(out, table->specs[i].section);
		text_append(out, "\n");
		for (size_t k = i; k < table->spec_count; k = next_in_section(table, k)) {
			struct text words = { NULL, 0, 0, false };

			describe(&table->specs[k], &words);
			manual_entry(out, table->specs[k].name, value_name(&table->specs[k]), words_of(&words));
			text_fini(&words);
		}
	}
	text_append(out, ".SS Flags\n");
	for (size_t i = 0; i < option_flag_count; i++)
		manual_entry(out, option_flags[i].name, NULL, option_flags[i].help);
	text_append(out, ".PP\n");
	append_roff(out, units_text);
	text_append(out, "\n");
}

/* Texts as they are, all else as option_print writes it. */
static void json_value(const struct option_spec *spec, const void *settings, struct text *out)
{
	const char *field = (const char *)settings + spec->offset;
	const struct option_list *list = (const void *)field;
	struct text value = { NULL, 0, 0, false };

	if (spec->type == OPTION_LIST) {
		text_append(out, "[");
		for (uint32_t i = 0; i < list->count; i++) {
			text_append(out, i ? "," : "");
			text_append_json_string(out, list->items[i]);
		}
		text_append(out, "]");
	} else if (spec->type == OPTION_TEXT) {
		text_append_json_string(out, field);
	} else {
		option_append_value(spec, settings, 0, &value);
		text_append_json_string(out, words_of(&value));
	}
	text_fini(&value);
}

void option_json(const struct option_table *table, const void *settings, struct text *out)
{
	bool first = true;

	text_append(out, "{");
	for (size_t i = 0; i < table->spec_count; i++) {
		if (table->specs[i].type == OPTION_RENAMED)
			continue;
		text_append(out, first ? "" : ",");
		text_append_json_string(out, table->specs[i].name);
		text_append(out, ":");
		json_value(&table->specs[i], settings, out);
		first = false;
	}
	text_append(out, "}");
}
