/* gpus.c - the server's use of GPUs: found, L1 made known to them, handed to the local driver. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "app/kvraild/daemon.h"
#include "base/text.h"

static void begin(void *context, const char *pci)
{
	daemon_go_near_gpu(context, pci);
}

static int open_gpus(struct daemon *daemon)
{
	struct gpus_options options;
	int error;

	memset(&options, 0, sizeof(options));
	options.threads = true;
	options.begin = begin;
	options.begin_context = daemon;
	options.never_sleep = daemon->plan->placement.busy;
	options.blocks = daemon->settings->gpu_blocks;
	error = gpus_open(&options, &daemon->gpus, daemon->gpu_reason, sizeof(daemon->gpu_reason));
	if (error)
		return error;
	for (uint32_t i = 0; !error && i < daemon->area_count; i++)
		error = gpus_register_host(daemon->gpus, daemon->memory[i].address, daemon->memory[i].bytes);
	if (error) {
		text_copy(daemon->gpu_reason, sizeof(daemon->gpu_reason),
			"L1 can't be made known to the GPUs: the log says why");
		gpus_close(&daemon->gpus);
	}
	return error;
}

static void describe(const struct daemon *daemon, char *detail, size_t size)
{
	struct gpu_status status;
	size_t length;

	snprintf(detail, size, "%u:", gpus_count(daemon->gpus));
	for (uint32_t i = 0; i < gpus_count(daemon->gpus); i++) {
		gpus_status(daemon->gpus, i, &status);
		length = strlen(detail);
		snprintf(detail + length, size - length, "%s %s at %s", i > 0 ? "," : "", status.name, status.pci);
	}
}

int daemon_start_gpus(struct daemon *daemon, char *detail, size_t size)
{
	int error;

	if (daemon->settings->gpu == KVRAILD_GPU_OFF || !daemon->plan->has_socket) {
		text_copy(daemon->gpu_reason, sizeof(daemon->gpu_reason),
			!daemon->plan->has_socket ? "clients on other hosts export their GPU memory themselves"
						  : "--gpu off");
		snprintf(detail, size, "none used: %s", daemon->gpu_reason);
		return 0;
	}
	error = open_gpus(daemon);
	if (error && daemon->settings->gpu == KVRAILD_GPU_ON) {
		log_error("--gpu on: %s", daemon->gpu_reason);
		return error;
	}
	if (error) {
		snprintf(detail, size, "none used: %s", daemon->gpu_reason);
		return 0;
	}
	daemon->gpu_reason[0] = '\0';
	gpu_table_fill(&daemon->gpu_table, daemon->gpus);
	describe(daemon, detail, size);
	return 0;
}

static void say_what_was_done(const struct daemon *daemon)
{
	struct gpu_status status;

	for (uint32_t i = 0; i < gpus_count(daemon->gpus); i++) {
		gpus_status(daemon->gpus, i, &status);
		log_info("gpu %u: %llu bytes to it, %llu from it, %llu pieces in %llu kernels and %llu engine copies",
			i, (unsigned long long)status.counters.to_device_bytes_total,
			(unsigned long long)status.counters.to_host_bytes_total,
			(unsigned long long)status.counters.pieces_total,
			(unsigned long long)status.counters.launches_total,
			(unsigned long long)status.counters.engine_copies_total);
	}
}

bool daemon_leaves_for_gpu(const struct daemon *daemon)
{
	return daemon->settings->gpu_lost == KVRAILD_GPU_LOST_LEAVE && daemon->gpus && gpus_lost(daemon->gpus) > 0;
}

void daemon_finish_gpus(struct daemon *daemon)
{
	if (daemon->gpus)
		say_what_was_done(daemon);
	if (!daemon->forced)
		gpus_close(&daemon->gpus);
}
