/* gpu.c - planes that lie in GPU memory: told apart, described to a server on this host or registered with an adapter. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/client_private.h"

/* Without the library in the process no address is one of GPU memory. It is neither loaded nor started for this: a process that has
 * GPU memory has done both, and another one may still fork. */
static bool gpu_usable(struct kvr_client *client)
{
	char reason[200];

	return client->gpu.pointer_attribute || gpu_driver_join(NULL, &client->gpu, reason, sizeof(reason)) == 0;
}

bool client_gpu_holds(struct kvr_client *client, uint64_t address)
{
	return gpu_usable(client) && gpu_is_device(&client->gpu, address);
}

uint64_t client_gpu_end(struct kvr_client *client, uint64_t address)
{
	struct gpu_allocation allocation;
	char reason[200];

	if (!client_gpu_holds(client, address))
		return UINT64_MAX;
	if (gpu_find_allocation(&client->gpu, address, &allocation, reason, sizeof(reason)))
		return address;
	return allocation.base + allocation.bytes;
}

int client_gpu_export(struct kvr_client *client, uint64_t address, uint64_t length, struct gpu_export *description)
{
	char reason[300];
	int error;

	error = gpu_export_region(&client->gpu, address, length, description, reason, sizeof(reason));
	if (error)
		error_text_set("%s", reason);
	return error;
}

int client_gpu_words(struct kvr_client *client)
{
	gpu_context context = NULL;
	gpu_address there = 0;
	char text[128];
	int code;

	if (!gpu_usable(client)) {
		error_text_set(
			"streams are those of CUDA, whose driver this process has not loaded, or only an old one");
		return -EOPNOTSUPP;
	}
	if (client->words_context)
		return 0;
	code = client->gpu.context_get(&context);
	if (code == GPU_DONE && !context) {
		error_text_set("no CUDA context is current in this thread: make the stream's context current");
		return -EIO;
	}
	if (code == GPU_DONE)
		code = client->gpu.host_register(
			client->words, CLIENT_WORDS_BYTES, GPU_HOST_PORTABLE | GPU_HOST_MAPPED);
	if (code == GPU_DONE) {
		code = client->gpu.host_on_device(&there, client->words, 0);
		if (code != GPU_DONE)
			(void)client->gpu.host_unregister(client->words);
	}
	if (code != GPU_DONE) {
		error_text_set("CUDA can't use this client's words: %s",
			gpu_driver_error(&client->gpu, code, text, sizeof(text)));
		return -EIO;
	}
	client->words_on_gpu = there;
	client->words_context = context;
	return 0;
}

void client_gpu_forget_words(struct kvr_client *client)
{
	gpu_context popped;

	/* An engine may have ended its context, and the registration with it. */
	if (client->words_context && client->gpu.context_push(client->words_context) == GPU_DONE) {
		(void)client->gpu.host_unregister(client->words);
		(void)client->gpu.context_pop(&popped);
	}
	client->words_context = NULL;
}

static int register_dmabuf(struct kvr_client *client, struct verbs_device *device, const struct gpu_rdma *rdma,
	uint64_t address, uint64_t length, int access, struct ibv_mr **mr, char *reason, size_t size)
{
	const struct verbs_driver *driver = device->driver;
	struct gpu_dmabuf dmabuf;
	int error;

	if (!rdma->dma_buf || !driver->register_dmabuf) {
		snprintf(reason, size, "%s has no dma-bufs", rdma->dma_buf ? driver->name : "the GPU's driver");
		return -EOPNOTSUPP;
	}
	error = gpu_export_dmabuf(&client->gpu, address, length, &dmabuf, reason, size);
	if (error)
		return error;
	error = driver->register_dmabuf(device, dmabuf.fd, dmabuf.offset, length, address, access, mr);
	close(dmabuf.fd);
	if (error)
		snprintf(reason, size, "%s refuses the dma-buf: %s", device->name, strerror(-error));
	return error;
}

int client_gpu_register(struct kvr_client *client, struct verbs_device *device, uint64_t address, uint64_t length,
	int access, struct ibv_mr **mr)
{
	const char *path = "dma-buf";
	struct gpu_rdma rdma;
	char reason[300] = "";
	int error;

	*mr = NULL;
	gpu_rdma_of(&client->gpu, address, &rdma);
	if (!rdma.possible) {
		error_text_set(
			"%llu bytes at 0x%llx are GPU memory that %s can't reach: %s; register host memory, or connect to "
			"a server on this host (unix:)",
			(unsigned long long)length, (unsigned long long)address, device->name, rdma.reason);
		return -EOPNOTSUPP;
	}
	error = register_dmabuf(client, device, &rdma, address, length, access, mr, reason, sizeof(reason));
	if (error == -EFAULT) {
		error_text_set("%s", reason);
		return error;
	}
	if (error) {
		/* The kernel module makes GPU addresses as good as others. */
		path = "nvidia-peermem";
		error = device->driver->register_memory(device, (void *)(uintptr_t)address, length, access, mr);
	}
	if (error) {
		error_text_set(
			"%llu bytes at 0x%llx are GPU memory that %s can't reach: no dma-buf (%s), and without one "
			"nvidia-peermem must be loaded (%s); or register host memory",
			(unsigned long long)length, (unsigned long long)address, device->name, reason,
			strerror(-error));
		return -EOPNOTSUPP;
	}
	if (rdma.flush)
		client->flush_context = rdma.context;
	log_info("client: %llu bytes of GPU memory at 0x%llx are reached by %s%s%s%s", (unsigned long long)length,
		(unsigned long long)address, path, reason[0] ? ": " : "", reason,
		rdma.flush ? "; writes are flushed" : "");
	return 0;
}

int client_gpu_flush(struct kvr_client *client, char *reason, size_t size)
{
	return client->flush_context ? gpu_flush_writes(&client->gpu, client->flush_context, reason, size) : 0;
}

void client_gpu_fini(struct kvr_client *client)
{
	gpu_driver_unload(&client->gpu);
}

bool client_gpu_forgetting(const struct kvr_client *client)
{
	for (uint32_t i = 0; i < CLIENT_REGIONS_MAX; i++) {
		const struct client_region *region = &client->regions[i];

		if (region->mr && region->on_gpu && region->users == 0 && region->announced)
			return true;
	}
	return false;
}
