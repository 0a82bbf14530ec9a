/* copy_ptx.h - the kernel of copy.cu, as the driver library takes it. */
#ifndef KVRAIL_GPU_KERNELS_COPY_PTX_H
#define KVRAIL_GPU_KERNELS_COPY_PTX_H

#include "base/compiler.h"

KVR_BEGIN_C

/* Zero-terminated. Its function: kvrail_copy. */
extern const char gpu_copy_ptx[];

KVR_END_C

#endif
