/*
 * copy.cu - gathers and scatters: copies a list of pieces between host memory and GPU memory, any direction, in one launch.
 *
 * The list is a stretch of a ring in pinned host memory (gpu/gpu_private.h: struct gpu_piece). A block takes groups of pieces: it
 * fetches their entries together, each once, while it works on the group before (warps that each fetch the same entry wait for
 * each other: measured, 32 KiB pages went at an eighth of the link's rate so). A piece is cut into tiles of TILE bytes; the
 * block's warps take them in order, so that neighbouring warps read neighbouring memory and a mixture of directions keeps both
 * directions of the link busy. A tile is eight independent 16-byte loads a lane before the first store: 256 warps so have a
 * megabyte of reads under way, many times what the link's delay needs.
 *
 * The last block to end raises the flag. Its fence is behind every other block's (the arrival count carries them), so
 * that whoever sees the flag sees all bytes.
 */
#include <stdint.h>

#define TILE 4096u
#define WARP 32u
#define GROUP_TILES 2u /* of a warp */
#define GROUP_PIECES_MAX 64u

struct piece {
	uint64_t to;
	uint64_t from;
	uint32_t bytes;
	uint32_t pad[3];
};

struct where {
	uint8_t *to;
	const uint8_t *from;
	uint32_t bytes;
};

/* A half of an entry. Not through a cache that remembers what lay in this place of the ring before. */
static __device__ __forceinline__ uint4 fetch(const uint4 *half)
{
	uint4 held;

	asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(held.x), "=r"(held.y), "=r"(held.z), "=r"(held.w)
		     : "l"(half));
	return held;
}

/* The tile of that number in a group's pieces. */
static __device__ __forceinline__ struct where look(const uint4 *list, uint32_t tile, uint32_t shift)
{
	const struct piece *piece = (const struct piece *)&list[2 * (tile >> shift)];
	uint32_t offset = (tile & ((1u << shift) - 1u)) * TILE;
	struct where where;

	where.to = (uint8_t *)(piece->to + offset);
	where.from = (const uint8_t *)(piece->from + offset);
	where.bytes = piece->bytes <= offset ? 0 : piece->bytes - offset < TILE ? piece->bytes - offset : TILE;
	return where;
}

static __device__ __forceinline__ void whole_tile(const struct where &where, uint32_t lane)
{
	const uint4 *from = (const uint4 *)where.from + lane;
	uint4 *to = (uint4 *)where.to + lane;
	uint4 held[TILE / (WARP * 16)];

#pragma unroll
	for (uint32_t i = 0; i < TILE / (WARP * 16); i++)
		held[i] = __ldcs(from + i * WARP);
#pragma unroll
	for (uint32_t i = 0; i < TILE / (WARP * 16); i++)
		__stcs(to + i * WARP, held[i]);
}

template <typename word> static __device__ __forceinline__ void part_tile(const struct where &where, uint32_t lane)
{
	const word *from = (const word *)where.from;
	word *to = (word *)where.to;
	uint32_t count = where.bytes / (uint32_t)sizeof(word);

#pragma unroll 4
	for (uint32_t i = lane; i < count; i += WARP)
		to[i] = from[i];
}

static __device__ __forceinline__ void copy_tile(const struct where &where, uint32_t lane)
{
	uint32_t odd = (uint32_t)(uintptr_t)where.to | (uint32_t)(uintptr_t)where.from | where.bytes;

	if ((odd & 15u) == 0 && where.bytes == TILE)
		whole_tile(where, lane);
	else if ((odd & 15u) == 0)
		part_tile<uint4>(where, lane);
	else if ((odd & 3u) == 0)
		part_tile<uint32_t>(where, lane);
	else
		part_tile<uint8_t>(where, lane);
}

/* The pieces first .. first + count - 1, each of at most TILE << shift bytes; `arrivals` is 0 and will be again. */
extern "C" __global__ void __launch_bounds__(1024) kvrail_copy(const struct piece *ring, uint32_t first, uint32_t mask,
	uint32_t count, uint32_t shift, uint32_t *arrivals, uint32_t *flag, uint32_t value)
{
	__shared__ uint4 list[2][2 * GROUP_PIECES_MAX];
	uint32_t warps = blockDim.x / WARP;
	uint32_t share = (count + gridDim.x - 1) / gridDim.x;
	uint32_t size = (GROUP_TILES * warps) >> shift;
	uint32_t side = 0;
	uint4 held;

	/* Pieces of a group: enough for two tiles a warp, and not so many that blocks have none. */
	size = size > share ? share : size;
	size = size > GROUP_PIECES_MAX ? GROUP_PIECES_MAX : size;
	size = size == 0 ? 1 : size;
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
		for (uint32_t tile = threadIdx.x / WARP; tile < pieces << shift; tile += warps)
			copy_tile(look(list[side], tile, shift), threadIdx.x % WARP);
		side ^= 1u;
		if (threadIdx.x < 2 * size)
			list[side][threadIdx.x] = held;
		__syncthreads();
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
