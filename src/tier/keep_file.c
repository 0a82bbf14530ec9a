#include "tier/keep_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/text.h"
#include "tier/keep_internal.h"
#include "tier/l1_limit.h"

#define TMPFS_ID 0x01021994u
#define HUGETLBFS_ID 0x958458f6u
#define BOOT_FILE "/proc/sys/kernel/random/boot_id"

struct opening {
	const struct keep_file_options *options;
	struct keep_file *file;
	struct keep_geometry geometry;
	int directory;
	uint64_t unit; /* page of the file system */
	enum l1_page_kind pages;
	bool fresh; /* no index says yet that anything is there */
};

/* "0f3a...-..." in hexadecimal digits; on a kernel that tells none all boots are the same, and so is an image that was
 * copied: then the files are on a tmpfs of this boot all the same. */
static void read_boot(uint8_t boot[KEEP_BOOT_BYTES])
{
	char line[64] = "";
	FILE *file = fopen(BOOT_FILE, "re");
	unsigned at = 0;

	memset(boot, 0, KEEP_BOOT_BYTES);
	if (!file)
		return;
	if (!fgets(line, sizeof(line), file))
		line[0] = '\0';
	fclose(file);
	for (const char *c = line; *c && at < 2 * KEEP_BOOT_BYTES; c++) {
		unsigned digit;

		if (*c >= '0' && *c <= '9')
			digit = (unsigned)(*c - '0');
		else if (*c >= 'a' && *c <= 'f')
			digit = (unsigned)(*c - 'a') + 10;
		else
			continue;
		boot[at / 2] |= (uint8_t)(at % 2 ? digit : digit << 4);
		at++;
	}
}

static int check_directory(struct opening *opening)
{
	const char *name = opening->options->directory;
	struct statfs system;
	struct stat status;

	if (fstat(opening->directory, &status) != 0 || fstatfs(opening->directory, &system) != 0)
		return -errno;
	if (status.st_uid != geteuid() || (status.st_mode & 022) != 0) {
		log_error("l1: %s must belong to the server's user and be writable by nobody else (chown, chmod 700): "
			  "what lies there is served to clients",
			name);
		return -EPERM;
	}
	opening->unit = 4096;
	opening->pages = L1_PAGES_NORMAL;
	if ((uint32_t)system.f_type == HUGETLBFS_ID) {
		opening->unit = (uint64_t)system.f_bsize;
		opening->pages = opening->unit >= (uint64_t)1 << 30 ? L1_PAGES_1G : L1_PAGES_2M;
	} else if ((uint32_t)system.f_type != TMPFS_ID && !opening->options->any_file_system) {
		log_error("l1: %s is not on tmpfs or hugetlbfs: an L1 is kept in memory, not on disk; take a directory "
			  "below /dev/shm or of a hugetlbfs mount",
			name);
		return -EINVAL;
	}
	return 0;
}

static int open_directory(struct opening *opening)
{
	const char *name = opening->options->directory;

	if (mkdir(name, 0700) != 0 && errno != EEXIST) {
		log_error("l1: directory %s cannot be made: %s", name, strerror(errno));
		return -errno;
	}
	opening->directory = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (opening->directory < 0) {
		log_error("l1: directory %s cannot be opened: %s", name, strerror(errno));
		return -errno;
	}
	return check_directory(opening);
}

static int open_file(const struct opening *opening, const char *name, uint64_t *bytes)
{
	struct stat status;
	int fd = openat(opening->directory, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0 || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
		int error = fd < 0 ? -errno : -EINVAL;

		log_error("l1: %s/%s cannot be opened: %s", opening->options->directory, name, strerror(-error));
		if (fd >= 0)
			close(fd);
		return error;
	}
	*bytes = (uint64_t)status.st_size;
	return fd;
}

static bool stopped(const struct opening *opening)
{
	const int *stop = opening->options->areas[0].stop;

	return stop && kvr_load_relaxed(stop);
}

/* A signal, and a process that is stopped and goes on, may interrupt it on tmpfs: it is no lack of room then. */
static int fill(const struct opening *opening, int fd, uint64_t bytes)
{
	int error;

	do {
		if (fault_point("keep_file/allocate"))
			return -ENOSPC;
		error = fault_point("keep_file/interrupted") ? -EINTR : -posix_fallocate(fd, 0, (off_t)bytes);
	} while (error == -EINTR && !stopped(opening));
	return error;
}

/* All of it is there afterwards, so that no store can end in SIGBUS. */
static int allocate(const struct opening *opening, int fd, const char *name, uint64_t bytes)
{
	char size[TEXT_SHORT];
	int error = 0;

	if (ftruncate(fd, (off_t)bytes) != 0)
		error = -errno;
	if (!error)
		error = fill(opening, fd, bytes);
	if (!error || error == -EINTR)
		return error;
	log_error("l1: %s for %s/%s cannot be had: %s; make the file system larger (mount -o remount,size=...), or L1 "
		  "smaller",
		text_size(size, bytes), opening->options->directory, name, strerror(-error));
	return error;
}

static int stale(const struct opening *opening, const char *why)
{
	log_error("l1: what is in %s cannot be used: %s; start with the settings that it was written with, or remove "
		  "%s/index to begin with an empty cache",
		opening->options->directory, why, opening->options->directory);
	return -ESTALE;
}

static uint64_t had_bytes(const struct opening *opening, const char *name)
{
	struct stat status;

	if (fstatat(opening->directory, name, &status, AT_SYMLINK_NOFOLLOW) != 0)
		return 0;
	return (uint64_t)status.st_blocks * 512;
}

/* The kernel does not say that a control group has no room: it kills. Reserved huge pages are there or they are refused. */
static int check_memory(const struct opening *opening)
{
	char wanted[TEXT_SHORT], available[TEXT_SHORT], name[16];
	uint64_t bytes = opening->file->index_bytes, had = had_bytes(opening, "index");
	struct l1_limit limit;

	if (opening->pages != L1_PAGES_NORMAL)
		return 0;
	for (uint32_t i = 0; i < opening->options->area_count; i++) {
		snprintf(name, sizeof(name), "l1.%u", i);
		bytes += opening->geometry.area_bytes[i];
		had += had_bytes(opening, name);
	}
	l1_limit_read("", &limit);
	if (bytes <= had || bytes - had <= limit.bytes)
		return 0;
	log_error("l1: %s of memory cannot be had for %s: %s are left (limit: %s)", text_size(wanted, bytes - had),
		opening->options->directory, text_size(available, limit.bytes), limit.name);
	return -ENOMEM;
}

/* None yet, or what a server left that did not come to its end: nothing is in it, whatever its size. A file that is not ours is not. */
static bool headless(int fd, uint64_t bytes)
{
	static const char none[sizeof(((struct keep_head *)0)->magic)];
	struct keep_head head;

	if (bytes == 0)
		return true;
	if (pread(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head) || head.check != 0)
		return false;
	return memcmp(head.magic, none, sizeof(none)) == 0 || memcmp(head.magic, KEEP_MAGIC, sizeof(none)) == 0;
}

static int open_index(struct opening *opening)
{
	struct keep_file *file = opening->file;
	uint64_t bytes = 0;
	int error = 0;

	file->index_bytes = kvr_round_up(keep_index_bytes(&opening->geometry), opening->unit);
	file->index_fd = open_file(opening, "index", &bytes);
	if (file->index_fd < 0)
		return file->index_fd;
	if (flock(file->index_fd, LOCK_EX | LOCK_NB) != 0) {
		log_error("l1: %s is used by another server", opening->options->directory);
		return -EBUSY;
	}
	opening->fresh = headless(file->index_fd, bytes);
	if (opening->fresh)
		error = check_memory(opening);
	if (opening->fresh && !error)
		error = allocate(opening, file->index_fd, "index", file->index_bytes);
	else if (!opening->fresh && bytes != file->index_bytes)
		error = stale(opening, "it was written for an L1 of another size, or by another version");
	if (error)
		return error;
	file->index = mmap(
		NULL, file->index_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file->index_fd, 0);
	if (file->index == MAP_FAILED) {
		file->index = NULL;
		log_error("l1: the index in %s cannot be mapped: %s", opening->options->directory, strerror(errno));
		return -ENOMEM;
	}
	return 0;
}

static int open_area(struct opening *opening, uint32_t number)
{
	struct l1_map_options options = opening->options->areas[number];
	uint64_t bytes = opening->geometry.area_bytes[number], found = 0;
	char name[16];
	int fd, error = 0;

	snprintf(name, sizeof(name), "l1.%u", number);
	fd = open_file(opening, name, &found);
	if (fd < 0)
		return fd;
	if (opening->fresh)
		error = allocate(opening, fd, name, bytes);
	else if (found != bytes)
		error = stale(opening, "a file of L1 has another size");
	options.bytes = bytes;
	if (!error)
		error = l1_map_file(fd, opening->pages, &options, &opening->file->areas[number]);
	close(fd);
	return error;
}

static int open_keep(struct opening *opening)
{
	struct keep_file *file = opening->file;
	char why[160];
	int error = keep_open(file->index, file->index_bytes, &opening->geometry, &file->keep, why, sizeof(why));

	return error == -ESTALE ? stale(opening, why) : error;
}

static int open_all(struct opening *opening)
{
	struct keep_file *file = opening->file;
	int error = open_directory(opening);

	for (uint32_t i = 0; !error && i < opening->options->area_count; i++)
		opening->geometry.area_bytes[i] = kvr_round_up(opening->options->areas[i].bytes, opening->unit);
	if (!error)
		error = open_index(opening);
	if (error)
		return error;
	if (!opening->fresh)
		error = open_keep(opening);
	for (uint32_t i = 0; !error && i < opening->options->area_count; i++) {
		error = open_area(opening, i);
		if (!error)
			file->area_count = i + 1;
	}
	/* Areas are there before the index says so. */
	if (!error && opening->fresh)
		error = open_keep(opening);
	return error;
}

/* Memory that was had for nothing: it would be taken until the directory is removed. */
static void give_back(const struct opening *opening)
{
	char name[16];

	for (uint32_t i = 0; i < opening->options->area_count; i++) {
		int fd;

		snprintf(name, sizeof(name), "l1.%u", i);
		fd = openat(opening->directory, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
		if (fd >= 0 && ftruncate(fd, 0) != 0)
			log_warn("l1: %s/%s could not be emptied: %s", opening->options->directory, name,
				strerror(errno));
		if (fd >= 0)
			close(fd);
	}
	if (ftruncate(opening->file->index_fd, 0) != 0)
		log_warn("l1: %s/index could not be emptied: %s", opening->options->directory, strerror(errno));
}

int keep_file_open(const struct keep_file_options *options, struct keep_file *file)
{
	struct opening opening = { .options = options, .file = file, .directory = -1 };
	int error;

	memset(file, 0, sizeof(*file));
	file->index_fd = -1;
	if (options->area_count == 0 || options->area_count > L1_AREAS_MAX)
		return -EINVAL;
	opening.geometry.area_count = options->area_count;
	opening.geometry.chunk_tokens = options->chunk_tokens;
	read_boot(opening.geometry.boot);
	error = open_all(&opening);
	if (error && opening.fresh)
		give_back(&opening);
	if (opening.directory >= 0)
		close(opening.directory);
	if (error)
		keep_file_close(file);
	return error;
}

void keep_file_close(struct keep_file *file)
{
	keep_close(&file->keep);
	for (uint32_t i = 0; i < file->area_count; i++)
		l1_unmap(&file->areas[i]);
	file->area_count = 0;
	if (file->index)
		munmap(file->index, file->index_bytes);
	file->index = NULL;
	if (file->index_fd > 0)
		close(file->index_fd);
	file->index_fd = -1;
}
