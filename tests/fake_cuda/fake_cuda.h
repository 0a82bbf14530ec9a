/*
 * fake_cuda.h - a GPU driver library of our own, for tests: GPU memory is shared memory of the host, kernels run on a thread.
 *
 * It is loaded by its name, as the real one is (LD_LIBRARY_PATH, or gpus_options.library). Handles of allocations work between
 * processes. It is strict: a kernel that touches memory which is neither registered nor mapped breaks the context for good,
 * as on a real GPU.
 *
 * Environment: FAKE_CUDA_GPUS (1), FAKE_CUDA_LAUNCH_US: how long a kernel takes (0), FAKE_CUDA_SAME_PROCESS=1: a handle may be opened
 * by the process that made it, FAKE_CUDA_OLD: a GPU without bulk copies, FAKE_CUDA_BREAK_AFTER: the copy kernel that breaks the
 * context (0: none),
 * FAKE_CUDA_RDMA, FAKE_CUDA_DMA_BUF, FAKE_CUDA_FLUSH, FAKE_CUDA_ORDERING: those attributes (1, 1, 1, 100), which the real library refuses.
 */
#ifndef KVRAIL_TESTS_GPU_FAKE_CUDA_H
#define KVRAIL_TESTS_GPU_FAKE_CUDA_H

#include <stdbool.h>
#include <stdint.h>

/* Found by dlsym(library, "fake_cuda_control"). Any thread. */
struct fake_cuda_control {
	void (*hold)(bool on);                                        /* what is launched waits until off */
	void (*refuse)(const char *symbol, int code, unsigned times); /* the next calls of that function */
	void (*block)(const char *symbol, bool on); /* calls of that function do not return until off */
	void (*break_context)(int code);            /* sticky: everything fails from now on; 0: as new */
	unsigned (*calls)(const char *symbol);      /* so far; "kvrail_copy_bulk": launches of that kernel */
	unsigned (*mapped)(void);                   /* allocations of others, mapped now */
};
typedef const struct fake_cuda_control *(*fake_cuda_control_fn)(void);

#endif
