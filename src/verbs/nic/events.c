/*
 * events.c - one thread per device for what enters the kernel on nobody's time: asynchronous events, and queue pairs on
 * their way to the error state.
 *
 * Polling threads push a failing queue pair onto a list and ring an eventfd; the thread moves it to the error state, and
 * then says how far it has come in its `stage`, after which it does not touch it again.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "verbs/nic/nic.h"

/* Not to be touched afterwards: its owner may destroy it. */
static void finish(struct nic_device *nic, struct nic_qp *qp, enum nic_stage stage)
{
	/* pairs with the load-acquire in nic_qp_idle */
	kvr_store_release(&qp->stage, (uint32_t)stage);
	pthread_mutex_lock(&nic->quiet_lock);
	pthread_cond_broadcast(&nic->quiet_changed);
	pthread_mutex_unlock(&nic->quiet_lock);
}

/* A queue pair that cannot be moved is destroyed, so that its memory is safe all the same. */
static void destroy_instead(struct nic_device *nic, struct nic_qp *qp)
{
	pthread_mutex_lock(&nic->lock);
	nic_table_clear(&nic->table, qp->qp.qp_num);
	pthread_mutex_unlock(&nic->lock);
	if (nic->library.destroy_qp(qp->real) != 0)
		log_error("nic: %s: queue pair 0x%x can neither be stopped nor destroyed", nic->device.name,
			qp->qp.qp_num);
	qp->real = NULL;
	finish(nic, qp, NIC_GONE);
}

static void fail_one(struct nic_device *nic, struct nic_qp *qp)
{
	if (qp->marked || nic_qp_move(qp, NIC_ERR) != 0) {
		destroy_instead(nic, qp);
	} else if (!qp->qp.srq || qp->last_receive_done) {
		finish(nic, qp, NIC_DRAINED);
	} else {
		qp->deadline_ns = clock_now_ns() + NIC_LAST_RECEIVE_MS * UINT64_C(1000000);
		list_add_last(&nic->waiting, &qp->waiting);
		kvr_store_release(&qp->stage, (uint32_t)NIC_FLUSHING);
	}
}

static void fail_all(struct nic_device *nic)
{
	/* pairs with the release of the push in nic_events_fail */
	struct nic_qp *qp = kvr_exchange(&nic->failing, NULL);

	while (qp) {
		struct nic_qp *next = qp->next_failing;

		fail_one(nic, qp);
		qp = next;
	}
}

/* Devices that never tell of a last receive (soft-RoCE) are done long before. */
static void end_waiting(struct nic_device *nic)
{
	uint64_t now = list_empty(&nic->waiting) ? 0 : clock_now_ns();

	list_for_each_safe(node, &nic->waiting) {
		struct nic_qp *qp = KVR_CONTAINER_OF(node, struct nic_qp, waiting);

		if (now < qp->deadline_ns)
			continue;
		list_remove(&qp->waiting);
		finish(nic, qp, NIC_DRAINED);
	}
}

static void last_receive(struct nic_device *nic, struct nic_qp *qp)
{
	qp->last_receive_done = true;
	if (!list_linked(&qp->waiting))
		return;
	list_remove(&qp->waiting);
	finish(nic, qp, NIC_DRAINED);
}

/* A queue pair names its address by index: what stands there now is another one, so that nothing of it arrives any more. */
static void close_stray(struct nic_qp *qp, void *context)
{
	struct nic_device *nic = context;
	const struct nic_port *now = &nic->port;

	if (!qp->real || kvr_load_acquire(&qp->state) != NIC_RTS || !qp->path.global ||
		(qp->port.gid_index == now->gid_index && memcmp(&qp->port.gid, &now->gid, sizeof(now->gid)) == 0))
		return;
	log_warn("nic: %s: queue pair 0x%x is closed: its address has gone", nic->device.name, qp->qp.qp_num);
	kvr_counter_add(&nic->counters.qps_closed, 1);
	if (nic_qp_move(qp, NIC_ERR) != 0)
		log_error("nic: %s: queue pair 0x%x stays as it is", nic->device.name, qp->qp.qp_num);
}

/* Pitfalls I08: the index of an address may have moved. Queue pairs that are made from now on use what is there now; those that
 * stand on what is gone are closed, loudly, and their clients come back. */
static void read_port_again(struct nic_device *nic)
{
	struct nic_port port = nic->port;
	char text[NIC_GID_TEXT];
	bool moved;

	if (nic_port_read(nic, &port, port.number, nic->device.name) != 0)
		return;
	pthread_mutex_lock(&nic->lock);
	port.mtu = (uint8_t)kvr_min_u64(port.mtu, nic->mtu_max);
	moved = port.gid_index != nic->port.gid_index || memcmp(&port.gid, &nic->port.gid, sizeof(port.gid)) != 0 ||
		port.lid != nic->port.lid;
	if (moved) {
		kvr_counter_add(&nic->counters.address_changes, 1);
		log_warn("nic: %s: the address is now %s, GID index %u, LID %u", nic->device.name,
			nic_gid_text(text, &port.gid), port.gid_index, port.lid);
	}
	nic->port = port;
	nic_table_each(&nic->table, close_stray, nic);
	pthread_mutex_unlock(&nic->lock);
	nic->moved |= moved;
	if (!nic->moved || !verbs_is_up(&nic->device))
		return;
	nic->moved = false;
	verbs_set_health(&nic->device, VERBS_MOVED);
}

static void port_event(struct nic_device *nic, const struct ibv_async_event *event)
{
	/* Pitfalls I07: of another port of the same device. */
	if (event->element.port_num != (int)nic->port.number)
		return;
	log_warn("nic: %s: %s", nic->device.name, nic->library.event_type_str(event->event_type));
	if (event->event_type == IBV_EVENT_PORT_ERR) {
		verbs_set_health(&nic->device, VERBS_PORT_DOWN);
		kvr_counter_add(&nic->counters.port_errors, 1);
		return;
	}
	/* An address may come and go while the port is down. */
	if (event->event_type == IBV_EVENT_PORT_ACTIVE)
		verbs_set_health(&nic->device, VERBS_ACTIVE);
	read_port_again(nic);
}

static void handle(struct nic_device *nic, const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		last_receive(nic, event->element.qp->qp_context);
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		kvr_counter_add(&nic->counters.qp_errors, 1);
		log_warn("nic: %s: queue pair 0x%x: %s", nic->device.name, event->element.qp->qp_num,
			nic->library.event_type_str(event->event_type));
		break;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
		port_event(nic, event);
		break;
	case IBV_EVENT_CQ_ERR:
	case IBV_EVENT_SRQ_ERR:
		log_error("nic: %s: %s", nic->device.name, nic->library.event_type_str(event->event_type));
		break;
	case IBV_EVENT_DEVICE_FATAL:
		log_error("nic: %s: the device is lost: %s", nic->device.name,
			nic->library.event_type_str(event->event_type));
		verbs_set_health(&nic->device, VERBS_LOST);
		break;
	default:
		log_debug("nic: %s: %s", nic->device.name, nic->library.event_type_str(event->event_type));
		break;
	}
}

static void take_events(struct nic_device *nic)
{
	struct ibv_async_event event;

	while (nic->library.get_async_event(nic->real, &event) == 0) {
		handle(nic, &event);
		nic->library.ack_async_event(&event);
	}
}

static void *run(void *argument)
{
	struct nic_device *nic = argument;

	while (!kvr_load_acquire(&nic->stop)) {
		struct pollfd fds[2] = { { .fd = nic->wake_fd, .events = POLLIN },
			{ .fd = nic->real->async_fd, .events = POLLIN } };
		uint64_t count;

		if (poll(fds, 2, list_empty(&nic->waiting) ? -1 : 10) < 0 && errno != EINTR)
			break;
		if (fds[0].revents && read(nic->wake_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
			break;
		if (fds[1].revents & POLLIN)
			take_events(nic);
		fail_all(nic);
		end_waiting(nic);
	}
	return NULL;
}

static int start_thread(struct nic_device *nic)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = fault_point("nic_events_start") ? EAGAIN : pthread_create(&nic->thread, NULL, run, nic);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error)
		return -ENOMEM;
	nic->thread_runs = true;
	(void)pthread_setname_np(nic->thread, "kvr-nic");
	return 0;
}

int nic_events_start(struct nic_device *nic)
{
	int flags = fcntl(nic->real->async_fd, F_GETFL);

	list_init(&nic->waiting);
	nic->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (nic->wake_fd < 0 || flags < 0 || fcntl(nic->real->async_fd, F_SETFL, flags | O_NONBLOCK) != 0) {
		log_error("nic: %s: event descriptors: %s", nic->device.name, strerror(errno));
		return -ENOMEM;
	}
	return start_thread(nic);
}

static void wake(struct nic_device *nic)
{
	uint64_t one = 1;

	/* It fails only when the counter is full, and then it is readable. */
	if (write(nic->wake_fd, &one, sizeof(one)) < 0)
		return;
}

void nic_events_stop(struct nic_device *nic)
{
	if (nic->thread_runs) {
		kvr_store_release(&nic->stop, 1u);
		wake(nic);
		pthread_join(nic->thread, NULL);
	}
	if (nic->wake_fd >= 0)
		close(nic->wake_fd);
}

void nic_events_fail(struct nic_qp *qp)
{
	struct nic_device *nic = qp->device;
	struct nic_qp *head = kvr_load_relaxed(&nic->failing);

	do {
		qp->next_failing = head;
	} while (!__atomic_compare_exchange_n(&nic->failing, &head, qp, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
	wake(nic);
}

void nic_events_wait(struct nic_qp *qp)
{
	struct nic_device *nic = qp->device;

	pthread_mutex_lock(&nic->quiet_lock);
	for (;;) {
		enum nic_stage stage = kvr_load_acquire(&qp->stage);

		if (stage != NIC_ASKED && stage != NIC_FLUSHING)
			break;
		pthread_cond_wait(&nic->quiet_changed, &nic->quiet_lock);
	}
	pthread_mutex_unlock(&nic->quiet_lock);
}
