/*
 * worker.h - what a poll core does: receive, decode, hand to the management core, plan, post, complete, reply.
 *
 * One thread owns a worker; worker_step is one turn of its loop, bounded, without system call or allocation:
 *   completions (bounded) -> mailbox (bounded) -> turns (fair between connections, one doorbell each)
 */
#ifndef KVRAIL_WORKER_WORKER_H
#define KVRAIL_WORKER_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "verbs/driver.h"
#include "worker/mailbox.h"

KVR_BEGIN_C

struct worker_options {
	struct verbs_device *device; /* its home: requests and replies, and data. Stays the caller's, as do `rails` */
	/* Further devices: connections may have a queue pair on each, for data alone. They need the driver's `several_rails`. */
	struct verbs_device *rails[WIRE_RAILS_MAX - 1];
	uint32_t rail_count;
	/* With rails: local keys of the areas that transfers are in, [device * area_count + area], devices in the order home, rails. What
	 * moving a byte costs from there, in thousandths of what it costs from a near one; NULL: all are near. The caller's, unchanged
	 * while the worker lives. */
	const uint32_t *area_lkeys;
	const uint16_t *area_costs;
	uint32_t area_count;
	uint32_t index; /* of this worker */
	uint32_t connections_max;
	uint32_t credits;           /* requests in flight, per connection */
	uint32_t large_buffers;     /* for requests that do not fit a receive buffer */
	uint32_t message_bytes_max; /* size of one: <= WIRE_MESSAGE_BYTES_MAX */
	uint32_t send_depth;        /* work requests a queue pair can hold: 64 .. */
	uint64_t boot_id;
	struct server_info
		info; /* what GET_INFO says; texts must outlive the worker; tenant is filled in per connection */
	const char *(*tenant_name)(void *context, uint32_t tenant); /* for GET_INFO; any thread */
	void *context;
};

struct worker;

/* Registers its buffers with the device, makes the completion and shared receive queue. 0, -EINVAL, -ENOMEM, or the
 * driver's error. */
KVR_MUST_CHECK int worker_create(const struct worker_options *options, struct worker **worker);
/* After all connections are CLOSED. */
void worker_destroy(struct worker **worker);

/* For the control thread: the options of a queue pair that this worker will serve (queues filled in). */
void worker_qp_options(const struct worker *worker, struct verbs_qp_options *options);
/* The same for one more rail on device 1 .. rail_count (0 is home). */
void worker_rail_options(const struct worker *worker, uint32_t device, struct verbs_qp_options *options);
/* NULL: there is no such device. */
struct verbs_device *worker_rail_device(const struct worker *worker, uint32_t device);
struct mailbox *worker_mailbox(struct worker *worker);
const struct worker_counters *worker_counters(const struct worker *worker);
struct ibv_cq *worker_cq(const struct worker *worker);
struct verbs_device *worker_device(const struct worker *worker);

/* One turn. Returns true when it did something. */
bool worker_step(struct worker *worker, uint64_t now_ns);
/* For a loop that wants to sleep: arms the completion queue and looks once more; true: nothing to do, an event will
 * come. */
bool worker_arm(struct worker *worker);
/* After a loop that had armed it has slept: counts that, and takes the device's event. A system call: not part of a
 * step. */
void worker_slept(struct worker *worker);

KVR_END_C

#endif
