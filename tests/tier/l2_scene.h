/*
 * l2_scene.h - an L2 engine between a cache and simulated places, stepped by hand: for tests of the engine. Objects of a chunk are
 * SCENE_OBJECT bytes that say which chunk and part they are of.
 */
#ifndef KVRAIL_TESTS_TIER_L2_SCENE_H
#define KVRAIL_TESTS_TIER_L2_SCENE_H

#include "tier/l2_internal.h"
#include "tier/sim_adapter.h"

#define SCENE_OBJECT 65536u
#define SCENE_PARTS_MAX 4u
#define SCENE_PLACES 2u
#define SCENE_CHAIN 1000u /* a chunk's place in its chain is its number modulo this */

struct scene {
	struct l1_area area;
	struct l1 *l1;
	struct cache *cache;
	struct l2 *l2;
	struct sim_place *places[SCENE_PLACES];
	struct l2_adapter *adapters[SCENE_PLACES];
	struct sim_adapter_options faults;
	uint32_t space, parts, object_class;
	uint64_t now;
	uint64_t chain_ns; /* when the chain that is stored began to be used */
	uint32_t stride;   /* of the words of an object that are compared */
	uint8_t model_key[32], salt[32];
	uint64_t part_bytes[SCENE_PARTS_MAX];
};

struct scene_call {     /* what a fetch was told */
	uint32_t first; /* chunk that index 0 names */
	uint32_t early, done;
	bool early_known;
	bool canceled;
	uint32_t found; /* chunks in a row that were there when it was done */
	uint32_t count;
	struct scene *scene;
	struct l2_fetch *fetch;
};

#define COUNTER(scene, name) (l2_get_counters((scene)->l2)->name)

/* options: the caller's limits, and adapters where they are not to be simulated places; the rest is filled in. */
void scene_init(struct scene *scene, uint32_t slots, uint32_t parts, uint32_t adapters, struct l2_options *options);
/* Ends the test when anything is left, or memory changed under a STORE. */
void scene_fini(struct scene *scene);
/* Each 10 us apart. */
void scene_turns(struct scene *scene, uint32_t count);
/* Until the engine is idle. */
void scene_rest(struct scene *scene);
/* What each word of such an object is. */
uint64_t scene_word(uint32_t chunk, uint32_t part);
/* The entry of a chunk, whose bytes are checked; CACHE_NONE. */
uint32_t scene_look(struct scene *scene, uint32_t chunk);
void scene_offer(struct scene *scene, uint32_t chunk, uint32_t part, uint32_t entry, bool again);
/* A client stores a part of a chunk. False: no room. */
bool scene_put_part(struct scene *scene, uint32_t chunk, uint32_t part);
void scene_put(struct scene *scene, uint32_t first, uint32_t count);
/* All parts are in L1. */
bool scene_complete(struct scene *scene, uint32_t chunk);
/* Everything that is not held leaves L1. */
void scene_empty_l1(struct scene *scene);
/* l2_fetch_begin's result; call lives until the fetch is done. */
int scene_begin(struct scene *scene, struct scene_call *call, uint32_t first, uint32_t count, uint32_t tenant);
void scene_cancel(struct scene_call *call);
/* To its end: how many chunks it found. */
uint32_t scene_fetch(struct scene *scene, uint32_t first, uint32_t count);

#endif
