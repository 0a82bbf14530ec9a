/* kvrailctl quota, pin and unpin, against a server that holds something. */
#include "app/process.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/small_engine.h"
#include "base/cmocka_all.h"

#define TOKEN "0123456789abcdef"

struct fixture {
	struct server_process server;
	struct small_engine engine;
	struct text out, err;
	char token_file[128], tokens[128];
};

#define CTL(fixture, ...)                                                                                   \
	(text_reset(fixture),                                                                               \
		PROCESS_RUN("kvrailctl", &(fixture)->out, &(fixture)->err, "--http", (fixture)->server.url, \
			"--token-file", (fixture)->token_file, __VA_ARGS__))

static void text_reset(struct fixture *fixture)
{
	text_fini(&fixture->out);
	text_fini(&fixture->err);
	memset(&fixture->out, 0, sizeof(fixture->out));
	memset(&fixture->err, 0, sizeof(fixture->err));
}

static void assert_says(const struct text *text, const char *words)
{
	if (!text->bytes || !strstr(text->bytes, words))
		fail_msg("\"%s\" is not in: %s", words, text->bytes ? text->bytes : "");
}

/* The first `count` tokens of the engine's prompt. */
static void write_tokens(struct fixture *fixture, uint32_t count)
{
	struct text words = { NULL, 0, 0, false };

	text_append(&words, "[");
	for (uint32_t i = 0; i < count; i++)
		text_append(&words, "%s%u", i ? ", " : "", i * 7);
	text_append(&words, "]\n");
	write_file(fixture->tokens, words.bytes, 0600);
	text_fini(&words);
}

static void fixture_init(struct fixture *fixture, const char *limit)
{
	memset(fixture, 0, sizeof(*fixture));
	snprintf(fixture->token_file, sizeof(fixture->token_file), "/tmp/kvrail-quota-%d.token", (int)getpid());
	snprintf(fixture->tokens, sizeof(fixture->tokens), "/tmp/kvrail-quota-%d.tokens", (int)getpid());
	write_file(fixture->token_file, TOKEN "\n", 0600);
	SERVER_START(&fixture->server, "--admin-token-file", fixture->token_file, "--pin-limit", limit, "--tenant",
		"other", "--quota", "other=1MiB:2MiB");
	small_engine_join(&fixture->engine, &fixture->server, 7);
	assert_int_equal(small_engine_store(&fixture->engine, NULL), SMALL_CHUNKS);
}

static void fixture_fini(struct fixture *fixture)
{
	text_reset(fixture);
	small_engine_leave(&fixture->engine);
	assert_int_equal(server_process_stop(&fixture->server, SIGTERM), 0);
	assert_true(server_process_clean(&fixture->server));
	unlink(fixture->token_file);
	unlink(fixture->tokens);
}

static void quotas_are_listed_set_and_removed_while_the_server_runs(void **state)
{
	struct fixture fixture;
	struct kvr_result result = { 0 };

	(void)state;
	fixture_init(&fixture, "25");
	assert_int_equal(CTL(&fixture, "quota"), 0);
	assert_says(&fixture.out, "TENANT");
	assert_says(&fixture.out, "2.00 MiB");
	assert_says(&fixture.out, "96.00 KiB");
	/* Below what it holds: said to who asks and in the log, and nothing is dropped. */
	assert_int_equal(CTL(&fixture, "quota", "--quota", "none:64KiB"), 0);
	assert_says(&fixture.out,
		"tenant default: soft none, hard 64.00 KiB; it holds 96.00 KiB (98304 bytes), which is above "
		"the hard limit");
	assert_int_equal(
		server_process_logged(&fixture.server, "admin: quota of tenant default: soft none, hard 64.00 KiB"), 1);
	small_engine_expects(&fixture.engine, SMALL_CHUNKS);
	assert_int_equal(CTL(&fixture, "status", "--json"), 0);
	assert_says(
		&fixture.out, "{\"name\":\"default\",\"resident_bytes\":98304,\"staged_bytes\":0,\"evictable_bytes\":");
	assert_says(&fixture.out, "\"soft_bytes\":0,\"hard_bytes\":65536,\"own_quota\":true");
	assert_int_equal(CTL(&fixture, "quota", "--quota", "default", "--json"), 0);
	assert_says(&fixture.out, "\"hard_bytes\":0,\"held_bytes\":98304");
	assert_int_equal(small_engine_store(&fixture.engine, &result), SMALL_CHUNKS);
	assert_int_equal(http_ask(fixture.server.port, "GET", "/metrics", "", &fixture.out), 200);
	assert_says(&fixture.out, "\nkvrail_tenant_resident_bytes{tenant=\"default\"} 98304\n");
	assert_says(&fixture.out, "\nkvrail_tenant_hard_quota_bytes{tenant=\"other\"} 2097152\n");
	fixture_fini(&fixture);
}

static void what_cannot_be_set_is_refused_by_the_server(void **state)
{
	struct fixture fixture;

	(void)state;
	fixture_init(&fixture, "25");
	assert_int_equal(CTL(&fixture, "quota", "--quota", "none:0"), 1);
	assert_says(&fixture.err, "/quota: 400: quota \"none:0\": 0 is no limit to store under");
	/* One above 2^63 would make /status no JSON to kvrailctl itself. */
	assert_int_equal(CTL(&fixture, "quota", "--quota", "none:18446744073709551615"), 1);
	assert_says(&fixture.err, "a limit is at most 64 TiB: write none for no limit");
	assert_int_equal(CTL(&fixture, "quota", "--quota", "64TiB:64TiB"), 0);
	/* A variable that a script has not set is not the default tenant. */
	assert_int_equal(CTL(&fixture, "quota", "--quota", "none:1GiB", "--tenant", ""), 1);
	assert_says(&fixture.err, "/quota: 404: there is no tenant \"\"");
	assert_int_equal(CTL(&fixture, "quota", "--quota", "none:1GiB", "--tenant", "a b&c"), 1);
	assert_says(&fixture.err, "/quota: 404: there is no tenant \"a b&c\"");
	write_file(fixture.token_file, "fedcba9876543210\n", 0600);
	assert_int_equal(CTL(&fixture, "quota", "--quota", "none:1GiB"), 1);
	assert_says(&fixture.err, "/quota: 401: ");
	assert_int_equal(CTL(&fixture, "unpin", "--name", "x"), 1);
	assert_says(&fixture.err, "/unpin: 401: ");
	write_tokens(&fixture, 256);
	assert_int_equal(CTL(&fixture, "pin", "--name", "x", "--model", "small", "--tokens", fixture.tokens), 1);
	assert_says(&fixture.err, "/pin: 401: ");
	assert_int_equal(http_ask(fixture.server.port, "GET", "/quota", "", NULL), 405);
	assert_int_equal(
		http_ask(fixture.server.port, "POST", "/pin", "Authorization: Bearer " TOKEN "\r\n", NULL), 400);
	fixture_fini(&fixture);
}

static void a_prefix_is_pinned_listed_and_unpinned(void **state)
{
	struct fixture fixture;

	(void)state;
	fixture_init(&fixture, "25");
	write_tokens(&fixture, 4 * SMALL_CHUNK_TOKENS + 9);
	assert_int_equal(
		CTL(&fixture, "pin", "--name", "system prompt", "--model", "small", "--tokens", fixture.tokens), 0);
	assert_string_equal(fixture.out.bytes, "system prompt: 4 chunks (64.00 KiB) stay in L1\n");
	assert_int_equal(CTL(&fixture, "clear"), 0);
	assert_int_equal(CTL(&fixture, "pin"), 0);
	assert_says(&fixture.out, "64.00 KiB of L1 are pinned, at most 4.00 MiB can be");
	assert_says(&fixture.out, "system prompt");
	assert_int_equal(CTL(&fixture, "status"), 0);
	assert_says(&fixture.out, "system prompt");
	assert_int_equal(CTL(&fixture, "unpin", "--name", "system prompt"), 0);
	assert_string_equal(fixture.out.bytes, "system prompt: 4 chunks (64.00 KiB) are evicted as any other\n");
	assert_int_equal(CTL(&fixture, "unpin", "--name", "system prompt"), 1);
	assert_says(&fixture.err, "/unpin: 409: system prompt: there is no pin of that name");
	assert_int_equal(CTL(&fixture, "pin", "--json"), 0);
	assert_string_equal(fixture.out.bytes, "[]\n");
	/* Another salt is another prefix. */
	assert_int_equal(
		CTL(&fixture, "pin", "--name", "s", "--model", "small", "--salt", "x", "--tokens", fixture.tokens), 1);
	assert_says(&fixture.err, "/pin: 409: s: no chunk of that prefix is in L1");
	fixture_fini(&fixture);
}

static void pins_keep_to_the_limit_and_say_so(void **state)
{
	struct fixture fixture;

	(void)state;
	fixture_init(&fixture, "0");
	write_tokens(&fixture, SMALL_CHUNK_TOKENS);
	assert_int_equal(CTL(&fixture, "pin", "--name", "p", "--model", "small", "--tokens", fixture.tokens), 1);
	assert_says(&fixture.err, "/pin: 409: p: all pins together may take 0 bytes of L1 (option pin-limit)");
	assert_int_equal(CTL(&fixture, "pin", "--name", "p", "--model", "large", "--tokens", fixture.tokens), 1);
	assert_says(&fixture.err, "the tenant has no model of that name");
	write_tokens(&fixture, SMALL_CHUNK_TOKENS - 1);
	assert_int_equal(CTL(&fixture, "pin", "--name", "p", "--model", "small", "--tokens", fixture.tokens), 1);
	assert_says(&fixture.err, "has 255 tokens: a chunk has 256");
	write_file(fixture.tokens, "1 2 three", 0600);
	assert_int_equal(CTL(&fixture, "pin", "--name", "p", "--model", "small", "--tokens", fixture.tokens), 1);
	assert_says(&fixture.err, "token 3 is no number below 2^32 at \"three\"");
	write_file(fixture.tokens, "4294967296", 0600);
	assert_int_equal(CTL(&fixture, "pin", "--name", "p", "--model", "small", "--tokens", fixture.tokens), 1);
	assert_says(&fixture.err, "token 1 is no number below 2^32");
	assert_int_equal(CTL(&fixture, "pin", "--tokens", fixture.tokens), 2);
	/* Who forgets the file is not to believe that anything was pinned. */
	assert_int_equal(CTL(&fixture, "pin", "--name", "p", "--model", "small"), 2);
	assert_says(&fixture.err, "pin needs --tokens");
	assert_int_equal(CTL(&fixture, "unpin"), 2);
	fixture_fini(&fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(quotas_are_listed_set_and_removed_while_the_server_runs),
		cmocka_unit_test(what_cannot_be_set_is_refused_by_the_server),
		cmocka_unit_test(a_prefix_is_pinned_listed_and_unpinned),
		cmocka_unit_test(pins_keep_to_the_limit_and_say_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
