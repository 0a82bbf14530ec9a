/* option_read.c - options out of a configuration file and off the command line. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "config/option_private.h"

/* One pass over one source. first[i]: the line (or argument) that set specs[i], 0: none did. */
struct option_pass {
	const struct option_table *table;
	void *settings;
	struct option_error *error;
	struct option_source source;
	unsigned *first;
};

static int pass_init(struct option_pass *pass)
{
	pass->error->text[0] = '\0';
	pass->first = fault_point("option_pass/first") ? NULL
						       : calloc(pass->table->spec_count + 1, sizeof(*pass->first));
	return pass->first ? 0 : option_refuse(pass->error, -ENOMEM, &pass->source, "out of memory");
}

/* Sets a named option; a list's first item of a source replaces those of the sources before it. */
static int pass_set(struct option_pass *pass, const struct option_spec *spec, const char *value)
{
	unsigned *first = &pass->first[spec - pass->table->specs];
	bool is_file = pass->source.file != NULL;

	if (spec->type == OPTION_RENAMED)
		return option_refuse(pass->error, -EINVAL, &pass->source,
			is_file ? "option %s is now called %s" : "option --%s is now called --%s", spec->name,
			spec->default_text);
	if (*first && spec->type != OPTION_LIST) {
		if (is_file)
			return option_refuse(pass->error, -EINVAL, &pass->source, "%s is set twice, first in line %u",
				spec->name, *first);
		return option_refuse(pass->error, -EINVAL, &pass->source, "--%s is given twice", spec->name);
	}
	if (!*first && spec->type == OPTION_LIST)
		option_list_clear(option_list_of(spec, pass->settings));
	*first = is_file ? pass->source.line : 1;
	return option_set(spec, value, pass->settings, &pass->source, pass->error);
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* Cuts blanks off both ends, in place. */
static char *trim(char *text)
{
	size_t length;

	while (is_blank(*text))
		text++;
	length = strlen(text);
	while (length > 0 && is_blank(text[length - 1]))
		text[--length] = '\0';
	return text;
}

/* A value without quotes ends at a '#' that stands at its start or behind a blank. */
static char *plain_value(char *text)
{
	for (char *at = text; *at; at++) {
		if (*at == '#' && (at == text || is_blank(at[-1]))) {
			*at = '\0';
			break;
		}
	}
	return trim(text);
}

/* The value between quotes, unescaped in place; NULL when it has no end or something other than a comment behind it. */
static char *quoted_value(char *text)
{
	char *to = text, *from = text + 1;

	while (*from && *from != '"') {
		if (*from == '\\' && (from[1] == '"' || from[1] == '\\'))
			from++;
		*to++ = *from++;
	}
	if (*from != '"')
		return NULL;
	from++;
	while (is_blank(*from))
		from++;
	if (*from && *from != '#')
		return NULL;
	*to = '\0';
	return text;
}

static int read_line(struct option_pass *pass, char *line)
{
	const struct option_spec *spec;
	char *equals, *name, *value;
	char word[OPTION_WORD];

	line = trim(line);
	if (!*line || *line == '#')
		return 0;
	equals = strchr(line, '=');
	if (!equals)
		return option_refuse(pass->error, -EINVAL, &pass->source, "\"%s\" is no line of the form name = value",
			option_word(word, line));
	*equals = '\0';
	name = trim(line);
	value = trim(equals + 1);
	spec = option_find(pass->table, name);
	if (!spec)
		return option_refuse_unknown(pass->table, name, &pass->source, pass->error);
	if (strcmp(name, "config") == 0)
		return option_refuse(
			pass->error, -EINVAL, &pass->source, "a configuration file can't name another one");
	value = *value == '"' ? quoted_value(value) : plain_value(value);
	if (!value)
		return option_refuse(pass->error, -EINVAL, &pass->source,
			"%s: a quoted value ends in a quote, with nothing "
			"but a comment behind it",
			name);
	return pass_set(pass, spec, value);
}

static int read_lines(struct option_pass *pass, char *copy, size_t length)
{
	char *end = copy + length;
	int error = 0;

	for (char *line = copy; !error && line < end;) {
		char *newline = memchr(line, '\n', (size_t)(end - line));
		char *stop = newline ? newline : end;

		pass->source.line++;
		*stop = '\0';
		if (strlen(line) != (size_t)(stop - line))
			return option_refuse(pass->error, -EINVAL, &pass->source, "the line has a zero byte");
		error = read_line(pass, line);
		line = stop + 1;
	}
	return error;
}

int option_read_text(const struct option_table *table, const char *name, const char *text, size_t length,
	void *settings, struct option_error *error)
{
	struct option_pass pass = { table, settings, error, { name, 0 }, NULL };
	int result = pass_init(&pass);
	char *copy;

	if (result)
		return result;
	copy = fault_point("option_read_text/copy") ? NULL : malloc(length + 1);
	if (copy) {
		memcpy(copy, text, length);
		copy[length] = '\0';
		result = read_lines(&pass, copy, length);
	} else {
		result = option_refuse(error, -ENOMEM, &pass.source, "out of memory");
	}
	free(copy);
	free(pass.first);
	return result;
}

/* The whole file, at most OPTION_FILE_BYTES_MAX. 0 or -errno. */
static int load_file(int fd, struct text *text)
{
	char bytes[4096];

	for (;;) {
		ssize_t count = read(fd, bytes, sizeof(bytes));

		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0)
			return -errno;
		if (count == 0)
			return text->failed ? -ENOMEM : 0;
		if (text->length + (size_t)count > OPTION_FILE_BYTES_MAX)
			return -EFBIG;
		text_append_bytes(text, bytes, (size_t)count);
	}
}

int option_read_file(const struct option_table *table, const char *path, void *settings, struct option_error *error)
{
	struct text text = { NULL, 0, 0, false };
	struct option_source source = { path, 0 };
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int result = fd < 0 ? -errno : load_file(fd, &text);

	if (fd >= 0)
		close(fd);
	if (result) {
		option_refuse(error, result, &source, "the configuration file can't be read: %s", strerror(-result));
		result = result == -ENOENT || result == -EACCES ? result : -EINVAL;
	} else {
		result = option_read_text(table, path, text.bytes ? text.bytes : "", text.length, settings, error);
	}
	text_fini(&text);
	return result;
}

/* An argument taken apart: "--name" or "--name=value". */
struct option_argument {
	char name[64];
	const char *value; /* NULL: none of its own */
};

static bool split_argument(const char *text, struct option_argument *argument)
{
	const char *equals = strchr(text, '=');
	size_t length = equals ? (size_t)(equals - text) : strlen(text);

	argument->value = equals ? equals + 1 : NULL;
	if (length >= sizeof(argument->name))
		return false;
	memcpy(argument->name, text, length);
	argument->name[length] = '\0';
	return true;
}

static bool is_option_word(const char *word)
{
	return word[0] == '-' && word[1] != '\0';
}

/* OPTION_RUN when it is none of the flags of all programs. */
static enum option_special special_of(const char *word)
{
	if (strcmp(word, "-h") == 0)
		return OPTION_HELP;
	for (size_t i = 0; i < option_flag_count; i++) {
		if (strncmp(word, "--", 2) == 0 && strcmp(word + 2, option_flags[i].name) == 0)
			return option_flags[i].special;
	}
	return OPTION_RUN;
}

/* --help and --version are answered whatever else is wrong; the first of them counts. */
static enum option_special wanted_text(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		enum option_special special = special_of(argv[i]);

		if (special == OPTION_HELP || special == OPTION_VERSION)
			return special;
	}
	return OPTION_RUN;
}

/*
 * Takes the option at argv[*at]; *at moves over its value. only_config: sets nothing but --config, and leaves it to the
 * second walk to complain about others.
 */
static int take_option(struct option_pass *pass, int argc, char **argv, int *at, bool only_config)
{
	const struct option_spec *spec = NULL;
	struct option_argument argument;
	const char *word = argv[*at];
	const char *value;
	char shown[OPTION_WORD];

	if (strncmp(word, "--", 2) != 0)
		return only_config ? 0
				   : option_refuse(pass->error, -EINVAL, &pass->source,
					     "unknown option %s; options begin with --, and %s --help lists all",
					     option_word(shown, word), pass->table->program);
	if (split_argument(word + 2, &argument))
		spec = option_find(pass->table, argument.name);
	if (!spec)
		return only_config ? 0
				   : option_refuse_unknown(pass->table,
					     split_argument(word + 2, &argument) ? argument.name : word + 2,
					     &pass->source, pass->error);
	value = argument.value;
	if (!value && spec->type == OPTION_BOOL)
		value = "yes";
	else if (!value && spec->type != OPTION_RENAMED && *at + 1 < argc && strncmp(argv[*at + 1], "--", 2) != 0)
		value = argv[++*at];
	if (only_config != (strcmp(spec->name, "config") == 0))
		return 0;
	if (!value && spec->type != OPTION_RENAMED)
		return option_refuse(pass->error, -EINVAL, &pass->source,
			"--%s needs a value (one that begins with -- is given as --%s=--...)", spec->name, spec->name);
	return pass_set(pass, spec, value);
}

/* One walk over the arguments; the second one also moves the words that are no options to the front. */
static int walk(struct option_pass *pass, int *argc, char **argv, enum option_special *special, bool only_config)
{
	int count = *argc, kept = 1, error = 0;
	bool ended = false;

	for (int i = 1; i < count && !error; i++) {
		enum option_special found = ended ? OPTION_RUN : special_of(argv[i]);

		if (!ended && strcmp(argv[i], "--") == 0) {
			ended = true;
		} else if (found != OPTION_RUN) {
			*special = found;
		} else if (!ended && is_option_word(argv[i])) {
			error = take_option(pass, count, argv, &i, only_config);
		} else if (!only_config) {
			argv[kept++] = argv[i];
		}
	}
	if (!error && !only_config) {
		argv[kept] = NULL;
		*argc = kept;
	}
	return error;
}

int option_read_arguments(const struct option_table *table, int *argc, char **argv, void *settings,
	enum option_special *special, struct option_error *error)
{
	struct option_pass pass = { table, settings, error, { NULL, 0 }, NULL };
	const struct option_spec *config = option_find(table, "config");
	int result;

	*special = wanted_text(*argc, argv);
	if (*special != OPTION_RUN)
		return 0;
	result = pass_init(&pass);
	if (!result)
		result = walk(&pass, argc, argv, special, true);
	if (!result && config && pass.first[config - table->specs]) {
		result = option_read_file(table, (const char *)settings + config->offset, settings, error);
		if (result && result != -ENOMEM)
			result = -EINVAL;
	}
	if (!result)
		result = walk(&pass, argc, argv, special, false);
	free(pass.first);
	return result;
}
