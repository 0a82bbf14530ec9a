/* fake_private.h - what the files of the fake share. */
#ifndef KVRAIL_TESTS_FAKE_PRIVATE_H
#define KVRAIL_TESTS_FAKE_PRIVATE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#define FAKE_QUEUE 1024u

struct fake_queue {
	uint64_t ids[FAKE_QUEUE];
	bool signalled[FAKE_QUEUE];
	unsigned count;
};

struct fake_qp {
	struct ibv_qp qp;
	struct fake_queue send, receive;
	bool failed;
	struct fake_qp *next;
};

struct fake_cq {
	struct ibv_cq cq;
	struct ibv_wc wcs[FAKE_QUEUE];
	unsigned count;
};

struct fake_srq {
	struct ibv_srq srq;
	struct fake_queue queue;
};

struct fake_channel {
	struct ibv_comp_channel channel;
	int write_fd;
};

/* An object more, or one less. */
void fake_count(int by);
void fake_event_put(int fd, const void *bytes, size_t length);
/* Where asynchronous events of the device that was opened last are written to. */
int fake_async_fd(void);

int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int fake_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int fake_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wcs);
int fake_req_notify_cq(struct ibv_cq *cq, int solicited_only);

#endif
