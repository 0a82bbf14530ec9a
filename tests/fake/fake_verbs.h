/*
 * fake_verbs.h - a stand-in for libibverbs.so.1 that answers as a machine would: without devices, without a port that is up,
 * without permission, with small limits. And a device on which a test says what completes and when.
 *
 * It is a shared library of its own, as the real one: the driver under test loads it by its path. A test loads it too and
 * takes the one struct below, by fake_verbs_of.
 */
#ifndef KVRAIL_TESTS_FAKE_VERBS_H
#define KVRAIL_TESTS_FAKE_VERBS_H

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#define FAKE_DEVICES 4
#define FAKE_GIDS 16
#define FAKE_PORTS 2

struct fake_verbs {
	/* The machine. Set before the driver's open. */
	int device_count;
	const char *names[FAKE_DEVICES];
	int list_errno, open_errno, domain_errno, region_errno, cq_errno, qp_errno;
	int ports;
	struct ibv_port_attr port[FAKE_PORTS];
	struct ibv_gid_entry gids[FAKE_GIDS];
	int gid_count;
	struct ibv_device_attr attributes;
	uint32_t max_inline;
	int modify_errno[7]; /* by target state, enum ibv_qp_state */
	int post_errno;      /* of sends */

	/* What it was asked. */
	struct ibv_qp_attr asked[7]; /* the last, by target state */
	int asked_mask[7];
	int access; /* of the last region */
	bool access_by_iova2;
	int dmabuf_errno; /* of the next dma-bufs; then what the last one was asked for with */
	int dmabuf_fd;
	uint64_t dmabuf_offset, dmabuf_length, dmabuf_address;
	unsigned objects; /* that are not destroyed yet */
	unsigned opened, closed;
	unsigned cq_events_got, cq_events_acked;
	unsigned async_events_acked;

	/* What a test makes happen. Queue pairs are named by number. */
	/* The oldest `count` sends (or receives) end with that status, signalled or not where it is an error. */
	void (*complete_sends)(uint32_t qp_num, unsigned count, enum ibv_wc_status status);
	void (*complete_receives)(uint32_t qp_num, unsigned count, enum ibv_wc_status status);
	/* One of the shared receive queue's, the newest, by this queue pair. */
	void (*complete_shared)(uint32_t qp_num, enum ibv_wc_status status);
	/* An event on the completion queue of that queue pair. */
	void (*cq_event)(uint32_t qp_num);
	void (*port_event)(enum ibv_event_type type, int port);
	void (*qp_event)(enum ibv_event_type type, uint32_t qp_num);
	void (*device_event)(enum ibv_event_type type);
};

/* In a program that knows nothing of it the environment variable FAKE_VERBS says what the machine is like: good, no-device, port-down,
 * no-address, no-permission, small-mtu, small-regions, two-devices. */
/* All as one good RoCE machine has it: "fake0", one active port, one address. */
void fake_verbs_reset(void);
struct fake_verbs *fake_verbs_state(void);

/* The loaded library's, reset. NULL: it cannot be loaded. */
static inline struct fake_verbs *fake_verbs_of(const char *path)
{
	void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	void (*reset)(void);
	struct fake_verbs *(*state)(void);

	if (!handle)
		return NULL;
	*(void **)&reset = dlsym(handle, "fake_verbs_reset");
	*(void **)&state = dlsym(handle, "fake_verbs_state");
	reset();
	return state();
}

#endif
