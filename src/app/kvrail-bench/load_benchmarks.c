/* load_benchmarks.c - the members of the result that Google Benchmark's tools read: `context` and `benchmarks`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "app/kvrail-bench/load_report.h"

/* What makes two runs the same benchmark. */
static void run_name(const struct load *load, char *name, size_t size)
{
	const struct load_settings *settings = load->settings;
	char page[TEXT_SHORT];
	int length = snprintf(name, size, "load/%s/size:%s/planes:%u/chunks:%u/clients:%u/depth:%u",
		load_op_words[settings->op], text_size(page, load->shape.block_bytes), load->shape.planes, load->chunks,
		settings->clients, load->depth);

	for (char *space = strchr(name, ' '); space; space = strchr(space, ' '))
		memmove(space, space + 1, strlen(space)), length--;
	if (load_threads(settings) != settings->clients)
		length += snprintf(name + length, size - (size_t)length, "/client_threads:%u", load_threads(settings));
	if (settings->memory == LOAD_GPU)
		length += snprintf(name + length, size - (size_t)length, "/memory:gpu");
	if (settings->rate)
		length += snprintf(
			name + length, size - (size_t)length, "/rate:%llu", (unsigned long long)settings->rate);
	if (settings->op == LOAD_MIXED)
		length += snprintf(name + length, size - (size_t)length, "/read:%u", settings->read_percent);
	if (settings->hit_percent < 100 && load_asks(load))
		length += snprintf(name + length, size - (size_t)length, "/hit:%u", settings->hit_percent);
	if (settings->skew_theta > 0)
		length += snprintf(name + length, size - (size_t)length, "/skew:%.4g", settings->skew_theta);
	if (settings->blocks == LOAD_CONTIGUOUS)
		snprintf(name + length, size - (size_t)length, "/contiguous");
}

static void context(const struct load *load, struct text *out)
{
	const struct machine *machine = &load->machine;
	time_t now = time(NULL);
	struct tm local;
	char date[40];

	if (!localtime_r(&now, &local) || !strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S%z", &local))
		date[0] = '\0';
	text_append(out, "  \"context\": {\"date\": \"%s\", \"host_name\": ", date);
	text_append_json_string(out, machine->host);
	text_append(out,
		", \"executable\": \"kvrail-bench\", \"num_cpus\": %u, \"mhz_per_cpu\": %u, \"cpu_scaling_enabled\": %s, "
		"\"caches\": [], \"load_avg\": [%.2f], \"library_build_type\": \"%s\", \"commit\": ",
		machine->cores, machine->mhz,
		machine->governor[0] && strcmp(machine->governor, "performance") != 0 ? "true" : "false",
		machine->load_average, machine->debug ? "debug" : "release");
	text_append_json_string(out, machine->commit);
	text_append(out, "},\n");
}

struct row {
	const char *run_name;
	const char *suffix;
	bool aggregate;
	uint32_t repetitions, repetition;
	uint64_t iterations;
	double real_us, cpu_us;
};

static void append_row(const struct load *load, const struct row *row, struct text *out)
{
	text_append(out,
		"    {\"name\": \"%s%s\", \"family_index\": 0, \"per_family_instance_index\": 0, \"run_name\": \"%s%s\", "
		"\"run_type\": \"%s\", \"repetitions\": %u, ",
		row->run_name, row->suffix, row->run_name, row->aggregate ? "" : row->suffix,
		row->aggregate ? "aggregate" : "iteration", row->repetitions);
	if (row->aggregate)
		text_append(out, "\"aggregate_name\": \"%s\", \"aggregate_unit\": \"time\", ", row->suffix + 1);
	else
		text_append(out, "\"repetition_index\": %u, ", row->repetition);
	text_append(out,
		"\"threads\": %u, \"iterations\": %llu, \"real_time\": %.6f, \"cpu_time\": %.6f, \"time_unit\": \"us\"",
		load->settings->clients, (unsigned long long)row->iterations, row->real_us, row->cpu_us);
}

static double each_us(double seconds, uint64_t requests)
{
	return requests ? seconds * 1e6 / (double)requests : 0;
}

static void percentile_rows(
	const struct load *load, const struct load_results *results, const char *name, struct text *out)
{
	for (unsigned op = 0; op < MEASURE_OPS; op++) {
		const struct op_result *result = &results->ops[op];
		const struct {
			const char *word;
			uint64_t ns;
		} parts[] = { { "p50", result->p50_ns }, { "p99", result->p99_ns }, { "p99.9", result->p999_ns },
			{ "p99.99", result->p9999_ns } };
		char suffix[40];

		for (size_t i = 0; result->count && i < KVR_COUNT_OF(parts); i++) {
			snprintf(suffix, sizeof(suffix), "/%s/%s", measure_op_names[op], parts[i].word);
			text_append(out, ",\n");
			append_row(load,
				&(struct row){ name, suffix, false, 1, 0, result->count, (double)parts[i].ns / 1000,
					results->cpu_us + results->server_cpu_us },
				out);
			text_append(out, "}");
		}
	}
}

void load_benchmarks_json(const struct load *load, const struct load_results *results, struct text *out)
{
	char name[256];

	context(load, out);
	run_name(load, name, sizeof(name));
	text_append(out, "  \"benchmarks\": [\n");
	for (uint32_t i = 0; i < load->rounds_done; i++) {
		const struct load_round *round = &load->rounds[i];

		append_row(load,
			&(struct row){ name, "", false, load->rounds_done, i, round->requests,
				each_us(round->seconds, round->requests),
				each_us(round->cpu_seconds + round->server_cpu_seconds, round->requests) },
			out);
		text_append(out, ", \"items_per_second\": %.3f, \"bytes_per_second\": %.0f},\n", round->operations,
			round->gbps * 1e9);
	}
	append_row(load,
		&(struct row){ name, "_median", true, load->rounds_done, 0, load->rounds_done,
			results->operations > 0 ? 1e6 / results->operations : 0,
			results->cpu_us + results->server_cpu_us },
		out);
	text_append(out, ", \"items_per_second\": %.3f, \"bytes_per_second\": %.0f}", results->operations,
		results->gbps * 1e9);
	percentile_rows(load, results, name, out);
	text_append(out, "\n  ],\n");
}
