/* quota.h - the limits of a tenant as people write them. */
#ifndef KVRAIL_MGMT_QUOTA_H
#define KVRAIL_MGMT_QUOTA_H

#include "base/compiler.h"
#include "base/text.h"
#include "tier/cache.h"

KVR_BEGIN_C

#define QUOTA_TEXT_MAX 64
#define QUOTA_BYTES_MAX (UINT64_C(64) << 40)

/* "SOFT:HARD", each a size or "none". NULL, or why it makes no sense, to stand behind it in a message. */
const char *quota_parse(const char *text, struct cache_quota *quota);

/* "4.00 GiB", or "none". */
static inline const char *quota_limit_text(char buffer[TEXT_SHORT], uint64_t bytes)
{
	return bytes > 0 ? text_size(buffer, bytes) : "none";
}

KVR_END_C

#endif
