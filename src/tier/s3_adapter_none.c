/* s3_adapter_none.c - where libcurl is missing: the adapter does not open. */
#ifndef KVRAIL_HAVE_CURL

#include <errno.h>
#include <stdio.h>

#include "tier/s3_adapter.h"

int s3_adapter_open(
	const struct s3_adapter_options *options, struct l2_adapter **adapter, char *error, size_t error_size)
{
	(void)options;
	*adapter = NULL;
	snprintf(error, error_size,
		"l2 s3: this program was built without libcurl, which speaks to the server; build it with libcurl");
	return -EOPNOTSUPP;
}

#endif
