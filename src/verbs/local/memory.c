/* memory.c - this process's memory: regions with local keys, areas that the peer may map, and what the peer is told of
 * them. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fault.h"
#include "base/log.h"
#include "protocol/message.h"
#include "verbs/local/local.h"

#define HUGE_PAGE_FLAG (21u << 26) /* memfd_create(2): log2 of the page size */
#define REMOTE_ACCESS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static struct local_device *of_device(struct verbs_device *device)
{
	return KVR_CONTAINER_OF(device, struct local_device, device);
}

int local_register_memory(struct verbs_device *device, void *address, uint64_t length, int access, struct ibv_mr **out)
{
	struct local_device *local = of_device(device);
	struct local_key entry = { .access = access, .address = (uintptr_t)address, .length = length, .base = address };
	struct local_mr *mr;

	if (!address || length == 0 || length > device->limits.max_region_bytes ||
		(uintptr_t)address > UINTPTR_MAX - length ||
		(access & ~(IBV_ACCESS_LOCAL_WRITE | REMOTE_ACCESS | IBV_ACCESS_RELAXED_ORDERING)) ||
		((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) && !(access & IBV_ACCESS_LOCAL_WRITE)))
		return -EINVAL;
	mr = fault_point("local_register_memory") ? NULL : calloc(1, sizeof(*mr));
	if (!mr)
		return -ENOMEM;
	pthread_mutex_lock(&local->lock);
	mr->mr.lkey = local_keys_add(&local->keys, &entry);
	pthread_mutex_unlock(&local->lock);
	if (mr->mr.lkey == 0) {
		log_error("local: more than %u memory regions on one device", LOCAL_KEYS);
		free(mr);
		return -ENOMEM;
	}
	mr->mr.context = &local->context;
	mr->mr.addr = address;
	mr->mr.length = length;
	mr->mr.handle = mr->mr.lkey;
	/* Of no use to anybody, since only imports have keys that the other side's requests may name; and never equal
	 * to an lkey, so that the one in place of the other is noticed here and not first on a NIC. */
	mr->mr.rkey = ~mr->mr.lkey;
	mr->access = access;
	*out = &mr->mr;
	return 0;
}

int local_deregister_memory(struct ibv_mr *ibv)
{
	struct local_mr *mr = KVR_CONTAINER_OF(ibv, struct local_mr, mr);
	struct local_device *local = local_device_of(ibv->context);
	struct local_key entry;

	pthread_mutex_lock(&local->lock);
	(void)local_keys_remove(&local->keys, ibv->lkey, &entry);
	pthread_mutex_unlock(&local->lock);
	free(mr);
	return 0;
}

/* Sized and populated, so that neither side meets an error at first touch. 0 or -errno. */
static int populate(int fd, uint64_t bytes, void **address)
{
	if (fault_point("local_allocate/map") || ftruncate(fd, (off_t)bytes) != 0)
		return -ENOMEM;
	*address = local_map_shared(fd, bytes, 0);
	if (*address == MAP_FAILED)
		return -ENOMEM;
	if (local_populate(fd, *address, bytes) == 0)
		return 0;
	munmap(*address, bytes);
	return -ENOMEM;
}

/* A sealed memfd of at least `bytes`, mapped. Its descriptor, or -errno. */
static int make_area(uint64_t bytes, bool huge, void **address)
{
	unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB | HUGE_PAGE_FLAG : 0);
	int fd = memfd_create("kvrail-memory", flags);
	int rc;

	if (fd < 0)
		return -ENOMEM;
	rc = populate(fd, bytes, address);
	if (rc == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
		rc = -errno;
		munmap(*address, bytes);
	}
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

int local_allocate(struct verbs_device *device, uint64_t length, void **address)
{
	struct local_device *local = of_device(device);
	struct local_area *area;
	int fd = -1;

	if (length == 0 || length > device->limits.max_region_bytes)
		return -EINVAL;
	area = fault_point("local_allocate") ? NULL : calloc(1, sizeof(*area));
	if (!area)
		return -ENOMEM;
	/* Pages of hugetlbfs can be taken out of a sealed file and then be missing, which would kill the server at its
	 * next touch: it accepts them only from those who could kill it anyway. */
	if (length >= LOCAL_HUGE_PAGE && kvr_load_relaxed(&local->peer_may_kill)) {
		area->mapped_bytes = kvr_round_up(length, LOCAL_HUGE_PAGE);
		fd = make_area(area->mapped_bytes, true, address);
	}
	if (fd < 0) {
		area->mapped_bytes = kvr_round_up(length, (uint64_t)sysconf(_SC_PAGESIZE));
		fd = make_area(area->mapped_bytes, false, address);
	}
	if (fd < 0) {
		log_error("local: %lu bytes of shared memory: %s", (unsigned long)length, strerror(-fd));
		free(area);
		return -ENOMEM;
	}
	area->fd = fd;
	area->length = length;
	area->address = (uintptr_t)*address;
	pthread_mutex_lock(&local->lock);
	list_add_last(&local->areas, &area->node);
	pthread_mutex_unlock(&local->lock);
	return 0;
}

/* Under device->lock. The area that holds all of the range. */
static struct local_area *find_area(struct local_device *device, uint64_t address, uint64_t length)
{
	list_for_each(node, &device->areas) {
		struct local_area *area = KVR_CONTAINER_OF(node, struct local_area, node);

		if (address >= area->address && length <= area->mapped_bytes &&
			address - area->address <= area->mapped_bytes - length)
			return area;
	}
	return NULL;
}

void local_release(struct verbs_device *device, void *address, uint64_t length)
{
	struct local_device *local = of_device(device);
	struct local_area *area;

	pthread_mutex_lock(&local->lock);
	area = find_area(local, (uintptr_t)address, length);
	if (area)
		list_remove(&area->node);
	pthread_mutex_unlock(&local->lock);
	if (!area)
		return;
	munmap((void *)(uintptr_t)area->address, area->mapped_bytes);
	close(area->fd);
	free(area);
}

int local_export_memory(struct ibv_mr *ibv, struct verbs_export *description)
{
	const struct local_mr *mr = KVR_CONTAINER_OF(ibv, struct local_mr, mr);
	struct local_device *local = local_device_of(ibv->context);
	const struct local_area *area;

	if (!(mr->access & REMOTE_ACCESS))
		return -EOPNOTSUPP;
	memset(description, 0, sizeof(*description));
	pthread_mutex_lock(&local->lock);
	area = find_area(local, (uintptr_t)ibv->addr, ibv->length);
	description->kind = area ? MEMORY_SHARED : MEMORY_PROCESS;
	description->fd = area ? area->fd : -1;
	description->offset = area ? (uintptr_t)ibv->addr - area->address : 0;
	pthread_mutex_unlock(&local->lock);
	return 0;
}
