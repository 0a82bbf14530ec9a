/*
 * process.c - one-sided work requests on ordinary memory of the client's process, by a helper thread.
 *
 * A convenience: a system call for each slice, on a thread of its own. Before each slice the process is looked at
 * again: its pidfd says that it has not ended, so that the number is not another's by now, and /proc that it still runs
 * as the user behind the control socket, so that a client that became a privileged program is not written to on its old
 * behalf. The kernel's own check (ptrace access) holds besides, and is the only one needed where the server is not
 * root.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fault.h"
#include "base/log.h"
#include "verbs/local/local.h"

#define PROCESS_SLICE_BYTES (1u << 20)

static bool is_same_process(const struct local_process *process)
{
	struct pollfd ended = { .fd = process->pid_fd, .events = POLLIN };
	struct stat status;

	return process->pid_fd >= 0 && poll(&ended, 1, 0) == 0 && fstat(process->proc_fd, &status) == 0 &&
		status.st_uid == process->uid;
}

void local_process_open(struct local_process *process, const struct stream_peer *peer)
{
	char path[32];

	process->pid = 0;
	if (!peer || peer->pid <= 0)
		return;
	process->uid = peer->uid;
	process->pid_fd = fault_point("local_process_open") ? -1 : pidfd_open(peer->pid, 0);
	(void)snprintf(path, sizeof(path), "/proc/%d", (int)peer->pid);
	process->proc_fd = process->pid_fd < 0 ? -1 : open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (process->proc_fd >= 0 && is_same_process(process)) {
		process->pid = peer->pid;
		return;
	}
	log_warn("local: process %d can't be watched: only its shared memory will be reached", (int)peer->pid);
	local_process_close(process);
}

void local_process_close(struct local_process *process)
{
	if (process->pid_fd >= 0)
		close(process->pid_fd);
	if (process->proc_fd >= 0)
		close(process->proc_fd);
	process->pid_fd = process->proc_fd = -1;
	process->pid = 0;
}

/* One scatter entry. 0 or -errno. */
static int move_entry(struct local_process_job *job, uint8_t *near, uint64_t remote, uint32_t length)
{
	const struct local_process *process = &job->qp->process;
	uint32_t moved = 0;

	while (moved < length) {
		uint32_t bytes = length - moved < PROCESS_SLICE_BYTES ? length - moved : PROCESS_SLICE_BYTES;
		struct iovec local = { .iov_base = near + moved, .iov_len = bytes };
		struct iovec far = { .iov_base = (void *)(uintptr_t)(remote + moved), .iov_len = bytes };
		ssize_t done;

		if (kvr_load_acquire(&job->cancel))
			return -ECANCELED;
		if (!is_same_process(process))
			return -ESRCH;
		done = job->write ? process_vm_writev(process->pid, &local, 1, &far, 1, 0)
				  : process_vm_readv(process->pid, &local, 1, &far, 1, 0);
		if (done < 0)
			return -errno;
		if (done == 0)
			return -EFAULT;
		moved += (uint32_t)done;
	}
	return 0;
}

static int move_all(struct local_process_job *job)
{
	const struct local_send *send = job->send;
	uint64_t remote = send->remote;

	if (send->flags & IBV_SEND_INLINE)
		return move_entry(job, (uint8_t *)(uintptr_t)send->sge, remote, send->length);
	for (uint32_t i = 0; i < send->sge_count; i++) {
		int rc = move_entry(job, (uint8_t *)(uintptr_t)send->sge[i].addr, remote, send->sge[i].length);

		if (rc != 0)
			return rc;
		remote += send->sge[i].length;
	}
	return 0;
}

static void run_job(struct helper_job *base)
{
	struct local_process_job *job = KVR_CONTAINER_OF(base, struct local_process_job, job);
	struct local_cq *cq = local_cq_of(job->qp->qp.send_cq);

	base->result = move_all(job);
	/* As in cq.c: publish, fence, look whether anybody sleeps. The polling thread collects the job a moment later,
	 * when the helper has let go of it; local_qp_has_work keeps it awake until then. */
	kvr_store_release(&job->done, 1);
	kvr_fence_full();
	if (kvr_load_relaxed(&cq->armed))
		local_cq_wake_self(cq);
}

bool local_process_submit(struct local_qp *qp, struct local_send *send)
{
	struct local_cq *cq = local_cq_of(qp->qp.send_cq);
	struct helper *helper = kvr_load_acquire(&cq->helper);
	struct local_process_job *job = &qp->job;

	if (!helper)
		return false;
	job->job.run = run_job;
	job->job.result = 0;
	job->qp = qp;
	job->send = send;
	job->write = send->opcode != IBV_WR_RDMA_READ;
	kvr_store_relaxed(&job->cancel, 0);
	kvr_store_relaxed(&job->done, 0);
	if (!helper_submit(helper, &job->job))
		return false;
	cq->jobs++;
	return true;
}

void local_process_collect(struct local_cq *cq)
{
	struct helper_job *base;

	while ((base = helper_collect(kvr_load_acquire(&cq->helper))) != NULL) {
		struct local_qp *qp = KVR_CONTAINER_OF(base, struct local_process_job, job)->qp;

		cq->jobs--;
		qp->job_running = false;
		local_qp_transfer_done(qp, base->result);
	}
}
