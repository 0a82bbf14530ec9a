/* golden.h - the golden messages of tests/wire/, and ways to bend them. For tests; every failure to read one ends the test. */
#ifndef KVRAIL_TESTS_PROTOCOL_GOLDEN_H
#define KVRAIL_TESTS_PROTOCOL_GOLDEN_H

#include <stddef.h>
#include <stdint.h>

#include "protocol/any_message.h"

struct golden {
	uint8_t *bytes; /* an allocation of exactly `length` bytes, so that ASan sees a read beyond */
	size_t length;
	struct wire_header header;
	enum any_kind kind;
};

/* The names of all golden messages, NULL behind the last. */
extern const char *const golden_names[];

/* tests/wire/<name>.hex */
void golden_load(struct golden *golden, const char *name);
void golden_free(struct golden *golden);

/* Overwrites `width` bytes at `offset` with the little-endian value. */
void golden_patch(struct golden *golden, uint32_t offset, uint32_t width, uint64_t value);
/* Puts `count` bytes of 0xee in at `offset`; the header is left alone. */
void golden_insert(struct golden *golden, size_t offset, size_t count);
/* Ends the bytes at `length`; the header is left alone. */
void golden_cut(struct golden *golden, size_t length);

#endif
