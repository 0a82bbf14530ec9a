/* What the owner of GPU memory gives away: dma-bufs for adapters, and what the GPU says of adapters' writes. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cmocka_all.h"
#include "fake_cuda/fake_cuda.h"
#include "gpu/export.h"

#define BYTES (UINT64_C(4) << 20)

static struct gpu_driver driver;
static const struct fake_cuda_control *control;
static gpu_context context;
static gpu_address memory;
static char reason[300];

static int begin(void **state)
{
	fake_cuda_control_fn function;
	gpu_context popped;
	void *symbol;

	(void)state;
	assert_int_equal(gpu_driver_load(KVRAIL_FAKE_CUDA, &driver, reason, sizeof(reason)), 0);
	symbol = dlsym(driver.library, "fake_cuda_control");
	assert_non_null(symbol);
	memcpy(&function, &symbol, sizeof(function));
	control = function();
	assert_int_equal(driver.context_retain(&context, 0), 0);
	assert_int_equal(driver.context_push(context), 0);
	assert_int_equal(driver.memory_alloc(&memory, BYTES), 0);
	assert_int_equal(driver.context_pop(&popped), 0); /* the calls find the memory's own */
	return 0;
}

static int end(void **state)
{
	gpu_context popped;

	(void)state;
	unsetenv("FAKE_CUDA_RDMA");
	unsetenv("FAKE_CUDA_DMA_BUF");
	unsetenv("FAKE_CUDA_FLUSH");
	unsetenv("FAKE_CUDA_ORDERING");
	assert_int_equal(driver.context_push(context), 0);
	assert_int_equal(driver.memory_free(memory), 0);
	assert_int_equal(driver.context_pop(&popped), 0);
	gpu_driver_unload(&driver);
	return 0;
}

static void a_dmabuf_has_the_whole_pages_of_the_region(void **state)
{
	static const struct {
		uint64_t at, length, offset, bytes;
	} cases[] = { { 0, 4096, 0, 4096 }, { 0, BYTES, 0, BYTES }, { 100, 8, 100, 4096 }, { 4095, 2, 4095, 8192 },
		{ 8192 + 16, 4096, 16, 8192 }, { BYTES - 1, 1, 4095, 4096 } };

	(void)state;
	for (unsigned i = 0; i < KVR_COUNT_OF(cases); i++) {
		struct gpu_dmabuf dmabuf;

		assert_int_equal(gpu_export_dmabuf(&driver, memory + cases[i].at, cases[i].length, &dmabuf, reason,
					 sizeof(reason)),
			0);
		assert_int_equal(dmabuf.offset, cases[i].offset);
		assert_int_equal(dmabuf.bytes, cases[i].bytes);
		assert_true(fcntl(dmabuf.fd, F_GETFD) >= 0);
		assert_int_equal(close(dmabuf.fd), 0); /* it is ours alone */
	}
}

static void what_has_no_dmabuf_is_refused_with_words(void **state)
{
	struct gpu_dmabuf dmabuf = { -1, 0, 0 };
	char host[64];

	(void)state;
	assert_int_equal(gpu_export_dmabuf(&driver, memory, BYTES + 1, &dmabuf, reason, sizeof(reason)), -EFAULT);
	assert_non_null(strstr(reason, "not in one GPU allocation"));
	assert_int_equal(
		gpu_export_dmabuf(&driver, (uintptr_t)host, sizeof(host), &dmabuf, reason, sizeof(reason)), -EFAULT);
	control->refuse("cuMemGetHandleForAddressRange", GPU_NOT_SUPPORTED, 1);
	assert_int_equal(gpu_export_dmabuf(&driver, memory, 64, &dmabuf, reason, sizeof(reason)), -EOPNOTSUPP);
	assert_non_null(strstr(reason, "no dma-buf"));
	assert_int_equal(dmabuf.fd, -1);
}

static void what_adapters_may_do_is_the_gpus_word(void **state)
{
	struct gpu_rdma rdma;

	(void)state;
	gpu_rdma_of(&driver, memory, &rdma);
	assert_true(rdma.possible && rdma.dma_buf && !rdma.flush);
	assert_ptr_equal(rdma.context, context);
	setenv("FAKE_CUDA_DMA_BUF", "0", 1);
	setenv("FAKE_CUDA_ORDERING", "0", 1);
	gpu_rdma_of(&driver, memory, &rdma);
	assert_true(rdma.possible && !rdma.dma_buf && rdma.flush);
	setenv("FAKE_CUDA_FLUSH", "0", 1);
	gpu_rdma_of(&driver, memory, &rdma);
	assert_false(rdma.possible);
	assert_non_null(strstr(rdma.reason, "neither orders"));
	setenv("FAKE_CUDA_ORDERING", "200", 1);
	gpu_rdma_of(&driver, memory, &rdma);
	assert_true(rdma.possible && !rdma.flush);
	setenv("FAKE_CUDA_RDMA", "0", 1);
	gpu_rdma_of(&driver, memory, &rdma);
	assert_false(rdma.possible);
	control->refuse("cuDeviceGetAttribute", 999, 1);
	gpu_rdma_of(&driver, memory, &rdma);
	assert_false(rdma.possible);
	assert_non_null(strstr(rdma.reason, "can't be asked"));
}

static void writes_are_flushed_in_the_memorys_own_context(void **state)
{
	unsigned before = control->calls("cuFlushGPUDirectRDMAWrites");

	(void)state;
	assert_int_equal(gpu_flush_writes(&driver, context, reason, sizeof(reason)), 0);
	assert_int_equal(control->calls("cuFlushGPUDirectRDMAWrites"), before + 1);
	control->refuse("cuFlushGPUDirectRDMAWrites", 999, 1);
	assert_int_equal(gpu_flush_writes(&driver, context, reason, sizeof(reason)), -EIO);
	assert_non_null(strstr(reason, "could not be flushed"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_dmabuf_has_the_whole_pages_of_the_region, begin, end),
		cmocka_unit_test_setup_teardown(what_has_no_dmabuf_is_refused_with_words, begin, end),
		cmocka_unit_test_setup_teardown(what_adapters_may_do_is_the_gpus_word, begin, end),
		cmocka_unit_test_setup_teardown(writes_are_flushed_in_the_memorys_own_context, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
