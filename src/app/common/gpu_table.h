/* gpu_table.h - the GPUs of gpu/gpu.h as the table that the local driver takes: the two folders know nothing of each other. */
#ifndef KVRAIL_APP_COMMON_GPU_TABLE_H
#define KVRAIL_APP_COMMON_GPU_TABLE_H

#include "base/compiler.h"
#include "gpu/gpu.h"
#include "verbs/gpu_table.h"

KVR_BEGIN_C

/* Fills the table; it and `gpus` must outlive the device that is opened with it. */
void gpu_table_fill(struct verbs_gpu_table *table, struct gpus *gpus);

KVR_END_C

#endif
