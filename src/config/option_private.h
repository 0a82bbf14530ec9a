/* option_private.h - what the option_*.c files share. */
#ifndef KVRAIL_CONFIG_OPTION_PRIVATE_H
#define KVRAIL_CONFIG_OPTION_PRIVATE_H

#include "config/option.h"

KVR_BEGIN_C

#define OPTION_SPECS_MAX 256
/* Of a file or of one option on the command line. */
#define OPTION_FILE_BYTES_MAX ((size_t)1 << 20)

/* Where a value came from, for messages. */
struct option_source {
	const char *file; /* NULL: the command line */
	unsigned line;
};

/* Flags that no table may name; they do something other than setting a value. */
struct option_flag {
	const char *name;
	enum option_special special;
	const char *help;
};
extern const struct option_flag option_flags[];
extern const size_t option_flag_count;

/* option.c */

/* Words of others for a message: shortened, control characters replaced. Returns the buffer. */
#define OPTION_WORD 96
const char *option_word(char buffer[OPTION_WORD], const char *word);
/* Fills error->text with the source, then the words; returns `code`. */
int option_refuse(struct option_error *error, int code, const struct option_source *source, const char *format, ...)
	KVR_PRINTF(4, 5);
/* NULL when there is none of that name. */
const struct option_spec *option_find(const struct option_table *table, const char *name);
/* Refuses a name that is not in the table, with the nearest one that is. */
int option_refuse_unknown(const struct option_table *table, const char *name, const struct option_source *source,
	struct option_error *error);

/* option_value.c */

/* Parses, checks the range and stores; a list gets one more item. 0, -EINVAL, -ENOMEM with *error. */
KVR_MUST_CHECK int option_set(const struct option_spec *spec, const char *value, void *settings,
	const struct option_source *source, struct option_error *error);
/* Numbers, sizes, times and choices as a number. 0, -EINVAL, -ERANGE. */
KVR_MUST_CHECK int option_parse_number(const struct option_spec *spec, const char *value, uint64_t *number);
void option_list_clear(struct option_list *list);
/* The value in a form that option_set reads back; item: of a list. */
void option_append_value(const struct option_spec *spec, const void *settings, uint32_t item, struct text *out);
/* "64MiB to 64TiB", "at least 1", "yes or no"; nothing for free text. */
void option_append_range(const struct option_spec *spec, struct text *out);

static inline struct option_list *option_list_of(const struct option_spec *spec, void *settings)
{
	return (struct option_list *)(void *)((char *)settings + spec->offset);
}

KVR_END_C

#endif
