/* bulk_ptx.h - bulk.cu as PTX text. */
#ifndef KVRAIL_GPU_KERNELS_BULK_PTX_H
#define KVRAIL_GPU_KERNELS_BULK_PTX_H

#include "base/compiler.h"

KVR_BEGIN_C

extern const char gpu_bulk_ptx[];

KVR_END_C

#endif
