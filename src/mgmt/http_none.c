/* http_none.c - where libmicrohttpd is missing: no pages. */
#ifndef KVRAIL_HAVE_MICROHTTPD

#include <errno.h>
#include <unistd.h>

#include "base/log.h"
#include "mgmt/http.h"

bool http_address_good(const char *address)
{
	(void)address;
	return true;
}

int http_listen(const char *address, int *listen_fd)
{
	*listen_fd = -1;
	log_warn("http %s: this kvraild was built without libmicrohttpd and has no pages", address);
	return -EOPNOTSUPP;
}

int http_create(const struct http_options *options, struct http **http)
{
	*http = NULL;
	if (options->listen_fd >= 0)
		close(options->listen_fd);
	return -EOPNOTSUPP;
}

void http_destroy(struct http **http)
{
	*http = NULL;
}

uint16_t http_port(const struct http *http)
{
	(void)http;
	return 0;
}

bool http_step(struct http *http, uint64_t now_ns)
{
	(void)http;
	(void)now_ns;
	return false;
}

uint64_t http_next_ns(const struct http *http)
{
	(void)http;
	return UINT64_MAX;
}

void http_slept(struct http *http)
{
	(void)http;
}

int http_fd(const struct http *http)
{
	(void)http;
	return -1;
}

#endif
