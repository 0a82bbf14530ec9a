/* l2_redis.h - --l2 redis:HOST:PORT?...: the options of a Redis or Valkey server, or a cluster. */
#ifndef KVRAIL_APP_KVRAILD_L2_REDIS_H
#define KVRAIL_APP_KVRAILD_L2_REDIS_H

#include "app/kvraild/l2_places.h"

KVR_BEGIN_C

extern const struct l2_kind l2_redis_kind;

KVR_END_C

#endif
