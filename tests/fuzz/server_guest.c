/* server_guest.c - see server_guest.h: what guests are and hear. */
#include <stdio.h>
#include <string.h>

#include "fuzz/server_guest.h"
#include "protocol/message.h"

/* With KVRAIL_FUZZ_CODES=FILE in the environment each reply code is appended to FILE when it is first seen: scripts/fuzz --check. */
static void note_code(uint16_t status)
{
	static uint64_t seen;
	const char *path = getenv("KVRAIL_FUZZ_CODES");
	FILE *file;

	demand(status < 64 && strcmp(status_name(status), "UNKNOWN") != 0);
	if (seen & (uint64_t)1 << status || !path)
		return;
	seen |= (uint64_t)1 << status;
	file = fopen(path, "a");
	if (!file)
		return;
	fprintf(file, "%s\n", status_name(status));
	fclose(file);
}

/* ---- the guests' side ------------------------------------------------------------------------------------------ */

static void guest_close(struct guest *guest)
{
	if (!guest->device)
		return;
	if (guest->qp) {
		if (guest->connected)
			verbs_sim.qp_fail(guest->qp);
	}
	if (guest->stream)
		guest->stream->ops->close(guest->stream);
	if (guest->qp)
		verbs_sim.destroy_qp(guest->qp);
	if (guest->cq)
		verbs_sim.destroy_cq(guest->cq);
	if (guest->buffers_mr)
		verbs_sim.deregister_memory(guest->buffers_mr);
	if (guest->pool_mr)
		verbs_sim.deregister_memory(guest->pool_mr);
	verbs_sim.close(guest->device);
	free(guest->buffers);
	free(guest->pool);
	memset(guest, 0, sizeof(*guest));
}

void guest_kill(struct world *world, struct guest *guest)
{
	if (guest->device)
		sim_fabric_kill_device(world->fabric, guest->device);
	guest_close(guest);
}

void guest_begin(struct world *world, struct guest *guest)
{
	struct verbs_open open;
	struct stream *server_end;
	uint32_t how;

	guest_kill(world, guest);
	memset(&open, 0, sizeof(open));
	open.fabric = world->fabric;
	demand(verbs_sim.open(&open, &guest->device) == 0);
	guest->buffers = calloc(BUFFERS + 1, WIRE_INLINE_BYTES);
	guest->pool = calloc(1, POOL_BYTES);
	demand(guest->buffers && guest->pool);
	demand(verbs_sim.register_memory(guest->device, guest->buffers, (BUFFERS + 1) * WIRE_INLINE_BYTES,
		       IBV_ACCESS_LOCAL_WRITE, &guest->buffers_mr) == 0);
	demand(verbs_sim.register_memory(guest->device, guest->pool, POOL_BYTES,
		       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
		       &guest->pool_mr) == 0);
	demand(verbs_sim.create_cq(guest->device, 64, &guest->cq) == 0);
	guest->next_id = 1;
	demand(sim_stream_pair(world->fabric, guest->device, &guest->stream, &server_end) == 0);
	how = take(world);
	server_end->peer.uid = how < 240 ? 1000 + how % 3 : (uid_t)-1; /* none: over TCP */
	(void)control_accept(server_control(world->server), server_end, world->now_ns);
}

static void guest_receive(struct guest *guest, uint32_t index)
{
	struct ibv_sge sge = { (uint64_t)(uintptr_t)guest->buffers + index * WIRE_INLINE_BYTES, WIRE_INLINE_BYTES,
		guest->buffers_mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = index, .sg_list = &sge, .num_sge = 1 }, *bad;

	(void)!ibv_post_recv(guest->qp, &wr, &bad);
}

static void take_connect_reply(struct guest *guest, const uint8_t *bytes, uint32_t length)
{
	struct connect_reply reply;
	struct wire_error error;

	if (!guest->qp || guest->connected || connect_reply_decode(bytes, length, &reply, &error))
		return;
	if (verbs_sim.qp_connect(guest->qp, reply.address, reply.address_length, NULL, 0, &guest->stream->peer))
		return;
	for (uint32_t i = 0; i < BUFFERS; i++)
		guest_receive(guest, i);
	verbs_sim.qp_start(guest->qp);
	guest->connected = true;
}

static void take_control_reply(struct guest *guest, const uint8_t *bytes, uint32_t length)
{
	struct register_reply registered;
	struct memory_reply memory;
	struct hello_reply hello;
	struct wire_header header;
	struct wire_error error;

	demand(wire_header_decode(bytes, length, &header, &error) == 0);
	note_code(header.status);
	if (header.status != STATUS_OK)
		return;
	if (header.type == WIRE_HELLO_REPLY && !hello_reply_decode(bytes, length, &hello, &error)) {
		guest->gathers = hello.info.features & FEATURE_SEVERAL_MESSAGES;
		if (hello.authentication == AUTHENTICATION_CHALLENGE)
			memcpy(guest->challenge, hello.challenge, sizeof(guest->challenge));
	} else if (header.type == WIRE_CONNECT_REPLY)
		take_connect_reply(guest, bytes, length);
	else if (header.type == WIRE_MEMORY_REPLY && !memory_reply_decode(bytes, length, &memory, &error))
		guest->region = memory.region;
	else if (header.type == WIRE_REGISTER_REPLY && !register_reply_decode(bytes, length, &registered, &error))
		guest->registration = registered.registration;
}

/* Replies are whole messages of the protocol, whatever was asked. */
static void guest_read(struct guest *guest)
{
	struct wire_error error;
	ssize_t got;
	int length;

	if (!guest->stream)
		return;
	got = guest->stream->ops->receive(guest->stream, guest->inbox + guest->inbox_length,
		sizeof(guest->inbox) - guest->inbox_length, NULL, NULL, 0);
	if (got > 0)
		guest->inbox_length += (size_t)got;
	while ((length = wire_stream_length(guest->inbox, guest->inbox_length, sizeof(guest->inbox), &error)) > 0 &&
		guest->inbox_length >= (size_t)length) {
		take_control_reply(guest, guest->inbox, (uint32_t)length);
		guest->inbox_length -= (size_t)length;
		memmove(guest->inbox, guest->inbox + length, guest->inbox_length);
	}
	demand(length >= 0);
}

static void guest_take_reply(const uint8_t *bytes, uint32_t length)
{
	struct wire_header header;
	struct wire_error error;

	demand(wire_header_decode(bytes, length, &header, &error) == 0);
	demand(header.length == length);
	note_code(header.status);
	/* A reply's type is even; who asked with an even one, which is no request, hears of an error. */
	demand(header.type % 2 == 0 || !status_has_body(header.status));
}

static void guest_poll(struct guest *guest)
{
	struct ibv_wc wc;

	while (guest->cq && ibv_poll_cq(guest->cq, 1, &wc) == 1) {
		const uint8_t *bytes = guest->buffers + wc.wr_id * WIRE_INLINE_BYTES;
		uint32_t left = wc.byte_len, here;

		if (wc.status != IBV_WC_SUCCESS || wc.wr_id >= BUFFERS)
			continue;
		for (; left > 0; left -= here, bytes += here) {
			here = wire_first_length(bytes, left);
			guest_take_reply(bytes, here);
		}
		guest_receive(guest, (uint32_t)wc.wr_id);
	}
}

/* ---- time ------------------------------------------------------------------------------------------------------ */

static void turn(struct world *world)
{
	world->now_ns += 2000;
	sim_fabric_step(world->fabric, world->now_ns, 256);
	server_step(world->server, world->now_ns);
	for (uint32_t i = 0; i < GUESTS; i++) {
		guest_read(&world->guests[i]);
		guest_poll(&world->guests[i]);
	}
}

void turns(struct world *world, uint32_t count)
{
	while (count-- > 0)
		turn(world);
}
