#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "verbs/sim/sim.h"

#define BUFFER_BYTES ((uint64_t)65536) /* on the way and unread; a power of two */
#define FDS_MAX 64u

/* What travels towards one end. Counts of bytes run freely. */
struct inbound {
	uint8_t bytes[BUFFER_BYTES];
	uint64_t sent;
	uint64_t flying; /* arrive with the event that is scheduled */
	uint64_t arrived;
	uint64_t read;
	bool closed; /* by the other end */
	bool ended;  /* and that has arrived */
	uint32_t fd_count;
	struct {
		uint64_t at; /* the byte that it came with */
		int fd;
	} fds[FDS_MAX];
};

struct sim_stream {
	struct stream base;
	struct sim_fabric *fabric;
	struct sim_stream *peer;        /* NULL: closed */
	const struct sim_device *owner; /* whose kill ends this end */
	struct list_node in_fabric;
	bool dead;
	bool closed; /* freed with its last event */
	bool scheduled;
	struct inbound in;
};

static struct sim_stream *sim_stream_of(const struct stream *stream)
{
	return KVR_CONTAINER_OF(stream, struct sim_stream, base);
}

/* One event at a time is on its way to an end; what is sent meanwhile comes with the next. */
static void fly(struct sim_stream *to)
{
	if (to->scheduled || to->closed)
		return;
	to->scheduled = true;
	to->in.flying = to->in.sent;
	sim_schedule_stream(to->fabric, to, to->fabric->now_ns + sim_delay(to->fabric));
}

static void stream_free(struct sim_stream *stream)
{
	for (uint32_t i = 0; i < stream->in.fd_count; i++)
		close(stream->in.fds[i].fd);
	list_remove(&stream->in_fabric);
	sim_unreserve(stream->fabric, 1);
	free(stream);
}

void sim_stream_arrive(struct sim_stream *stream)
{
	stream->scheduled = false;
	if (stream->closed) {
		stream_free(stream);
		return;
	}
	stream->in.arrived = stream->in.flying;
	if (stream->in.sent > stream->in.arrived)
		fly(stream);
	else
		stream->in.ended = stream->in.closed;
}

static int add_fds(struct sim_stream *to, const int *fds, unsigned fd_count)
{
	uint32_t before = to->in.fd_count;

	if (fd_count > STREAM_FDS_MAX)
		return -EINVAL;
	if (before + fd_count > FDS_MAX)
		return -EAGAIN;
	for (unsigned i = 0; i < fd_count; i++) {
		int copy = dup(fds[i]);

		if (copy < 0) {
			int error = -errno;

			while (to->in.fd_count > before)
				close(to->in.fds[--to->in.fd_count].fd);
			return error;
		}
		to->in.fds[to->in.fd_count].at = to->in.sent;
		to->in.fds[to->in.fd_count++].fd = copy;
	}
	return 0;
}

static ssize_t stream_send(struct stream *base, const void *bytes, size_t length, const int *fds, unsigned fd_count)
{
	struct sim_stream *stream = sim_stream_of(base);
	struct sim_stream *to = stream->peer;
	uint64_t taken;
	int error;

	if (length == 0)
		return -EINVAL;
	if (fd_count > 0 && !base->carries_fds)
		return -EOPNOTSUPP;
	if (stream->dead || stream->in.ended)
		return -EPIPE;
	if (!to)
		return (ssize_t)length; /* the end is on its way here: these bytes are lost */
	taken = kvr_min_u64(length, BUFFER_BYTES - (to->in.sent - to->in.read));
	if (taken == 0)
		return -EAGAIN;
	error = add_fds(to, fds, fd_count);
	if (error)
		return error;
	for (uint64_t i = 0; i < taken; i++)
		to->in.bytes[(to->in.sent + i) % BUFFER_BYTES] = ((const uint8_t *)bytes)[i];
	to->in.sent += taken;
	fly(to);
	return (ssize_t)taken;
}

/* Those that came with the bytes just read. */
static void give_fds(struct inbound *in, int *fds, unsigned *fd_count, unsigned fd_capacity)
{
	uint32_t given = 0;

	while (given < in->fd_count && in->fds[given].at < in->read) {
		if (fds && fd_count && *fd_count < fd_capacity)
			fds[(*fd_count)++] = in->fds[given].fd;
		else
			close(in->fds[given].fd);
		given++;
	}
	in->fd_count -= given;
	memmove(in->fds, in->fds + given, in->fd_count * sizeof(in->fds[0]));
}

static ssize_t stream_receive(
	struct stream *base, void *bytes, size_t capacity, int *fds, unsigned *fd_count, unsigned fd_capacity)
{
	struct sim_stream *stream = sim_stream_of(base);
	struct inbound *in = &stream->in;
	uint64_t length = kvr_min_u64(in->arrived - in->read, capacity);

	if (capacity == 0)
		return -EINVAL;
	if (stream->dead)
		return 0;
	if (length == 0)
		return in->ended ? 0 : -EAGAIN;
	length = kvr_min_u64(length, sim_draw(stream->fabric, 1, stream->fabric->options.stream_chunk_max));
	for (uint64_t i = 0; i < length; i++)
		((uint8_t *)bytes)[i] = in->bytes[(in->read + i) % BUFFER_BYTES];
	in->read += length;
	give_fds(in, fds, fd_count, fd_capacity);
	return (ssize_t)length;
}

static int stream_event_fd(const struct stream *base)
{
	(void)base;
	return -1;
}

/* The other end reads what is on its way, then sees the end. */
static void hang_up(struct sim_stream *stream)
{
	struct sim_stream *peer = stream->peer;

	if (!peer)
		return;
	peer->in.closed = true;
	peer->peer = NULL;
	stream->peer = NULL;
	fly(peer);
}

static void stream_finish(struct stream *base)
{
	struct sim_stream *peer = sim_stream_of(base)->peer;

	if (!peer)
		return;
	peer->in.closed = true;
	fly(peer);
}

static void stream_close(struct stream *base)
{
	struct sim_stream *stream = sim_stream_of(base);

	hang_up(stream);
	stream->closed = true;
	if (!stream->scheduled)
		stream_free(stream);
}

static const struct stream_ops sim_stream_ops = {
	.send = stream_send,
	.receive = stream_receive,
	.event_fd = stream_event_fd,
	.finish = stream_finish,
	.close = stream_close,
};

static struct sim_stream *make_end(struct sim_fabric *fabric, const char *side)
{
	struct sim_stream *stream = fault_point("sim_stream_pair") ? NULL : calloc(1, sizeof(*stream));

	if (!stream)
		return NULL;
	if (sim_reserve(fabric, 1)) {
		free(stream);
		return NULL;
	}
	stream->fabric = fabric;
	stream->base.ops = &sim_stream_ops;
	stream->base.carries_fds = true;
	stream->base.peer.pid = 1000 + (pid_t)fabric->streams_opened;
	stream->base.peer.uid = 1000;
	stream->base.peer.gid = 1000;
	snprintf(stream->base.name, sizeof(stream->base.name), "sim:%s %u", side, fabric->streams_opened);
	list_add_last(&fabric->streams, &stream->in_fabric);
	return stream;
}

int sim_stream_pair(
	struct sim_fabric *fabric, struct verbs_device *owner, struct stream **client, struct stream **server)
{
	/* Each end is named after the other, as sockets are. */
	struct sim_stream *client_end = make_end(fabric, "server");
	struct sim_stream *server_end = client_end ? make_end(fabric, "client") : NULL;

	*client = NULL;
	*server = NULL;
	if (!server_end) {
		if (client_end)
			stream_free(client_end);
		return -ENOMEM;
	}
	fabric->streams_opened++;
	client_end->peer = server_end;
	server_end->peer = client_end;
	client_end->owner = owner ? KVR_CONTAINER_OF(owner, struct sim_device, base) : NULL;
	*client = &client_end->base;
	*server = &server_end->base;
	return 0;
}

void sim_stream_own(struct stream *base, struct verbs_device *owner)
{
	sim_stream_of(base)->owner = owner ? KVR_CONTAINER_OF(owner, struct sim_device, base) : NULL;
}

void sim_streams_end(struct sim_fabric *fabric, const struct sim_device *owner)
{
	list_for_each(node, &fabric->streams) {
		struct sim_stream *stream = KVR_CONTAINER_OF(node, struct sim_stream, in_fabric);

		if (stream->owner == owner) {
			hang_up(stream);
			stream->dead = true;
		}
	}
}

void sim_streams_disown(struct sim_fabric *fabric, const struct sim_device *owner)
{
	list_for_each(node, &fabric->streams) {
		struct sim_stream *stream = KVR_CONTAINER_OF(node, struct sim_stream, in_fabric);

		if (stream->owner == owner)
			stream->owner = NULL;
	}
}

void sim_streams_free(struct sim_fabric *fabric)
{
	list_for_each_safe(node, &fabric->streams)
		stream_free(KVR_CONTAINER_OF(node, struct sim_stream, in_fabric));
}
