/* checksum_none.c - where libxxhash is missing: nothing can be kept outside L1. */
#ifndef KVRAIL_HAVE_XXHASH

#include "tier/checksum.h"

bool checksum_available(void)
{
	return false;
}

uint64_t checksum_bytes(const void *bytes, uint64_t length)
{
	(void)bytes;
	(void)length;
	return 0;
}

#endif
