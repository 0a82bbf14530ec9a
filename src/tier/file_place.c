/* file_place.c - the directory: opening and trying it, its lock, its folders, its free space, whether it is still there. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/random.h"
#include "base/text.h"
#include "tier/file_private.h"

#define LOCK_PREFIX "lock-"
#define TEMP_PREFIX "tmp-"
#define ID_TRIES 8
#define PROBE_BYTES (2 * FILE_BLOCK)

static int refuse(char *text, size_t size, const char *path, const char *what, int error, const char *advice)
{
	snprintf(text, size, "l2 file:%s: %s: %s; %s", path, what, strerror(-error), advice);
	return error;
}

static const char *advice_for(int error)
{
	switch (error) {
	case -ENOENT:
		return "make the directory, or mount what it should be on";
	case -ENOTDIR:
		return "name a directory";
	case -EACCES:
	case -EPERM:
		return "give the server's user the right to read, write and search it";
	case -EROFS:
		return "mount it writable, or say read_only";
	case -ENOSPC:
	case -EDQUOT:
		return "make some room there";
	default:
		return "look at the disk and at its file system";
	}
}

static int open_directory(const struct file_adapter_options *options, struct file_place *place)
{
	struct statvfs about;
	struct stat directory;

	place->directory_fd = open(place->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (place->directory_fd < 0 && errno == ENOENT && !options->read_only && mkdir(place->path, 0700) == 0)
		place->directory_fd = open(place->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (place->directory_fd < 0)
		return -errno;
	if (fault_point("file_place/stat"))
		return -EIO;
	if (fstat(place->directory_fd, &directory) != 0 || fstatvfs(place->directory_fd, &about) != 0)
		return -errno;
	if (directory.st_mode & S_IWOTH)
		log_warn(
			"l2 file:%s: everybody may write to the directory, and what lies there is served to clients: chmod o-w",
			place->path);
	place->device = directory.st_dev;
	place->inode = directory.st_ino;
	place->opened_us = clock_wall_ns() / KVR_US;
	place->wall_us = place->opened_us - clock_now_ns() / KVR_US;
	place->used_at_open = (uint64_t)(about.f_blocks - about.f_bfree) * about.f_frsize;
	if ((about.f_flag & ST_RDONLY) && !options->read_only)
		return -EROFS;
	return 0;
}

static void lock_name(const char *id, char out[32])
{
	snprintf(out, 32, LOCK_PREFIX "%.16s", id);
}

/* Takes a name of our own for temporary files; the lock goes with the process. */
static int take_lock(struct file_place *place)
{
	char id[FILE_ID_HEX + 1], name[32];
	struct stat about;
	uint8_t bytes[FILE_ID_HEX / 2];
	int error, fd;

	for (int i = 0; i < ID_TRIES; i++) {
		error = random_secret(bytes, sizeof(bytes));
		if (error)
			return error;
		text_hex(id, bytes, sizeof(bytes));
		lock_name(id, name);
		fd = fault_point("file_place/lock")
			? (errno = EIO, -1)
			: openat(place->directory_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd < 0 && errno == EEXIST)
			continue;
		if (fd < 0)
			return -errno;
		/* Another server that starts may just have taken it for a dead one's. Where there are no locks, nobody
		 * can. */
		if ((flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) || fstat(fd, &about) != 0 ||
			about.st_nlink == 0) {
			close(fd);
			continue;
		}
		place->lock_fd = fd;
		snprintf(place->temp, sizeof(place->temp), TEMP_PREFIX "%s", id);
		return file_place_temp(place);
	}
	return -EAGAIN;
}

int file_place_temp(const struct file_place *place)
{
	if (fault_point("file_place/temp"))
		return -EIO;
	return mkdirat(place->directory_fd, place->temp, 0700) == 0 || errno == EEXIST ? 0 : -errno;
}

/* The smallest alignment of memory that the device takes. */
static uint32_t probe_align(int fd, uint8_t *buffer)
{
	static const uint32_t aligns[] = { 64, 512 };

	for (size_t i = 0; i < KVR_COUNT_OF(aligns); i++) {
		if (pread(fd, buffer + aligns[i], FILE_BLOCK, 0) == (ssize_t)FILE_BLOCK)
			return aligns[i];
	}
	return FILE_BLOCK;
}

static int probe_file(struct file_place *place, const char *name, bool direct, uint8_t *buffer)
{
	int fd = openat(
		place->directory_fd, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | (direct ? O_DIRECT : 0), 0600);
	int error = 0;

	if (fd < 0)
		return -errno;
	for (uint32_t i = 0; i < PROBE_BYTES; i++)
		buffer[i] = (uint8_t)(i * 7 + i / 256);
	errno = 0;
	if (fault_point("file_place/probe_write") ? (errno = EIO, true)
						  : pwrite(fd, buffer, PROBE_BYTES, 0) != (ssize_t)PROBE_BYTES) {
		error = errno ? -errno : -ENOSPC;
		goto close_file;
	}
	memset(buffer, 0, PROBE_BYTES);
	if (fault_point("file_place/probe_read") ? (errno = EIO, true)
						 : pread(fd, buffer, PROBE_BYTES, 0) != (ssize_t)PROBE_BYTES) {
		error = errno ? -errno : -EIO;
		goto close_file;
	}
	for (uint32_t i = 0; i < PROBE_BYTES && !error; i++)
		error = buffer[i] == (uint8_t)(i * 7 + i / 256) ? 0 : -EIO;
	if (!error && direct)
		place->memory_align = probe_align(fd, buffer);
close_file:
	close(fd);
	return error;
}

/* Writes and reads back one small file: with O_DIRECT, else without (pitfalls H04). */
static int probe(struct file_place *place, bool buffered)
{
	uint8_t *buffer = aligned_alloc(FILE_BLOCK, 2 * PROBE_BYTES);
	char name[FILE_TEMP_BYTES];
	int error = -EINVAL;

	if (!buffer)
		return -ENOMEM;
	snprintf(name, sizeof(name), "%s/probe", place->temp);
	if (!buffered) {
		error = fault_point("file_place/no_direct") ? -EINVAL : probe_file(place, name, true, buffer);
		place->direct = error == 0;
	}
	if (error == -EINVAL) {
		error = probe_file(place, name, false, buffer);
		if (!error && !buffered)
			log_warn("l2 file:%s: this file system has no O_DIRECT: reads and writes go through the page "
				 "cache",
				place->path);
	}
	unlinkat(place->directory_fd, name, 0);
	free(buffer);
	return error;
}

int file_place_open(const struct file_adapter_options *options, struct file_place *place, char *text, size_t size)
{
	int error;

	place->directory_fd = -1;
	place->lock_fd = -1;
	place->memory_align = FILE_BLOCK;
	place->reserved_bytes = options->reserved_bytes;
	place->check_interval_ns = options->check_interval_ns ? options->check_interval_ns : UINT64_C(1000000000);
	place->sync = options->sync;
	place->read_only = options->read_only;
	place->exclusive = options->exclusive;
	text_copy(place->path, sizeof(place->path), options->directory);
	error = open_directory(options, place);
	if (error)
		return refuse(text, size, place->path, "cannot open the directory", error, advice_for(error));
	if (place->read_only) {
		place->direct = !options->buffered;
		return 0;
	}
	error = take_lock(place);
	if (error)
		return refuse(text, size, place->path, "cannot make files in it", error, advice_for(error));
	error = probe(place, options->buffered);
	if (error)
		return refuse(
			text, size, place->path, "a file that was written to try it failed", error, advice_for(error));
	file_place_look(place, UINT64_MAX, 0);
	return 0;
}

static void remove_temp(const struct file_place *place, const char *folder)
{
	int fd = openat(place->directory_fd, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *entries = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!entries) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((entry = readdir(entries)) != NULL) {
		if (entry->d_name[0] != '.')
			unlinkat(fd, entry->d_name, 0);
	}
	closedir(entries);
	unlinkat(place->directory_fd, folder, AT_REMOVEDIR);
}

void file_place_close(struct file_place *place)
{
	char name[32];

	if (place->lock_fd >= 0) {
		if (place->temp[0])
			remove_temp(place, place->temp);
		lock_name(place->temp + sizeof(TEMP_PREFIX) - 1, name);
		unlinkat(place->directory_fd, name, 0);
		close(place->lock_fd);
	}
	if (place->directory_fd >= 0)
		close(place->directory_fd);
	place->lock_fd = -1;
	place->directory_fd = -1;
}

static bool lock_name_good(const char *name)
{
	uint8_t bytes[FILE_ID_HEX / 2];

	return strlen(name) == sizeof(LOCK_PREFIX) - 1 + FILE_ID_HEX &&
		memcmp(name, LOCK_PREFIX, sizeof(LOCK_PREFIX) - 1) == 0 &&
		text_unhex(bytes, sizeof(bytes), name + sizeof(LOCK_PREFIX) - 1);
}

void file_place_clean(const struct file_place *place)
{
	int fd = openat(place->directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *entries = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	char temp[32];

	if (!entries) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((entry = readdir(entries)) != NULL) {
		int lock;

		if (!lock_name_good(entry->d_name))
			continue;
		lock = openat(place->directory_fd, entry->d_name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (lock < 0)
			continue;
		/* Our own is locked too, by another description of the same file. */
		if (flock(lock, LOCK_EX | LOCK_NB) == 0) {
			snprintf(temp, sizeof(temp), TEMP_PREFIX "%.16s", entry->d_name + sizeof(LOCK_PREFIX) - 1);
			remove_temp(place, temp);
			unlinkat(place->directory_fd, entry->d_name, 0);
		}
		close(lock);
	}
	closedir(entries);
}

int file_place_fan(struct file_place *place, uint16_t fan)
{
	uint64_t bit = UINT64_C(1) << fan % 64;
	struct stat about;
	char folder[8];

	if (kvr_load_relaxed(&place->fan_made[fan / 64]) & bit)
		return 0;
	snprintf(folder, sizeof(folder), "%03x", fan % FILE_FAN_COUNT);
	if (fault_point("file_place/folder"))
		return -EIO;
	if (mkdirat(place->directory_fd, folder, 0700) != 0) {
		if (errno != EEXIST)
			return -errno;
		if (fstatat(place->directory_fd, folder, &about, AT_SYMLINK_NOFOLLOW) != 0)
			return -errno;
		if (!S_ISDIR(about.st_mode)) /* a link, say: we do not write to where somebody else points */
			return -ENOTDIR;
	}
	kvr_fetch_or(&place->fan_made[fan / 64], bit);
	return 0;
}

void file_place_look(struct file_place *place, uint64_t now_ns, uint64_t min_age_ns)
{
	struct statvfs about;

	if (now_ns - kvr_load_relaxed(&place->free_ns) < min_age_ns)
		return;
	kvr_store_relaxed(&place->free_ns, now_ns == UINT64_MAX ? 0 : now_ns);
	/* When it cannot be told, the write will tell. */
	if (fstatvfs(place->directory_fd, &about) == 0)
		kvr_store_relaxed(&place->free_bytes, (uint64_t)about.f_bavail * about.f_frsize);
}

void file_place_check(struct file_place *place)
{
	struct stat about;
	uint32_t gone = stat(place->path, &about) != 0 || about.st_dev != place->device || about.st_ino != place->inode;

	if (kvr_exchange(&place->gone, gone) == gone)
		return;
	if (gone)
		log_warn("l2 file:%s: the directory was removed or replaced: nothing is loaded or stored until it is "
			 "back, or the server is started again",
			place->path);
	else
		log_info("l2 file:%s: the directory is back", place->path);
}

void file_place_lose_direct(struct file_place *place)
{
	if (kvr_exchange(&place->direct, 0))
		log_warn("l2 file:%s: O_DIRECT is refused: reads and writes go through the page cache", place->path);
}
