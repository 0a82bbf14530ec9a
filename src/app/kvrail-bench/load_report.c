#include "app/kvrail-bench/load_report.h"
#include "app/kvrail-bench/report.h"

#include <stdlib.h>
#include <string.h>

const char *const load_op_words[] = { "ping", "lookup", "store", "retrieve", "mixed" };

/* Rate of bytes of which such a share goes at one rate and the rest at the other. */
static double mixture(double share, double rate, double rest_rate)
{
	return rate > 0 && rest_rate > 0 ? 1 / (share / rate + (1 - share) / rest_rate) : 0;
}

static int collect(const struct load *load, struct load_results *results)
{
	uint32_t clients = load->settings->clients;
	struct measure **measures = calloc(clients, sizeof(struct measure *));
	double *values = calloc(load->rounds_done + 1, sizeof(*values));
	double read_share = load->settings->op == LOAD_STORE ? 0 : 1;

	memset(results, 0, sizeof(*results));
	if (!measures || !values) {
		free(measures);
		free(values);
		return -1;
	}
	for (uint32_t i = 0; i < clients; i++) {
		measures[i] = &load->clients[i].measure;
		counters_sum(&results->sum, &load->clients[i].counters);
		histogram_merge(&results->lag, &load->clients[i].measure.lag);
	}
	for (unsigned op = 0; op < MEASURE_OPS; op++)
		measure_result(measures, clients, (enum measure_op)op, &results->ops[op]);
	for (uint32_t i = 0; i < load->rounds_done; i++) {
		values[i] = load->rounds[i].gbps;
		results->seconds += load->rounds[i].seconds;
	}
	results->gbps = median_of(values, load->rounds_done);
	for (uint32_t i = 0; i < load->rounds_done; i++)
		values[i] = load->rounds[i].operations;
	results->operations = median_of(values, load->rounds_done);
	for (uint32_t i = 0; i < load->rounds_done; i++)
		values[i] = load->rounds[i].cpu_seconds * 1e6 / (double)kvr_max_u64(load->rounds[i].requests, 1);
	results->cpu_us = median_of(values, load->rounds_done);
	for (uint32_t i = 0; i < load->rounds_done; i++)
		values[i] = load->rounds[i].server_cpu_seconds * 1e6 / (double)kvr_max_u64(load->rounds[i].requests, 1);
	results->server_cpu_us = median_of(values, load->rounds_done);
	results->to_blocks = ceiling_to_blocks(&load->ceiling);
	results->from_blocks = ceiling_from_blocks(&load->ceiling);
	if (load->settings->op == LOAD_MIXED)
		read_share = load->settings->read_percent / 100.0;
	results->ceiling = mixture(read_share, results->to_blocks, results->from_blocks);
	if (load->raw) {
		results->raw_write = rawloop_gbps(load->raw, true);
		results->raw_read = rawloop_gbps(load->raw, false);
		results->raw = mixture(read_share, results->raw_write, results->raw_read);
	}
	if (load->gpumem) {
		results->bus_to_gpu = gpumem_gbps(load->gpumem, true);
		results->bus_to_host = gpumem_gbps(load->gpumem, false);
		results->bus = mixture(read_share, results->bus_to_gpu, results->bus_to_host);
	}
	if (load->bare)
		results->bare = *load->bare;
	free(measures);
	free(values);
	return 0;
}

static void table_extras(const struct load *load, const struct load_results *results, struct text *out)
{
	const struct load_settings *settings = load->settings;
	char due[TEXT_SHORT], most[TEXT_SHORT], backlog[REPORT_NUMBER];

	if (settings->rate) {
		text_append(out, "  open loop  %llu a second wanted, %s arrivals; begun late by %s (p99), %s (max)\n",
			(unsigned long long)settings->rate, settings->arrival == LOAD_EVEN ? "even" : "Poisson",
			text_time(due, histogram_percentile(&results->lag, 990000)), text_time(most, results->lag.max));
		if (results->sum.backlog)
			text_append(out,
				"  note: %s requests were due and not begun when their round ended; they are in the "
				"latencies with the time they had waited: the server, or --depth, does not keep up\n",
				report_number(backlog, results->sum.backlog));
	}
	if (load_asks(load) && results->sum.tokens)
		text_append(out, "  hits       %.2f %% of the chunks asked for\n",
			100.0 * (double)results->sum.hit_tokens / (double)results->sum.tokens);
	text_append(out, "  processor  %.2f us a request in this process", results->cpu_us);
	if (settings->server_pid)
		text_append(out, ", %.2f us in the server", results->server_cpu_us);
	text_append(out, "\n");
}

static void table_bare(const struct bare *bare, enum measure_op op, const struct op_result *result, struct text *out)
{
	uint64_t line_ns = histogram_percentile(&bare->line, 500000),
		 p999_ns = histogram_percentile(&bare->exchange, 999000);
	char line[TEXT_SHORT], p50[TEXT_SHORT], p999[TEXT_SHORT], p9999[TEXT_SHORT];

	text_append(out, "  cache line %s to another core and back; the median %s is %.1f of them\n",
		text_time(line, line_ns), measure_op_names[op],
		(double)result->p50_ns / (double)kvr_max_u64(line_ns, 1));
	if (!p999_ns)
		return;
	text_append(out,
		"  machine    round trips of a line that take as long, with nothing else: p50 %s, p99.9 %s, p99.99 %s; %s has "
		"%.2f of that p99.9\n",
		text_time(p50, histogram_percentile(&bare->exchange, 500000)), text_time(p999, p999_ns),
		text_time(p9999, histogram_percentile(&bare->exchange, 999900)), measure_op_names[op],
		(double)result->p999_ns / (double)p999_ns);
}

static void table_limits(const struct load *load, const struct load_results *results, struct text *out)
{
	char median[TEXT_SHORT], high[TEXT_SHORT];
	enum load_op op = (enum load_op)load->settings->op;
	enum measure_op small = op == LOAD_PING ? MEASURE_PING : MEASURE_LOOKUP;

	if (results->raw > 0)
		text_append(out,
			"  raw verbs  WRITE %.2f GB/s, READ %.2f GB/s by a bare loop on a device of the same kind; of that "
			"this is %.1f %%\n",
			results->raw_write, results->raw_read, 100 * results->gbps / results->raw);
	if (results->bus > 0)
		text_append(out,
			"  bus        to the GPU %.2f GB/s, from it %.2f GB/s by its copy engine, contiguous and pinned; of that this "
			"is %.1f %%\n",
			results->bus_to_gpu, results->bus_to_host, 100 * results->gbps / results->bus);
	if (results->bare.line.count && !load_moves_bytes(load))
		table_bare(&results->bare, small, &results->ops[small], out);
	if (results->bare.gaps.count)
		text_append(out,
			"  gaps       a thread that only reads the clock is kept from it %.0f times a second, median %s, "
			"p99 %s, %.1f %% of the time\n",
			bare_gap_rate(&results->bare),
			text_time(median, histogram_percentile(&results->bare.gaps, 500000)),
			text_time(high, histogram_percentile(&results->bare.gaps, 990000)),
			bare_gap_percent(&results->bare));
}

static void table(const struct load *load, const struct load_results *results, struct text *out)
{
	const struct load_settings *settings = load->settings;
	char page[TEXT_SHORT], request[TEXT_SHORT], set[TEXT_SHORT];

	text_append(out, "%s: pages of %s, %u plane%s, %u chunk%s a request (%s), %u client%s, depth %u\n",
		load_op_words[settings->op], text_size(page, load->shape.block_bytes), load->shape.planes,
		load->shape.planes == 1 ? "" : "s", load->chunks, load->chunks == 1 ? "" : "s",
		text_size(request, load->chunks * load->shape.object_bytes), settings->clients,
		settings->clients == 1 ? "" : "s", load->depth);
	if (load_has_set(load))
		text_append(out, "  set        %u chains, %s\n", load->chains * settings->clients,
			text_size(set,
				(uint64_t)load->chains * settings->clients * load->chunks * load->shape.object_bytes));
	text_append(out, "  rate       %.0f a second", results->operations);
	if (load_moves_bytes(load))
		text_append(out, ", %.2f GB/s", results->gbps);
	if (results->ceiling > 0)
		text_append(out, ", %.1f %% of memcpy", 100 * results->gbps / results->ceiling);
	text_append(out, " (medians of %u rounds, %.1f s)\n", load->rounds_done, results->seconds);
	table_extras(load, results, out);
	report_op_heading(out);
	for (unsigned op = 0; op < MEASURE_OPS; op++) {
		if (results->ops[op].count)
			report_op(out, (enum measure_op)op, &results->ops[op],
				op == MEASURE_RETRIEVE ? results->to_blocks : results->from_blocks);
	}
	report_ceiling(out, &load->ceiling, &load->machine);
	table_limits(load, results, out);
	if (settings->verify && load_has_set(load))
		text_append(out, "  verified   %s, wrong %llu bytes\n", text_size(set, results->sum.verified_bytes),
			(unsigned long long)results->sum.mismatched_bytes);
	text_append(out, "  errors     %llu, retries %llu, chunks missing %llu, without memory %llu\n",
		(unsigned long long)load->complaints.count, (unsigned long long)results->sum.retries,
		(unsigned long long)results->sum.chunks_missing,
		(unsigned long long)results->sum.chunks_without_memory);
	machine_append_warnings(&load->machine, load_threads(settings) + 1, out);
}

static void json_ratio(const struct load *load, const struct load_results *results, struct text *out)
{
	uint32_t op = load->settings->op;
	double retrieve = results->ops[MEASURE_RETRIEVE].gbps, store = results->ops[MEASURE_STORE].gbps;

	/* Of one kind of request the rounds' medians count; of a mixture each kind's own rate. */
	report_ratio_json(out, "retrieve", op == LOAD_RETRIEVE ? results->gbps : retrieve, results->to_blocks);
	text_append(out, ", ");
	report_ratio_json(out, "store", op == LOAD_STORE ? results->gbps : store, results->from_blocks);
	text_append(out, ", ");
	report_ratio_json(out, "all", results->gbps, results->ceiling);
	text_append(out, ", ");
	report_ratio_json(out, "verbs", results->gbps, results->raw);
	text_append(out, ", ");
	report_ratio_json(out, "bus", results->gbps, results->bus);
	text_append(out, ", ");
	/* Of latencies: the machine's own p99.9 by ours. */
	report_ratio_json(out, "p999", (double)histogram_percentile(&results->bare.exchange, 999000),
		(double)results->ops[op == LOAD_PING ? MEASURE_PING : MEASURE_LOOKUP].p999_ns);
}

static void json_intervals(const struct load *load, struct text *out)
{
	text_append(out, "  \"intervals\": [");
	for (size_t i = 0; i < load->interval_count; i++) {
		const struct load_interval *interval = &load->intervals[i];

		text_append(out,
			"%s\n    {\"seconds\": %.3f, \"operations_per_second\": %.3f, \"gbps\": %.4f, \"p50_us\": %.3f, "
			"\"p99_us\": %.3f, \"p999_us\": %.3f, \"max_us\": %.3f}",
			i ? "," : "", interval->seconds, interval->operations, interval->gbps,
			(double)interval->p50_ns / 1000, (double)interval->p99_ns / 1000,
			(double)interval->p999_ns / 1000, (double)interval->max_ns / 1000);
	}
	text_append(out, "%s],\n", load->interval_count ? "\n  " : "");
}

static void json_extras(const struct load *load, const struct load_results *results, struct text *out)
{
	const struct load_settings *settings = load->settings;

	text_append(out,
		"  \"rate\": %llu, \"arrival\": \"%s\", \"backlog\": %llu, \"lag_p99_us\": %.3f, \"hit_percent\": %u, "
		"\"hit_ratio\": ",
		(unsigned long long)settings->rate, settings->arrival == LOAD_EVEN ? "even" : "poisson",
		(unsigned long long)results->sum.backlog, (double)histogram_percentile(&results->lag, 990000) / 1000,
		settings->hit_percent);
	if (load_asks(load) && results->sum.tokens)
		text_append(out, "%.6f", (double)results->sum.hit_tokens / (double)results->sum.tokens);
	else
		text_append(out, "null");
	text_append(out,
		", \"skew\": %.4g, \"memory\": \"%s\", \"blocks\": \"%s\", \"cpu_us\": %.4f, \"server_cpu_us\": ",
		settings->skew_theta, settings->memory == LOAD_GPU ? "gpu" : "host",
		settings->blocks == LOAD_CONTIGUOUS ? "contiguous" : "scattered", results->cpu_us);
	text_append(out, settings->server_pid ? "%.4f,\n" : "null,\n", results->server_cpu_us);
	load_benchmarks_json(load, results, out);
	json_intervals(load, out);
}

/* null: not measured */
static void json_limit(struct text *out, const char *name, double value)
{
	if (value > 0)
		text_append(out, ", \"%s\": %.4f", name, value);
	else
		text_append(out, ", \"%s\": null", name);
}

static double percentile_us(const struct histogram *histogram, uint32_t parts_per_million)
{
	return (double)histogram_percentile(histogram, parts_per_million) / 1000;
}

static void json_bare(const struct bare *bare, struct text *out)
{
	json_limit(out, "line_us", percentile_us(&bare->line, 500000));
	json_limit(out, "bare_p50_us", percentile_us(&bare->exchange, 500000));
	json_limit(out, "bare_p99_us", percentile_us(&bare->exchange, 990000));
	json_limit(out, "bare_p999_us", percentile_us(&bare->exchange, 999000));
	json_limit(out, "bare_p9999_us", percentile_us(&bare->exchange, 999900));
	json_limit(out, "gaps_per_second", bare_gap_rate(bare));
	json_limit(out, "gap_p50_us", percentile_us(&bare->gaps, 500000));
	json_limit(out, "gap_percent", bare_gap_percent(bare));
}

static void json(const struct load *load, const struct load_results *results, struct text *out)
{
	const struct load_settings *settings = load->settings;
	unsigned long long request_bytes = load->chunks * load->shape.object_bytes;
	bool first = true;

	text_append(out, "{\n  \"command\": \"load\", \"version\": \"" KVRAIL_VERSION "\", \"server\": ");
	text_append_json_string(out, load->info.server);
	text_append(out,
		", \"op\": \"%s\", \"size\": %u, \"planes\": %u, \"chunks\": %u, \"request_bytes\": %llu, "
		"\"clients\": %u, \"threads\": %u, \"depth\": %u,\n  \"machine\": {",
		load_op_words[settings->op], load->shape.block_bytes, load->shape.planes, load->chunks, request_bytes,
		settings->clients, load_threads(settings), load->depth);
	machine_append_json(&load->machine, settings->server_pid, out);
	text_append(out,
		"},\n  \"seconds\": %.6f, \"rounds\": %u, \"operations_per_second\": %.3f, \"gbps\": %.4f, "
		"\"errors\": %llu, \"retries\": %llu,\n"
		"  \"bytes_stored\": %llu, \"bytes_retrieved\": %llu, \"verified_bytes\": %llu, "
		"\"mismatched_bytes\": %llu, \"chunks_missing\": %llu, \"chunks_no_memory\": %llu,\n",
		results->seconds, load->rounds_done, results->operations, results->gbps,
		(unsigned long long)load->complaints.count, (unsigned long long)results->sum.retries,
		(unsigned long long)results->sum.bytes_stored, (unsigned long long)results->sum.bytes_retrieved,
		(unsigned long long)results->sum.verified_bytes, (unsigned long long)results->sum.mismatched_bytes,
		(unsigned long long)results->sum.chunks_missing,
		(unsigned long long)results->sum.chunks_without_memory);
	json_extras(load, results, out);
	text_append(out, "  \"ops\": {");
	for (unsigned op = 0; op < MEASURE_OPS; op++) {
		if (!results->ops[op].count)
			continue;
		text_append(out, first ? "\n    " : ",\n    ");
		report_op_json(out, (enum measure_op)op, &results->ops[op]);
		first = false;
	}
	text_append(out, "\n  },\n  \"ceiling\": {");
	report_ceiling_json(out, &load->ceiling, &load->machine);
	json_limit(out, "verbs_write_gbps", results->raw_write);
	json_limit(out, "verbs_read_gbps", results->raw_read);
	json_limit(out, "bus_to_gpu_gbps", results->bus_to_gpu);
	json_limit(out, "bus_to_host_gbps", results->bus_to_host);
	json_bare(&results->bare, out);
	text_append(out, "},\n  \"ratio\": {");
	json_ratio(load, results, out);
	text_append(out, "}\n}\n");
}

int load_report(struct load *load)
{
	struct load_results *results = calloc(1, sizeof(*results));
	const char *path = load->settings->json;
	struct text out = { 0 };
	int error = results ? collect(load, results) : -1;

	if (!error && strcmp(path, "-") != 0) {
		table(load, results, &out);
		error = report_write("-", &out);
		text_fini(&out);
		out = (struct text){ 0 };
	}
	if (!error && path[0]) {
		json(load, results, &out);
		error = report_write(path, &out);
		text_fini(&out);
	}
	free(results);
	return error;
}
