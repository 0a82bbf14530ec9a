/* export.c - see export.h. Every call runs in the context that made the memory, whatever the thread had current. */
#include "gpu/export.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

/* The allocation that holds all of the range. */
static int find_whole(const struct gpu_driver *driver, uint64_t address, uint64_t length,
	struct gpu_allocation *allocation, char *reason, size_t size)
{
	int error = find(driver, address, allocation, reason, size);

	if (error || length <= allocation->bytes - (address - allocation->base))
		return error;
	snprintf(reason, size, "%llu bytes at 0x%llx are not in one GPU allocation: it has %llu from there on",
		(unsigned long long)length, (unsigned long long)address,
		(unsigned long long)(allocation->bytes - (address - allocation->base)));
	return -EFAULT;
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
	error = find_whole(driver, address, length, &allocation, reason, size);
	if (!error)
		error = export_from(driver, address, description, &allocation, reason, size);
	leave(driver, pushed);
	return error;
}

/* ---- adapters --------------------------------------------------------------------------------------------------- */

void gpu_rdma_of(const struct gpu_driver *driver, uint64_t address, struct gpu_rdma *rdma)
{
	int ordinal = 0, device = 0, possible = 0, options = 0, ordering = 0, dma_buf = 0;
	char text[128];
	int code = driver->pointer_attribute(&ordinal, GPU_POINTER_ORDINAL, address);

	memset(rdma, 0, sizeof(*rdma));
	if (code == GPU_DONE)
		code = driver->pointer_attribute(&rdma->context, GPU_POINTER_CONTEXT, address);
	if (code == GPU_DONE)
		code = driver->device_get(&device, ordinal);
	if (code == GPU_DONE)
		code = driver->device_attribute(&possible, GPU_ATTRIBUTE_RDMA, device);
	if (code == GPU_DONE)
		code = driver->device_attribute(&options, GPU_ATTRIBUTE_RDMA_FLUSH, device);
	if (code == GPU_DONE)
		code = driver->device_attribute(&ordering, GPU_ATTRIBUTE_RDMA_ORDERING, device);
	/* A driver that does not know the question has no dma-bufs. */
	if (code == GPU_DONE && driver->device_attribute(&dma_buf, GPU_ATTRIBUTE_DMA_BUF, device) != GPU_DONE)
		dma_buf = 0;
	rdma->dma_buf = dma_buf != 0;
	rdma->flush = ordering < GPU_WRITES_TO_OWNER;
	if (code != GPU_DONE)
		snprintf(rdma->reason, sizeof(rdma->reason), "what GPU %d lets adapters do can't be asked: %s", ordinal,
			gpu_driver_error(driver, code, text, sizeof(text)));
	else if (!possible)
		snprintf(rdma->reason, sizeof(rdma->reason), "GPU %d lets no adapter reach its memory", ordinal);
	else if (rdma->flush && !(options & GPU_RDMA_FLUSH_HOST))
		snprintf(rdma->reason, sizeof(rdma->reason),
			"GPU %d neither orders what adapters write nor can be asked to", ordinal);
	else
		rdma->possible = true;
}

/* The pages that hold the range; they lie in the allocation, which has whole pages. The context is current. */
static int dmabuf_from(const struct gpu_driver *driver, uint64_t address, uint64_t length,
	const struct gpu_allocation *allocation, struct gpu_dmabuf *dmabuf, char *reason, size_t size)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t first = address / page * page;
	uint64_t bytes = kvr_round_up(address + length - first, page);
	char text[128];
	int fd = -1;
	int code;

	if (first < allocation->base || bytes > allocation->base + allocation->bytes - first) {
		snprintf(reason, size, "the GPU allocation at 0x%llx does not lie on whole pages of %llu bytes",
			(unsigned long long)allocation->base, (unsigned long long)page);
		return -EOPNOTSUPP;
	}
	code = driver->range_handle(&fd, first, bytes, GPU_RANGE_DMA_BUF, 0);
	if (code != GPU_DONE) {
		snprintf(reason, size, "no dma-buf of GPU memory at 0x%llx: %s", (unsigned long long)address,
			gpu_driver_error(driver, code, text, sizeof(text)));
		return -EOPNOTSUPP;
	}
	dmabuf->fd = fd;
	dmabuf->offset = address - first;
	dmabuf->bytes = bytes;
	return 0;
}

int gpu_export_dmabuf(const struct gpu_driver *driver, uint64_t address, uint64_t length, struct gpu_dmabuf *dmabuf,
	char *reason, size_t size)
{
	struct gpu_allocation allocation;
	bool pushed;
	int error;

	enter(driver, address, &pushed);
	error = find_whole(driver, address, length, &allocation, reason, size);
	if (!error)
		error = dmabuf_from(driver, address, length, &allocation, dmabuf, reason, size);
	leave(driver, pushed);
	return error;
}

int gpu_flush_writes(const struct gpu_driver *driver, gpu_context context, char *reason, size_t size)
{
	char text[128];
	int code = driver->context_push(context);

	if (code == GPU_DONE) {
		code = driver->flush_writes(0, GPU_WRITES_TO_OWNER);
		leave(driver, true);
	}
	if (code == GPU_DONE)
		return 0;
	snprintf(reason, size, "what an adapter wrote to GPU memory could not be flushed: %s",
		gpu_driver_error(driver, code, text, sizeof(text)));
	return -EIO;
}
