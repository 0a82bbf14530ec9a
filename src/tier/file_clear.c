/*
 * file_clear.c - CLEAR: the directory is listed, and the files of the models are removed, whoever wrote them. It may be
 * cut short at any time: what is left is whole.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "tier/file_private.h"

struct clear_walk {
	const struct file_place *place;
	const struct l2_request *request;
	bool (*gone)(void *context, const struct file_name *name);
	void *context;
	int error; /* the first */
	uint64_t removed;
};

static void keep_error(struct clear_walk *walk, const char *what, const char *name, int error)
{
	if (walk->error)
		return;
	walk->error = error;
	log_warn("l2 file:%s: clear: cannot %s %s: %s", walk->place->path, what, name, strerror(-error));
}

/* Whose it is says its header; of one that cannot be told nobody will ever load a byte. */
static bool wanted(struct clear_walk *walk, int folder, const char *name)
{
	uint8_t block[FILE_BLOCK];
	struct object_header header;
	ssize_t count;
	int fd;

	if (!walk->request->memory)
		return true;
	fd = openat(folder, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		if (errno != ENOENT)
			keep_error(walk, "open", name, -errno);
		return false;
	}
	count = pread(fd, block, sizeof(block), 0);
	if (count < 0)
		keep_error(walk, "read", name, -errno);
	close(fd);
	return count == (ssize_t)sizeof(block) && object_header_decode(block, &header) == 0 &&
		object_is_cleared(walk->request, &header.identity);
}

/* False: the adapter closes. */
static bool clear_file(struct clear_walk *walk, int folder, uint16_t fan, const char *file)
{
	struct file_name name;
	struct stat about;

	if (!file_name_parse(fan, file, &name) || fstatat(folder, file, &about, AT_SYMLINK_NOFOLLOW) != 0 ||
		!S_ISREG(about.st_mode) || !wanted(walk, folder, file))
		return true;
	if (fault_point("file_clear/unlink") ? (errno = EIO, true) : unlinkat(folder, file, 0) != 0) {
		if (errno != ENOENT)
			keep_error(walk, "remove", file, -errno);
		return true;
	}
	walk->removed++;
	return walk->gone(walk->context, &name);
}

static bool clear_folder(struct clear_walk *walk, const char *folder, uint16_t fan)
{
	DIR *entries = file_scan_folder(walk->place, folder);
	const struct dirent *entry;
	bool goes_on = true;

	if (!entries) {
		keep_error(walk, "list", folder, -EIO);
		return true;
	}
	while (goes_on && (entry = readdir(entries)) != NULL)
		goes_on = clear_file(walk, dirfd(entries), fan, entry->d_name);
	closedir(entries);
	return goes_on;
}

int file_clear_run(const struct file_place *place, const struct l2_request *request,
	bool (*gone)(void *context, const struct file_name *name), void *context)
{
	struct clear_walk walk = { .place = place, .request = request, .gone = gone, .context = context };
	DIR *folders = file_scan_folder(place, ".");
	const struct dirent *entry;
	bool goes_on = true;
	uint16_t fan;

	if (!folders)
		return -EIO;
	while (goes_on && (entry = readdir(folders)) != NULL)
		if (file_fan_parse(entry->d_name, &fan))
			goes_on = clear_folder(&walk, entry->d_name, fan);
	closedir(folders);
	log_warn("l2 file:%s: cleared: %llu objects removed%s", place->path, (unsigned long long)walk.removed,
		walk.error ? ", others could not be" : "");
	return goes_on ? walk.error : -ECANCELED;
}

void file_clear_begin(struct file_shard *shard, struct l2_request *request)
{
	struct file_adapter *adapter = KVR_CONTAINER_OF(shard->place, struct file_adapter, place);

	if (shard->place->read_only)
		file_request_end(shard, request, -EROFS);
	else if (kvr_load_relaxed(&shard->place->gone))
		file_request_end(shard, request, -ENOENT);
	else
		file_scan_clear(adapter->scan, request);
}
