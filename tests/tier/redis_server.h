/* redis_server.h - a real redis-server, or valkey-server, in a folder of its own, started and stopped by a test, and redis-cli to look at it. */
#ifndef KVRAIL_TESTS_TIER_REDIS_SERVER_H
#define KVRAIL_TESTS_TIER_REDIS_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "tier/place.h"
#include "tier/redis_adapter.h"

struct redis_server {
	struct place place;
	char socket[PLACE_PATH + 32];
	uint16_t port; /* 127.0.0.1 */
	pid_t pid;
	FILE *output;
	char more[8][64]; /* further arguments, "" ends them */
};

struct CMUnitTest;

/* The tests with a redis-server, and once more with a valkey-server, each where it is installed; where one is not, that is
 * said, and without any of them a skipped test stands for all. How many failed. */
int redis_run_tests(const struct CMUnitTest *tests, size_t count);
/* Makes the folder and starts it; returns when it accepts connections. arguments: "--requirepass secret", by blanks. */
void redis_server_start(struct redis_server *server, const char *arguments);
/* Again, as it was, after redis_server_kill. */
void redis_server_again(struct redis_server *server);
void redis_server_kill(struct redis_server *server);
void redis_server_stop(struct redis_server *server);
#define REDIS_CLUSTER_NODES 3
/* Three servers that are a cluster: each knows the others, and has a third of the slots. */
void redis_cluster_start(struct redis_server servers[REDIS_CLUSTER_NODES]);
/* A port of 127.0.0.1 that nobody has. */
uint16_t redis_free_port(void);
/* redis-cli at the server's socket: what it prints, into out of 256 bytes, without the last line end. */
void redis_cli(const struct redis_server *server, char out[256], const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Asserts what it prints. */
#define redis_says(server, expected, ...)                   \
	do {                                                \
		char redis_said[256];                       \
		redis_cli(server, redis_said, __VA_ARGS__); \
		assert_string_equal(redis_said, expected);  \
	} while (0)

/* The key of an object with the default prefix, with its 0. */
void redis_key_of(const struct l2_identity *identity, char key[128]);
/* Opens, or fails the test. options->where may be NULL: the server's socket. */
struct l2_adapter *redis_open(const struct redis_server *server, struct redis_adapter_options options);

#endif
