/* Memory for L1: mapped, touched, stopped, refused by name; and reading the limits of a machine from a recorded
 * tree. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/log.h"
#include "tier/l1_limit.h"
#include "tier/l1_map.h"

#define MIB ((uint64_t)1 << 20)

static void keep_line(void *context, enum log_level level, const char *line)
{
	(void)level;
	snprintf(context, 1024, "%s", line);
}

static void memory_is_touched_and_can_be_written(void **state)
{
	struct l1_mapping mapping;
	unsigned char resident[64];
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	(void)state;
	assert_int_equal(l1_map(5 * MIB + 1, -1, 3, NULL, &mapping), 0);
	assert_true(mapping.bytes >= 5 * MIB + 1 && mapping.bytes % 4096 == 0);
	assert_int_equal((uintptr_t)mapping.address % 4096, 0);
	assert_non_null(l1_page_kind_text(mapping.pages));
	for (uint64_t offset = 0; offset + sizeof(resident) * page <= mapping.bytes;
		offset += sizeof(resident) * page) {
		assert_int_equal(mincore((char *)mapping.address + offset, sizeof(resident) * page, resident), 0);
		for (size_t i = 0; i < sizeof(resident); i++)
			assert_true(resident[i] & 1);
	}
	memset(mapping.address, 0xa5, mapping.bytes);
	l1_unmap(&mapping);
	assert_null(mapping.address);
	l1_unmap(&mapping);
}

static void a_stop_ends_touching(void **state)
{
	struct l1_mapping mapping;
	int stop = 1;

	(void)state;
	assert_int_equal(l1_map(5 * MIB, -1, 2, &stop, &mapping), -EINTR);
	assert_null(mapping.address);
}

/* pitfalls D12 */
static void memory_that_does_not_exist_is_refused_with_size_and_limit(void **state)
{
	struct l1_mapping mapping;
	char line[1024] = "";

	(void)state;
	log_set_sink(keep_line, line);
	assert_int_equal(l1_map(0, -1, 1, NULL, &mapping), -EINVAL);
	assert_int_equal(l1_map(UINT64_MAX, -1, 1, NULL, &mapping), -EINVAL);
	assert_int_equal(l1_map((uint64_t)1 << 45, -1, 1, NULL, &mapping), -ENOMEM);
	log_set_sink(NULL, NULL);
	assert_null(mapping.address);
	assert_non_null(strstr(line, "32.0"));
	assert_non_null(strstr(line, "limit: "));
}

static void failures_on_the_way_leave_nothing_mapped(void **state)
{
	struct l1_mapping mapping;
	char line[1024] = "";

	(void)state;
	log_set_sink(keep_line, line);
	/* Every kind of page fails in turn, until one is left; then without the right to lock. */
	fault_arm_name("l1_map/populate", 1);
	assert_int_equal(l1_map(MIB, -1, 1, NULL, &mapping), 0);
	l1_unmap(&mapping);
	fault_arm_name("l1_map/mmap", 1);
	assert_int_equal(l1_map(MIB, -1, 1, NULL, &mapping), 0);
	l1_unmap(&mapping);
	fault_arm_name("l1_map/mlock", 1);
	assert_int_equal(l1_map(MIB, -1, 1, NULL, &mapping), 0);
	assert_false(mapping.locked);
	assert_non_null(strstr(line, "RLIMIT_MEMLOCK"));
	l1_unmap(&mapping);
	fault_arm(0);
	assert_int_equal(l1_map(MIB, 1 << 20, 1, NULL, &mapping), 0);
	assert_non_null(strstr(line, "NUMA node 1048576"));
	l1_unmap(&mapping);
	log_set_sink(NULL, NULL);
}

static void write_file(const char *root, const char *path, const char *text)
{
	char full[512];
	FILE *file;

	snprintf(full, sizeof(full), "%s%s", root, path);
	for (char *slash = strchr(full + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(full, 0700);
		*slash = '/';
	}
	file = fopen(full, "we");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void the_lowest_limit_of_machine_and_control_groups_counts(void **state)
{
	char root[] = "/tmp/kvrail-test-XXXXXX";
	char command[64];
	struct l1_limit limit;

	(void)state;
	assert_non_null(mkdtemp(root));
	l1_limit_read(root, &limit);
	assert_true(limit.bytes == UINT64_MAX);

	write_file(root, "/proc/meminfo", "MemTotal: 900 kB\nMemAvailable:   800 kB\n");
	write_file(root, "/proc/self/cgroup", "7:cpu,cpuacct:/x\n0::/a/b\n");
	write_file(root, "/sys/fs/cgroup/a/b/memory.current", "100000\n");
	write_file(root, "/sys/fs/cgroup/a/b/memory.max", "max\n");
	l1_limit_read(root, &limit);
	assert_int_equal(limit.bytes, 800 * 1024);
	assert_non_null(strstr(limit.name, "MemAvailable"));

	write_file(root, "/sys/fs/cgroup/a/memory.current", "200000\n");
	write_file(root, "/sys/fs/cgroup/a/memory.max", "500000\n");
	l1_limit_read(root, &limit);
	assert_int_equal(limit.bytes, 300000);
	assert_non_null(strstr(limit.name, "/sys/fs/cgroup/a/memory.max"));

	write_file(root, "/proc/self/cgroup", "9:memory:/v1\n");
	write_file(root, "/sys/fs/cgroup/memory/v1/memory.usage_in_bytes", "5000\n");
	write_file(root, "/sys/fs/cgroup/memory/v1/memory.limit_in_bytes", "4096\n");
	l1_limit_read(root, &limit);
	assert_int_equal(limit.bytes, 0);
	snprintf(command, sizeof(command), "rm -r %s", root);
	assert_int_equal(system(command), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_is_touched_and_can_be_written),
		cmocka_unit_test(a_stop_ends_touching),
		cmocka_unit_test(memory_that_does_not_exist_is_refused_with_size_and_limit),
		cmocka_unit_test(failures_on_the_way_leave_nothing_mapped),
		cmocka_unit_test(the_lowest_limit_of_machine_and_control_groups_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
