#include "app/kvrail-bench/report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

void report_op_heading(struct text *out)
{
	text_append(out, "  %-10s %10s %10s %10s %10s %10s %10s %8s  %s\n", "operation", "count", "p50", "p99", "p99.9",
		"p99.99", "max", "GB/s", "of memcpy");
}

void report_op(struct text *out, enum measure_op op, const struct op_result *result, double ceiling_gbps)
{
	char p50[TEXT_SHORT], p99[TEXT_SHORT], p999[TEXT_SHORT], p9999[TEXT_SHORT], max[TEXT_SHORT];
	char count[REPORT_NUMBER];

	text_append(out, "  %-10s %10s %10s %10s %10s %10s %10s", measure_op_names[op],
		report_number(count, result->count), text_time(p50, result->p50_ns), text_time(p99, result->p99_ns),
		text_time(p999, result->p999_ns), text_time(p9999, result->p9999_ns), text_time(max, result->max_ns));
	if (result->bytes)
		text_append(out, " %8.2f", result->gbps);
	if (result->bytes && ceiling_gbps > 0)
		text_append(out, "  %.0f %%", 100 * result->gbps / ceiling_gbps);
	text_append(out, "\n");
}

static bool big_enough(const struct ceiling *ceiling, const struct machine *machine)
{
	return ceiling->working_set >= 10 * machine->cache_bytes;
}

void report_ceiling(struct text *out, const struct ceiling *ceiling, const struct machine *machine)
{
	char page[TEXT_SHORT], set[TEXT_SHORT];

	if (!ceiling->slices)
		return;
	text_append(out,
		"  memcpy     into blocks %.2f GB/s, out of them %.2f GB/s: pages of %s, working set %s on "
		"each side, medians of %zu\n",
		ceiling_to_blocks(ceiling), ceiling_from_blocks(ceiling), text_size(page, ceiling->page_bytes),
		text_size(set, ceiling->working_set), ceiling->slices);
	if (!big_enough(ceiling, machine))
		text_append(out,
			"  note: that is less than ten times the last-level cache (%s): the ceiling is too high\n",
			text_size(set, machine->cache_bytes));
}

void report_op_json(struct text *out, enum measure_op op, const struct op_result *result)
{
	text_append(out,
		"\"%s\": {\"count\": %llu, \"mean_us\": %.3f, \"p50_us\": %.3f, \"p90_us\": %.3f, \"p99_us\": %.3f, "
		"\"p999_us\": %.3f, \"p9999_us\": %.3f, \"max_us\": %.3f, \"bytes\": %llu, \"gbps\": %.4f}",
		measure_op_names[op], (unsigned long long)result->count, result->mean_ns / 1000,
		(double)result->p50_ns / 1000, (double)result->p90_ns / 1000, (double)result->p99_ns / 1000,
		(double)result->p999_ns / 1000, (double)result->p9999_ns / 1000, (double)result->max_ns / 1000,
		(unsigned long long)result->bytes, result->gbps);
}

void report_ceiling_json(struct text *out, const struct ceiling *ceiling, const struct machine *machine)
{
	text_append(out, "\"memcpy_gbps\": ");
	if (ceiling->slices)
		text_append(out, "%.4f, \"memcpy_store_gbps\": %.4f", ceiling_to_blocks(ceiling),
			ceiling_from_blocks(ceiling));
	else
		text_append(out, "null, \"memcpy_store_gbps\": null");
	text_append(out, ", \"page_bytes\": %llu, \"working_set_bytes\": %llu, \"slices\": %zu, \"beyond_cache\": %s",
		(unsigned long long)ceiling->page_bytes, (unsigned long long)ceiling->working_set, ceiling->slices,
		big_enough(ceiling, machine) ? "true" : "false");
}

void report_ratio_json(struct text *out, const char *name, double gbps, double ceiling_gbps)
{
	if (gbps > 0 && ceiling_gbps > 0)
		text_append(out, "\"%s\": %.4f", name, gbps / ceiling_gbps);
	else
		text_append(out, "\"%s\": null", name);
}

const char *report_number(char buffer[REPORT_NUMBER], uint64_t value)
{
	char digits[24];
	size_t length = (size_t)snprintf(digits, sizeof(digits), "%llu", (unsigned long long)value), at = 0;

	for (size_t i = 0; i < length; i++) {
		if (i > 0 && (length - i) % 3 == 0)
			buffer[at++] = ',';
		buffer[at++] = digits[i];
	}
	buffer[at] = '\0';
	return buffer;
}

int report_write(const char *path, const struct text *text)
{
	bool standard = strcmp(path, "-") == 0;
	FILE *file = standard ? stdout : fopen(path, "we");
	int error = file ? 0 : -errno;

	if (text->failed)
		error = -ENOMEM;
	if (file && !error) {
		fwrite(text->bytes, 1, text->length, file);
		if (fflush(file) || ferror(file))
			error = -EIO;
	}
	if (file && !standard && fclose(file) && !error)
		error = -errno;
	if (error)
		fprintf(stderr, "kvrail-bench: %s: %s\n", standard ? "standard output" : path, strerror(-error));
	return error;
}
