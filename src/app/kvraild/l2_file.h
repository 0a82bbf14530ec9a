/* l2_file.h - --l2 file:DIRECTORY?...: the options of a directory. */
#ifndef KVRAIL_APP_KVRAILD_L2_FILE_H
#define KVRAIL_APP_KVRAILD_L2_FILE_H

#include "app/kvraild/l2_places.h"

KVR_BEGIN_C

extern const struct l2_kind l2_file_kind;

KVR_END_C

#endif
