/* quota.c - kvrailctl quota: what tenants hold in L1 and may, and changing that while the server runs. */
#include <inttypes.h>
#include <stdlib.h>

#include "app/common/program.h"
#include "app/kvrailctl/kvrailctl.h"

static int list_quotas(const struct kvrailctl_settings *settings)
{
	struct text page = { NULL, 0, 0, false }, out = { NULL, 0, 0, false };
	json_t *status = NULL;
	int code = PROGRAM_FAILED;

	if (kvrailctl_fetch_status(settings, &page))
		status = kvrailctl_read_status(&page);
	if (status && settings->json) {
		char *tenants = json_dumps(json_object_get(status, "tenants"), JSON_COMPACT);

		text_append(&out, "%s\n", tenants ? tenants : "[]");
		free(tenants);
		code = kvrailctl_print(&out);
	} else if (status) {
		status_tenants(status, true, &out);
		code = kvrailctl_print(&out);
	}
	json_decref(status);
	text_fini(&page);
	text_fini(&out);
	return code;
}

int kvrailctl_quota(const struct kvrailctl_settings *settings)
{
	struct text path = { NULL, 0, 0, false }, answer = { NULL, 0, 0, false }, out = { NULL, 0, 0, false };
	struct kvrailctl_change change = { "quota", NULL, NULL, 0 };
	json_t *json;
	int code;

	if (!settings->quota[0])
		return list_quotas(settings);
	text_append(&path, "/quota");
	kvrailctl_argument(&path, "tenant", settings->tenant);
	kvrailctl_argument(&path, "quota", settings->quota);
	change.path = path.failed ? "/" : path.bytes;
	code = kvrailctl_change(settings, &change, &answer);
	if (code == PROGRAM_GOOD && settings->json) {
		code = kvrailctl_print(&answer);
	} else if (code == PROGRAM_GOOD) {
		json = kvrailctl_read_status(&answer);
		code = PROGRAM_FAILED;
		if (json) {
			text_append(
				&out, "tenant %s: %s\n", status_string(json, "tenant"), status_string(json, "words"));
			code = kvrailctl_print(&out);
		}
		json_decref(json);
	}
	text_fini(&path);
	text_fini(&answer);
	text_fini(&out);
	return code;
}
