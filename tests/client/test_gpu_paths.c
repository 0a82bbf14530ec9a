/* Which way GPU memory of a client is reached by an adapter: a dma-buf, else nvidia-peermem, else not; over the fake CUDA library. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "client/client_private.h"
#include "fake_cuda/fake_cuda.h"

#define BYTES (UINT64_C(2) << 20)
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static struct kvr_client *client;
static const struct fake_cuda_control *control;
static gpu_context context;
static gpu_address memory;

/* An adapter that says what it was asked for. */
static struct {
	int dmabuf_error, memory_error;
	unsigned dmabufs, memories;
	int fd;
	bool fd_was_open;
	uint64_t offset, length, address;
	int access;
} asked;
static struct ibv_mr region;

static int take_dmabuf(struct verbs_device *device, int fd, uint64_t offset, uint64_t length, uint64_t address,
	int access, struct ibv_mr **mr)
{
	(void)device;
	asked.dmabufs++;
	asked.fd = fd;
	asked.fd_was_open = fcntl(fd, F_GETFD) >= 0;
	asked.offset = offset;
	asked.length = length;
	asked.address = address;
	asked.access = access;
	*mr = asked.dmabuf_error ? NULL : &region;
	return asked.dmabuf_error;
}

static int take_memory(struct verbs_device *device, void *address, uint64_t length, int access, struct ibv_mr **mr)
{
	(void)device;
	asked.memories++;
	asked.address = (uintptr_t)address;
	asked.length = length;
	asked.access = access;
	*mr = asked.memory_error ? NULL : &region;
	return asked.memory_error;
}

static struct verbs_driver driver = { .name = "nic", .register_memory = take_memory };
static struct verbs_device device = { .driver = &driver, .name = "mlx5_0 port 1" };

static int begin(void **state)
{
	fake_cuda_control_fn function;
	char reason[200];
	void *symbol;

	(void)state;
	memset(&asked, 0, sizeof(asked));
	driver.register_dmabuf = take_dmabuf;
	client = calloc(1, sizeof(*client));
	assert_non_null(client);
	assert_int_equal(gpu_driver_load(KVRAIL_FAKE_CUDA, &client->gpu, reason, sizeof(reason)), 0);
	symbol = dlsym(client->gpu.library, "fake_cuda_control");
	assert_non_null(symbol);
	memcpy(&function, &symbol, sizeof(function));
	control = function();
	assert_int_equal(client->gpu.context_retain(&context, 0), 0);
	assert_int_equal(client->gpu.context_set(context), 0);
	assert_int_equal(client->gpu.memory_alloc(&memory, BYTES), 0);
	return 0;
}

static int end(void **state)
{
	(void)state;
	unsetenv("FAKE_CUDA_RDMA");
	unsetenv("FAKE_CUDA_DMA_BUF");
	unsetenv("FAKE_CUDA_ORDERING");
	assert_int_equal(client->gpu.memory_free(memory), 0);
	client_gpu_fini(client);
	free(client);
	return 0;
}

static int reach(uint64_t at, uint64_t length)
{
	struct ibv_mr *mr = NULL;
	int error = client_gpu_register(client, &device, memory + at, length, ACCESS, &mr);

	assert_ptr_equal(mr, error ? NULL : &region);
	return error;
}

static void a_dmabuf_is_registered_and_its_descriptor_closed(void **state)
{
	(void)state;
	assert_int_equal(reach(4096 + 256, 9000), 0);
	assert_int_equal(asked.dmabufs, 1);
	assert_int_equal(asked.memories, 0);
	assert_int_equal(asked.offset, 256);
	assert_int_equal(asked.length, 9000);
	assert_int_equal(asked.address, memory + 4096 + 256);
	assert_int_equal(asked.access, ACCESS);
	assert_true(asked.fd_was_open);
	assert_true(fcntl(asked.fd, F_GETFD) < 0);
	assert_null(client->flush_context);
}

static void without_a_dmabuf_peermem_is_tried(void **state)
{
	(void)state;
	setenv("FAKE_CUDA_DMA_BUF", "0", 1); /* the GPU's driver has none */
	assert_int_equal(reach(100, 200), 0);
	assert_int_equal(asked.dmabufs, 0);
	assert_int_equal(asked.memories, 1);
	assert_int_equal(asked.address, memory + 100);
	assert_int_equal(asked.length, 200);
	unsetenv("FAKE_CUDA_DMA_BUF");
	asked.dmabuf_error = -EOPNOTSUPP; /* the adapter has none */
	assert_int_equal(reach(0, 4096), 0);
	assert_int_equal(asked.dmabufs, 1);
	assert_int_equal(asked.memories, 2);
	assert_true(fcntl(asked.fd, F_GETFD) < 0);
	control->refuse("cuMemGetHandleForAddressRange", GPU_NOT_SUPPORTED, 1); /* this memory has none */
	assert_int_equal(reach(0, 4096), 0);
	assert_int_equal(asked.dmabufs, 1);
	assert_int_equal(asked.memories, 3);
	driver.register_dmabuf = NULL; /* the driver has none */
	assert_int_equal(reach(0, 4096), 0);
	assert_int_equal(asked.memories, 4);
}

static void memory_that_nothing_reaches_is_refused_with_both_reasons(void **state)
{
	(void)state;
	asked.dmabuf_error = -EOPNOTSUPP;
	asked.memory_error = -EINVAL;
	assert_int_equal(reach(0, 4096), -EOPNOTSUPP);
	assert_non_null(strstr(kvr_error_text(), "mlx5_0 port 1 refuses the dma-buf"));
	assert_non_null(strstr(kvr_error_text(), "nvidia-peermem"));
	setenv("FAKE_CUDA_RDMA", "0", 1);
	assert_int_equal(reach(0, 4096), -EOPNOTSUPP);
	assert_non_null(strstr(kvr_error_text(), "lets no adapter"));
	assert_int_equal(asked.dmabufs, 1);
	unsetenv("FAKE_CUDA_RDMA");
	assert_int_equal(reach(4096, BYTES), -EFAULT);
	assert_non_null(strstr(kvr_error_text(), "one GPU allocation"));
}

static void a_gpu_that_does_not_order_writes_is_flushed(void **state)
{
	unsigned before = control->calls("cuFlushGPUDirectRDMAWrites");
	char reason[200];

	(void)state;
	assert_int_equal(client_gpu_flush(client, reason, sizeof(reason)), 0);
	assert_int_equal(control->calls("cuFlushGPUDirectRDMAWrites"), before);
	setenv("FAKE_CUDA_ORDERING", "0", 1);
	assert_int_equal(reach(0, 4096), 0);
	assert_int_equal(client_gpu_flush(client, reason, sizeof(reason)), 0);
	assert_int_equal(control->calls("cuFlushGPUDirectRDMAWrites"), before + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_dmabuf_is_registered_and_its_descriptor_closed, begin, end),
		cmocka_unit_test_setup_teardown(without_a_dmabuf_peermem_is_tried, begin, end),
		cmocka_unit_test_setup_teardown(memory_that_nothing_reaches_is_refused_with_both_reasons, begin, end),
		cmocka_unit_test_setup_teardown(a_gpu_that_does_not_order_writes_is_flushed, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
