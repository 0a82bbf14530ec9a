/* machine_reader.h - reading a line of a machine text: what its files share. */
#ifndef KVRAIL_POLL_MACHINE_READER_H
#define KVRAIL_POLL_MACHINE_READER_H

#include "poll/machine_private.h"

KVR_BEGIN_C

#define READER_WORDS_MAX (MACHINE_NODES_MAX + 2) /* a distance to each node */

struct machine_reader {
	struct machine *machine;
	const char *name; /* of the text */
	uint32_t line;
	bool amend; /* a side file */
	struct machine_error *error;
	char *words[READER_WORDS_MAX];
	uint32_t word_count;
};

/* "FILE:LINE: ..." into the error; -EINVAL. */
int reader_refuse(struct machine_reader *reader, const char *format, ...) KVR_PRINTF(2, 3);
/* -EINVAL when a word from `from` on was not taken. */
int reader_refuse_rest(struct machine_reader *reader, uint32_t from);
/* The next piece of a list, cut out of *list at `separator`; NULL behind the last one. */
char *reader_next_piece(char **list, char separator);
/* The value of "key=value" among the words; NULL: not there. Each is taken once. */
char *reader_take(struct machine_reader *reader, const char *key);

/* 0 or -EINVAL with the error written; text may be NULL, which is none of these. */
KVR_MUST_CHECK int reader_number(struct machine_reader *reader, const char *text, uint64_t most, uint64_t *value);
KVR_MUST_CHECK int reader_size(struct machine_reader *reader, const char *text, uint64_t *bytes);
KVR_MUST_CHECK int reader_name(struct machine_reader *reader, const char *text, char *out, size_t size);
/* Room for MACHINE_CPUS_MAX numbers. */
KVR_MUST_CHECK int reader_list(struct machine_reader *reader, const char *text, int *numbers, uint32_t *count);

/* machine_text_devices.c: the lines switch, nic, gpu. */
KVR_MUST_CHECK int reader_switch(struct machine_reader *reader);
KVR_MUST_CHECK int reader_nic(struct machine_reader *reader);
KVR_MUST_CHECK int reader_gpu(struct machine_reader *reader);

KVR_END_C

#endif
