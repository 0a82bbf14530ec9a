/*
 * bulk.cu - copy.cu's work by the bulk copies of compute capability 9.0 and newer: through shared memory, by hardware that needs no
 * registers and no threads to wait. check-ptx: compute_90 8.0
 *
 * One thread of each warp drives a pipeline of STAGES tiles: loads into shared memory run LOADS ahead, the stores behind them have LAG
 * tiles' time to read it. Both directions of the link go at once better so than by loads and stores of threads (measured on an H200,
 * 16 KiB pages: 78 GB/s against 65, where two copy engines bring 85 to 88).
 *
 * Addresses and sizes are multiples of 16: lists with others go by copy.cu. Groups of pieces, their entries and the flag are as there.
 */
#include <stdint.h>

#define TILE 4096u
#define WARP 32u
#define WARPS 8u
#define STAGES 6u
#define LAG 3u
#define LOADS (STAGES - LAG)
#define GROUP_TILES 4u /* of a warp */
#define GROUP_PIECES_MAX 64u

struct piece {
	uint64_t to;
	uint64_t from;
	uint32_t bytes;
	uint32_t pad[3];
};

struct pipeline {
	uint32_t barriers, stages; /* addresses in shared memory: of this warp's first */
	uint64_t *to;              /* of each stage */
	uint32_t *bytes;
	uint32_t loaded, stored; /* tiles, so far */
};

static __device__ __forceinline__ uint4 fetch(const uint4 *half)
{
	uint4 held;

	asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(held.x), "=r"(held.y), "=r"(held.z), "=r"(held.w)
		     : "l"(half));
	return held;
}

static __device__ __forceinline__ void wait_for(uint32_t barrier, uint32_t parity)
{
	uint32_t done = 0;

	while (!done)
		asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
			     : "=r"(done)
			     : "r"(barrier), "r"(parity)
			     : "memory");
}

/* The oldest tile that is on its way into shared memory goes on from there. */
static __device__ __forceinline__ void store(struct pipeline *pipeline)
{
	uint32_t stage = pipeline->stored % STAGES;

	wait_for(pipeline->barriers + 8 * stage, pipeline->stored / STAGES & 1u);
	asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(pipeline->to[stage]),
		"r"(pipeline->stages + TILE * stage), "r"(pipeline->bytes[stage])
		: "memory");
	asm volatile("cp.async.bulk.commit_group;" ::: "memory");
	pipeline->stored++;
}

static __device__ __forceinline__ void load(struct pipeline *pipeline, uint64_t to, uint64_t from, uint32_t bytes)
{
	uint32_t stage = pipeline->loaded % STAGES;

	if (pipeline->loaded - pipeline->stored == LOADS)
		store(pipeline);
	/* The store that had this stage has read it: it is LAG stores behind the newest. */
	asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LAG) : "memory");
	pipeline->to[stage] = to;
	pipeline->bytes[stage] = bytes;
	asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(pipeline->barriers + 8 * stage), "r"(bytes)
		: "memory");
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
			     pipeline->stages + TILE * stage),
		"l"(from), "r"(bytes), "r"(pipeline->barriers + 8 * stage)
		: "memory");
	pipeline->loaded++;
}

static __device__ __forceinline__ void load_tile(struct pipeline *pipeline, const uint4 *list, uint32_t tile, uint32_t shift)
{
	const struct piece *piece = (const struct piece *)&list[2 * (tile >> shift)];
	uint32_t offset = (tile & ((1u << shift) - 1u)) * TILE;

	if (piece->bytes > offset)
		load(pipeline, piece->to + offset, piece->from + offset,
			piece->bytes - offset < TILE ? piece->bytes - offset : TILE);
}

extern "C" __global__ void __launch_bounds__(256) kvrail_copy_bulk(const struct piece *ring, uint32_t first, uint32_t mask,
	uint32_t count, uint32_t shift, uint32_t *arrivals, uint32_t *flag, uint32_t value)
{
	extern __shared__ __align__(128) uint8_t stages[]; /* WARPS * STAGES * TILE */
	__shared__ uint4 list[2][2 * GROUP_PIECES_MAX];
	__shared__ __align__(8) uint64_t barriers[WARPS * STAGES];
	__shared__ uint64_t to[WARPS * STAGES];
	__shared__ uint32_t bytes[WARPS * STAGES];
	uint32_t warp = threadIdx.x / WARP;
	uint32_t share = (count + gridDim.x - 1) / gridDim.x;
	uint32_t size = (GROUP_TILES * WARPS) >> shift;
	struct pipeline pipeline;
	bool leads = threadIdx.x % WARP == 0;
	uint32_t side = 0;
	uint4 held;

	size = size > share ? share : size;
	size = size > GROUP_PIECES_MAX ? GROUP_PIECES_MAX : size;
	size = size == 0 ? 1 : size;
	pipeline.barriers = (uint32_t)__cvta_generic_to_shared(&barriers[warp * STAGES]);
	pipeline.stages = (uint32_t)__cvta_generic_to_shared(&stages[warp * STAGES * TILE]);
	pipeline.to = &to[warp * STAGES];
	pipeline.bytes = &bytes[warp * STAGES];
	pipeline.loaded = pipeline.stored = 0;
	if (leads) {
		for (uint32_t i = 0; i < STAGES; i++)
			asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(pipeline.barriers + 8 * i) : "memory");
		asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
	}
	for (uint32_t begin = blockIdx.x * size, next; begin < count; begin = next) {
		uint32_t pieces = count - begin < size ? count - begin : size;

		if (begin == blockIdx.x * size) {
			if (threadIdx.x < 2 * pieces)
				list[side][threadIdx.x] = fetch(
					(const uint4 *)&ring[(first + begin + threadIdx.x / 2) & mask] + threadIdx.x % 2);
			__syncthreads();
		}
		next = begin + gridDim.x * size;
		if (next < count && threadIdx.x < 2 * size && next + threadIdx.x / 2 < count)
			held = fetch((const uint4 *)&ring[(first + next + threadIdx.x / 2) & mask] + threadIdx.x % 2);
		if (leads)
			for (uint32_t tile = warp; tile < pieces << shift; tile += WARPS)
				load_tile(&pipeline, list[side], tile, shift);
		side ^= 1u;
		if (threadIdx.x < 2 * size)
			list[side][threadIdx.x] = held;
		__syncthreads();
	}
	if (leads) {
		while (pipeline.stored != pipeline.loaded)
			store(&pipeline);
		asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
		asm volatile("fence.proxy.async;" ::: "memory");
		__threadfence_system();
	}
	__syncthreads();
	if (threadIdx.x != 0)
		return;
	__threadfence_system();
	if (atomicAdd(arrivals, 1u) + 1u < gridDim.x)
		return;
	*arrivals = 0;
	__threadfence_system();
	*(volatile uint32_t *)flag = value;
}
