#include "tier/l1_numa.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fault.h"

#define NODES_MAX 1024
/* MPOL_PREFERRED and MPOL_BIND of linux/mempolicy.h. */
#define MODE_PREFERRED 1
#define MODE_BIND 2
/* Pages asked for in one call. */
#define BATCH 256

int l1_numa_bind(void *address, uint64_t bytes, int node, bool strict)
{
	unsigned long mask[NODES_MAX / (8 * sizeof(unsigned long))] = { 0 };
	size_t bits = 8 * sizeof(unsigned long);

	/* The kernel reads one bit less than it is told. */
	if (node < 0 || node >= NODES_MAX - 1)
		return -EINVAL;
	mask[(size_t)node / bits] |= 1UL << ((size_t)node % bits);
	if (fault_point("l1_numa/bind"))
		return -EPERM;
	return syscall(SYS_mbind, address, bytes, strict ? MODE_BIND : MODE_PREFERRED, mask, NODES_MAX, 0) ? -errno : 0;
}

uint64_t l1_numa_available(const char *root, int node)
{
	static const char *const keys[] = { " MemFree:", " Inactive(file):", " SReclaimable:" };
	char path[512], line[256];
	uint64_t bytes = 0;
	bool found = false;
	FILE *file;

	snprintf(path, sizeof(path), "%s/sys/devices/system/node/node%d/meminfo", root, node);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		for (size_t i = 0; i < KVR_COUNT_OF(keys); i++) {
			const char *at = strstr(line, keys[i]);

			if (!at)
				continue;
			bytes += strtoull(at + strlen(keys[i]), NULL, 10) * 1024;
			found |= i == 0;
		}
	}
	if (file)
		fclose(file);
	return found ? bytes : UINT64_MAX;
}

static int sample_batch(void **pages, unsigned long count, int node, struct l1_numa_sample *sample)
{
	int where[BATCH];

	/* Without nodes to move to it only tells. */
	if (fault_point("l1_numa/sample") || syscall(SYS_move_pages, 0, count, pages, NULL, where, 0) != 0)
		return errno ? -errno : -EPERM;
	for (unsigned long i = 0; i < count; i++) {
		if (where[i] < 0)
			continue;
		sample->sampled++;
		if (where[i] == node)
			sample->on_node++;
		else
			sample->elsewhere++;
	}
	return 0;
}

int l1_numa_sample(const void *address, uint64_t bytes, uint64_t page_bytes, int node, struct l1_numa_sample *sample)
{
	uint64_t pages = bytes / page_bytes, step = pages > L1_NUMA_SAMPLES ? pages / L1_NUMA_SAMPLES : 1;
	void *batch[BATCH];
	unsigned long count = 0;
	int error = 0;

	memset(sample, 0, sizeof(*sample));
	for (uint64_t page = 0; !error && page < pages; page += step) {
		batch[count++] = (void *)((uintptr_t)address + page * page_bytes);
		if (count == BATCH || page + step >= pages) {
			error = sample_batch(batch, count, node, sample);
			count = 0;
		}
	}
	return error;
}
