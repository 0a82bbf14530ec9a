/*
 * import.c - a client's memory, reached by the server.
 *
 * A file is accepted only when nothing that the client may still do can make an access fail: sealed against shrinking,
 * long enough, and wholly populated, so that mapping it costs the server no memory of its own. A hole that is punched
 * later is filled with zeroes at the next touch. The file is mapped whole, once for all regions in it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "protocol/message.h"
#include "verbs/local/local.h"

#define HUGETLBFS_ID 0x958458f6u
#define BLOCK_BYTES 512u /* of st_blocks, whatever st_blksize is */

static int refuse_huge_pages(const struct local_qp *qp, int fd)
{
	struct statfs filesystem;

	if (fstatfs(fd, &filesystem) != 0)
		return -EPERM;
	if ((uint32_t)filesystem.f_type != HUGETLBFS_ID)
		return 0;
	/* A page punched out of hugetlbfs may not be replaceable, and touching it is then a SIGBUS. Who can send that
	 * signal anyway gains nothing by it. */
	if (qp->process.pid != 0 && (qp->process.uid == geteuid() || qp->process.uid == 0))
		return 0;
	log_error("local: memory in hugetlbfs is taken only from clients of the server's own user; use normal pages");
	return -EPERM;
}

/* 0, -EPERM, -EFAULT. */
static int check_file(const struct local_qp *qp, const struct verbs_remote_memory *memory, const struct stat *status)
{
	int seals = fcntl(memory->fd, F_GET_SEALS);

	if (seals < 0 || !(seals & F_SEAL_SHRINK)) {
		log_error("local: client memory must be a memfd sealed with F_SEAL_SHRINK");
		return -EPERM;
	}
	if (memory->offset > (uint64_t)status->st_size || memory->length > (uint64_t)status->st_size - memory->offset) {
		log_error("local: client memory ends at %lu, not at offset %lu + %lu", (unsigned long)status->st_size,
			(unsigned long)memory->offset, (unsigned long)memory->length);
		return -EFAULT;
	}
	if ((uint64_t)status->st_blocks < (uint64_t)status->st_size / BLOCK_BYTES) {
		log_error("local: client memory of %lu bytes is not populated: %lu bytes are there",
			(unsigned long)status->st_size, (unsigned long)status->st_blocks * BLOCK_BYTES);
		return -EFAULT;
	}
	return refuse_huge_pages(qp, memory->fd);
}

static struct local_mapping *find_mapping(struct local_device *device, const struct stat *status)
{
	list_for_each(node, &device->mappings) {
		struct local_mapping *mapping = KVR_CONTAINER_OF(node, struct local_mapping, node);

		/* The mapping keeps the file alive, so that its number is not another's. It may have grown. */
		if (mapping->device == status->st_dev && mapping->inode == status->st_ino &&
			mapping->length == (uint64_t)status->st_size)
			return mapping;
	}
	return NULL;
}

static int make_mapping(int fd, const struct stat *status, struct local_mapping **out)
{
	struct local_mapping *mapping = fault_point("local_import/map") ? NULL : calloc(1, sizeof(*mapping));
	uint64_t length = (uint64_t)status->st_size;
	void *base;
	int rc;

	if (!mapping)
		return -ENOMEM;
	base = local_map_shared(fd, length, MAP_POPULATE);
	if (base == MAP_FAILED) {
		/* EACCES: the descriptor is read-only. EPERM: sealed against writing. */
		rc = errno == EACCES || errno == EPERM ? -EPERM : -ENOMEM;
		log_error("local: mapping %lu bytes of client memory: %s", (unsigned long)length, strerror(errno));
		free(mapping);
		return rc;
	}
	(void)madvise(base, length, MADV_HUGEPAGE);
	mapping->device = status->st_dev;
	mapping->inode = status->st_ino;
	mapping->base = base;
	mapping->length = length;
	*out = mapping;
	return 0;
}

/* Under device->lock. */
static int use_mapping(struct local_qp *qp, int fd, const struct stat *status, struct local_mapping **out)
{
	int rc;

	*out = find_mapping(qp->device, status);
	if (!*out) {
		rc = make_mapping(fd, status, out);
		if (rc != 0)
			return rc;
		list_add_last(&qp->device->mappings, &(*out)->node);
	}
	(*out)->users++;
	return 0;
}

/* Under device->lock. What nobody uses any more is returned, for unmap_mapping without the lock: unmapping may be stuck in the
 * kernel, and nobody else's import waits for it (pitfalls C01). NULL: nothing to unmap. */
static struct local_mapping *drop_mapping(struct local_mapping *mapping)
{
	if (!mapping || --mapping->users > 0)
		return NULL;
	list_remove(&mapping->node);
	return mapping;
}

static void unmap_mapping(struct local_mapping *mapping)
{
	if (!mapping)
		return;
	munmap(mapping->base, mapping->length);
	free(mapping);
}

static int import_shared(struct local_qp *qp, const struct verbs_remote_memory *memory, struct local_key *entry)
{
	struct stat status;
	int rc;

	if (memory->fd < 0)
		return -EINVAL;
	if (fstat(memory->fd, &status) != 0 || !S_ISREG(status.st_mode))
		return -EPERM;
	rc = check_file(qp, memory, &status);
	if (rc != 0)
		return rc;
	rc = use_mapping(qp, memory->fd, &status, &entry->mapping);
	if (rc == 0)
		entry->base = entry->mapping->base + memory->offset;
	return rc;
}

static int import_process(struct local_qp *qp)
{
	if (qp->process.pid == 0) {
		log_error("local: the client's process is not known or has ended: its memory can't be reached");
		return -EOPNOTSUPP;
	}
	return local_cq_need_helper(local_cq_of(qp->qp.send_cq));
}

static void forget_device(const struct local_device *device, const struct local_key *entry)
{
	struct verbs_gpu_memory imported = { .gpu = entry->gpu, .address = entry->device, .region = entry->region };

	if (entry->region)
		device->gpu->forget(device->gpu->context, &imported);
}

/* Without the device's lock: mapping GPU memory waits for the GPU's library. */
static int import_device(struct local_qp *qp, const struct verbs_remote_memory *memory, struct local_key *entry)
{
	const struct verbs_gpu_table *table = qp->device->gpu;
	struct verbs_gpu_memory imported = { 0, 0, NULL };
	int rc;

	if (!table || !table->import) {
		log_error(
			"local: a client has GPU memory and this server reaches none: see its --gpu, and what it said "
			"about GPUs when it started");
		return -ENODEV;
	}
	rc = table->import(table->context, memory, &imported);
	if (rc != 0)
		return rc;
	entry->gpu = imported.gpu;
	entry->device = imported.address;
	entry->region = imported.region;
	rc = local_cq_need_lanes(local_cq_of(qp->qp.send_cq), imported.gpu);
	if (rc != 0)
		forget_device(qp->device, entry);
	return rc;
}

int local_import_memory(struct ibv_qp *ibv, const struct verbs_remote_memory *memory, struct verbs_import *import)
{
	struct local_qp *qp = local_qp_of(ibv);
	struct local_key entry = { .address = memory->address, .length = memory->length };
	struct local_mapping *unused = NULL;
	uint32_t rkey = 0;
	int rc;

	if (!qp->device->server || !qp->connected || memory->length == 0 ||
		memory->length > qp->device->device.limits.max_region_bytes ||
		memory->address > UINT64_MAX - memory->length)
		return -EINVAL;
	if (memory->kind != MEMORY_SHARED && memory->kind != MEMORY_PROCESS && memory->kind != MEMORY_DEVICE)
		return -EOPNOTSUPP;
	rc = memory->kind == MEMORY_PROCESS     ? import_process(qp)
		: memory->kind == MEMORY_DEVICE ? import_device(qp, memory, &entry)
						: 0;
	if (rc != 0)
		return rc;
	pthread_mutex_lock(&qp->device->lock);
	if (memory->kind == MEMORY_SHARED)
		rc = import_shared(qp, memory, &entry);
	if (rc == 0) {
		rkey = local_keys_add(&qp->imports, &entry);
		if (rkey == 0) {
			unused = drop_mapping(entry.mapping);
			rc = -ENOSPC;
		}
	}
	pthread_mutex_unlock(&qp->device->lock);
	unmap_mapping(unused);
	if (rc != 0) {
		forget_device(qp->device, &entry);
		return rc;
	}
	import->rkey = rkey;
	import->address = memory->address;
	import->length = memory->length;
	return 0;
}

void local_forget_memory(struct ibv_qp *ibv, uint32_t rkey)
{
	struct local_qp *qp = local_qp_of(ibv);
	struct local_mapping *unused = NULL;
	struct local_key entry = { 0 };

	pthread_mutex_lock(&qp->device->lock);
	if (local_keys_remove(&qp->imports, rkey, &entry))
		unused = drop_mapping(entry.mapping);
	pthread_mutex_unlock(&qp->device->lock);
	unmap_mapping(unused);
	forget_device(qp->device, &entry);
}

void local_forget_all(struct local_qp *qp)
{
	for (uint32_t i = 0; i < qp->imports.capacity; i++) {
		if (qp->imports.entries[i].key != 0)
			local_forget_memory(&qp->qp, qp->imports.entries[i].key);
	}
}
