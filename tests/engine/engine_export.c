/* engine_export.c - dma-bufs of GPU memory up to the descriptor, for machines with a GPU and no adapter. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "engine/engine.h"
#include "gpu/export.h"

#define BYTES (UINT64_C(64) << 20)

int engine_run_export(struct engine *engine)
{
	static const uint64_t places[][2] = { { 0, BYTES }, { 0, 4096 }, { 4096, 4096 }, { 100, 200 },
		{ 65536 + 4095, 2 }, { BYTES - 1, 1 } };
	gpu_address memory = engine_alloc(engine, BYTES);
	struct gpu_rdma rdma;
	char reason[300];

	gpu_rdma_of(&engine->driver, memory, &rdma);
	printf("adapters may reach it: %s; dma-bufs: %s; writes are flushed: %s %s\n", rdma.possible ? "yes" : "no",
		rdma.dma_buf ? "yes" : "no", rdma.flush ? "yes" : "no", rdma.reason);
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		struct gpu_dmabuf dmabuf;

		if (gpu_export_dmabuf(
			    &engine->driver, memory + places[i][0], places[i][1], &dmabuf, reason, sizeof(reason)))
			engine_fail("%s", reason);
		if (fcntl(dmabuf.fd, F_GETFD) < 0 || lseek(dmabuf.fd, 0, SEEK_END) != (off_t)dmabuf.bytes)
			engine_fail("descriptor %d is no dma-buf of %llu bytes", dmabuf.fd,
				(unsigned long long)dmabuf.bytes);
		close(dmabuf.fd);
	}
	if (gpu_export_dmabuf(&engine->driver, memory, BYTES + (2 << 20) + 1, &(struct gpu_dmabuf){ 0 }, reason,
		    sizeof(reason)) == 0)
		engine_fail("more than the allocation was exported");
	if (gpu_flush_writes(&engine->driver, engine->context, reason, sizeof(reason)))
		engine_fail("%s", reason);
	engine_must(engine, engine->driver.memory_free(memory), "free");
	printf("export: right\n");
	return 0;
}
