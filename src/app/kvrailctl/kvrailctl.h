/* kvrailctl.h - the operator's tool: options, commands, and what commands share. */
#ifndef KVRAIL_APP_KVRAILCTL_KVRAILCTL_H
#define KVRAIL_APP_KVRAILCTL_KVRAILCTL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/text.h"
#include "config/option.h"

KVR_BEGIN_C

struct kvrailctl_settings {
	char config[256];
	char http[256];
	uint64_t timeout_ns;
	bool json;
	char token_file[256];
	uint32_t tiers; /* clear: 1, L1 alone */
	char tenant[64];
	char quota[64];
	char pin_name[64];
	char model[256];
	char dtype[64];
	char salt[256];
	char tokens[256];
	uint64_t interval_ns;
	uint32_t count;
	char socket[128];
	char device[64];
	uint64_t l1_bytes;
	char topo_xml[256];
	bool topo_plan;
	char topo_what_if[128];
	char topo_export[256];
	char topo_svg[256];
};

extern const struct option_table kvrailctl_options;

/* One command a file; the exit code. Complaints go to standard error by kvrailctl_complain. */
int kvrailctl_status(const struct kvrailctl_settings *settings);
int kvrailctl_sessions(const struct kvrailctl_settings *settings);
int kvrailctl_top(const struct kvrailctl_settings *settings);
int kvrailctl_clear(const struct kvrailctl_settings *settings);
int kvrailctl_quota(const struct kvrailctl_settings *settings);
int kvrailctl_pin(const struct kvrailctl_settings *settings);
int kvrailctl_unpin(const struct kvrailctl_settings *settings);
int kvrailctl_check(const struct kvrailctl_settings *settings);
int kvrailctl_topo(const struct kvrailctl_settings *settings);

/* "kvrailctl: ..." on standard error; returns PROGRAM_FAILED. */
int kvrailctl_complain(const char *format, ...) KVR_PRINTF(1, 2);
/* Prints and returns the exit code. */
int kvrailctl_print(const struct text *out);

/* change.c: a POST with the operator's token. The answer of 200 is appended, and the code is PROGRAM_GOOD; else it was complained
 * about, and it is the exit code. */
struct kvrailctl_change {
	const char *command;
	const char *path;
	const void *body;
	size_t body_bytes;
};
int kvrailctl_change(
	const struct kvrailctl_settings *settings, const struct kvrailctl_change *change, struct text *answer);
/* Appends "?name=value", or "&name=value" behind others, escaped. */
void kvrailctl_argument(struct text *path, const char *name, const char *value);

/* tokens.c: token ids of a file, decimal numbers with blanks, commas or brackets between them; to be freed. False after a complaint. */
bool kvrailctl_read_tokens(const char *path, uint32_t **tokens, size_t *count);

/* api.c: the page as it came, and as JSON. NULL after a complaint. */
bool kvrailctl_fetch_status(const struct kvrailctl_settings *settings, struct text *page);
json_t *kvrailctl_read_status(const struct text *page);
/* "l1.total_bytes" of the page; 0, "" or false where there is no such thing. */
uint64_t status_number(const json_t *status, const char *path);
double status_real(const json_t *status, const char *path);
const char *status_string(const json_t *status, const char *path);
bool status_bool(const json_t *status, const char *path);
const json_t *status_array(const json_t *status, const char *path);

/* status.c: one frame for people, also of top. */
void status_head(const json_t *status, struct text *out);
void status_models(const json_t *status, struct text *out);
/* Tenants with what they hold and may; with `all` also where nothing is limited and nothing held, else behind an empty line. */
void status_tenants(const json_t *status, bool all, struct text *out);
void status_pins(const json_t *status, struct text *out);

KVR_END_C

#endif
