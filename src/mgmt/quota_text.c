#include "mgmt/quota.h"

#include <string.h>

static const char *parse_limit(const char *text, uint64_t *bytes)
{
	*bytes = 0;
	if (strcmp(text, "none") == 0)
		return NULL;
	if (text_parse_size(text, bytes) != 0) {
		const char *why = text_size_refusal(text);

		return why ? why : "write SOFT:HARD, each a size as 4GiB, or none";
	}
	/* As the largest L1; and a number above 2^63 is none to many readers of JSON. */
	if (*bytes > QUOTA_BYTES_MAX)
		return "a limit is at most 64 TiB: write none for no limit";
	/* Who writes 0 may mean either: nothing at all, or no limit. */
	return *bytes > 0 ? NULL : "0 is no limit to store under: write none for no limit";
}

const char *quota_parse(const char *text, struct cache_quota *quota)
{
	const char *colon = strchr(text, ':');
	char soft[QUOTA_TEXT_MAX];
	const char *why;

	if (!colon || (size_t)(colon - text) >= sizeof(soft))
		return "write SOFT:HARD, each a size as 4GiB, or none";
	memcpy(soft, text, (size_t)(colon - text));
	soft[colon - text] = '\0';
	why = parse_limit(soft, &quota->soft_bytes);
	if (!why)
		why = parse_limit(colon + 1, &quota->hard_bytes);
	if (!why && quota->hard_bytes > 0 && quota->soft_bytes > quota->hard_bytes)
		why = "the soft limit is above the hard one";
	return why;
}
