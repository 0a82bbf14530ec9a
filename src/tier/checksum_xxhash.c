#include "tier/checksum.h"

#include <xxhash.h>

bool checksum_available(void)
{
	return true;
}

uint64_t checksum_bytes(const void *bytes, uint64_t length)
{
	return XXH3_64bits(bytes, length);
}
