/* compiler.h - what the compiler must be told: hints, alignment, checks at compile time. */
#ifndef KVRAIL_BASE_COMPILER_H
#define KVRAIL_BASE_COMPILER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define KVR_STATIC_ASSERT(condition, text) static_assert(condition, text)
#define KVR_BEGIN_C extern "C" {
#define KVR_END_C }
#else
#define KVR_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#define KVR_BEGIN_C
#define KVR_END_C
#endif

/* The size of a cache line on every processor that has an RDMA NIC beside it today. */
#define KVR_CACHE_LINE 64

#define KVR_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define KVR_UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#define KVR_ALIGNED(bytes) __attribute__((aligned(bytes)))
#define KVR_PRINTF(format_index, first_argument) __attribute__((format(printf, format_index, first_argument)))
#define KVR_MUST_CHECK __attribute__((warn_unused_result))
#define KVR_COLD __attribute__((cold, noinline))
#define KVR_PREFETCH(address) __builtin_prefetch(address)

#define KVR_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define KVR_CONTAINER_OF(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

static inline uint64_t kvr_min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t kvr_max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* The smallest multiple of `unit` (a power of two) that is not below `value`. */
static inline uint64_t kvr_round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) & ~(unit - 1);
}

#endif
