/*
 * option.h - one table of options a program: from it come the command line, the configuration file, --help,
 * --print-config, --check-config and the reference page. Values are read once at start into the program's own struct.
 *
 *     static const struct option_spec specs[] = {
 *         { "l1-size", OPTION_SIZE, offsetof(struct settings, l1_bytes), 0, "1GiB", "64MiB", "64TiB", "Memory",
 *           "pinned memory for cached chunks" },
 *     };
 *
 * Configuration file: `name = value` lines, '#' comments, blank lines; a list option may repeat. Order of precedence:
 * default, file, command line. Unknown, repeated, malformed and out-of-range options stop with name, source (file:line
 * or flag), the range, and the nearest valid name (pitfalls O05). Old names stay in the table as OPTION_RENAMED for a
 * release and name their successor.
 */
#ifndef KVRAIL_CONFIG_OPTION_H
#define KVRAIL_CONFIG_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/text.h"

KVR_BEGIN_C

enum option_type {
	OPTION_BOOL,    /* bool: yes, no, true, false, on, off, 1, 0; as a flag alone: yes */
	OPTION_U32,     /* uint32_t */
	OPTION_U64,     /* uint64_t */
	OPTION_SIZE,    /* uint64_t bytes: text_parse_size */
	OPTION_TIME,    /* uint64_t ns: text_parse_time */
	OPTION_TEXT,    /* char[size] */
	OPTION_CHOICE,  /* uint32_t: index of the word in `minimum`, which is "one|two|three" */
	OPTION_LIST,    /* struct option_list: repeatable text */
	OPTION_RENAMED, /* default_text names the successor */
};

#define OPTION_LIST_MAX 64
struct option_list {
	char *items[OPTION_LIST_MAX];
	uint32_t count;
};

struct option_spec {
	const char *name; /* "l1-size": --l1-size on the command line, l1-size in the file */
	enum option_type type;
	size_t offset;            /* in the settings struct */
	size_t size;              /* OPTION_TEXT: of the array */
	const char *default_text; /* NULL: zero, empty, or (no default) */
	const char *minimum;      /* as text in the type's own form; NULL: no bound. OPTION_CHOICE: the words */
	const char *maximum;
	const char *section; /* heading in --help and the reference page */
	const char *help;    /* one line */
};

struct option_table {
	const char *program; /* "kvraild" */
	const char *summary; /* one line */
	const char *usage;   /* "[options]" or "replay --server URL --trace FILE [options]" */
	const struct option_spec *specs;
	size_t spec_count;
};

struct option_error {
	char text[512]; /* what was wrong, where, what to do */
};

/* Sets all defaults. The settings struct must be zeroed first, and finished with option_fini whatever this and the
 * readers return. 0 or -EINVAL (a fault of the table: tests check every table). */
KVR_MUST_CHECK int option_defaults(const struct option_table *table, void *settings, struct option_error *error);
/* At most 1 MiB. 0, -ENOENT, -EACCES, -EINVAL, -ENOMEM with *error. A list of the file replaces the default, one of the
 * command line that of the file. A value that has a '#', a quote, a backslash, or blanks at an end stands in double
 * quotes, where \" and \\ are a quote and a backslash. No value has control characters. */
KVR_MUST_CHECK int option_read_file(
	const struct option_table *table, const char *path, void *settings, struct option_error *error);
/* The same from memory; `name` is what errors call it. */
KVR_MUST_CHECK int option_read_text(const struct option_table *table, const char *name, const char *text, size_t length,
	void *settings, struct option_error *error);
/* Reads --name value and --name=value from argv[1..argc-1]; words that are no options are left in argv (compacted
 * behind argv[0], NULL at the end) and *argc adjusted. "--" ends options. A value that begins with "--" is given as
 * --name=--value; a yes/no option takes one by '=' alone. --config FILE is read before the other flags, wherever it
 * stands, when the table has it as OPTION_TEXT. --help, --print-config, --check-config, --version are not handled here:
 * see `special`; for --help and --version nothing else is read. 0, -EINVAL, -ENOMEM with *error. */
enum option_special { OPTION_RUN, OPTION_HELP, OPTION_PRINT_CONFIG, OPTION_CHECK_CONFIG, OPTION_VERSION };
KVR_MUST_CHECK int option_read_arguments(const struct option_table *table, int *argc, char **argv, void *settings,
	enum option_special *special, struct option_error *error);
void option_fini(const struct option_table *table, void *settings);

/* Text of --help; of --print-config (a file that reads back to the same settings, with help as comments and the default
 * beside); of the reference page (Markdown); of the OPTIONS section of the manual page (roff). Out of memory:
 * out->failed. */
void option_help(const struct option_table *table, struct text *out);
void option_print(const struct option_table *table, const void *settings, struct text *out);
void option_reference(const struct option_table *table, struct text *out);
void option_manual(const struct option_table *table, struct text *out);
/* All options in force as a JSON object of texts, a list as an array of texts. */
void option_json(const struct option_table *table, const void *settings, struct text *out);

KVR_END_C

#endif
