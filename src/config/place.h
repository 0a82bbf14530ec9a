/*
 * place.h - a place and how it is used, in one word of an option: KIND:WHERE?name=value&name=value.
 *
 *     file:/var/cache/kvrail?size=100GiB&reserve=10GiB
 *
 * %XX stands for a byte in WHERE and in values; WHERE has no & but as %26. What the names mean is an option table of the kind: `options` is text for
 * option_read_text, so that types, ranges and messages are those of every other option.
 */
#ifndef KVRAIL_CONFIG_PLACE_H
#define KVRAIL_CONFIG_PLACE_H

#include "base/compiler.h"
#include "config/option.h"

KVR_BEGIN_C

struct place {
	char kind[16];
	char where[256];
	char options[1024]; /* lines name = "value" */
};

/* 0; -EINVAL with *error, which names the text. */
KVR_MUST_CHECK int place_parse(const char *text, struct place *place, struct option_error *error);

KVR_END_C

#endif
