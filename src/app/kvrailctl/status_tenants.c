/* status_tenants.c - what tenants hold and may, and what is pinned, of the status page for people. */
#include <inttypes.h>

#include "app/common/table.h"
#include "app/kvrailctl/kvrailctl.h"

static const char *limit(char buffer[TEXT_SHORT], const json_t *tenant, const char *path)
{
	uint64_t bytes = status_number(tenant, path);

	return bytes > 0 ? text_size(buffer, bytes) : "none";
}

void status_tenants(const json_t *status, bool all, struct text *out)
{
	struct table table = { 0, 0, 0, 0, false, NULL };
	char held[TEXT_SHORT], soft[TEXT_SHORT], hard[TEXT_SHORT];
	json_t *tenant;
	size_t i;

	table_begin(&table, "TENANT|HOLDS>|SOFT>|HARD>|QUOTA|EVICTED>|FOR QUOTA>|REFUSED>");
	json_array_foreach(status_array(status, "tenants"), i, tenant)
	{
		uint64_t bytes = status_number(tenant, "resident_bytes") + status_number(tenant, "staged_bytes");

		if (!all && bytes == 0 && !status_bool(tenant, "own_quota"))
			continue;
		table_cell(&table, "%s", status_string(tenant, "name"));
		table_cell(&table, "%s", text_size(held, bytes));
		table_cell(&table, "%s", limit(soft, tenant, "soft_bytes"));
		table_cell(&table, "%s", limit(hard, tenant, "hard_bytes"));
		table_cell(&table, "%s", status_bool(tenant, "own_quota") ? "own" : "default");
		table_cell(&table, "%" PRIu64, status_number(tenant, "evicted_chunks"));
		table_cell(&table, "%" PRIu64, status_number(tenant, "quota_evicted_chunks"));
		table_cell(&table, "%" PRIu64, status_number(tenant, "quota_refused"));
	}
	out->failed |= table.failed;
	if (!all && table.rows >= 2)
		text_append(out, "\n");
	if (table.rows >= 2)
		table_print(&table, out);
	table_fini(&table);
}

void status_pins(const json_t *status, struct text *out)
{
	struct table table = { 0, 0, 0, 0, false, NULL };
	char taken[TEXT_SHORT], most[TEXT_SHORT], bytes[TEXT_SHORT];
	json_t *pin;
	size_t i;

	text_append(out, "%s of L1 are pinned, at most %s can be (kvraild's option pin-limit)\n",
		text_size(taken, status_number(status, "pinned_bytes")),
		text_size(most, status_number(status, "pinned_bytes_max")));
	table_begin(&table, "PIN|TENANT|MODEL|CHUNKS>|TOKENS>|BYTES>");
	json_array_foreach(status_array(status, "pins"), i, pin)
	{
		table_cell(&table, "%s", status_string(pin, "name"));
		table_cell(&table, "%s", status_string(pin, "tenant"));
		table_cell(&table, "%s", status_string(pin, "model"));
		table_cell(&table, "%" PRIu64, status_number(pin, "chunks"));
		table_cell(&table, "%" PRIu64, status_number(pin, "tokens"));
		table_cell(&table, "%s", text_size(bytes, status_number(pin, "bytes")));
	}
	out->failed |= table.failed;
	if (table.rows >= 2)
		table_print(&table, out);
	table_fini(&table);
}
