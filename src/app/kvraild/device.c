/* device.c - what clients reach the server through: an RDMA device for those on other hosts, shared memory for those on this one. */
#include <stdio.h>
#include <string.h>

#include "app/kvraild/daemon.h"

static void fill_nic(const struct daemon *daemon, const char *name, struct verbs_open *options)
{
	const struct kvraild_worker_place *first = &daemon->plan->placement.workers[0];
	const struct kvraild_settings *settings = daemon->settings;

	options->device = name[0] ? name : first->device[0] ? first->device : NULL;
	options->port = settings->device_port ? settings->device_port : name[0] ? 0 : first->port;
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

/* All that --device names: one that can't be opened is an error, since who names it counts on it. */
static int open_remote(struct daemon *daemon)
{
	char name[64];
	int error = 0;

	for (uint32_t i = 0; !error && text_list_item(daemon->settings->device, i, name, sizeof(name)); i++) {
		struct verbs_open options = { .server = true };

		if (i == WIRE_RAILS_MAX) {
			log_error("--device: at most %u devices", WIRE_RAILS_MAX);
			return -EINVAL;
		}
		fill_nic(daemon, name, &options);
		error = verbs_nic.open(&options, &daemon->remotes[i]);
		if (error)
			daemon->remotes[i] = NULL;
		else
			daemon->remote_count++;
	}
	return error;
}

struct verbs_device *daemon_device_of(const struct daemon *daemon, uint32_t worker)
{
	const struct kvraild_worker_place *place = &daemon->plan->placement.workers[worker];
	size_t length = strlen(place->device);

	if (!place->remote || daemon->remote_count == 0)
		return daemon->local;
	for (uint32_t i = 0; length > 0 && i < daemon->remote_count; i++) {
		if (strncmp(daemon->remotes[i]->name, place->device, length) == 0 &&
			daemon->remotes[i]->name[length] == ' ')
			return daemon->remotes[i];
	}
	return daemon->remotes[(daemon->local ? worker / 2 : worker) % daemon->remote_count];
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
	for (uint32_t i = 0; i < daemon->remote_count; i++)
		snprintf(detail + strlen(detail), size - strlen(detail), "%s%s", i ? ", " : "",
			daemon->remotes[i]->name);
	if (daemon->remote_count > 0)
		snprintf(detail + strlen(detail), size - strlen(detail), ": clients on other hosts, by RDMA%s",
			daemon->local ? "; " : "");
	if (daemon->local)
		snprintf(detail + strlen(detail), size - strlen(detail), "%s: clients on this host, by shared memory",
			daemon->local->name);
	return 0;
}

void daemon_finish_devices(struct daemon *daemon)
{
	for (uint32_t i = 0; i < daemon->remote_count; i++) {
		if (daemon->remotes[i] && !daemon->forced)
			daemon->remotes[i]->driver->close(daemon->remotes[i]);
	}
	daemon->remote_count = 0;
	if (daemon->local && !daemon->forced)
		daemon->local->driver->close(daemon->local);
	daemon->local = NULL;
}
