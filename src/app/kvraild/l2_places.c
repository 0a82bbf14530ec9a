#include "app/kvraild/l2_places.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "app/kvraild/l2_file.h"
#include "app/kvraild/l2_redis.h"
#include "app/kvraild/l2_s3.h"
#include "base/text.h"

static const struct l2_kind *const kinds[] = {
	&l2_file_kind,
	&l2_redis_kind,
	&l2_s3_kind,
};

const struct l2_kind *l2_kind_at(uint32_t index)
{
	return index < KVR_COUNT_OF(kinds) ? kinds[index] : NULL;
}

static const struct l2_kind *find_kind(const char *name)
{
	for (uint32_t i = 0; i < KVR_COUNT_OF(kinds); i++)
		if (strcmp(kinds[i]->name, name) == 0)
			return kinds[i];
	return NULL;
}

static int refuse_kind(const char *text, struct option_error *error)
{
	size_t length;

	snprintf(error->text, sizeof(error->text), "--l2 %.200s: there is no such kind of place; there is:", text);
	for (uint32_t i = 0; i < KVR_COUNT_OF(kinds); i++) {
		length = strlen(error->text);
		snprintf(error->text + length, sizeof(error->text) - length, " %s", kinds[i]->name);
	}
	return -EINVAL;
}

int l2_place_read(const char *text, struct l2_place_plan *plan, struct option_error *error)
{
	struct option_error inner;
	char name[300];
	int result;

	memset(plan, 0, sizeof(*plan));
	result = place_parse(text, &plan->place, &inner);
	if (result) {
		snprintf(error->text, sizeof(error->text), "--l2 %.480s", inner.text);
		return result;
	}
	plan->kind = find_kind(plan->place.kind);
	if (!plan->kind || plan->kind->settings_bytes > sizeof(plan->settings))
		return refuse_kind(text, error);
	snprintf(name, sizeof(name), "--l2 %.280s", text);
	result = option_defaults(plan->kind->options, plan->settings, error);
	if (!result)
		result = option_read_text(plan->kind->options, name, plan->place.options, strlen(plan->place.options),
			plan->settings, error);
	if (!result && plan->kind->check)
		result = plan->kind->check(&plan->place, plan->settings, error);
	return result;
}

int l2_place_open(const struct l2_place_plan *plan, const struct l1_area *areas, uint32_t area_count,
	struct l2_adapter **adapter, char *error, size_t error_size)
{
	return plan->kind->open(&plan->place, plan->settings, areas, area_count, adapter, error, error_size);
}

int l2_compress_level(const char *text)
{
	static const char name[] = "zstd:";
	uint64_t level;

	if (strcmp(text, "none") == 0)
		return 0;
	if (strncmp(text, name, sizeof(name) - 1) != 0 || text_parse_u64(text + sizeof(name) - 1, &level) ||
		level == 0 || level > 19)
		return -1;
	return (int)level;
}

void l2_compress_check(const char *text, uint32_t element, char *out, size_t size)
{
	if (l2_compress_level(text) < 0)
		snprintf(out, size, "compress is none, or zstd:LEVEL with a level from 1 to 19, not %.20s", text);
	else if (element == 3)
		snprintf(out, size, "element is 1, 2 or 4");
}
