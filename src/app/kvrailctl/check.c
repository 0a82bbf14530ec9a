/* check.c - kvrailctl check: whether this machine is ready for kvraild, and whether one runs. A line a fact, with what to do. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "app/common/http_client.h"
#include "app/common/memlock.h"
#include "app/common/program.h"
#include "app/kvrailctl/kvrailctl.h"
#include "base/log.h"
#include "base/stream.h"
#include "poll/cores.h"
#include "verbs/driver.h"

#define FDS_WANTED 1024
#define RDMA_WORDS 400
#define RDMA_MTU_MAX 4096

enum verdict { GOOD, NOTE, BAD };

struct check {
	const struct kvrailctl_settings *settings;
	struct text out;
	unsigned notes, bad;
};

static void say(struct check *check, enum verdict verdict, const char *what, const char *format, ...) KVR_PRINTF(4, 5);

static void say(struct check *check, enum verdict verdict, const char *what, const char *format, ...)
{
	static const char *const names[] = { "ok", "note", "BAD" };
	char words[600];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(words, sizeof(words), format, arguments);
	va_end(arguments);
	check->notes += verdict == NOTE;
	check->bad += verdict == BAD;
	text_append(&check->out, "  %-4s  %-14s  %s\n", names[verdict], what, words);
}

/* "Name:   123 kB" of a /proc file in bytes (kB) or as it stands; false when there is none. */
static bool read_field(const char *path, const char *name, uint64_t *value)
{
	char line[256];
	bool found = false;
	FILE *file = fopen(path, "re");

	while (file && !found && fgets(line, sizeof(line), file)) {
		if (strncmp(line, name, strlen(name)) != 0 || line[strlen(name)] != ':')
			continue;
		*value = strtoull(line + strlen(name) + 1, NULL, strncmp(name, "Cap", 3) == 0 ? 16 : 10);
		if (strstr(line, " kB"))
			*value *= 1024;
		found = true;
	}
	if (file)
		fclose(file);
	return found;
}

static bool read_line(const char *path, char *line, size_t size)
{
	FILE *file = fopen(path, "re");
	bool good = file && fgets(line, (int)size, file);

	if (file)
		fclose(file);
	if (good)
		line[strcspn(line, "\n")] = '\0';
	return good;
}

static void check_cores(struct check *check)
{
	int count = cores_allowed(NULL, 0);

	if (count < 0)
		say(check, BAD, "cores", "can't be read: %s", strerror(-count));
	else if (count < 4)
		say(check, NOTE, "cores",
			"%d usable: one thread does a worker's and the management core's work; 4 or more are better",
			count);
	else
		say(check, GOOD, "cores", "%d usable", count);
}

static void check_memory(struct check *check)
{
	char wanted[TEXT_SHORT], have[TEXT_SHORT];
	uint64_t available = 0;

	text_size(wanted, check->settings->l1_bytes);
	if (!read_field("/proc/meminfo", "MemAvailable", &available))
		say(check, NOTE, "memory", "/proc/meminfo does not say how much is available");
	else if (available < check->settings->l1_bytes)
		say(check, BAD, "memory", "%s available, less than L1 wants (--l1-size %s)", text_size(have, available),
			wanted);
	else
		say(check, GOOD, "memory", "%s available for %s of L1", text_size(have, available), wanted);
}

static void check_memlock(struct check *check)
{
	uint64_t limit = memlock_limit();
	char why[400], have[TEXT_SHORT];

	if (memlock_check(check->settings->l1_bytes, limit, why, sizeof(why)) != 0)
		say(check, check->settings->device[0] ? BAD : NOTE, "locked memory", "%s%s", why,
			check->settings->device[0] ? "" : ". Clients on this host are served all the same");
	else if (limit == UINT64_MAX)
		say(check, GOOD, "locked memory", "no limit");
	else
		say(check, GOOD, "locked memory", "%s may be locked", text_size(have, limit));
}

static void check_pages(struct check *check)
{
	uint64_t total = 0, free_pages = 0, size = 0;
	char line[128] = "", have[TEXT_SHORT], each[TEXT_SHORT];

	(void)read_field("/proc/meminfo", "HugePages_Total", &total);
	(void)read_field("/proc/meminfo", "HugePages_Free", &free_pages);
	(void)read_field("/proc/meminfo", "Hugepagesize", &size);
	if (free_pages * size >= check->settings->l1_bytes) {
		say(check, GOOD, "huge pages", "%s free in pages of %s", text_size(have, free_pages * size),
			text_size(each, size));
		return;
	}
	if (read_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof(line)) && !strstr(line, "[never]"))
		say(check, GOOD, "huge pages", "%" PRIu64 " of %" PRIu64 " reserved ones free; transparent ones are on",
			free_pages, total);
	else
		say(check, NOTE, "huge pages",
			"too few reserved (%" PRIu64
			" free) and transparent ones are off: L1 comes on 4 KiB pages, which costs speed; reserve "
			"them (vm.nr_hugepages)",
			free_pages);
}

static void check_descriptors(struct check *check)
{
	struct rlimit limit = { 0, 0 };

	(void)getrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_max < FDS_WANTED)
		say(check, NOTE, "descriptors",
			"at most %llu: enough for few clients; raise it (LimitNOFILE=, ulimit -n)",
			(unsigned long long)limit.rlim_max);
	else
		say(check, GOOD, "descriptors", "%llu", (unsigned long long)limit.rlim_max);
}

/* What the local driver does with clients' memory: a memfd that can be sealed and mapped. */
static void check_shared_memory(struct check *check)
{
	int fd = memfd_create("kvrailctl-check", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *mapped = MAP_FAILED;
	int why;

	if (fd >= 0 && ftruncate(fd, 4096) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0)
		mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	why = errno;
	if (fd >= 0)
		close(fd);
	if (mapped == MAP_FAILED) {
		say(check, BAD, "shared memory", "no sealed memfd can be had: %s: the local driver can't serve",
			strerror(why));
		return;
	}
	munmap(mapped, 4096);
	say(check, GOOD, "shared memory", "memfd with seals");
}

static void check_ptrace(struct check *check)
{
	char line[32] = "";

	if (!read_line("/proc/sys/kernel/yama/ptrace_scope", line, sizeof(line)) || line[0] == '0' || geteuid() == 0)
		say(check, GOOD, "process memory", "can be read and written: engines may use memory of their own");
	else
		say(check, NOTE, "process memory",
			"kernel.yama.ptrace_scope is %s: only memory from kvr_alloc can be used by clients (or give kvraild CAP_SYS_PTRACE)",
			line);
}

/* Two sides use the lesser of their MTUs: one that was left small makes all transfers slow, and nothing says so. */
static void check_mtu(struct check *check, const char *name, const struct text *members)
{
	char object[1200], address[64] = "";
	const char *words;
	json_t *state;
	json_int_t mtu;

	snprintf(object, sizeof(object), "{%s}", members->bytes ? members->bytes : "");
	state = json_loads(object, 0, NULL);
	mtu = json_integer_value(json_object_get(state, "mtu_bytes"));
	words = json_string_value(json_object_get(state, "address"));
	text_copy(address, sizeof(address), words ? words : "");
	json_decref(state);
	if (mtu >= RDMA_MTU_MAX)
		say(check, GOOD, "RDMA device", "%s, address %s, MTU %d", name, address, (int)mtu);
	else
		say(check, NOTE, "RDMA device",
			"%s, address %s, MTU %d: both sides use the lesser of theirs; an Ethernet MTU of 4200 or more (ip link set "
			"... mtu 9000, on the switches too) makes it %d",
			name, address, (int)mtu, RDMA_MTU_MAX);
}

/* The last complaint of the driver, which says what to do about it. */
static void keep_error(void *context, enum log_level level, const char *line)
{
	const char *words = strstr(line, "nic: ");

	if (level == LOG_ERROR)
		text_copy(context, RDMA_WORDS, words ? words + 5 : line);
}

/* Opened as kvraild does it, so that what stands in its way is found now. Without --device none is needed. */
static void check_device(struct check *check, const char *wanted)
{
	struct verbs_open options = { .device = wanted[0] ? wanted : NULL, .server = true };
	struct verbs_device *device = NULL;
	struct text state = { NULL, 0, 0, false };
	char words[RDMA_WORDS] = "";
	bool none;
	int error;

	log_set_sink(keep_error, words);
	error = verbs_nic.open(&options, &device);
	log_set_sink(NULL, NULL);
	words[strcspn(words, "\n")] = '\0';
	none = error == -EOPNOTSUPP || (error == -ENODEV && access("/dev/infiniband", F_OK) != 0);
	if (error) {
		say(check, none && !wanted[0] ? NOTE : BAD, "RDMA device", "%s%s", words[0] ? words : strerror(-error),
			none && !wanted[0] ? "; clients on this host are served" : "");
		return;
	}
	verbs_nic.describe(device, &state);
	check_mtu(check, device->name, &state);
	device->driver->close(device);
	text_fini(&state);
}

static void check_rdma(struct check *check)
{
	char name[64];

	for (uint32_t i = 0; text_list_item(check->settings->device, i, name, sizeof(name)); i++)
		check_device(check, name);
}

/* The same rule by which kvraild chooses its socket. */
static void socket_path(const struct kvrailctl_settings *settings, char *path, size_t size)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");

	if (settings->socket[0])
		text_copy(path, size,
			strncmp(settings->socket, "unix:", 5) == 0 ? settings->socket + 5 : settings->socket);
	else if (geteuid() == 0 || !runtime)
		text_copy(path, size, "/run/kvrail/kvrail.sock");
	else
		snprintf(path, size, "%s/kvrail.sock", runtime);
}

static void check_socket(struct check *check)
{
	char path[256], url[300];
	struct stream_address address;
	struct stream *stream;
	int error = -EINVAL;

	socket_path(check->settings, path, sizeof(path));
	snprintf(url, sizeof(url), "unix:%s", path);
	if (stream_parse_address(url, &address) == 0)
		error = stream_connect(&address, &stream);
	if (error == 0) {
		say(check, GOOD, "socket", "%s: served by process %d", path, (int)stream->peer.pid);
		stream->ops->close(stream);
	} else if (error == -EACCES) {
		say(check, BAD, "socket", "%s: no right to connect (--socket-mode, group of the file)", path);
	} else {
		say(check, NOTE, "socket", "%s: %s: no kvraild serves it", path, strerror(-error));
	}
}

static void check_pages_of_server(struct check *check)
{
	struct http_client_request request = { check->settings->http, "GET", "/readyz", NULL,
		check->settings->timeout_ns, NULL, 0 };
	struct text answer = { NULL, 0, 0, false };
	struct http_client_error error;
	unsigned status = 0;

	if (http_client_ask(&request, &status, &answer, &error) != 0)
		say(check, NOTE, "pages", "%s", error.text);
	else
		say(check, status == 200 ? GOOD : BAD, "pages", "%s/readyz: %.*s", check->settings->http,
			answer.bytes ? (int)strcspn(answer.bytes, "\n") : 0, answer.bytes ? answer.bytes : "");
	text_fini(&answer);
}

int kvrailctl_check(const struct kvrailctl_settings *settings)
{
	struct check check = { settings, { NULL, 0, 0, false }, 0, 0 };
	int code;

	text_append(&check.out, "this machine\n");
	check_cores(&check);
	check_memory(&check);
	check_memlock(&check);
	check_pages(&check);
	check_descriptors(&check);
	check_shared_memory(&check);
	check_ptrace(&check);
	check_rdma(&check);
	text_append(&check.out, "the server\n");
	check_socket(&check);
	check_pages_of_server(&check);
	text_append(&check.out, "%u bad, %u to note\n", check.bad, check.notes);
	code = kvrailctl_print(&check.out);
	text_fini(&check.out);
	return check.bad ? PROGRAM_FAILED : code;
}
