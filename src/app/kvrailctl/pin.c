/* pin.c - kvrailctl pin and unpin: prefixes that stay in L1. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "app/common/program.h"
#include "app/kvrailctl/kvrailctl.h"
#include "protocol/digest.h"

/* The salt field and the digests of all whole chunks; to be freed. NULL after a complaint. */
static uint8_t *make_body(const struct kvrailctl_settings *settings, uint32_t chunk_tokens, size_t *bytes)
{
	struct digester digester;
	uint8_t *body = NULL;
	uint32_t *tokens;
	size_t count;

	if (!kvrailctl_read_tokens(settings->tokens, &tokens, &count))
		return NULL;
	if (digester_init(&digester) != 0) {
		kvrailctl_complain("this build has no SHA-256");
	} else if (count < chunk_tokens) {
		kvrailctl_complain("--tokens %.200s has %zu tokens: a chunk has %" PRIu32
				   ", and only whole chunks are kept",
			settings->tokens, count, chunk_tokens);
	} else if (count / chunk_tokens > WIRE_CHUNKS_MAX) {
		kvrailctl_complain("--tokens %.200s has %zu tokens: at most %u chunks of %" PRIu32 " can be one pin",
			settings->tokens, count, WIRE_CHUNKS_MAX, chunk_tokens);
	} else {
		*bytes = WIRE_DIGEST_BYTES * (1 + count / chunk_tokens);
		body = malloc(*bytes);
		if (body) {
			digest_salt(&digester, settings->salt, strlen(settings->salt), body);
			digest_chain(&digester, NULL, tokens, count, chunk_tokens, body + WIRE_DIGEST_BYTES);
		}
		digester_fini(&digester);
	}
	free(tokens);
	return body;
}

/* What the server says of a pin, for people. */
static int print_pin(const struct kvrailctl_settings *settings, const struct text *answer, bool pinned)
{
	struct text out = { NULL, 0, 0, false };
	char bytes[TEXT_SHORT];
	int code = PROGRAM_FAILED;
	json_t *json;

	if (settings->json)
		return kvrailctl_print(answer);
	json = kvrailctl_read_status(answer);
	if (json) {
		uint64_t chunks = status_number(json, "chunks"), asked = status_number(json, "asked");

		text_append(&out, "%s: %" PRIu64 " chunks (%s) %s", status_string(json, "name"), chunks,
			text_size(bytes, status_number(json, "bytes")),
			pinned ? "stay in L1" : "are evicted as any other");
		if (pinned && chunks < asked)
			text_append(&out, "; the other %" PRIu64 " are not in L1", asked - chunks);
		text_append(&out, "\n");
		code = kvrailctl_print(&out);
	}
	json_decref(json);
	text_fini(&out);
	return code;
}

static int change_pin(const struct kvrailctl_settings *settings, const struct kvrailctl_change *change)
{
	struct text answer = { NULL, 0, 0, false };
	int code = kvrailctl_change(settings, change, &answer);

	if (code == PROGRAM_GOOD)
		code = print_pin(settings, &answer, change->body != NULL);
	text_fini(&answer);
	return code;
}

static int make_pin(const struct kvrailctl_settings *settings, const json_t *status)
{
	struct kvrailctl_change change = { "pin", NULL, NULL, 0 };
	struct text path = { NULL, 0, 0, false };
	uint32_t chunk_tokens = (uint32_t)status_number(status, "cache.chunk_tokens");
	uint8_t *body = make_body(settings, chunk_tokens ? chunk_tokens : 1, &change.body_bytes);
	int code = PROGRAM_FAILED;

	text_append(&path, "/pin");
	kvrailctl_argument(&path, "name", settings->pin_name);
	kvrailctl_argument(&path, "tenant", settings->tenant);
	kvrailctl_argument(&path, "model", settings->model);
	kvrailctl_argument(&path, "dtype", settings->dtype);
	change.body = body;
	change.path = path.bytes;
	if (body && !path.failed)
		code = change_pin(settings, &change);
	free(body);
	text_fini(&path);
	return code;
}

static int list_pins(const struct kvrailctl_settings *settings, const json_t *status)
{
	struct text out = { NULL, 0, 0, false };
	char *pins;
	int code;

	if (settings->json) {
		pins = json_dumps(status_array(status, "pins"), JSON_COMPACT);
		text_append(&out, "%s\n", pins ? pins : "[]");
		free(pins);
	} else {
		status_pins(status, &out);
	}
	code = kvrailctl_print(&out);
	text_fini(&out);
	return code;
}

int kvrailctl_pin(const struct kvrailctl_settings *settings)
{
	struct text page = { NULL, 0, 0, false };
	json_t *status = NULL;
	int code = PROGRAM_FAILED;

	if (!settings->tokens[0] && (settings->pin_name[0] || settings->model[0])) {
		kvrailctl_complain(
			"pin needs --tokens, a file with the prefix; without --name and --model, too, it lists pins");
		return PROGRAM_USAGE;
	}
	if (settings->tokens[0] && (!settings->pin_name[0] || !settings->model[0])) {
		kvrailctl_complain("pin --tokens needs --name, what the pin is to be called, and --model");
		return PROGRAM_USAGE;
	}
	if (kvrailctl_fetch_status(settings, &page))
		status = kvrailctl_read_status(&page);
	if (status && settings->tokens[0])
		code = make_pin(settings, status);
	else if (status)
		code = list_pins(settings, status);
	json_decref(status);
	text_fini(&page);
	return code;
}

int kvrailctl_unpin(const struct kvrailctl_settings *settings)
{
	struct kvrailctl_change change = { "unpin", NULL, NULL, 0 };
	struct text path = { NULL, 0, 0, false };
	int code = PROGRAM_FAILED;

	if (!settings->pin_name[0]) {
		kvrailctl_complain("unpin needs --name; kvrailctl pin lists what is pinned");
		return PROGRAM_USAGE;
	}
	text_append(&path, "/unpin");
	kvrailctl_argument(&path, "name", settings->pin_name);
	change.path = path.bytes;
	if (!path.failed)
		code = change_pin(settings, &change);
	text_fini(&path);
	return code;
}
