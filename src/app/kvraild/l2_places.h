/* l2_places.h - the places of --l2: what kinds there are, their options, and opening them. */
#ifndef KVRAIL_APP_KVRAILD_L2_PLACES_H
#define KVRAIL_APP_KVRAILD_L2_PLACES_H

#include "base/compiler.h"
#include "config/option.h"
#include "config/place.h"
#include "tier/l1.h"
#include "tier/l2.h"

KVR_BEGIN_C

#define L2_SETTINGS_BYTES 1024 /* of each kind, at most */

struct l2_place_plan {
	struct place place;
	const struct l2_kind *kind;
	KVR_ALIGNED(16) char settings[L2_SETTINGS_BYTES];
};

/* Kinds register in one table, in l2_places.c. */
struct l2_kind {
	const char *name;
	const struct option_table *options; /* its program is the name with which --l2 is refused */
	size_t settings_bytes;
	/* Settings that contradict each other: -EINVAL with *error. NULL: they cannot. */
	int (*check)(const struct place *place, const void *settings, struct option_error *error);
	/* As adapters' own open; error: for people. */
	int (*open)(const struct place *place, const void *settings, const struct l1_area *areas, uint32_t area_count,
		struct l2_adapter **adapter, char *error, size_t error_size);
};

/* compress=zstd:LEVEL of kinds that have it: the level, 0 for none, -1 for any other text. */
int l2_compress_level(const char *text);
/* Writes what is wrong with it, or with `element`; nothing when all is well. */
void l2_compress_check(const char *text, uint32_t element, char *out, size_t size);

/* NULL behind the last. */
const struct l2_kind *l2_kind_at(uint32_t index);
/* One item of --l2. 0 or -EINVAL with *error. */
KVR_MUST_CHECK int l2_place_read(const char *text, struct l2_place_plan *plan, struct option_error *error);
/* 0, or what the adapter says, which is in `error`. */
KVR_MUST_CHECK int l2_place_open(const struct l2_place_plan *plan, const struct l1_area *areas, uint32_t area_count,
	struct l2_adapter **adapter, char *error, size_t error_size);

KVR_END_C

#endif
