#include "app/common/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void table_begin(struct table *table, const char *headings)
{
	table->columns = 1;
	for (const char *at = headings; *at; at++)
		table->columns += *at == '|';
	if (table->columns > TABLE_COLUMNS_MAX)
		table->columns = TABLE_COLUMNS_MAX;
	for (uint32_t i = 0; i < table->columns; i++) {
		size_t length = strcspn(headings, "|");

		table_cell(table, "%.*s", (int)length, headings);
		headings += length + (headings[length] == '|');
	}
}

static char *next_cell(struct table *table)
{
	uint32_t used = table->rows * table->columns + table->column;

	if (used == table->capacity) {
		uint32_t capacity = table->capacity ? 2 * table->capacity : 4 * TABLE_COLUMNS_MAX;
		char(*cells)[TABLE_CELL] = realloc(table->cells, capacity * sizeof(*cells));

		if (!cells) {
			table->failed = true;
			return NULL;
		}
		table->cells = cells;
		table->capacity = capacity;
	}
	if (++table->column == table->columns) {
		table->column = 0;
		table->rows++;
	}
	return table->cells[used];
}

void table_cell(struct table *table, const char *format, ...)
{
	char *cell = table->failed ? NULL : next_cell(table);
	va_list arguments;
	int length;

	if (!cell)
		return;
	va_start(arguments, format);
	length = vsnprintf(cell, TABLE_CELL, format, arguments);
	va_end(arguments);
	if (length >= TABLE_CELL)
		memcpy(cell + TABLE_CELL - 4, "...", 4);
	/* Text of a peer must not steer the terminal. */
	for (; *cell; cell++) {
		if ((unsigned char)*cell < 0x20 || *cell == 0x7f)
			*cell = '?';
	}
}

static void print_row(
	const struct table *table, uint32_t row, const size_t *widths, const bool *right, struct text *out)
{
	for (uint32_t column = 0; column < table->columns; column++) {
		const char *cell = table->cells[row * table->columns + column];
		int length = (int)strlen(cell);
		int pad = (int)widths[column] - (length - (row == 0 && right[column]));

		if (row == 0 && right[column])
			length--;
		if (right[column])
			text_append(out, "  %*s%.*s", pad, "", length, cell);
		else
			text_append(out, "  %.*s%*s", length, cell, column + 1 < table->columns ? pad : 0, "");
	}
	text_append(out, "\n");
}

void table_print(const struct table *table, struct text *out)
{
	size_t widths[TABLE_COLUMNS_MAX] = { 0 };
	bool right[TABLE_COLUMNS_MAX] = { false };

	if (table->failed || table->rows == 0)
		return;
	for (uint32_t column = 0; column < table->columns; column++) {
		const char *heading = table->cells[column];

		right[column] = heading[0] && heading[strlen(heading) - 1] == '>';
		for (uint32_t row = 0; row < table->rows; row++) {
			size_t length = strlen(table->cells[row * table->columns + column]) -
				(row == 0 && right[column]);

			if (length > widths[column])
				widths[column] = length;
		}
	}
	for (uint32_t row = 0; row < table->rows; row++)
		print_row(table, row, widths, right, out);
}

void table_fini(struct table *table)
{
	free(table->cells);
	memset(table, 0, sizeof(*table));
}
