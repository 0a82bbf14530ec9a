#include "tier/fake_redis.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

struct served {
	struct fake_redis *fake;
	uint32_t place;
};

/* A line into out of 64 bytes, without its end. False: the connection has ended. */
static bool read_line(FILE *from, char out[64])
{
	size_t length;

	if (!fgets(out, 64, from))
		return false;
	length = strcspn(out, "\r\n");
	out[length] = '\0';
	return true;
}

/* One command: its first word, and whatever follows is thrown away. */
static bool read_command(FILE *from, char word[32])
{
	char line[64];
	long count;

	if (!read_line(from, line) || line[0] != '*')
		return false;
	count = strtol(line + 1, NULL, 10);
	for (long i = 0; i < count; i++) {
		long bytes;

		if (!read_line(from, line) || line[0] != '$')
			return false;
		bytes = strtol(line + 1, NULL, 10);
		for (long j = 0; j < bytes + 2; j++) {
			int c = getc(from);

			if (c == EOF)
				return false;
			if (i == 0 && j < 31 && j < bytes) {
				word[j] = (char)c;
				word[j + 1] = '\0';
			}
		}
	}
	return true;
}

static bool say(int fd, const void *bytes, size_t length)
{
	const char *at = bytes;

	while (length > 0) {
		ssize_t sent = send(fd, at, length, MSG_NOSIGNAL);

		if (sent <= 0)
			return false;
		at += sent;
		length -= (size_t)sent;
	}
	return true;
}

static const char *ordinary(const char *word)
{
	if (strcmp(word, "PING") == 0)
		return "+PONG\r\n";
	if (strcmp(word, "STRLEN") == 0 || strcmp(word, "UNLINK") == 0)
		return ":1\r\n";
	return strcmp(word, "GET") == 0 ? "$-1\r\n" : "+OK\r\n";
}

/* A reply to SCAN, with the lock held; its length, 0: none was told. */
static size_t scan_answer(struct fake_redis *fake, char *bytes)
{
	if (!fake->page)
		return 0;
	fake->pages++;
	if (strcmp(fake->page, "endless") == 0)
		return (size_t)sprintf(bytes, "*2\r\n$10\r\n1%09u\r\n*0\r\n", fake->pages);
	return (size_t)sprintf(bytes, "%s", fake->page);
}

static bool answer(struct fake_redis *fake, int fd, const char *word)
{
	size_t length = strlen(ordinary(word));
	char bytes[FAKE_ANSWER_MAX];
	enum fake_end end = FAKE_GO_ON;
	char byte;

	memcpy(bytes, ordinary(word), length);
	pthread_mutex_lock(&fake->lock);
	fake->unlinked += strcmp(word, "UNLINK") == 0;
	fake->asked += strcmp(word, "ASKING") == 0;
	if (strcmp(word, "SCAN") == 0 && fake->page)
		length = scan_answer(fake, bytes);
	if (strcmp(word, fake->command) == 0) {
		length = fake->length;
		memcpy(bytes, fake->bytes, length);
		end = fake->end;
		fake->answered++;
	}
	pthread_mutex_unlock(&fake->lock);
	if (!say(fd, bytes, length))
		return false;
	if (end == FAKE_STALL)
		while (recv(fd, &byte, 1, 0) > 0)
			;
	return end == FAKE_GO_ON;
}

static void *serve(void *argument)
{
	struct served served = *(struct served *)argument;
	int fd = dup(served.fake->fds[served.place]);
	FILE *from = fdopen(fd, "r");
	char word[32] = "";

	free(argument);
	while (read_command(from, word) && answer(served.fake, fd, word))
		;
	shutdown(fd, SHUT_RDWR);
	fclose(from);
	pthread_mutex_lock(&served.fake->lock);
	served.fake->ended[served.place] = true;
	pthread_mutex_unlock(&served.fake->lock);
	return NULL;
}

/* A client that tries again at once makes more connections in its life than there are places. With the lock held. */
static uint32_t free_place(struct fake_redis *fake)
{
	for (uint32_t i = 0; i < fake->connections; i++) {
		if (!fake->ended[i])
			continue;
		/* It has let go of the lock, or is about to. */
		pthread_join(fake->threads[i], NULL);
		close(fake->fds[i]);
		fake->ended[i] = false;
		return i;
	}
	if (fake->connections == FAKE_CONNECTIONS)
		abort();
	return fake->connections++;
}

static void *accept_all(void *argument)
{
	struct fake_redis *fake = argument;
	int fd;

	while ((fd = accept(fake->listen_fd, NULL, NULL)) >= 0) {
		struct served *served = malloc(sizeof(*served));

		pthread_mutex_lock(&fake->lock);
		*served = (struct served){ fake, free_place(fake) };
		fake->fds[served->place] = fd;
		if (pthread_create(&fake->threads[served->place], NULL, serve, served) != 0)
			abort();
		pthread_mutex_unlock(&fake->lock);
	}
	return NULL;
}

void fake_redis_start(struct fake_redis *fake, bool tcp)
{
	struct sockaddr_un path = { .sun_family = AF_UNIX };
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);

	memset(fake, 0, sizeof(*fake));
	place_make(&fake->place);
	pthread_mutex_init(&fake->lock, NULL);
	fake->listen_fd = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	snprintf(path.sun_path, sizeof(path.sun_path), "%.80s/fake.sock", fake->place.path);
	if (tcp) {
		assert_int_equal(bind(fake->listen_fd, (struct sockaddr *)&address, sizeof(address)), 0);
		assert_int_equal(getsockname(fake->listen_fd, (struct sockaddr *)&address, &length), 0);
		fake->port = ntohs(address.sin_port);
		snprintf(fake->where, sizeof(fake->where), "127.0.0.1:%u", fake->port);
	} else {
		assert_int_equal(bind(fake->listen_fd, (struct sockaddr *)&path, sizeof(path)), 0);
		snprintf(fake->where, sizeof(fake->where), "%s", path.sun_path);
	}
	assert_int_equal(listen(fake->listen_fd, 64), 0);
	assert_int_equal(pthread_create(&fake->acceptor, NULL, accept_all, fake), 0);
}

void fake_redis_stop(struct fake_redis *fake)
{
	shutdown(fake->listen_fd, SHUT_RDWR);
	pthread_join(fake->acceptor, NULL);
	for (uint32_t i = 0; i < fake->connections; i++) {
		shutdown(fake->fds[i], SHUT_RDWR);
		pthread_join(fake->threads[i], NULL);
		close(fake->fds[i]);
	}
	close(fake->listen_fd);
	pthread_mutex_destroy(&fake->lock);
	place_remove(&fake->place);
}

void fake_redis_say(struct fake_redis *fake, const char *command, const void *bytes, size_t length, enum fake_end end)
{
	pthread_mutex_lock(&fake->lock);
	snprintf(fake->command, sizeof(fake->command), "%s", command);
	assert_true(length <= sizeof(fake->bytes));
	memcpy(fake->bytes, bytes, length);
	fake->length = length;
	fake->end = end;
	fake->answered = 0;
	fake->unlinked = 0;
	pthread_mutex_unlock(&fake->lock);
}

uint32_t fake_redis_answered(struct fake_redis *fake)
{
	uint32_t answered;

	pthread_mutex_lock(&fake->lock);
	answered = fake->answered;
	pthread_mutex_unlock(&fake->lock);
	return answered;
}

uint32_t fake_redis_unlinked(struct fake_redis *fake)
{
	uint32_t unlinked;

	pthread_mutex_lock(&fake->lock);
	unlinked = fake->unlinked;
	pthread_mutex_unlock(&fake->lock);
	return unlinked;
}

void fake_redis_page(struct fake_redis *fake, const char *page)
{
	pthread_mutex_lock(&fake->lock);
	fake->page = page;
	pthread_mutex_unlock(&fake->lock);
}

uint32_t fake_redis_pages(struct fake_redis *fake)
{
	uint32_t pages;

	pthread_mutex_lock(&fake->lock);
	pages = fake->pages;
	pthread_mutex_unlock(&fake->lock);
	return pages;
}
