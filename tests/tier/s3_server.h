/* s3_server.h - tests/tier/s3_server.py, started and stopped by a test: an S3 server that verifies each signature. */
#ifndef KVRAIL_TESTS_TIER_S3_SERVER_H
#define KVRAIL_TESTS_TIER_S3_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tier/s3_adapter.h"

struct s3_server {
	pid_t pid;
	int input; /* its standard input: it ends with it */
	uint16_t port;
	char endpoint[64];
};

/* False: there is no python3. */
bool s3_server_start(struct s3_server *server);
void s3_server_stop(struct s3_server *server);
/* What it is to do wrong, see s3_server.py: "GET", 2, "503". */
void s3_server_fault(const struct s3_server *server, const char *on, int times, const char *what);
/* A number of its statistics: "refused", "PUT"; "objects": how many there are. */
int s3_server_count(const struct s3_server *server, const char *name);
/* The credentials that it takes; options for `where` "bucket/kv" at its endpoint, that stay while both arguments do. */
struct s3_adapter_options s3_server_options(const struct s3_server *server, struct s3_credentials *credentials);

#endif
