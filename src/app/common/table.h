/* table.h - columns for people: as wide as their widest cell, numbers to the right. */
#ifndef KVRAIL_APP_COMMON_TABLE_H
#define KVRAIL_APP_COMMON_TABLE_H

#include <stdint.h>

#include "base/compiler.h"
#include "base/text.h"

KVR_BEGIN_C

#define TABLE_COLUMNS_MAX 16
#define TABLE_CELL 64 /* longer text is cut, and ends in "..." */

/* Zeroed: empty. Rows are kept on the heap; out of memory: `failed`, and table_print prints nothing. */
struct table {
	uint32_t columns;
	uint32_t rows;   /* with the heading */
	uint32_t column; /* that the next cell goes to */
	uint32_t capacity;
	bool failed;
	char (*cells)[TABLE_CELL]; /* [row * columns + column] */
};

/* headings: separated by '|', one of numbers ends in '>': "MODEL|TOKENS>". Once, first. */
void table_begin(struct table *table, const char *headings);
/* The next cell of the current row; the row ends with its last column. */
void table_cell(struct table *table, const char *format, ...) KVR_PRINTF(2, 3);
/* Two blanks in front of each line. */
void table_print(const struct table *table, struct text *out);
void table_fini(struct table *table);

KVR_END_C

#endif
