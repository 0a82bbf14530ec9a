/*
 * model.h - what must hold, as simply as it can be said: for each object (namespace, chunk, rank) which generations of its bytes may be
 * found, and which are certainly there.
 *
 * Times are sequence numbers: the world counts every submission and every completion.
 */
#ifndef KVRAIL_APP_SIM_MODEL_H
#define KVRAIL_APP_SIM_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

enum generation_state {
	GENERATION_ATTEMPTED, /* a STORE of it was submitted, and not answered (or never will be) */
	GENERATION_STORED,    /* and was answered with STORED */
	GENERATION_NEVER,     /* and was answered with something else: nobody may ever see it */
};

struct generation {
	uint32_t object;
	uint32_t state;
	uint64_t answered;   /* when it was STORED */
	uint64_t dead_since; /* a RETRIEVE submitted later must not see it; UINT64_MAX: it may be there */
};

struct model_object {
	uint32_t possible; /* generations that may be there */
	uint32_t stored;   /* the last one answered with STORED, 0: none */
	uint64_t epoch;    /* it was certainly there in this epoch, since ... */
	uint64_t since;    /* ... this time */
};

struct world_model {
	uint32_t nodes, ranks;        /* of each namespace */
	uint32_t first_object;        /* objects have numbers from here on, so that those of two servers differ */
	struct model_object *objects; /* [namespace][node][rank] */
	uint32_t object_count;
	struct generation *generations;
	uint32_t generation_count, generation_capacity;
	uint32_t first_alive; /* older generations went with a server that was restarted */
	uint64_t restarted;   /* when */
	bool persistent;      /* what was stored once may come back at any time, after a restart too: there is an L2 */
	uint64_t epoch;       /* counts what may have taken objects away: evictions, CLEARs, restarts; from 1 on */
};

/* `number`: of the server. */
KVR_MUST_CHECK int model_init(
	struct world_model *model, uint32_t number, uint32_t namespaces, uint32_t nodes, uint32_t ranks);
void model_fini(struct world_model *model);

static inline uint32_t model_object_index(
	const struct world_model *model, uint32_t namespace_index, uint32_t node, uint32_t rank)
{
	return model->first_object + (namespace_index * model->nodes + node) * model->ranks + rank;
}

/* A STORE of the object is about to be submitted: its generation, from 1 on; 0: no memory. */
uint32_t model_attempt(struct world_model *model, uint32_t object);
/* It was answered with STORED; `submitted` and `epoch`: when the STORE was. */
void model_stored(struct world_model *model, uint32_t generation, uint64_t submitted, uint64_t epoch, uint64_t now);
/* It was answered with PRESENT: another one was there. False: none can have been. */
KVR_MUST_CHECK bool model_present(struct world_model *model, uint32_t generation, uint64_t epoch, uint64_t now);
/* It was answered with something else: it is nowhere. */
void model_never(struct world_model *model, uint32_t generation);
/* Everything went. */
void model_restart(struct world_model *model, uint64_t now);

/* May a RETRIEVE of the object that was submitted then have delivered that generation? NULL: yes; else why not. */
const char *model_check(const struct world_model *model, uint32_t object, uint32_t generation, uint64_t submitted);
/* Was it certainly there at `time` and ever since? */
static inline bool model_certain(const struct world_model *model, uint32_t object, uint64_t time)
{
	const struct model_object *found = &model->objects[object - model->first_object];

	return found->epoch == model->epoch && found->since <= time;
}
/* Can it be there at all? */
static inline bool model_possible(const struct world_model *model, uint32_t object)
{
	return model->objects[object - model->first_object].possible > 0;
}

KVR_END_C

#endif
