/* place.h - a directory for a test of adapters, objects with known bytes, and requests that are waited for. */
#ifndef KVRAIL_TESTS_TIER_PLACE_H
#define KVRAIL_TESTS_TIER_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "tier/adapter.h"
#include "tier/file_adapter.h"

#define PLACE_PATH 256

struct place {
	char path[PLACE_PATH];
};

/* A new directory under $TMPDIR or /tmp; and away with all that is in it. */
void place_make(struct place *place);
void place_remove(struct place *place);
/* Its files whose names end so: how many, and their bytes (NULL: not wanted). */
uint32_t place_count(const struct place *place, const char *suffix, uint64_t *bytes);
/* The path of the object's file. */
void place_file(const struct place *place, const struct l2_identity *identity, char out[2 * PLACE_PATH]);

struct l2_identity object_identity(uint32_t number, uint64_t bytes);
void object_fill(uint32_t number, void *memory, uint64_t bytes);
bool object_good(uint32_t number, const void *memory, uint64_t bytes);

struct l2_adapter *place_open(const struct place *place, struct file_adapter_options *options);
/* Waits for the end of one request, and says how it ended. */
int do_request(struct l2_adapter *adapter, struct l2_request *request);
int do_store(struct l2_adapter *adapter, uint32_t number, uint64_t bytes);
/* 0: and every byte was right (asserted), outside of the object none was written. */
int do_load(struct l2_adapter *adapter, uint32_t number, uint64_t bytes);
int do_contains(struct l2_adapter *adapter, uint32_t number, uint64_t bytes);
int do_remove(struct l2_adapter *adapter, uint32_t number, uint64_t bytes);
void wait_scanned(struct l2_adapter *adapter);
struct l2_stats stats_of(struct l2_adapter *adapter);

/* Log lines of the level "warn" and above while it is on. */
struct warnings {
	uint32_t count;
	char last[512];
};
void warnings_on(struct warnings *warnings);
void warnings_off(void);

#endif
