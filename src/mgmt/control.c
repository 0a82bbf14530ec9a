/* control.c - the control object as a whole: making, stepping, mail with the management core, draining. */
#include "mgmt/control.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mgmt/control_private.h"

static void control_destroy_helpers(struct control *control)
{
	helper_destroy(&control->connector);
	helper_destroy(&control->importer);
	helper_destroy(&control->reclaim);
}

int control_create(const struct control_options *options, struct control **out)
{
	struct control *control;
	int error;

	*out = NULL;
	if (!options->management || options->worker_count == 0 || options->worker_count > 64 ||
		options->tenant_count == 0 || options->connections_max == 0)
		return -EINVAL;
	control = calloc(1, sizeof(*control));
	if (!control || fault_point("control_create/object")) {
		free(control);
		return -ENOMEM;
	}
	control->options = *options;
	for (uint32_t i = 0; i < options->worker_count; i++)
		control->workers[i] = options->workers[i];
	list_init(&control->clients);
	list_init(&control->requests);
	control->next_registration = 1;
	random_init(&control->random, options->seed);
	error = digester_init(&control->digester);
	if (error)
		goto free_control;
	error = -ENOMEM;
	control->tenants = calloc(options->tenant_count, sizeof(control->tenants[0]));
	control->slots = calloc(options->connections_max, sizeof(struct control_client *));
	if (!control->tenants || !control->slots || fault_point("control_create/tables"))
		goto free_tables;
	memcpy(control->tenants, options->tenants, options->tenant_count * sizeof(control->tenants[0]));
	control->options.tenants = control->tenants;
	error = helper_create("kvr-connect", options->helper_threads, options->connections_max, &control->connector);
	if (!error)
		error = helper_create(
			"kvr-memory", options->helper_threads, options->connections_max, &control->importer);
	if (!error)
		error = helper_create(
			"kvr-reclaim", options->helper_threads, options->connections_max, &control->reclaim);
	if (!error) {
		*out = control;
		return 0;
	}
	control_destroy_helpers(control);
	explicit_bzero(control->tenants, options->tenant_count * sizeof(control->tenants[0]));
free_tables:
	free(control->tenants);
	free(control->slots);
	digester_fini(&control->digester);
free_control:
	free(control);
	return error;
}

void control_destroy(struct control **pointer)
{
	struct control *control = *pointer;

	if (!control)
		return;
	/* Jobs look at their clients. */
	control_destroy_helpers(control);
	list_for_each_safe(node, &control->clients)
		control_client_free(KVR_CONTAINER_OF(node, struct control_client, node));
	/* Answers that never came. */
	list_for_each_safe(node, &control->requests)
		free(KVR_CONTAINER_OF(node, struct control_request, node));
	explicit_bzero(control->tenants, control->options.tenant_count * sizeof(control->tenants[0]));
	free(control->tenants);
	free(control->slots);
	digester_fini(&control->digester);
	free(control);
	*pointer = NULL;
}

/* The inbox of the management core is sized for everything that can be under way, so that it is never full. */
bool control_post(struct control *control, uint32_t kind, void *object, uint64_t word)
{
	struct ring_message message;

	memset(&message, 0, sizeof(message));
	message.kind = kind;
	message.word[0] = (uint64_t)(uintptr_t)object;
	message.word[1] = word;
	if (ring_push(management_inbox(control->options.management), &message))
		return true;
	log_error("control: the management core's inbox is full, message %u is lost", kind);
	return false;
}

static void control_supply_memory(struct control *control, uint64_t bytes)
{
	struct ring_message message;
	void *memory = fault_point("control/table_memory") ? NULL : cache_allocate_memory(bytes);

	if (!memory)
		log_warn("control: no memory for the chunk table to grow (%llu bytes)", (unsigned long long)bytes);
	memset(&message, 0, sizeof(message));
	message.kind = MANAGEMENT_MEMORY;
	message.word[0] = (uint64_t)(uintptr_t)memory;
	message.word[1] = bytes;
	if (!ring_push(management_inbox(control->options.management), &message))
		free(memory);
}

static void control_status_done(struct status_snapshot *snapshot)
{
	struct control_request *request = snapshot->control;

	list_remove(&request->node);
	request->status_done(request->context, snapshot);
	free(request);
}

static void control_clear_done(struct clear_job *job)
{
	struct control_request *request = job->control;

	list_remove(&request->node);
	request->clear_done(request->context, job);
	free(request);
}

static void control_quota_done(struct quota_job *job)
{
	struct control_request *request = job->control;

	list_remove(&request->node);
	request->quota_done(request->context, job);
	free(request);
}

static void control_pin_done(struct pin_job *job)
{
	struct control_request *request = job->control;
	struct pin *pin = job->pin;

	list_remove(&request->node);
	request->pin_done(request->context, job);
	free(pin);
	free(request);
}

static void control_detached(struct connection *connection)
{
	struct control_client *client = connection->control;

	client->announced = false;
	control_client_quiet(client);
	control_client_teardown(client);
}

static void control_handle_mail(struct control *control, const struct ring_message *message)
{
	void *object = (void *)(uintptr_t)message->word[0];
	struct connection *connection;
	struct control_client *client;

	switch (message->kind) {
	case CONTROL_REGISTERED:
		control_registered(control, object);
		break;
	case CONTROL_UNREGISTERED:
		control_unregistered(control, object);
		break;
	case CONTROL_LOST:
		connection = object;
		client = connection->control;
		control_client_close(client, "its queue pair failed, or it fell silent");
		break;
	case CONTROL_DETACHED:
		control_detached(object);
		break;
	case CONTROL_FORGOTTEN:
		connection = object;
		control_client_forgotten(connection->control);
		break;
	case CONTROL_RAIL_CLOSED:
		connection = object;
		control_client_rail_closed(connection->control);
		break;
	case CONTROL_STATUS_DONE:
		control_status_done(object);
		break;
	case CONTROL_CLEAR_DONE:
		control_clear_done(object);
		break;
	case CONTROL_QUOTA_DONE:
		control_quota_done(object);
		break;
	case CONTROL_PIN_DONE:
		control_pin_done(object);
		break;
	case CONTROL_DRAINED:
		control->drained = true;
		break;
	case CONTROL_WANT_MEMORY:
		control_supply_memory(control, message->word[0]);
		break;
	case CONTROL_GARBAGE:
		free(object);
		break;
	default:
		log_error("control: unknown message %u of the management core", message->kind);
	}
}

static bool control_read_mail(struct control *control)
{
	struct ring *outbox = management_outbox(control->options.management);
	struct ring_message message;
	bool busy = false;

	for (unsigned n = 0; n < 64 && ring_pop(outbox, &message); n++) {
		control_handle_mail(control, &message);
		busy = true;
	}
	return busy;
}

static void control_job_done(struct client_job *job)
{
	struct control_client *client = job->client;
	enum client_job_kind kind = job->kind;

	job->kind = CLIENT_JOB_NONE;
	if (kind == CLIENT_JOB_CONNECT)
		control_client_connect_done(client, job->job.result);
	else if (kind == CLIENT_JOB_RAIL)
		control_client_rail_done(client, job->job.result);
	else if (kind == CLIENT_JOB_IMPORT)
		control_client_import_done(client, job->job.result);
	else if (kind == CLIENT_JOB_FORGET)
		control_client_forget_done(client, job->job.result);
	if (client->state == CLIENT_TEARDOWN)
		control_client_teardown(client);
}

static bool control_collect(struct helper *helper)
{
	struct helper_job *done;
	bool busy = false;

	for (unsigned n = 0; n < 16 && (done = helper_collect(helper)) != NULL; n++) {
		control_job_done(KVR_CONTAINER_OF(done, struct client_job, job));
		busy = true;
	}
	return busy;
}

static bool control_step_clients(struct control *control)
{
	bool busy = false;

	list_for_each_safe(node, &control->clients) {
		struct control_client *client = KVR_CONTAINER_OF(node, struct control_client, node);

		if (control_client_over(client)) {
			control_client_free(client);
			busy = true;
		} else {
			busy |= control_client_step(client);
		}
	}
	return busy;
}

bool control_step(struct control *control, uint64_t now_ns)
{
	bool busy;

	control->now_ns = now_ns;
	busy = control_read_mail(control);
	if (!(control->held & CONTROL_HOLD_CONNECT))
		busy |= control_collect(control->connector);
	if (!(control->held & CONTROL_HOLD_MEMORY))
		busy |= control_collect(control->importer);
	if (!(control->held & CONTROL_HOLD_RECLAIM))
		busy |= control_collect(control->reclaim);
	busy |= control_step_clients(control);
	/* Clients stay while transfers end; then everybody is sent away. */
	if (control->drained) {
		list_for_each_safe(node, &control->clients)
			control_client_close(KVR_CONTAINER_OF(node, struct control_client, node), NULL);
	}
	return busy;
}

uint64_t control_next_ns(const struct control *control)
{
	return control->now_ns + CONTROL_POLL_NS;
}

void control_drain(struct control *control, uint64_t now_ns)
{
	control->now_ns = now_ns;
	if (control->draining)
		return;
	control->draining = true;
	control_post(control, MANAGEMENT_DRAIN, NULL, 0);
}

void control_hold(struct control *control, unsigned which)
{
	control->held = which;
}

bool control_idle(const struct control *control)
{
	return control->drained && list_empty(&control->clients);
}

uint32_t control_client_count(const struct control *control)
{
	return control->client_count;
}

const struct control_counters *control_counters(const struct control *control)
{
	return &control->counters;
}

int control_request_status(struct control *control, struct status_snapshot *snapshot,
	void (*done)(void *context, struct status_snapshot *snapshot), void *context)
{
	struct control_request *request = fault_point("control_request/object") ? NULL : calloc(1, sizeof(*request));

	if (!request)
		return -ENOMEM;
	request->status_done = done;
	request->context = context;
	memset(snapshot, 0, sizeof(*snapshot));
	snapshot->control = request;
	if (control_post(control, MANAGEMENT_STATUS, snapshot, 0)) {
		list_add_last(&control->requests, &request->node);
		return 0;
	}
	free(request);
	return -EBUSY;
}

int control_request_clear(struct control *control, struct clear_job *job, bool l1_only,
	void (*done)(void *context, struct clear_job *job), void *context)
{
	struct control_request *request = fault_point("control_request/object") ? NULL : calloc(1, sizeof(*request));

	if (!request)
		return -ENOMEM;
	request->clear_done = done;
	request->context = context;
	memset(job, 0, sizeof(*job));
	job->l1_only = l1_only;
	job->control = request;
	if (control_post(control, MANAGEMENT_CLEAR, job, 0)) {
		list_add_last(&control->requests, &request->node);
		return 0;
	}
	free(request);
	return -EBUSY;
}

/* Hands the job over with what is to be called; what it was for is the caller's again when that fails. */
static int control_ask(struct control *control, uint32_t kind, void *job, struct control_request *request)
{
	if (control_post(control, kind, job, 0)) {
		list_add_last(&control->requests, &request->node);
		return 0;
	}
	free(request);
	return -EBUSY;
}

int control_request_quota(struct control *control, struct quota_job *job,
	void (*done)(void *context, struct quota_job *job), void *context)
{
	struct control_request *request = fault_point("control_request/object") ? NULL : calloc(1, sizeof(*request));

	if (!request)
		return -ENOMEM;
	request->quota_done = done;
	request->context = context;
	job->control = request;
	return control_ask(control, MANAGEMENT_QUOTA, job, request);
}

int control_request_pin(
	struct control *control, struct pin_job *job, void (*done)(void *context, struct pin_job *job), void *context)
{
	struct control_request *request = fault_point("control_request/object") ? NULL : calloc(1, sizeof(*request));
	int error = -ENOMEM;

	if (request) {
		request->pin_done = done;
		request->context = context;
		job->control = request;
		error = control_ask(control, job->pin ? MANAGEMENT_PIN : MANAGEMENT_UNPIN, job, request);
	}
	if (error) {
		free(job->pin);
		job->pin = NULL;
	}
	return error;
}

uint32_t control_find_tenant(const struct control *control, const char *name)
{
	for (uint32_t i = 0; i < control->options.tenant_count; i++)
		if (strcmp(control->tenants[i].name, name) == 0)
			return i;
	return UINT32_MAX;
}

static const char *client_state_name(enum client_state state)
{
	static const char *const names[] = { "hello", "challenge", "ready", "connected", "detaching", "teardown" };

	return names[state];
}

uint32_t control_list_clients(const struct control *control, struct control_client_status *clients, uint32_t capacity)
{
	uint32_t count = 0;

	list_for_each(node, &control->clients) {
		const struct control_client *client = KVR_CONTAINER_OF(node, struct control_client, node);
		struct control_client_status *status = &clients[count];

		if (count++ >= capacity)
			continue;
		memset(status, 0, sizeof(*status));
		memcpy(status->name, client->name, sizeof(status->name));
		if (client->stream)
			memcpy(status->peer, client->stream->name, sizeof(status->peer));
		if (client->tenant_known)
			memcpy(status->tenant, control->tenants[client->tenant].name, sizeof(status->tenant));
		text_copy(status->state, sizeof(status->state), client_state_name(client->state));
		status->worker = client->connection.worker_index;
		status->connected_ns = client->connected_ns;
		status->last_seen_ns = kvr_max_u64(
			kvr_load_relaxed(&client->connection.last_seen_ns), client->connection.control_seen_ns);
		status->requests = kvr_load_relaxed(&client->connection.requests);
		status->bytes_in = kvr_load_relaxed(&client->connection.bytes_in);
		status->bytes_out = kvr_load_relaxed(&client->connection.bytes_out);
		status->regions = client->region_count;
		status->region_bytes = client->region_bytes;
		status->registrations = client->registration_count;
		status->rail_count = control_client_list_rails(client, status->rails);
	}
	return count;
}

void control_watch(const struct control *control, void (*watch)(void *context, int fd), void *context)
{
	struct helper *const helpers[] = { control->connector, control->importer, control->reclaim };
	int fd;

	list_for_each(node, &control->clients) {
		const struct control_client *client = KVR_CONTAINER_OF(node, struct control_client, node);

		fd = client->stream ? client->stream->ops->event_fd(client->stream) : -1;
		if (fd >= 0)
			watch(context, fd);
	}
	for (unsigned i = 0; i < KVR_COUNT_OF(helpers); i++) {
		fd = helper_event_fd(helpers[i]);
		if (fd >= 0)
			watch(context, fd);
	}
}

bool control_watch_changed(struct control *control)
{
	bool changed = control->watch_changed;

	control->watch_changed = false;
	return changed;
}
