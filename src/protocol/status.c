#include "protocol/status.h"

#include <errno.h>

struct status_entry {
	const char *name;
	const char *text;
	int error;
};

/* By number; the gaps between the groups stay empty. */
static const struct status_entry statuses[] = {
#define STATUS_ENTRY(name, number, error, text) [number] = { #name, text, error },
	STATUS_LIST(STATUS_ENTRY)
#undef STATUS_ENTRY
};

static const struct status_entry unknown = { "UNKNOWN", "a status that this version does not know", EPROTO };

static const struct status_entry *find(uint16_t status)
{
	if (status >= KVR_COUNT_OF(statuses) || !statuses[status].name)
		return &unknown;
	return &statuses[status];
}

const char *status_name(uint16_t status)
{
	return find(status)->name;
}

const char *status_text(uint16_t status)
{
	return find(status)->text;
}

int status_to_errno(uint16_t status)
{
	return -find(status)->error;
}
