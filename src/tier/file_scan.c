/*
 * file_scan.c - at start: lists the directory and tells the shards what is there, the newest first, so that what each
 * adds at the cold end of its list is in the order of use. Takes 48 bytes an object while it runs. Then its thread waits
 * for CLEARs.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/text.h"
#include "tier/file_private.h"

#define GROW 1024

struct scan_entry {
	uint8_t hash[32];
	uint64_t at; /* microseconds */
	uint32_t blocks;
	uint16_t fan;
};

struct file_scan {
	struct file_adapter *adapter;
	pthread_t thread;
	uint32_t stopping, passed; /* atomic */
	struct scan_entry *entries;
	size_t count, room;
	sem_t work;                 /* a CLEAR has come, or the end */
	struct l2_request *request; /* of the CLEAR: written before work is posted */
};

static bool stopping(const struct file_scan *scan)
{
	return kvr_load_acquire(&scan->stopping);
}

/* Waits for room. False: the adapter closes. */
static bool tell(struct file_scan *scan, struct file_shard *shard, const struct ring_message *message)
{
	static const struct timespec pause = { .tv_nsec = 200000 };

	while (!ring_push(&shard->found, message)) {
		file_shard_wake(shard);
		if (stopping(scan))
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}

static int newest_first(const void *a, const void *b)
{
	const struct scan_entry *first = a, *second = b;

	return (first->at < second->at) - (first->at > second->at);
}

/* What was gathered, in order. */
static void tell_all(struct file_scan *scan)
{
	struct file_adapter *adapter = scan->adapter;

	if (scan->count > 1)
		qsort(scan->entries, scan->count, sizeof(*scan->entries), newest_first);
	for (size_t i = 0; i < scan->count; i++) {
		const struct scan_entry *entry = &scan->entries[i];
		struct ring_message message = { .kind = FILE_FOUND, .count = entry->fan };

		memcpy(&message.word[0], entry->hash, sizeof(entry->hash));
		message.word[4] = (uint64_t)entry->blocks * FILE_BLOCK;
		/* A time to come, by another host's clock, would stay the newest. */
		message.word[5] = kvr_min_u64(entry->at, adapter->place.opened_us);
		if (!tell(scan, &adapter->shards[entry->fan % adapter->shard_count], &message))
			break;
	}
	scan->count = 0;
}

static uint64_t time_of(const struct stat *about)
{
	if (about->st_mtim.tv_sec < 0)
		return 0;
	return (uint64_t)about->st_mtim.tv_sec * 1000000 + (uint64_t)about->st_mtim.tv_nsec / KVR_US;
}

static void gather(struct file_scan *scan, const struct file_name *name, const struct stat *about)
{
	struct scan_entry *entry;

	if (scan->count == scan->room) {
		size_t room = scan->room ? 2 * scan->room : GROW;
		struct scan_entry *entries = fault_point("file_scan/entries")
			? NULL
			: realloc(scan->entries, room * sizeof(*entries));

		if (entries) {
			scan->entries = entries;
			scan->room = room;
		} else if (scan->room) {
			tell_all(scan); /* in pieces, then, and not quite in order */
		} else {
			return;
		}
	}
	entry = &scan->entries[scan->count++];
	memcpy(entry->hash, name->hash, sizeof(entry->hash));
	entry->fan = name->fan;
	entry->at = time_of(about);
	entry->blocks = (uint32_t)(kvr_round_up(kvr_max_u64((uint64_t)about->st_size, 1), FILE_BLOCK) / FILE_BLOCK);
}

DIR *file_scan_folder(const struct file_place *place, const char *folder)
{
	int fd = fault_point("file_scan/folder")
		? (errno = EIO, -1)
		: openat(place->directory_fd, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *entries = fd < 0 ? NULL : fdopendir(fd);

	if (!entries) {
		log_warn("l2 file:%s: cannot list %s: %s", place->path, folder, strerror(errno));
		if (fd >= 0)
			close(fd);
	}
	return entries;
}

static void scan_folder(struct file_scan *scan, const char *folder, uint16_t fan)
{
	DIR *entries = file_scan_folder(&scan->adapter->place, folder);
	const struct dirent *entry;
	struct file_name name;
	struct stat about;

	if (!entries)
		return;
	while (!stopping(scan) && (entry = readdir(entries)) != NULL) {
		if (!file_name_parse(fan, entry->d_name, &name))
			continue;
		if (fstatat(dirfd(entries), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(about.st_mode))
			gather(scan, &name, &about);
	}
	closedir(entries);
}

static bool tell_gone(void *context, const struct file_name *name)
{
	struct file_scan *scan = context;
	struct file_adapter *adapter = scan->adapter;
	struct ring_message message = { .kind = FILE_GONE, .count = name->fan };

	memcpy(&message.word[0], name->hash, sizeof(name->hash));
	return tell(scan, &adapter->shards[name->fan % adapter->shard_count], &message);
}

/* Rings are in order: who has passed this has forgotten all files before. */
static void wait_for_shards(struct file_scan *scan)
{
	static const struct timespec pause = { .tv_nsec = 200000 };
	struct file_adapter *adapter = scan->adapter;
	struct ring_message mark = { .kind = FILE_PASSED };

	kvr_store_release(&scan->passed, (uint32_t)0);
	mark.word[0] = (uintptr_t)&scan->passed;
	for (uint32_t i = 0; i < adapter->shard_count; i++)
		if (tell(scan, &adapter->shards[i], &mark))
			file_shard_wake(&adapter->shards[i]);
	while (kvr_load_acquire(&scan->passed) < adapter->shard_count && !stopping(scan))
		nanosleep(&pause, NULL);
}

/* No shard takes a file for there that is gone when the request ends. */
static void clear(struct file_scan *scan, struct l2_request *request)
{
	struct file_adapter *adapter = scan->adapter;
	struct ring_message end = { .kind = FILE_CLEARED };

	end.word[0] = (uintptr_t)request;
	end.word[1] = (uint64_t)(int64_t)file_clear_run(&adapter->place, request, tell_gone, scan);
	wait_for_shards(scan);
	if (tell(scan, &adapter->shards[0], &end))
		file_shard_wake(&adapter->shards[0]);
}

void file_scan_clear(struct file_scan *scan, struct l2_request *request)
{
	scan->request = request;
	sem_post(&scan->work);
}

static void serve_clears(struct file_scan *scan)
{
	for (;;) {
		while (sem_wait(&scan->work) != 0)
			;
		if (stopping(scan))
			return;
		clear(scan, scan->request);
	}
}

static void scan_place(struct file_scan *scan)
{
	struct file_adapter *adapter = scan->adapter;
	struct ring_message end = { .kind = FILE_FOUND_END };
	const struct dirent *entry;
	uint64_t began = clock_now_ns();
	size_t found;
	DIR *folders;
	uint16_t fan;

	if (!adapter->place.read_only)
		file_place_clean(&adapter->place);
	folders = file_scan_folder(&adapter->place, ".");
	while (folders && !stopping(scan) && (entry = readdir(folders)) != NULL) {
		if (file_fan_parse(entry->d_name, &fan))
			scan_folder(scan, entry->d_name, fan);
	}
	if (folders)
		closedir(folders);
	found = scan->count;
	tell_all(scan);
	for (uint32_t i = 0; i < adapter->shard_count; i++) {
		if (tell(scan, &adapter->shards[i], &end))
			file_shard_wake(&adapter->shards[i]);
	}
	if (!stopping(scan)) {
		char time[TEXT_SHORT];

		log_info("l2 file:%s: %zu objects found in %s", adapter->place.path, found,
			text_time(time, clock_now_ns() - began));
	}
}

static void *scan_main(void *argument)
{
	struct file_scan *scan = argument;

	scan_place(scan);
	free(scan->entries);
	scan->entries = NULL;
	serve_clears(scan);
	return NULL;
}

int file_scan_start(struct file_adapter *adapter)
{
	struct file_scan *scan = fault_point("file_scan/object") ? NULL : calloc(1, sizeof(*scan));
	sigset_t all, before;
	int error;

	if (!scan)
		return -ENOMEM;
	scan->adapter = adapter;
	if (sem_init(&scan->work, 0, 0) != 0) {
		free(scan);
		return -EAGAIN;
	}
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = fault_point("file_scan/thread") ? EAGAIN : pthread_create(&scan->thread, NULL, scan_main, scan);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error) {
		sem_destroy(&scan->work);
		free(scan);
		return error == ENOMEM ? -ENOMEM : -EAGAIN;
	}
	pthread_setname_np(scan->thread, "kvr-file-scan");
	adapter->scan = scan;
	return 0;
}

void file_scan_stop(struct file_scan *scan)
{
	if (!scan)
		return;
	kvr_store_release(&scan->stopping, (uint32_t)1);
	sem_post(&scan->work);
	pthread_join(scan->thread, NULL);
}

void file_scan_free(struct file_scan **slot)
{
	struct file_scan *scan = *slot;

	*slot = NULL;
	if (!scan)
		return;
	sem_destroy(&scan->work);
	free(scan->entries);
	free(scan);
}
