/* device.c - what clients reach the server through: an RDMA device for those on other hosts, shared memory for those on this one. */
#include <stdio.h>
#include <string.h>

#include "app/kvraild/daemon.h"

static void fill_nic(const struct daemon *daemon, struct verbs_open *options)
{
	const struct kvraild_worker_place *first = &daemon->plan->placement.workers[0];
	const struct kvraild_settings *settings = daemon->settings;

	options->device = settings->device[0] ? settings->device : first->device[0] ? first->device : NULL;
	options->port = settings->device_port ? settings->device_port : settings->device[0] ? 0 : first->port;
	options->nic.address = daemon->plan->listen.host;
	options->nic.gid_index_set = daemon->plan->gid_index_set;
	options->nic.gid_index = daemon->plan->gid_index;
	options->nic.mtu_bytes = settings->path_mtu;
	options->nic.service_level = settings->service_level;
	options->nic.traffic_class = settings->traffic_class;
	options->nic.timeout = settings->rdma_timeout;
	options->nic.retry_count = settings->rdma_retries;
	options->nic.rnr_timer = settings->rnr_timer;
}

static int open_remote(struct daemon *daemon)
{
	struct verbs_open options = { .server = true };

	fill_nic(daemon, &options);
	return verbs_nic.open(&options, &daemon->remote);
}

static int open_local(struct daemon *daemon)
{
	const struct verbs_open options = { .server = true, .gpu = &daemon->gpu_table };

	return verbs_local.open(&options, &daemon->local);
}

int daemon_start_devices(struct daemon *daemon, char *detail, size_t size)
{
	int error = daemon->plan->has_listen ? open_remote(daemon) : 0;

	if (!error && daemon->plan->has_socket)
		error = open_local(daemon);
	if (error) {
		daemon_finish_devices(daemon);
		return error;
	}
	if (daemon->remote)
		snprintf(detail, size, "%s: clients on other hosts, by RDMA%s", daemon->remote->name,
			daemon->local ? "; " : "");
	if (daemon->local)
		snprintf(detail + strlen(detail), size - strlen(detail), "%s: clients on this host, by shared memory",
			daemon->local->name);
	return 0;
}

void daemon_finish_devices(struct daemon *daemon)
{
	struct verbs_device *devices[] = { daemon->remote, daemon->local };

	daemon->remote = daemon->local = NULL;
	for (size_t i = 0; i < KVR_COUNT_OF(devices); i++) {
		if (devices[i] && !daemon->forced)
			devices[i]->driver->close(devices[i]);
	}
}
