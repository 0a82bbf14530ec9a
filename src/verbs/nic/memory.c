/* memory.c - this process's memory for the adapter, and the keys of clients' memory. */
#include <errno.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/text.h"
#include "protocol/message.h"
#include "protocol/wire.h"
#include "verbs/nic/nic.h"

#define REMOTE_ACCESS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* Whether the limit counts: a process with this capability may pin what it likes. */
static bool may_pin_all(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { { 0 } };

	return syscall(SYS_capget, &header, data) == 0 && data[0].effective & 1u << CAP_IPC_LOCK;
}

void nic_say_memlock(const struct nic_device *nic, const char *what, uint64_t bytes, int error)
{
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };
	char needed[TEXT_SHORT], allowed[TEXT_SHORT];

	(void)getrlimit(RLIMIT_MEMLOCK, &limit);
	if (limit.rlim_cur == RLIM_INFINITY || may_pin_all()) {
		log_error("nic: %s: %s of %s could not be pinned: %s", nic->device.name, what, text_size(needed, bytes),
			strerror(error));
		return;
	}
	log_error("nic: %s: %s of %s could not be pinned, this process may lock %s in all: raise it with ulimit -l or "
		  "limits.conf, in a systemd unit with LimitMEMLOCK=infinity, in a container with --ulimit memlock=-1",
		nic->device.name, what, text_size(needed, bytes), text_size(allowed, limit.rlim_cur));
}

static int register_error(struct nic_device *nic, uint64_t length, int error)
{
	if (error == ENOMEM || error == EAGAIN) {
		nic_say_memlock(nic, "memory", length, error);
		return -ENOMEM;
	}
	log_error("nic: %s: memory of %lu bytes could not be registered: %s", nic->device.name, (unsigned long)length,
		strerror(error));
	return error == EPERM || error == EACCES ? -EPERM : error == ENOSPC || error == EMFILE ? -ENOMEM : -EINVAL;
}

static struct ibv_mr *register_with(struct nic_device *nic, void *address, uint64_t length, int access)
{
	if (access & IBV_ACCESS_OPTIONAL_RANGE)
		return nic->library.reg_mr_iova2(nic->pd, address, length, (uintptr_t)address, (unsigned)access);
	return (nic->library.reg_mr)(nic->pd, address, length, access);
}

static int check_region(const struct verbs_device *device, uint64_t address, uint64_t length, int access)
{
	if (address == 0 || length == 0 || address > UINTPTR_MAX - length ||
		(access & ~(IBV_ACCESS_LOCAL_WRITE | REMOTE_ACCESS | IBV_ACCESS_RELAXED_ORDERING)) ||
		((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) && !(access & IBV_ACCESS_LOCAL_WRITE)))
		return -EINVAL;
	if (length > device->limits.max_region_bytes) {
		log_error("nic: %s: a region of %lu bytes is above the device's limit of %lu: register it in slices",
			device->name, (unsigned long)length, (unsigned long)device->limits.max_region_bytes);
		return -EINVAL;
	}
	return 0;
}

static void describe_region(struct nic_device *nic, struct nic_mr *mr, uint64_t address, uint64_t length)
{
	mr->mr = *mr->real;
	mr->mr.context = &nic->context;
	mr->mr.addr = (void *)(uintptr_t)address;
	mr->mr.length = length;
}

int nic_register_memory(struct verbs_device *device, void *address, uint64_t length, int access, struct ibv_mr **out)
{
	struct nic_device *nic = nic_device_of(device);
	struct nic_mr *mr;
	int error = check_region(device, (uintptr_t)address, length, access);

	if (error)
		return error;
	mr = fault_point("nic_register_memory") ? NULL : calloc(1, sizeof(*mr));
	if (!mr)
		return -ENOMEM;
	errno = 0;
	mr->real = register_with(nic, address, length, access);
	if (!mr->real) {
		error = errno ? errno : EINVAL;
		free(mr);
		return register_error(nic, length, error);
	}
	describe_region(nic, mr, (uintptr_t)address, length);
	*out = &mr->mr;
	return 0;
}

/* What a kernel or adapter without dma-bufs answers. */
static bool is_unknown(int error)
{
	return error == EOPNOTSUPP || error == ENOSYS || error == EPROTONOSUPPORT || error == ENOTTY;
}

int nic_register_dmabuf(struct verbs_device *device, int fd, uint64_t offset, uint64_t length, uint64_t address,
	int access, struct ibv_mr **out)
{
	struct nic_device *nic = nic_device_of(device);
	int error = fd < 0 ? -EINVAL : check_region(device, address, length, access);
	struct nic_mr *mr;

	if (error)
		return error;
	mr = fault_point("nic_register_dmabuf") ? NULL : calloc(1, sizeof(*mr));
	if (!mr)
		return -ENOMEM;
	errno = 0;
	mr->real = nic->library.reg_dmabuf_mr(nic->pd, offset, length, address, fd, access);
	if (!mr->real) {
		error = errno ? errno : EINVAL;
		free(mr);
		return is_unknown(error) ? -EOPNOTSUPP : register_error(nic, length, error);
	}
	describe_region(nic, mr, address, length);
	*out = &mr->mr;
	return 0;
}

int nic_deregister_memory(struct ibv_mr *ibv)
{
	struct nic_mr *mr = KVR_CONTAINER_OF(ibv, struct nic_mr, mr);
	struct nic_device *nic = nic_of_context(ibv->context);
	int error = nic->library.dereg_mr(mr->real);

	if (error) {
		log_error("nic: %s: a region could not be deregistered: %s", nic->device.name, strerror(error));
		return -error;
	}
	free(mr);
	return 0;
}

static uint64_t whole_pages(uint64_t length)
{
	return kvr_round_up(length, (uint64_t)sysconf(_SC_PAGESIZE));
}

/* Whole pages of its own, so that a child of fork never shares one with the adapter (pitfalls K12). */
int nic_allocate(struct verbs_device *device, uint64_t length, void **address)
{
	uint64_t bytes;

	if (length == 0 || length > device->limits.max_region_bytes || length > UINT64_MAX / 2)
		return -EINVAL;
	bytes = whole_pages(length);
	*address = fault_point("nic_allocate")
		? MAP_FAILED
		: mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (*address == MAP_FAILED) {
		*address = NULL;
		return -ENOMEM;
	}
	(void)madvise(*address, bytes, MADV_HUGEPAGE);
	(void)madvise(*address, bytes, MADV_DONTFORK);
	/* It says so where no page is to be had; kernels before 5.14 don't know it, registering populates there. */
	if (madvise(*address, bytes, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
		munmap(*address, bytes);
		*address = NULL;
		return -ENOMEM;
	}
	return 0;
}

void nic_release(struct verbs_device *device, void *address, uint64_t length)
{
	(void)device;
	munmap(address, whole_pages(length));
}

int nic_export_memory(struct ibv_mr *ibv, struct verbs_export *description)
{
	/* Whether it may be reached, and how, is the adapter's to say: it knows the region's flags. */
	memset(description, 0, sizeof(*description));
	description->kind = MEMORY_REMOTE;
	description->rkey = ibv->rkey;
	description->fd = -1;
	return 0;
}

/* The client's adapter checks the key and the bounds: what a client says wrong hurts its own queue pair. */
int nic_import_memory(struct ibv_qp *ibv, const struct verbs_remote_memory *memory, struct verbs_import *import)
{
	struct nic_qp *qp = nic_qp_of(ibv);

	if (memory->length == 0 || memory->address > UINT64_MAX - memory->length)
		return -EINVAL;
	if (memory->kind != MEMORY_REMOTE)
		return -EOPNOTSUPP;
	if (qp->import_count == WIRE_REGIONS_MAX)
		return -ENOSPC;
	qp->import_count++;
	import->rkey = memory->rkey;
	import->address = memory->address;
	import->length = memory->length;
	return 0;
}

void nic_forget_memory(struct ibv_qp *ibv, uint32_t rkey)
{
	struct nic_qp *qp = nic_qp_of(ibv);

	(void)rkey;
	if (qp->import_count > 0)
		qp->import_count--;
}
