/* rig.c - see rig.h. */
#include "hot/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/cmocka_all.h"
#include "base/log.h"
#include "hot/guard.h"

#define STACK_BYTES ((size_t)1 << 20)

/* ---- the threads ---- */

static void become_guarded(struct rig *rig)
{
	rig->guard_error = guard_forbid_system_calls();
	guard_forbid_allocations(rig->guard_error == 0);
	kvr_store_release(&rig->is_guarded, 1);
}

/* What a loop of kvraild is: the clock once a turn, and every part. It ends by stopping in the middle of nothing. */
static void *step_for_ever(void *context)
{
	struct rig *rig = context;
	struct worker *worker = server_worker(rig->server, 0);
	struct management *management = server_management(rig->server);
	bool guarded = false;

	kvr_store_release(&rig->stepping_id, (pid_t)syscall(SYS_gettid));
	while (!kvr_load_acquire(&rig->stop)) {
		uint64_t now_ns = clock_now_ns();
		void (*sabotage)(void) = kvr_load_acquire(&rig->sabotage);

		if (!guarded && kvr_load_acquire(&rig->guarded)) {
			become_guarded(rig);
			guarded = true;
		}
		worker_step(worker, now_ns);
		management_step(management, now_ns);
		if (sabotage) {
			sabotage();
			kvr_store_release(&rig->sabotage, NULL);
		}
		kvr_counter_add(&rig->steps, 1);
	}
	guard_forbid_allocations(false);
	if (guarded)
		guard_leave();
	return NULL;
}

static void *control_for_ever(void *context)
{
	struct rig *rig = context;
	struct control *control = server_control(rig->server);
	struct timespec pause = { 0, KVR_MS };
	struct stream_address address;
	bool draining = false;
	int listener;

	assert_int_equal(stream_parse_address(rig->path, &address), 0);
	assert_int_equal(stream_listen(&address, 0600, &listener), 0);
	while (!draining || !control_idle(control)) {
		struct stream *stream;

		if (stream_accept(listener, true, &stream) == 0)
			assert_int_equal(control_accept(control, stream, clock_now_ns()), 0);
		if (!draining && kvr_load_acquire(&rig->drain)) {
			control_drain(control, clock_now_ns());
			draining = true;
		}
		if (!control_step(control, clock_now_ns()))
			nanosleep(&pause, NULL);
	}
	unlink(address.path);
	close(listener);
	return NULL;
}

/* ---- making and stopping ---- */

static void make_server(struct rig *rig, uint64_t l1_bytes)
{
	struct server_options options;
	struct verbs_open open;

	memset(&open, 0, sizeof(open));
	open.server = true;
	assert_int_equal(verbs_local.open(&open, &rig->device), 0);
	rig->area.bytes = l1_bytes;
	rig->area.address = aligned_alloc(65536, l1_bytes);
	rig->area.numa_node = -1;
	assert_non_null(rig->area.address);
	memset(rig->area.address, 0, l1_bytes);
	strcpy(rig->tenant.name, "default");
	server_options_default(&options);
	options.areas = &rig->area;
	options.area_count = 1;
	options.worker_count = 1;
	options.devices[0] = rig->device;
	options.chunk_tokens = RIG_CHUNK_TOKENS;
	options.connections_max = 8;
	options.credits = RIG_CREDITS;
	options.chunks_initial = 256;
	options.tenants = &rig->tenant;
	options.tenant_count = 1;
	assert_int_equal(server_create(&options, &rig->server), 0);
}

static void start_stepping(struct rig *rig)
{
	pthread_attr_t attributes;

	rig->stack = aligned_alloc(4096, STACK_BYTES);
	assert_non_null(rig->stack);
	assert_int_equal(pthread_attr_init(&attributes), 0);
	assert_int_equal(pthread_attr_setstack(&attributes, rig->stack, STACK_BYTES), 0);
	assert_int_equal(pthread_create(&rig->stepping, &attributes, step_for_ever, rig), 0);
	pthread_attr_destroy(&attributes);
}

void rig_open(struct rig *rig, uint64_t l1_bytes)
{
	log_set_level(LOG_ERROR);
	memset(rig, 0, sizeof(*rig));
	guard_reset();
	strcpy(rig->directory, "/tmp/kvrail-hot-XXXXXX");
	assert_non_null(mkdtemp(rig->directory));
	snprintf(rig->path, sizeof(rig->path), "unix:%s/kvrail.sock", rig->directory);
	make_server(rig, l1_bytes);
	start_stepping(rig);
	assert_int_equal(pthread_create(&rig->control, NULL, control_for_ever, rig), 0);
}

static void read_usage(const struct rig *rig, struct rig_usage *usage)
{
	char path[64], line[1024];
	const char *fields;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)kvr_load_acquire(&rig->stepping_id));
	file = fopen(path, "re");
	assert_non_null(file);
	assert_non_null(fgets(line, sizeof(line), file));
	fclose(file);
	fields = strrchr(line, ')'); /* the name before it may hold anything */
	assert_non_null(fields);
	assert_int_equal(sscanf(fields + 1, " %*c %*d %*d %*d %*d %*d %*u %lu %*u %lu", &usage->minor_faults,
				 &usage->major_faults),
		2);
}

void rig_guard(struct rig *rig)
{
	kvr_store_release(&rig->guarded, 1);
	while (!kvr_load_acquire(&rig->is_guarded))
		sched_yield();
	assert_int_equal(rig->guard_error, 0);
	read_usage(rig, &rig->before);
}

void rig_sabotage(struct rig *rig, void (*what)(void))
{
	kvr_store_release(&rig->sabotage, what);
	while (kvr_load_acquire(&rig->sabotage))
		sched_yield();
}

void rig_stop(struct rig *rig, struct rig_usage *usage)
{
	read_usage(rig, usage);
	usage->minor_faults -= rig->before.minor_faults;
	usage->major_faults -= rig->before.major_faults;
	kvr_store_release(&rig->stop, 1);
	pthread_join(rig->stepping, NULL);
	guard_release();
}

/* Steps what the stepping thread did until the control thread has let everybody go. */
static void drain(struct rig *rig)
{
	while (pthread_tryjoin_np(rig->control, NULL)) {
		worker_step(server_worker(rig->server, 0), clock_now_ns());
		management_step(server_management(rig->server), clock_now_ns());
	}
}

void rig_close(struct rig *rig)
{
	kvr_store_release(&rig->drain, 1);
	drain(rig);
	assert_int_equal(server_verify(rig->server, true), 0);
	server_destroy(&rig->server);
	verbs_local.close(rig->device);
	free(rig->area.address);
	free(rig->stack);
	assert_int_equal(rmdir(rig->directory), 0);
}

struct kvr_client *rig_client(const struct rig *rig)
{
	struct kvr_options options = KVR_OPTIONS_INIT;
	struct kvr_client *client;
	int error = -ENOENT;

	options.url = rig->path;
	options.name = "hot";
	/* The server's socket appears a moment after its thread. */
	for (unsigned attempt = 0; attempt < 10000 && (error == -ENOENT || error == -ECONNREFUSED); attempt++) {
		struct timespec pause = { 0, KVR_MS };

		error = kvr_open(&options, &client);
		if (error)
			nanosleep(&pause, NULL);
	}
	if (error)
		fail_msg("kvr_open: %s", kvr_error_text());
	return client;
}
