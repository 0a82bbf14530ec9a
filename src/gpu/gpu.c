/* gpu.c - GPUs found and made ready, host memory made known to them, clients' memory mapped. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/text.h"
#include "gpu/gpu_private.h"
#include "gpu/kernels/bulk_ptx.h"
#include "gpu/kernels/copy_ptx.h"

/* ---- a GPU ------------------------------------------------------------------------------------------------------ */

static int identify(struct gpu *gpu)
{
	const struct gpu_driver *driver = &gpu->gpus->driver;
	int domain = 0, bus = 0, place = 0;
	int code = driver->device_uuid(&gpu->uuid, gpu->device);

	if (code == GPU_DONE)
		code = driver->device_name(gpu->name, sizeof(gpu->name), gpu->device);
	if (code == GPU_DONE)
		code = driver->device_attribute(&domain, GPU_ATTRIBUTE_PCI_DOMAIN, gpu->device);
	if (code == GPU_DONE)
		code = driver->device_attribute(&bus, GPU_ATTRIBUTE_PCI_BUS, gpu->device);
	if (code == GPU_DONE)
		code = driver->device_attribute(&place, GPU_ATTRIBUTE_PCI_DEVICE, gpu->device);
	snprintf(gpu->pci, sizeof(gpu->pci), "%04x:%02x:%02x.0", (unsigned)domain & 0xffffu, (unsigned)bus & 0xffu,
		(unsigned)place & 0xffu);
	return code;
}

static int make_slots(struct gpu *gpu)
{
	const struct gpu_driver *driver = &gpu->gpus->driver;
	int least = 0, greatest = 0;
	void *flags = NULL;
	int code = driver->host_alloc(&flags, GPU_SLOTS * KVR_CACHE_LINE, GPU_HOST_PORTABLE | GPU_HOST_MAPPED);

	gpu->flags = flags;
	if (code != GPU_DONE)
		return code;
	memset(flags, 0, GPU_SLOTS * KVR_CACHE_LINE);
	code = driver->memory_alloc(&gpu->arrivals, GPU_SLOTS * KVR_CACHE_LINE);
	if (code == GPU_DONE)
		code = driver->memory_set(gpu->arrivals, 0, GPU_SLOTS * KVR_CACHE_LINE);
	if (code == GPU_DONE)
		code = driver->priority_range(&least, &greatest);
	for (uint32_t i = 0; code == GPU_DONE && i < GPU_SLOTS; i++) {
		struct gpu_slot *slot = &gpu->slots[i];

		/* Our few blocks go first: behind a model's kernels, which fill all multiprocessors, copies would begin when those end, and
		 * nothing would be loaded while the model computes. */
		code = driver->stream_create(&slot->stream, GPU_STREAM_NON_BLOCKING, greatest);
		slot->arrivals = gpu->arrivals + i * KVR_CACHE_LINE;
		slot->flag = (uint32_t *)(void *)(gpu->flags + i * KVR_CACHE_LINE);
	}
	return code;
}

/* The context is current. Without it, or with a driver that can't read it, the other kernel does everything. */
static void load_bulk(struct gpu *gpu)
{
	const struct gpu_driver *driver = &gpu->gpus->driver;
	int major = 0;

	if (gpu->gpus->options.no_bulk ||
		driver->device_attribute(&major, GPU_ATTRIBUTE_MAJOR, gpu->device) != GPU_DONE || major < 9 ||
		driver->module_load(&gpu->bulk_module, gpu_bulk_ptx) != GPU_DONE)
		return;
	if (driver->module_function(&gpu->bulk, gpu->bulk_module, "kvrail_copy_bulk") != GPU_DONE ||
		driver->function_attribute(gpu->bulk, GPU_FUNCTION_SHARED_BYTES, GPU_BULK_SHARED_BYTES) != GPU_DONE)
		gpu->bulk = NULL;
}

static int make_ready(struct gpu *gpu)
{
	const struct gpu_driver *driver = &gpu->gpus->driver;
	gpu_context context;
	int code = driver->context_retain(&gpu->context, gpu->device);

	if (code != GPU_DONE)
		return code;
	gpu->context_made = true;
	code = driver->context_push(gpu->context);
	if (code != GPU_DONE)
		return code;
	code = driver->module_load(&gpu->module, gpu_copy_ptx);
	if (code == GPU_DONE)
		code = driver->module_function(&gpu->copy, gpu->module, "kvrail_copy");
	if (code == GPU_DONE)
		code = make_slots(gpu);
	if (code == GPU_DONE)
		load_bulk(gpu);
	(void)driver->context_pop(&context);
	return code;
}

static void unmake(struct gpu *gpu)
{
	const struct gpu_driver *driver = &gpu->gpus->driver;
	gpu_context context;

	if (gpu->context_made && driver->context_push(gpu->context) == GPU_DONE) {
		for (uint32_t i = 0; i < GPU_SLOTS; i++) {
			if (gpu->slots[i].stream)
				(void)driver->stream_destroy(gpu->slots[i].stream);
		}
		if (gpu->arrivals)
			(void)driver->memory_free(gpu->arrivals);
		if (gpu->flags)
			(void)driver->host_free(gpu->flags);
		if (gpu->bulk_module)
			(void)driver->module_unload(gpu->bulk_module);
		if (gpu->module)
			(void)driver->module_unload(gpu->module);
		(void)driver->context_pop(&context);
	}
	if (gpu->context_made)
		(void)driver->context_release(gpu->device);
	free(gpu);
}

/* Without it an address of the host would have to be translated for each GPU; all that have a 64-bit driver have it. */
static bool has_what_it_takes(const struct gpu *gpu)
{
	const struct gpu_driver *driver = &gpu->gpus->driver;
	int same_address = 0, unified = 0;

	return driver->device_attribute(&same_address, GPU_ATTRIBUTE_HOST_POINTERS, gpu->device) == GPU_DONE &&
		driver->device_attribute(&unified, GPU_ATTRIBUTE_UNIFIED_ADDRESSES, gpu->device) == GPU_DONE &&
		same_address && unified;
}

/* 0; -ENOMEM; -ENODEV with words. */
static int add_gpu(struct gpus *gpus, int ordinal, char *reason, size_t size)
{
	size_t bytes = kvr_round_up(sizeof(struct gpu), KVR_CACHE_LINE);
	struct gpu *gpu = fault_point("gpus_open/gpu") ? NULL : aligned_alloc(KVR_CACHE_LINE, bytes);
	char text[128];
	int code;

	if (!gpu)
		return -ENOMEM;
	memset(gpu, 0, bytes);
	gpu->gpus = gpus;
	gpu->index = gpus->count;
	code = gpus->driver.device_get(&gpu->device, ordinal);
	if (code == GPU_DONE)
		code = identify(gpu);
	if (code == GPU_DONE && !has_what_it_takes(gpu))
		code = GPU_NOT_SUPPORTED;
	if (code == GPU_DONE)
		code = make_ready(gpu);
	if (code != GPU_DONE) {
		snprintf(reason, size, "GPU %d can't be used: %s", ordinal,
			gpu_driver_error(&gpus->driver, code, text, sizeof(text)));
		log_warn("%s", reason);
		unmake(gpu);
		return -ENODEV;
	}
	gpus->gpu[gpus->count++] = gpu;
	return 0;
}

/* ---- all of them ------------------------------------------------------------------------------------------------ */

static int start_threads(struct gpus *gpus)
{
	sigset_t all, before;
	int error = 0;

	if (!gpus->options.threads)
		return 0;
	/* Signals are for the threads that wait for them. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	for (uint32_t i = 0; !error && i < gpus->count; i++) {
		char name[16];

		error = fault_point("gpus_open/thread")
			? EAGAIN
			: pthread_create(&gpus->gpu[i]->thread, NULL, gpu_submit_main, gpus->gpu[i]);
		gpus->gpu[i]->thread_made = !error;
		snprintf(name, sizeof(name), "kvr-gpu-%u", i % GPU_COUNT_MAX);
		if (!error)
			pthread_setname_np(gpus->gpu[i]->thread, name);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error ? -ENOMEM : 0;
}

static int find_gpus(struct gpus *gpus, char *reason, size_t size)
{
	int count = 0;
	int error = 0;

	if (gpus->driver.device_count(&count) != GPU_DONE)
		count = 0;
	snprintf(reason, size, "there is no GPU");
	for (int i = 0; i < count && gpus->count < GPU_COUNT_MAX && error != -ENOMEM; i++)
		error = add_gpu(gpus, i, reason, size);
	if (error == -ENOMEM)
		snprintf(reason, size, "no memory");
	return error == -ENOMEM ? error : gpus->count > 0 ? 0 : -ENODEV;
}

static void fill_options(struct gpus *gpus, const struct gpus_options *options)
{
	gpus->options = *options;
	if (gpus->options.blocks == 0)
		gpus->options.blocks = GPU_BLOCKS;
	if (gpus->options.block_threads == 0)
		gpus->options.block_threads = GPU_BLOCK_THREADS;
	if (gpus->options.spin_ns == 0)
		gpus->options.spin_ns = GPU_SPIN_NS;
}

int gpus_open(const struct gpus_options *options, struct gpus **out, char *reason, size_t size)
{
	struct gpus *gpus = fault_point("gpus_open/object") ? NULL : calloc(1, sizeof(*gpus));
	int error = 0;

	*out = NULL;
	if (!gpus) {
		snprintf(reason, size, "no memory");
		return -ENOMEM;
	}
	pthread_mutex_init(&gpus->lock, NULL);
	fill_options(gpus, options);
	if (options->driver) {
		gpus->driver = *options->driver;
	} else {
		error = gpu_driver_load(options->library, &gpus->driver, reason, size);
		gpus->loaded = !error;
	}
	if (!error)
		error = find_gpus(gpus, reason, size);
	if (!error) {
		error = start_threads(gpus);
		if (error)
			snprintf(reason, size, "no thread for a GPU");
	}
	if (error)
		gpus_close(&gpus);
	*out = gpus;
	return error;
}

void gpus_close(struct gpus **pointer)
{
	struct gpus *gpus = *pointer;

	*pointer = NULL;
	if (!gpus)
		return;
	for (uint32_t i = 0; i < gpus->count; i++) {
		struct gpu *gpu = gpus->gpu[i];

		if (!gpu->thread_made)
			continue;
		kvr_store_release(&gpu->stopping, 1);
		gpu_submit_wake(gpu);
		pthread_join(gpu->thread, NULL);
	}
	for (uint32_t i = 0; i < gpus->area_count; i++)
		gpus_forget_host(gpus, (void *)(uintptr_t)gpus->areas[i].address);
	for (uint32_t i = 0; i < gpus->count; i++)
		unmake(gpus->gpu[i]);
	if (gpus->loaded)
		gpu_driver_unload(&gpus->driver);
	pthread_mutex_destroy(&gpus->lock);
	free(gpus);
}

uint32_t gpus_count(const struct gpus *gpus)
{
	return gpus->count;
}

uint32_t gpus_lost(const struct gpus *gpus)
{
	uint32_t lost = 0;

	for (uint32_t i = 0; i < gpus->count; i++)
		lost += kvr_load_acquire(&gpus->gpu[i]->failed) != 0;
	return lost;
}

bool gpus_step(struct gpus *gpus, uint64_t now_ns)
{
	bool busy = false;

	for (uint32_t i = 0; i < gpus->count; i++) {
		gpu_context context;

		if (gpus->driver.context_push(gpus->gpu[i]->context) != GPU_DONE)
			continue;
		busy |= gpu_submit_step(gpus->gpu[i], now_ns);
		(void)gpus->driver.context_pop(&context);
	}
	return busy;
}

/* ---- host memory ------------------------------------------------------------------------------------------------ */

static uint64_t slice_bytes(uint64_t offset, uint64_t bytes)
{
	return kvr_min_u64(bytes - offset, GPU_HOST_SLICE);
}

static void unregister(struct gpus *gpus, uint8_t *address, uint64_t bytes)
{
	gpu_context context;

	if (gpus->driver.context_push(gpus->gpu[0]->context) != GPU_DONE)
		return;
	for (uint64_t at = 0; at < bytes; at += GPU_HOST_SLICE)
		(void)gpus->driver.host_unregister(address + at);
	(void)gpus->driver.context_pop(&context);
}

int gpus_register_host(struct gpus *gpus, void *address, uint64_t bytes)
{
	uint32_t index = 0;
	uint64_t at = 0;
	gpu_context context;
	char text[128];
	int code;

	while (index < gpus->area_count && gpus->areas[index].bytes > 0)
		index++;
	if (index == GPU_HOST_AREAS_MAX)
		return -ENOSPC;
	code = gpus->driver.context_push(gpus->gpu[0]->context);
	while (code == GPU_DONE && at < bytes) {
		code = gpus->driver.host_register(
			(uint8_t *)address + at, slice_bytes(at, bytes), GPU_HOST_PORTABLE | GPU_HOST_MAPPED);
		if (code == GPU_DONE)
			at += slice_bytes(at, bytes);
	}
	(void)gpus->driver.context_pop(&context);
	if (code != GPU_DONE) {
		log_error("%llu bytes of host memory can't be made known to the GPUs: %s", (unsigned long long)bytes,
			gpu_driver_error(&gpus->driver, code, text, sizeof(text)));
		unregister(gpus, address, at);
		return -EIO;
	}
	gpus->areas[index].address = (uintptr_t)address;
	kvr_store_release(&gpus->areas[index].bytes, bytes);
	if (index == gpus->area_count)
		kvr_store_release(&gpus->area_count, index + 1);
	return 0;
}

void gpus_forget_host(struct gpus *gpus, void *address)
{
	for (uint32_t i = 0; i < gpus->area_count; i++) {
		uint64_t bytes = gpus->areas[i].bytes;

		if (bytes == 0 || gpus->areas[i].address != (uintptr_t)address)
			continue;
		kvr_store_release(&gpus->areas[i].bytes, 0);
		unregister(gpus, address, bytes);
	}
}

/* ---- clients' memory -------------------------------------------------------------------------------------------- */

static void uuid_text(const uint8_t *bytes, char *out, size_t size)
{
	snprintf(out, size, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", bytes[0],
		bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7], bytes[8], bytes[9], bytes[10],
		bytes[11], bytes[12], bytes[13], bytes[14], bytes[15]);
}

/* The GPU's context is current. */
static int map(
	struct gpu *gpu, const struct gpu_handle *handle, uint64_t offset, uint64_t length, struct gpu_region *region)
{
	const struct gpu_driver *driver = &gpu->gpus->driver;
	gpu_address base = 0;
	size_t bytes = 0;
	char text[128];
	int code = driver->ipc_open(&region->mapped, *handle, GPU_IPC_LAZY_PEERS);

	if (code != GPU_DONE) {
		log_error("gpu %u: a client's memory can't be mapped: %s", gpu->index,
			gpu_driver_error(driver, code, text, sizeof(text)));
		return -EOPNOTSUPP;
	}
	code = driver->memory_range(&base, &bytes, region->mapped);
	if (code != GPU_DONE || base != region->mapped || offset > bytes || length > bytes - offset) {
		log_error("gpu %u: a client's allocation has %llu bytes, its region ends at %llu", gpu->index,
			(unsigned long long)bytes, (unsigned long long)(offset + length));
		(void)driver->ipc_close(region->mapped);
		return -EFAULT;
	}
	region->gpu = gpu->index;
	region->address = region->mapped + offset;
	region->bytes = length;
	return 0;
}

static struct gpu *find_by_uuid(struct gpus *gpus, const uint8_t *uuid)
{
	for (uint32_t i = 0; i < gpus->count; i++) {
		if (memcmp(gpus->gpu[i]->uuid.bytes, uuid, GPU_UUID_BYTES) == 0)
			return gpus->gpu[i];
	}
	return NULL;
}

int gpus_import(struct gpus *gpus, const uint8_t *bytes, uint32_t length_of_handle, uint64_t offset, uint64_t length,
	struct gpu_region *region)
{
	struct gpu_handle handle;
	struct gpu *gpu;
	gpu_context context;
	char text[48];
	int error = -ENODEV;

	memset(region, 0, sizeof(*region));
	if (length_of_handle != GPU_EXPORT_BYTES)
		return -EBADMSG;
	gpu = find_by_uuid(gpus, bytes);
	if (!gpu) {
		uuid_text(bytes, text, sizeof(text));
		log_error("a client's memory is on %s, which this server does not see: give it all GPUs of its clients "
			  "(CUDA_VISIBLE_DEVICES, the container's devices)",
			text);
		return -ENODEV;
	}
	memcpy(handle.bytes, bytes + GPU_UUID_BYTES, GPU_HANDLE_BYTES);
	if (kvr_load_acquire(&gpu->failed)) {
		error = -ENOTRECOVERABLE;
		log_error("gpu %u is lost, a client's memory on it can't be mapped: restart the server to use it again",
			gpu->index);
	} else if (gpus->driver.context_push(gpu->context) == GPU_DONE) {
		error = map(gpu, &handle, offset, length, region);
		(void)gpus->driver.context_pop(&context);
	}
	(void)kvr_fetch_add(error ? &gpu->import_failures : &gpu->imports, 1);
	if (!error)
		(void)kvr_fetch_add(&gpu->regions, 1);
	return error;
}

void gpus_forget(struct gpus *gpus, struct gpu_region *region)
{
	struct gpu *gpu = gpus->gpu[region->gpu];
	gpu_context context;

	if (gpus->driver.context_push(gpu->context) == GPU_DONE) {
		(void)gpus->driver.ipc_close(region->mapped);
		(void)gpus->driver.context_pop(&context);
	}
	(void)kvr_fetch_sub(&gpu->regions, 1);
}

/* ---- what is to be seen ----------------------------------------------------------------------------------------- */

void gpus_status(const struct gpus *gpus, uint32_t index, struct gpu_status *status)
{
	const struct gpu *gpu = gpus->gpu[index];

	memset(status, 0, sizeof(*status));
	text_copy(status->name, sizeof(status->name), gpu->name);
	text_copy(status->pci, sizeof(status->pci), gpu->pci);
	uuid_text(gpu->uuid.bytes, status->uuid, sizeof(status->uuid));
	status->blocks = gpus->options.blocks;
	status->block_threads = gpus->options.block_threads;
	status->regions = kvr_load_relaxed(&gpu->regions);
	status->failed = kvr_load_acquire(&gpu->failed) != 0;
	if (status->failed)
		text_copy(status->failure, sizeof(status->failure), gpu->failure);
#define READ(name, help) status->counters.name = kvr_load_relaxed(&gpu->counters.name);
	GPU_COUNTERS(READ)
#undef READ
	status->counters.imports_total = kvr_load_relaxed(&gpu->imports);
	status->counters.import_failures_total = kvr_load_relaxed(&gpu->import_failures);
}
