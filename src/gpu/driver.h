/*
 * driver.h - the GPU vendor's driver library, loaded at run time: one table of functions, all of them or none.
 *
 * No GPU, no library, or one that lacks a function is a normal state with a reason in words. The names are ours and the
 * types plain, so that nothing of the vendor's is needed to build, and a test can put another table (or another library
 * of that name) in its place. Functions return 0 or a positive code of the library's; gpu_driver_error says its words.
 *
 * Threads: any, but a thread sees only the context that it made current (pitfalls G03). All may take the library's own
 * locks and enter the kernel: never on a poll core.
 */
#ifndef KVRAIL_GPU_DRIVER_H
#define KVRAIL_GPU_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

KVR_BEGIN_C

#define GPU_LIBRARY "libcuda.so.1"
#define GPU_HANDLE_BYTES 64u
#define GPU_UUID_BYTES 16u

struct gpu_handle {
	char bytes[GPU_HANDLE_BYTES];
};
struct gpu_uuid {
	uint8_t bytes[GPU_UUID_BYTES];
};

typedef struct gpu_context_of_library *gpu_context;
typedef struct gpu_stream_of_library *gpu_stream;
typedef struct gpu_module_of_library *gpu_module;
typedef struct gpu_function_of_library *gpu_function;
typedef struct gpu_event_of_library *gpu_event;
typedef uint64_t gpu_address; /* on the GPU */

/* Codes that mean something to us; any other is an error. */
enum gpu_result {
	GPU_DONE = 0,
	GPU_INVALID_VALUE = 1,
	GPU_OUT_OF_MEMORY = 2,
	GPU_NO_DEVICE = 100,
	GPU_ALREADY_MAPPED = 208,
	GPU_NOT_READY = 600,
	GPU_OUT_OF_RESOURCES = 701,
	GPU_ALREADY_REGISTERED = 712,
	GPU_NOT_SUPPORTED = 801,
};

enum gpu_attribute {
	GPU_ATTRIBUTE_MULTIPROCESSORS = 16,
	GPU_ATTRIBUTE_PCI_BUS = 33,
	GPU_ATTRIBUTE_PCI_DEVICE = 34,
	GPU_ATTRIBUTE_UNIFIED_ADDRESSES = 41,
	GPU_ATTRIBUTE_PCI_DOMAIN = 50,
	GPU_ATTRIBUTE_MAJOR = 75,
	GPU_ATTRIBUTE_MINOR = 76,
	GPU_ATTRIBUTE_HOST_POINTERS = 91,  /* registered host memory has the same address on the GPU */
	GPU_ATTRIBUTE_RDMA = 116,          /* adapters can reach its memory */
	GPU_ATTRIBUTE_RDMA_FLUSH = 117,    /* bit 0: flush_writes works */
	GPU_ATTRIBUTE_RDMA_ORDERING = 118, /* of what adapters write: 0: none, GPU_WRITES_TO_OWNER, or more */
	GPU_ATTRIBUTE_DMA_BUF = 124,
};

enum gpu_pointer_attribute {
	GPU_POINTER_CONTEXT = 1,
	GPU_POINTER_MEMORY_TYPE = 2,
	GPU_POINTER_ORDINAL = 9,
	GPU_POINTER_IPC_CAPABLE = 10, /* made by the plain allocator, so that a handle can be had */
};
#define GPU_MEMORY_DEVICE 2u /* of GPU_POINTER_MEMORY_TYPE */

#define GPU_FUNCTION_SHARED_BYTES 8 /* function_attribute: of dynamic shared memory, the most that a launch asks for */
#define GPU_RDMA_FLUSH_HOST 1
#define GPU_WRITES_TO_OWNER 100 /* flush_writes: for the context that owns the memory */
#define GPU_RANGE_DMA_BUF 1
#define GPU_HOST_PORTABLE 1u /* host_register, host_alloc: for all contexts ... */
#define GPU_HOST_MAPPED 2u   /* ... and with an address on the GPU */
#define GPU_STREAM_NON_BLOCKING 1u
#define GPU_EVENT_NO_TIMING 2u
#define GPU_WAIT_REACHED 0u /* wait_value: until the word is at least the value, as the sign of the difference says */
#define GPU_IPC_LAZY_PEERS 1u

/*
 * One row a function: our name, the library's, the arguments. Rows of GPU_DRIVER_FUNCTIONS must all be there, or the
 * library is not used.
 */
#define GPU_DRIVER_FUNCTIONS(X)                                                                                        \
	X(init, "cuInit", (unsigned flags))                                                                            \
	X(version, "cuDriverGetVersion", (int *version))                                                               \
	X(error_name, "cuGetErrorName", (int code, const char **text))                                                 \
	X(error_text, "cuGetErrorString", (int code, const char **text))                                               \
	X(device_count, "cuDeviceGetCount", (int *count))                                                              \
	X(device_get, "cuDeviceGet", (int *device, int ordinal))                                                       \
	X(device_name, "cuDeviceGetName", (char *name, int size, int device))                                          \
	X(device_uuid, "cuDeviceGetUuid_v2", (struct gpu_uuid * uuid, int device))                                     \
	X(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, int device))                           \
	X(context_retain, "cuDevicePrimaryCtxRetain", (gpu_context * context, int device))                             \
	X(context_release, "cuDevicePrimaryCtxRelease_v2", (int device))                                               \
	X(context_set, "cuCtxSetCurrent", (gpu_context context))                                                       \
	X(context_get, "cuCtxGetCurrent", (gpu_context * context))                                                     \
	X(context_push, "cuCtxPushCurrent_v2", (gpu_context context))                                                  \
	X(context_pop, "cuCtxPopCurrent_v2", (gpu_context * context))                                                  \
	X(module_load, "cuModuleLoadData", (gpu_module * module, const void *image))                                   \
	X(module_unload, "cuModuleUnload", (gpu_module module))                                                        \
	X(module_function, "cuModuleGetFunction", (gpu_function * function, gpu_module module, const char *name))      \
	X(function_attribute, "cuFuncSetAttribute", (gpu_function function, int attribute, int value))                 \
	X(launch, "cuLaunchKernel",                                                                                    \
		(gpu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,           \
			unsigned block_y, unsigned block_z, unsigned shared_bytes, gpu_stream stream,                  \
			void **parameters, void **extra))                                                              \
	X(stream_create, "cuStreamCreateWithPriority", (gpu_stream * stream, unsigned flags, int priority))            \
	X(stream_destroy, "cuStreamDestroy_v2", (gpu_stream stream))                                                   \
	X(stream_query, "cuStreamQuery", (gpu_stream stream))                                                          \
	X(stream_wait, "cuStreamSynchronize", (gpu_stream stream))                                                     \
	X(priority_range, "cuCtxGetStreamPriorityRange", (int *least, int *greatest))                                  \
	X(write_value, "cuStreamWriteValue32_v2",                                                                      \
		(gpu_stream stream, gpu_address address, uint32_t value, unsigned flags))                              \
	X(wait_value, "cuStreamWaitValue32_v2",                                                                        \
		(gpu_stream stream, gpu_address address, uint32_t value, unsigned flags))                              \
	X(event_query, "cuEventQuery", (gpu_event event))                                                              \
	X(memory_alloc, "cuMemAlloc_v2", (gpu_address * address, size_t bytes))                                        \
	X(memory_free, "cuMemFree_v2", (gpu_address address))                                                          \
	X(memory_range, "cuMemGetAddressRange_v2", (gpu_address * base, size_t * bytes, gpu_address address))          \
	X(memory_set, "cuMemsetD8_v2", (gpu_address address, unsigned char value, size_t bytes))                       \
	X(copy_to_device, "cuMemcpyHtoDAsync_v2", (gpu_address to, const void *from, size_t bytes, gpu_stream stream)) \
	X(copy_to_host, "cuMemcpyDtoHAsync_v2", (void *to, gpu_address from, size_t bytes, gpu_stream stream))         \
	X(host_alloc, "cuMemHostAlloc", (void **address, size_t bytes, unsigned flags))                                \
	X(host_free, "cuMemFreeHost", (void *address))                                                                 \
	X(host_register, "cuMemHostRegister_v2", (void *address, size_t bytes, unsigned flags))                        \
	X(host_unregister, "cuMemHostUnregister", (void *address))                                                     \
	X(host_on_device, "cuMemHostGetDevicePointer_v2", (gpu_address * there, void *address, unsigned flags))        \
	X(pointer_attribute, "cuPointerGetAttribute", (void *value, int attribute, gpu_address address))               \
	X(range_handle, "cuMemGetHandleForAddressRange",                                                               \
		(void *handle, gpu_address address, size_t bytes, int type, unsigned long long flags))                 \
	X(flush_writes, "cuFlushGPUDirectRDMAWrites", (int target, int scope))                                         \
	X(ipc_export, "cuIpcGetMemHandle", (struct gpu_handle * handle, gpu_address address))                          \
	X(ipc_open, "cuIpcOpenMemHandle_v2", (gpu_address * address, struct gpu_handle handle, unsigned flags))        \
	X(ipc_close, "cuIpcCloseMemHandle", (gpu_address address))

struct gpu_driver {
	void *library; /* dlopen's; NULL in tables that a test filled */
#define GPU_DRIVER_FIELD(name, symbol, arguments) int(*name) arguments;
	GPU_DRIVER_FUNCTIONS(GPU_DRIVER_FIELD)
#undef GPU_DRIVER_FIELD
};

/*
 * Loads `library` (NULL: GPU_LIBRARY) and starts it. 0; -ENOENT: no such library; -ENOSYS: a function is missing;
 * -ENODEV: it says that there is no GPU, or can't start. `reason` gets words for all but 0; *driver is zeroed then.
 * May take a second: starting the library looks at all GPUs.
 */
KVR_MUST_CHECK int gpu_driver_load(const char *library, struct gpu_driver *driver, char *reason, size_t size);
/* The same for a library that this process uses already: neither loads nor starts it (a process that starts it and forks
 * has children that can't). -ENOENT: it is not loaded; -ENOSYS. */
KVR_MUST_CHECK int gpu_driver_join(const char *library, struct gpu_driver *driver, char *reason, size_t size);
void gpu_driver_unload(struct gpu_driver *driver);
/* "CUDA_ERROR_NAME: words" for a code; never NULL. */
const char *gpu_driver_error(const struct gpu_driver *driver, int code, char *text, size_t size);

KVR_END_C

#endif
