/* clear.c - kvrailctl clear: drops all chunks that are not in use. */
#include "app/common/program.h"
#include "app/kvrailctl/kvrailctl.h"

int kvrailctl_clear(const struct kvrailctl_settings *settings)
{
	const struct kvrailctl_change change = { "clear", "/clear", NULL, 0 };
	struct text answer = { NULL, 0, 0, false }, out = { NULL, 0, 0, false };
	int code = kvrailctl_change(settings, &change, &answer);
	json_t *json;

	if (code == PROGRAM_GOOD && settings->json) {
		code = kvrailctl_print(&answer);
	} else if (code == PROGRAM_GOOD) {
		json = kvrailctl_read_status(&answer);
		code = PROGRAM_FAILED;
		if (json) {
			text_append(&out, "%llu chunks dropped, %llu kept because they are in use or pinned\n",
				(unsigned long long)status_number(json, "dropped"),
				(unsigned long long)status_number(json, "kept"));
			code = kvrailctl_print(&out);
		}
		json_decref(json);
	}
	text_fini(&answer);
	text_fini(&out);
	return code;
}
