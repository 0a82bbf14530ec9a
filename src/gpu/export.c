/* export.c - see export.h. Every call runs in the context that made the memory, whatever the thread had current. */
#include "gpu/export.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

bool gpu_is_device(const struct gpu_driver *driver, uint64_t address)
{
	unsigned type = 0;

	return driver->pointer_attribute(&type, GPU_POINTER_MEMORY_TYPE, address) == GPU_DONE &&
		type == GPU_MEMORY_DEVICE;
}

/* The memory's own context becomes current; *pushed says whether there is one to be taken off again. Memory of a pool has none: the
 * thread's own must do. */
static void enter(const struct gpu_driver *driver, uint64_t address, bool *pushed)
{
	gpu_context context = NULL;

	*pushed = driver->pointer_attribute(&context, GPU_POINTER_CONTEXT, address) == GPU_DONE && context &&
		driver->context_push(context) == GPU_DONE;
}

static void leave(const struct gpu_driver *driver, bool pushed)
{
	gpu_context context;

	if (pushed)
		(void)driver->context_pop(&context);
}

static int find(
	const struct gpu_driver *driver, uint64_t address, struct gpu_allocation *allocation, char *reason, size_t size)
{
	char text[128];
	size_t bytes = 0;
	int ordinal = 0;
	int code = driver->pointer_attribute(&ordinal, GPU_POINTER_ORDINAL, address);

	if (code == GPU_DONE)
		code = driver->memory_range(&allocation->base, &bytes, address);
	if (code != GPU_DONE) {
		snprintf(reason, size, "the GPU allocation at 0x%llx can't be found: %s", (unsigned long long)address,
			gpu_driver_error(driver, code, text, sizeof(text)));
		return -EFAULT;
	}
	allocation->ordinal = (uint32_t)ordinal;
	allocation->bytes = bytes;
	return 0;
}

int gpu_find_allocation(
	const struct gpu_driver *driver, uint64_t address, struct gpu_allocation *allocation, char *reason, size_t size)
{
	bool pushed;
	int error;

	enter(driver, address, &pushed);
	error = find(driver, address, allocation, reason, size);
	leave(driver, pushed);
	return error;
}

static int export_from(const struct gpu_driver *driver, uint64_t address, struct gpu_export *description,
	const struct gpu_allocation *allocation, char *reason, size_t size)
{
	struct gpu_handle handle;
	struct gpu_uuid uuid;
	char text[128];
	int device = 0;
	int code = driver->device_get(&device, (int)allocation->ordinal);

	if (code == GPU_DONE)
		code = driver->device_uuid(&uuid, device);
	if (code == GPU_DONE)
		code = driver->ipc_export(&handle, allocation->base);
	if (code != GPU_DONE) {
		snprintf(reason, size,
			"GPU memory at 0x%llx can't be shared with another process: %s; it must come from the plain "
			"allocator (PyTorch: without expandable_segments)",
			(unsigned long long)address, gpu_driver_error(driver, code, text, sizeof(text)));
		return -EOPNOTSUPP;
	}
	memcpy(description->handle, uuid.bytes, GPU_UUID_BYTES);
	memcpy(description->handle + GPU_UUID_BYTES, handle.bytes, GPU_HANDLE_BYTES);
	description->offset = address - allocation->base;
	description->ordinal = allocation->ordinal;
	return 0;
}

int gpu_export_region(const struct gpu_driver *driver, uint64_t address, uint64_t length,
	struct gpu_export *description, char *reason, size_t size)
{
	struct gpu_allocation allocation;
	bool pushed;
	int error;

	enter(driver, address, &pushed);
	error = find(driver, address, &allocation, reason, size);
	if (!error && length > allocation.bytes - (address - allocation.base)) {
		snprintf(reason, size, "%llu bytes at 0x%llx are not in one GPU allocation: it has %llu from there on",
			(unsigned long long)length, (unsigned long long)address,
			(unsigned long long)(allocation.bytes - (address - allocation.base)));
		error = -EFAULT;
	}
	if (!error)
		error = export_from(driver, address, description, &allocation, reason, size);
	leave(driver, pushed);
	return error;
}
