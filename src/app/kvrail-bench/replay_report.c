#include "app/kvrail-bench/replay_private.h"
#include "app/kvrail-bench/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

static void sum_counters(const struct replay *replay, struct counters *sum)
{
	memset(sum, 0, sizeof(*sum));
	for (uint32_t i = 0; i < replay->settings->clients; i++)
		counters_sum(sum, &replay->clients[i].counters);
}

static double share(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

void replay_progress(const struct replay *replay, char *text, size_t size)
{
	char in[TEXT_SHORT], out[TEXT_SHORT];
	struct counters sum;

	sum_counters(replay, &sum);
	snprintf(text, size, "%4.0f s  %llu requests, hit rate %.1f %%, stored %s, retrieved %s%s, %llu errors",
		(double)(clock_now_ns() - replay->start_ns) / (double)KVR_SECOND, (unsigned long long)sum.requests,
		100 * share(sum.hit_tokens, sum.tokens), text_size(in, sum.bytes_stored),
		text_size(out, sum.bytes_retrieved), replay_verifies(replay) ? " and verified" : "",
		(unsigned long long)sum.errors);
}

struct results {
	struct counters sum;
	struct op_result ops[MEASURE_OPS];
	double to_blocks, from_blocks;
	struct op_result lag;
};

static void collect(const struct replay *replay, struct results *results)
{
	uint32_t clients = replay->settings->clients;
	struct measure **measures = calloc(clients, sizeof(struct measure *));
	struct histogram *lag = calloc(1, sizeof(*lag));

	memset(results, 0, sizeof(*results));
	sum_counters(replay, &results->sum);
	results->to_blocks = ceiling_to_blocks(&replay->ceiling);
	results->from_blocks = ceiling_from_blocks(&replay->ceiling);
	if (measures && lag) {
		histogram_init(lag);
		for (uint32_t i = 0; i < clients; i++) {
			measures[i] = &replay->clients[i].measure;
			histogram_merge(lag, &measures[i]->lag);
		}
		for (unsigned op = 0; op < MEASURE_OPS; op++)
			measure_result(measures, clients, (enum measure_op)op, &results->ops[op]);
		results->lag.count = lag->count;
		results->lag.p50_ns = histogram_percentile(lag, 500000);
		results->lag.p99_ns = histogram_percentile(lag, 990000);
	}
	free(measures);
	free(lag);
}

/* ---- the table ---- */

static void table_reference(const struct replay *replay, const struct counters *sum, struct text *out)
{
	double server = share(sum->hit_tokens, sum->tokens), reference = share(sum->reference_hit_tokens, sum->tokens);
	char capacity[REPORT_NUMBER];

	text_append(out, "  reference  %.4f %% with %s chunks; ", 100 * reference,
		report_number(capacity, replay->capacity));
	if (sum->hit_tokens == sum->reference_hit_tokens && !replay->first_difference)
		text_append(out, "equal, request by request\n");
	else
		text_append(out, "the server's is %.4f %%, %+.4f points, first different in request %llu%s\n",
			100 * server, 100 * (server - reference), (unsigned long long)replay->first_difference,
			replay->exact ? "" : " (several at a time: no equality is expected)");
}

static void table_bytes(const struct replay *replay, const struct counters *sum, struct text *out)
{
	char stored[TEXT_SHORT], retrieved[TEXT_SHORT], verified[TEXT_SHORT], count[REPORT_NUMBER];

	text_append(out, "  stored     %s, retrieved %s", text_size(stored, sum->bytes_stored),
		text_size(retrieved, sum->bytes_retrieved));
	if (replay_verifies(replay))
		text_append(out, ", verified %s, wrong %llu bytes\n", text_size(verified, sum->verified_bytes),
			(unsigned long long)sum->mismatched_bytes);
	else
		text_append(out, ", not verified\n");
	text_append(out, "  chunks     %s stored", report_number(count, sum->chunks_stored));
	text_append(out, ", %s there already", report_number(count, sum->chunks_present));
	text_append(out, ", %s found L1 full of what is in use\n", report_number(count, sum->chunks_without_memory));
}

static void table_head(const struct replay *replay, const struct counters *sum, struct text *out)
{
	const struct replay_settings *settings = replay->settings;
	char tokens[REPORT_NUMBER], requests[REPORT_NUMBER], page[TEXT_SHORT], object[TEXT_SHORT];

	text_append(out, "%s: %s at 1/%u, tp %u (%u planes, pages of %s, %s a chunk and rank), %u client%s, depth %u\n",
		settings->trace, settings->model, settings->scale, replay->shape.ranks, replay->shape.planes,
		text_size(page, replay->shape.block_bytes), text_size(object, replay->shape.object_bytes),
		settings->clients, settings->clients == 1 ? "" : "s", settings->depth);
	text_append(out, "  requests   %s in %.1f s\n", report_number(requests, sum->requests), replay->seconds);
	text_append(out, "  tokens     %s, ", report_number(tokens, sum->tokens));
	text_append(out, "of them %s in the cache: hit rate %.2f %%\n", report_number(tokens, sum->hit_tokens),
		100 * share(sum->hit_tokens, sum->tokens));
}

static void table(const struct replay *replay, const struct results *results, struct text *out)
{
	static const enum measure_op ops[] = { MEASURE_LOOKUP, MEASURE_RETRIEVE, MEASURE_STORE, MEASURE_END };
	char p50[TEXT_SHORT], p99[TEXT_SHORT];

	table_head(replay, &results->sum, out);
	if (replay->reference)
		table_reference(replay, &results->sum, out);
	table_bytes(replay, &results->sum, out);
	report_op_heading(out);
	for (size_t i = 0; i < KVR_COUNT_OF(ops); i++)
		report_op(out, ops[i], &results->ops[ops[i]], i == 1 ? results->to_blocks : results->from_blocks);
	if (results->lag.count)
		text_append(out, "  late       requests began p50 %s, p99 %s after their time\n",
			text_time(p50, results->lag.p50_ns), text_time(p99, results->lag.p99_ns));
	report_ceiling(out, &replay->ceiling, &replay->machine);
	text_append(out, "  errors     %llu, retries %llu\n", (unsigned long long)replay->complaints.count,
		(unsigned long long)results->sum.retries);
	machine_append_warnings(&replay->machine, replay->settings->clients + 1, out);
}

/* ---- JSON ---- */

static void json_counters(const struct replay *replay, const struct counters *sum, struct text *out)
{
	text_append(out, "\"requests\": %llu, \"tokens\": %llu, \"hit_tokens\": %llu, \"hit_rate\": %.9f, ",
		(unsigned long long)sum->requests, (unsigned long long)sum->tokens, (unsigned long long)sum->hit_tokens,
		share(sum->hit_tokens, sum->tokens));
	if (replay->reference)
		text_append(out,
			"\"reference_hit_rate\": %.9f, \"reference_hit_tokens\": %llu, "
			"\"reference_capacity\": %llu, \"reference_exact\": %s, ",
			share(sum->reference_hit_tokens, sum->tokens), (unsigned long long)sum->reference_hit_tokens,
			(unsigned long long)replay->capacity, replay->exact ? "true" : "false");
	else
		text_append(out, "\"reference_hit_rate\": null, ");
	text_append(out,
		"\"bytes_stored\": %llu, \"bytes_retrieved\": %llu, \"verified_bytes\": %llu, "
		"\"mismatched_bytes\": %llu, ",
		(unsigned long long)sum->bytes_stored, (unsigned long long)sum->bytes_retrieved,
		(unsigned long long)sum->verified_bytes, (unsigned long long)sum->mismatched_bytes);
	text_append(out,
		"\"chunks_stored\": %llu, \"chunks_present\": %llu, \"chunks_no_memory\": %llu, "
		"\"chunks_missing\": %llu, \"retries\": %llu, \"errors\": %llu",
		(unsigned long long)sum->chunks_stored, (unsigned long long)sum->chunks_present,
		(unsigned long long)sum->chunks_without_memory, (unsigned long long)sum->chunks_missing,
		(unsigned long long)sum->retries, (unsigned long long)replay->complaints.count);
}

static void json_run(const struct replay *replay, struct text *out)
{
	const struct replay_settings *settings = replay->settings;

	text_append(out, "\"version\": \"" KVRAIL_VERSION "\", \"server\": ");
	text_append_json_string(out, replay->info.server);
	text_append(out, ", \"driver\": ");
	text_append_json_string(out, replay->info.driver);
	text_append(out, ", \"trace\": ");
	text_append_json_string(out, settings->trace);
	text_append(out,
		", \"model\": \"%s\", \"scale\": %u, \"tp\": %u, \"planes\": %u, \"page_bytes\": %u, "
		"\"object_bytes\": %llu, \"chunk_tokens\": %u, \"clients\": %u, \"depth\": %u, \"verify\": %s",
		settings->model, settings->scale, replay->shape.ranks, replay->shape.planes, replay->shape.block_bytes,
		(unsigned long long)replay->shape.object_bytes, replay->shape.chunk_tokens, settings->clients,
		settings->depth, settings->verify ? "true" : "false");
}

static void json(const struct replay *replay, const struct results *results, struct text *out)
{
	text_append(out, "{\n  \"command\": \"replay\", ");
	json_run(replay, out);
	text_append(out, ",\n  \"machine\": {");
	machine_append_json(&replay->machine, 0, out);
	text_append(out, "},\n  ");
	json_counters(replay, &results->sum, out);
	text_append(out, ",\n  \"seconds\": %.6f,\n  \"ops\": {\n    ", replay->seconds);
	for (unsigned op = 0; op < MEASURE_PING; op++) {
		report_op_json(out, (enum measure_op)op, &results->ops[op]);
		text_append(out, op + 1 < MEASURE_PING ? ",\n    " : "\n  },\n");
	}
	if (results->lag.count)
		text_append(out, "  \"lag_p50_us\": %.3f, \"lag_p99_us\": %.3f,\n", (double)results->lag.p50_ns / 1000,
			(double)results->lag.p99_ns / 1000);
	text_append(out, "  \"ceiling\": {");
	report_ceiling_json(out, &replay->ceiling, &replay->machine);
	text_append(out, "},\n  \"ratio\": {");
	report_ratio_json(out, "retrieve", results->ops[MEASURE_RETRIEVE].gbps, results->to_blocks);
	text_append(out, ", ");
	report_ratio_json(out, "store", results->ops[MEASURE_STORE].gbps, results->from_blocks);
	text_append(out, "}\n}\n");
}

int replay_report(struct replay *replay)
{
	struct results *results = calloc(1, sizeof(*results));
	const char *path = replay->settings->json;
	struct text out = { 0 };
	int error = 0;

	if (!results)
		return -1;
	collect(replay, results);
	if (strcmp(path, "-") != 0) {
		table(replay, results, &out);
		error = report_write("-", &out);
		text_fini(&out);
		out = (struct text){ 0 };
	}
	if (path[0] && !error) {
		json(replay, results, &out);
		error = report_write(path, &out);
		text_fini(&out);
	}
	free(results);
	return error;
}
