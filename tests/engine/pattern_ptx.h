/* pattern_ptx.h - the kernels of pattern.cu, as the driver library takes them: kvrail_fill, kvrail_check. */
#ifndef KVRAIL_TESTS_GPU_PATTERN_PTX_H
#define KVRAIL_TESTS_GPU_PATTERN_PTX_H

extern const char gpu_pattern_ptx[];

#endif
