/* clear.c - kvrailctl clear: drops all chunks that are not in use. */
#include <inttypes.h>

#include "app/common/program.h"
#include "app/kvrailctl/kvrailctl.h"

static int say_cleared(const json_t *answer)
{
	struct text out = { NULL, 0, 0, false };
	uint64_t failed = status_number(answer, "l2_failed");
	int code;

	text_append(&out,
		"%" PRIu64 " chunks dropped, %" PRIu64 " kept because they are in use or pinned; cleared: %s\n",
		status_number(answer, "dropped"), status_number(answer, "kept"), status_string(answer, "tiers"));
	code = kvrailctl_print(&out);
	text_fini(&out);
	if (failed == 0)
		return code;
	kvrailctl_complain(
		"%" PRIu64 " places of L2 may still have some of it; kvraild's log says which and why", failed);
	return PROGRAM_FAILED;
}

int kvrailctl_clear(const struct kvrailctl_settings *settings)
{
	const struct kvrailctl_change change = { "clear", settings->tiers ? "/clear?tiers=l1" : "/clear", NULL, 0 };
	struct text answer = { NULL, 0, 0, false };
	int code = kvrailctl_change(settings, &change, &answer);
	json_t *json;

	if (code == PROGRAM_GOOD && settings->json) {
		code = kvrailctl_print(&answer);
	} else if (code == PROGRAM_GOOD) {
		json = kvrailctl_read_status(&answer);
		code = json ? say_cleared(json) : PROGRAM_FAILED;
		json_decref(json);
	}
	text_fini(&answer);
	return code;
}
