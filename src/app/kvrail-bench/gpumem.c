#include "app/kvrail-bench/gpumem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/kvrail-bench/measure.h"
#include "base/clock.h"
#include "gpu/driver.h"

#define SLICE_BYTES ((uint64_t)64 << 20)
#define SLICES_MAX 1024u

struct gpumem {
	struct gpu_driver driver;
	int device;
	gpu_context context;
	gpu_stream stream;
	uint8_t *pinned; /* and `area` on the GPU: SLICE_BYTES each, for the ceiling; copies go by it as well */
	gpu_address area;
	double gbps[2][SLICES_MAX]; /* [to_gpu] */
	size_t slices;
};

static int failed(const struct gpumem *memory, int code, const char *what, char *why, size_t why_size)
{
	char text[160];

	snprintf(
		why, why_size, "GPU memory: %s: %s", what, gpu_driver_error(&memory->driver, code, text, sizeof(text)));
	return -EIO;
}

static int open_gpu(struct gpumem *memory, uint32_t gpu, char *why, size_t why_size)
{
	const struct gpu_driver *driver = &memory->driver;
	void *pinned = NULL;
	int code = driver->device_get(&memory->device, (int)gpu);

	if (code)
		return failed(memory, code, "there is no such GPU (--gpu)", why, why_size);
	code = driver->context_retain(&memory->context, memory->device);
	if (!code)
		code = driver->context_set(memory->context);
	if (!code)
		code = driver->stream_create(&memory->stream, GPU_STREAM_NON_BLOCKING, 0);
	if (!code)
		code = driver->host_alloc(&pinned, SLICE_BYTES, GPU_HOST_PORTABLE);
	memory->pinned = pinned;
	if (!code)
		code = driver->memory_alloc(&memory->area, SLICE_BYTES);
	if (code)
		return failed(memory, code, "its context", why, why_size);
	memset(memory->pinned, 1, SLICE_BYTES);
	return 0;
}

int gpumem_open(uint32_t gpu, struct gpumem **out, char *why, size_t why_size)
{
	struct gpumem *memory = calloc(1, sizeof(*memory));
	int error;

	*out = NULL;
	if (!memory) {
		snprintf(why, why_size, "out of memory");
		return -ENOMEM;
	}
	error = gpu_driver_load(NULL, &memory->driver, why, why_size);
	if (error) {
		free(memory);
		return error;
	}
	error = open_gpu(memory, gpu, why, why_size);
	if (error) {
		gpumem_close(memory);
		return error;
	}
	*out = memory;
	return 0;
}

void gpumem_close(struct gpumem *memory)
{
	if (!memory)
		return;
	if (memory->context)
		(void)memory->driver.context_set(memory->context);
	if (memory->area)
		(void)memory->driver.memory_free(memory->area);
	if (memory->pinned)
		(void)memory->driver.host_free(memory->pinned);
	if (memory->stream)
		(void)memory->driver.stream_destroy(memory->stream);
	if (memory->context)
		(void)memory->driver.context_release(memory->device);
	gpu_driver_unload(&memory->driver);
	free(memory);
}

int gpumem_alloc(struct gpumem *memory, uint64_t bytes, uint64_t *address)
{
	*address = 0;
	if (memory->driver.context_set(memory->context))
		return -EIO;
	return memory->driver.memory_alloc(address, bytes) ? -ENOMEM : 0;
}

void gpumem_free(struct gpumem *memory, uint64_t address)
{
	if (memory->driver.context_set(memory->context) == 0)
		(void)memory->driver.memory_free(address);
}

/* Between the pinned memory and the GPU. */
static int copy_pinned(struct gpumem *memory, bool to_gpu, uint64_t there, uint64_t bytes)
{
	int code = memory->driver.context_set(memory->context);

	if (!code)
		code = to_gpu ? memory->driver.copy_to_device(there, memory->pinned, bytes, memory->stream)
			      : memory->driver.copy_to_host(memory->pinned, there, bytes, memory->stream);
	if (!code)
		code = memory->driver.stream_wait(memory->stream);
	return code ? -EIO : 0;
}

int gpumem_copy(struct gpumem *memory, bool to_gpu, uint64_t there, void *here, uint64_t bytes)
{
	uint8_t *at = here;

	while (bytes > 0) {
		uint64_t part = kvr_min_u64(bytes, SLICE_BYTES);

		if (to_gpu)
			memcpy(memory->pinned, at, part);
		if (copy_pinned(memory, to_gpu, there, part))
			return -EIO;
		if (!to_gpu)
			memcpy(at, memory->pinned, part);
		at += part;
		there += part;
		bytes -= part;
	}
	return 0;
}

void gpumem_measure(struct gpumem *memory)
{
	double gbps[2];

	if (memory->slices == SLICES_MAX)
		return;
	for (unsigned to_gpu = 0; to_gpu < 2; to_gpu++) {
		uint64_t begin_ns = clock_now_ns();

		if (copy_pinned(memory, to_gpu, memory->area, SLICE_BYTES))
			return;
		gbps[to_gpu] = (double)SLICE_BYTES / (double)kvr_max_u64(clock_now_ns() - begin_ns, 1);
	}
	memory->gbps[0][memory->slices] = gbps[0];
	memory->gbps[1][memory->slices] = gbps[1];
	memory->slices++;
}

double gpumem_gbps(const struct gpumem *memory, bool to_gpu)
{
	double values[SLICES_MAX];

	memcpy(values, memory->gbps[to_gpu], memory->slices * sizeof(*values));
	return median_of(values, memory->slices);
}
