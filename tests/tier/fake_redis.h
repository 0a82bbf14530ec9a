/* fake_redis.h - a server that speaks as Redis does but for what a test tells it to say: on a Unix socket, one thread for each connection. */
#ifndef KVRAIL_TESTS_TIER_FAKE_REDIS_H
#define KVRAIL_TESTS_TIER_FAKE_REDIS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tier/place.h"

#define FAKE_CONNECTIONS 512
#define FAKE_ANSWER_MAX 16384

enum fake_end {
	FAKE_GO_ON,
	FAKE_CLOSE, /* after its answer */
	FAKE_STALL, /* says nothing any more */
};

struct fake_redis {
	struct place place;
	char where[PLACE_PATH + 32]; /* a Unix socket, or "127.0.0.1:PORT" */
	uint16_t port;
	int listen_fd;
	pthread_t acceptor;
	pthread_mutex_t lock;
	/* under the lock */
	char command[32]; /* the one that is answered so: "GET" */
	char bytes[FAKE_ANSWER_MAX];
	size_t length;
	enum fake_end end;
	uint32_t answered; /* times that the answer was given */
	uint32_t unlinked; /* UNLINKs that came */
	uint32_t asked;    /* ASKINGs */
	const char *page;  /* what SCAN is answered with; NULL: as all the rest */
	uint32_t pages;    /* times that it was */
	uint32_t connections;
	int fds[FAKE_CONNECTIONS];
	bool ended[FAKE_CONNECTIONS]; /* its thread is done with it */
	pthread_t threads[FAKE_CONNECTIONS];
};

/* tcp: at 127.0.0.1, for clusters. */
void fake_redis_start(struct fake_redis *fake, bool tcp);
void fake_redis_stop(struct fake_redis *fake);
/* From now on `command` is answered with these bytes. Others: PING +PONG, STRLEN and UNLINK :1,
 * GET nil, the rest +OK. */
void fake_redis_say(struct fake_redis *fake, const char *command, const void *bytes, size_t length, enum fake_end end);
/* And SCAN with this, which stays; "endless": an empty page and a new cursor each time. */
void fake_redis_page(struct fake_redis *fake, const char *page);
uint32_t fake_redis_pages(struct fake_redis *fake);
uint32_t fake_redis_answered(struct fake_redis *fake);
uint32_t fake_redis_unlinked(struct fake_redis *fake);

#endif
