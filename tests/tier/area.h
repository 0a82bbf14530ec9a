/* area.h - address space as an L1 area for tests in which no byte is touched: any size costs nothing. */
#ifndef KVRAIL_TESTS_TIER_AREA_H
#define KVRAIL_TESTS_TIER_AREA_H

#include "tier/l1.h"

/* Ends the test program when the address space cannot be had. */
struct l1_area area_reserve(uint64_t bytes);
void area_release(struct l1_area *area);

#endif
