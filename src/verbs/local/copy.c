/* copy.c - see copy.h. Where there are no streaming stores in the baseline instruction set, memcpy does it. */
#include "verbs/local/copy.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)

#include <emmintrin.h>

static inline void stream_line(uint8_t *to, const uint8_t *from)
{
	__m128i a = _mm_loadu_si128((const __m128i *)(const void *)from);
	__m128i b = _mm_loadu_si128((const __m128i *)(const void *)(from + 16));
	__m128i c = _mm_loadu_si128((const __m128i *)(const void *)(from + 32));
	__m128i d = _mm_loadu_si128((const __m128i *)(const void *)(from + 48));

	_mm_stream_si128((__m128i *)(void *)to, a);
	_mm_stream_si128((__m128i *)(void *)(to + 16), b);
	_mm_stream_si128((__m128i *)(void *)(to + 32), c);
	_mm_stream_si128((__m128i *)(void *)(to + 48), d);
}

/* `lines` whole lines to a line boundary. */
static void stream_lines(uint8_t *to, const uint8_t *from, size_t lines, const uint8_t *after)
{
	size_t ahead = LOCAL_PREFETCH_BYTES / KVR_CACHE_LINE;
	size_t line = 0;

	for (; line + ahead < lines; line++) {
		__builtin_prefetch(from + LOCAL_PREFETCH_BYTES);
		stream_line(to, from);
		to += KVR_CACHE_LINE;
		from += KVR_CACHE_LINE;
	}
	for (; line < lines; line++) {
		__builtin_prefetch(after);
		stream_line(to, from);
		to += KVR_CACHE_LINE;
		from += KVR_CACHE_LINE;
		after = after ? after + KVR_CACHE_LINE : NULL;
	}
}

void local_copy(void *to, const void *from, size_t bytes, const void *after)
{
	uint8_t *t = to;
	const uint8_t *f = from;
	size_t head, lines;

	if (bytes < LOCAL_STREAM_BYTES) {
		memcpy(to, from, bytes);
		return;
	}
	head = (size_t)(-(uintptr_t)t & (KVR_CACHE_LINE - 1));
	if (head > 0)
		memcpy(t, f, head);
	lines = (bytes - head) / KVR_CACHE_LINE;
	stream_lines(t + head, f + head, lines, after);
	head += lines * KVR_CACHE_LINE;
	if (head < bytes)
		memcpy(t + head, f + head, bytes - head);
}

void local_copy_flush(void)
{
	_mm_sfence();
}

#else

void local_copy(void *to, const void *from, size_t bytes, const void *after)
{
	if (after)
		__builtin_prefetch(after);
	memcpy(to, from, bytes);
}

/* Plain stores: the store-release of a message orders them. */
void local_copy_flush(void)
{
}

#endif
