/* l2_s3.h - --l2 s3:BUCKET?...: the options of a bucket. */
#ifndef KVRAIL_APP_KVRAILD_L2_S3_H
#define KVRAIL_APP_KVRAILD_L2_S3_H

#include "app/kvraild/l2_places.h"

KVR_BEGIN_C

extern const struct l2_kind l2_s3_kind;

KVR_END_C

#endif
