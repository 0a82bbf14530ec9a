#include "tier/l1_pages.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/log.h"

/* In a bin that spans several lengths, so many extents are tried before a longer bin is used. */
#define BIN_TRIES 32

uint32_t l1_bin_of(uint32_t count)
{
	uint32_t power;

	if (count < L1_BINS_EXACT)
		return count;
	power = 31 - (uint32_t)__builtin_clz(count);
	return L1_BINS_EXACT + (power - 6) * L1_BINS_PER_POWER + ((count >> (power - 5)) & (L1_BINS_PER_POWER - 1));
}

uint32_t l1_bin_next(const struct l1_extents *extents, uint32_t bin)
{
	uint32_t word = bin / 64;
	uint64_t bits;
	uint32_t words;

	if (bin >= L1_BINS)
		return L1_BINS;
	bits = extents->bitmap[word] & (~UINT64_C(0) << (bin % 64));
	if (bits)
		return word * 64 + (uint32_t)__builtin_ctzll(bits);
	words = extents->summary & (~UINT32_C(0) << word << 1);
	if (!words)
		return L1_BINS;
	word = (uint32_t)__builtin_ctz(words);
	return word * 64 + (uint32_t)__builtin_ctzll(extents->bitmap[word]);
}

static void bin_add(struct l1_extents *extents, struct l1_page *pages, uint32_t first)
{
	uint32_t number = l1_bin_of(pages[first].pages);
	struct l1_bin *bin = &extents->bins[number];

	pages[first].prev = L1_NO_PAGE;
	pages[first].next = bin->first;
	if (bin->first != L1_NO_PAGE)
		pages[bin->first].prev = first;
	bin->first = first;
	bin->extents++;
	bin->pages += pages[first].pages;
	extents->bitmap[number / 64] |= UINT64_C(1) << (number % 64);
	extents->summary |= UINT32_C(1) << (number / 64);
	extents->free_pages += pages[first].pages;
}

static void bin_remove(struct l1_extents *extents, struct l1_page *pages, uint32_t first)
{
	uint32_t number = l1_bin_of(pages[first].pages);
	struct l1_bin *bin = &extents->bins[number];
	uint32_t prev = pages[first].prev;
	uint32_t next = pages[first].next;

	if (prev != L1_NO_PAGE)
		pages[prev].next = next;
	else
		bin->first = next;
	if (next != L1_NO_PAGE)
		pages[next].prev = prev;
	bin->extents--;
	bin->pages -= pages[first].pages;
	extents->free_pages -= pages[first].pages;
	if (bin->first != L1_NO_PAGE)
		return;
	extents->bitmap[number / 64] &= ~(UINT64_C(1) << (number % 64));
	if (!extents->bitmap[number / 64])
		extents->summary &= ~(UINT32_C(1) << (number / 64));
}

static void tag(struct l1_page *pages, uint32_t first, uint32_t count, enum l1_page_state state)
{
	uint32_t last = first + count - 1;

	pages[last].state = L1_PAGE_END;
	pages[last].pages = count;
	pages[first].state = (uint8_t)state;
	pages[first].pages = count;
}

void l1_extents_init(struct l1_extents *extents, struct l1_page *pages, uint32_t first, uint32_t count)
{
	memset(extents, 0, sizeof(*extents));
	extents->first = first;
	extents->end = first + count;
	for (uint32_t i = 0; i < L1_BINS; i++)
		extents->bins[i].first = L1_NO_PAGE;
	tag(pages, first, count, L1_PAGE_FREE);
	bin_add(extents, pages, first);
}

static uint32_t find_extent(const struct l1_extents *extents, const struct l1_page *pages, uint32_t count)
{
	uint32_t own = l1_bin_of(count);
	uint32_t tries = BIN_TRIES;
	uint32_t bin;

	for (uint32_t first = extents->bins[own].first; first != L1_NO_PAGE && tries > 0;
		first = pages[first].next, tries--)
		if (pages[first].pages >= count)
			return first;
	bin = l1_bin_next(extents, own + 1);
	return bin < L1_BINS ? extents->bins[bin].first : L1_NO_PAGE;
}

void l1_extents_take_from(struct l1_extents *extents, struct l1_page *pages, uint32_t extent, uint32_t count)
{
	uint32_t rest = pages[extent].pages - count;

	assert(pages[extent].state == L1_PAGE_FREE && pages[extent].pages >= count && count > 0);
	bin_remove(extents, pages, extent);
	tag(pages, extent, count, L1_PAGE_RUN);
	if (rest > 0) {
		tag(pages, extent + count, rest, L1_PAGE_FREE);
		bin_add(extents, pages, extent + count);
	}
}

void l1_extents_take_at(struct l1_extents *extents, struct l1_page *pages, uint32_t extent, uint32_t at, uint32_t count)
{
	uint32_t before = at - extent;
	uint32_t rest = pages[extent].pages - before - count;

	assert(pages[extent].state == L1_PAGE_FREE && at >= extent && count > 0);
	assert((uint64_t)before + count <= pages[extent].pages);
	bin_remove(extents, pages, extent);
	if (before > 0) {
		tag(pages, extent, before, L1_PAGE_FREE);
		bin_add(extents, pages, extent);
	}
	tag(pages, at, count, L1_PAGE_RUN);
	if (rest > 0) {
		tag(pages, at + count, rest, L1_PAGE_FREE);
		bin_add(extents, pages, at + count);
	}
}

uint32_t l1_extents_take(struct l1_extents *extents, struct l1_page *pages, uint32_t count)
{
	uint32_t first;

	if (count > extents->free_pages)
		return L1_NO_PAGE;
	first = find_extent(extents, pages, count);
	if (first != L1_NO_PAGE)
		l1_extents_take_from(extents, pages, first, count);
	return first;
}

uint32_t l1_extents_before(const struct l1_extents *extents, const struct l1_page *pages, uint32_t first)
{
	return first > extents->first ? first - pages[first - 1].pages : L1_NO_PAGE;
}

uint32_t l1_extents_after(const struct l1_extents *extents, const struct l1_page *pages, uint32_t first)
{
	uint32_t after = first + pages[first].pages;

	return after < extents->end ? after : L1_NO_PAGE;
}

void l1_extents_give(struct l1_extents *extents, struct l1_page *pages, uint32_t first)
{
	uint32_t before = l1_extents_before(extents, pages, first);
	uint32_t after = l1_extents_after(extents, pages, first);
	uint32_t count = pages[first].pages;

	assert(pages[first].state == L1_PAGE_RUN);
	if (after != L1_NO_PAGE && pages[after].state == L1_PAGE_FREE) {
		bin_remove(extents, pages, after);
		count += pages[after].pages;
		pages[after].state = L1_PAGE_INNER;
	}
	pages[first].state = L1_PAGE_INNER;
	if (before != L1_NO_PAGE && pages[before].state == L1_PAGE_FREE) {
		bin_remove(extents, pages, before);
		count += pages[before].pages;
		first = before;
	}
	tag(pages, first, count, L1_PAGE_FREE);
	bin_add(extents, pages, first);
}

uint32_t l1_extents_last(const struct l1_extents *extents, const struct l1_page *pages)
{
	uint32_t first = extents->end - pages[extents->end - 1].pages;

	return pages[first].state == L1_PAGE_FREE ? first : L1_NO_PAGE;
}

static int verify_bin(const struct l1_extents *extents, const struct l1_page *pages, uint32_t number, uint32_t limit)
{
	const struct l1_bin *bin = &extents->bins[number];
	bool marked = extents->bitmap[number / 64] >> (number % 64) & 1;
	uint32_t count = 0;
	uint64_t sum = 0;

	for (uint32_t first = bin->first; first != L1_NO_PAGE; first = pages[first].next) {
		if (first < extents->first || first >= extents->end || pages[first].state != L1_PAGE_FREE ||
			l1_bin_of(pages[first].pages) != number || count++ == limit) {
			log_error("l1: bin %u holds page %u, which is no free extent of its size", number, first);
			return -EILSEQ;
		}
		sum += pages[first].pages;
	}
	if (count != bin->extents || sum != bin->pages || marked != (count > 0)) {
		log_error("l1: bin %u counts %u extents of %lu pages and has %u of %lu, marked %d", number,
			bin->extents, (unsigned long)bin->pages, count, (unsigned long)sum, marked);
		return -EILSEQ;
	}
	return 0;
}

int l1_extents_verify(const struct l1_extents *extents, const struct l1_page *pages)
{
	uint32_t extents_free = 0;
	uint32_t extents_binned = 0;
	uint32_t free_pages = 0;
	bool free_before = false;

	for (uint32_t first = extents->first; first < extents->end; first += pages[first].pages) {
		const struct l1_page *page = &pages[first];
		bool is_free = page->state == L1_PAGE_FREE;

		if ((!is_free && page->state != L1_PAGE_RUN) || page->pages == 0 ||
			page->pages > extents->end - first || pages[first + page->pages - 1].pages != page->pages) {
			log_error("l1: page %u starts no sound extent: state %u, %u pages", first, page->state,
				page->pages);
			return -EILSEQ;
		}
		if (is_free && free_before) {
			log_error("l1: free extents that touch at page %u have not been merged", first);
			return -EILSEQ;
		}
		free_before = is_free;
		extents_free += is_free;
		free_pages += is_free ? page->pages : 0;
	}
	for (uint32_t bin = 0; bin < L1_BINS; bin++) {
		if (verify_bin(extents, pages, bin, extents_free))
			return -EILSEQ;
		extents_binned += extents->bins[bin].extents;
	}
	if (extents_binned != extents_free || free_pages != extents->free_pages) {
		log_error("l1: %u free extents of %u pages, of which %u in bins, %u pages counted", extents_free,
			free_pages, extents_binned, extents->free_pages);
		return -EILSEQ;
	}
	return 0;
}
