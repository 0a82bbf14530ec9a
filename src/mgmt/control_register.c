/* control_register.c - REGISTER and UNREGISTER: building the layout and the model's key, and asking the management
 * core. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mgmt/control_private.h"

static void wire_text_take(char *out, size_t size, const struct wire_text *text)
{
	size_t length = text->length < size ? text->length : size - 1;

	memcpy(out, text->bytes, length);
	out[length] = '\0';
}

/* There is room. */
static void control_client_keep(struct control_client *client, struct registration *registration)
{
	uint32_t i = 0;

	while (client->registrations[i])
		i++;
	client->registrations[i] = registration;
	client->registration_count++;
}

static void control_client_drop(struct control_client *client, struct registration *registration)
{
	for (uint32_t i = 0; i < CONTROL_REGISTRATIONS_MAX; i++) {
		if (client->registrations[i] == registration) {
			client->registrations[i] = NULL;
			client->registration_count--;
		}
	}
	free(registration->layout);
	free(registration);
}

static struct registration *control_make_registration(
	struct control_client *client, const struct register_request *request, struct wire_error *error)
{
	struct control *control = client->control;
	struct registration *registration;
	struct wire_text tenant;

	error->status = STATUS_BUSY;
	error->what = "this connection has as many registrations as a client may have: unregister some";
	if (client->registration_count == CONTROL_REGISTRATIONS_MAX)
		return NULL;
	error->what = "the server has no memory for a registration";
	registration = fault_point("control_register/registration") ? NULL : calloc(1, sizeof(*registration));
	if (!registration)
		return NULL;
	if (request->group_count > 0) {
		registration->layout = fault_point("control_register/layout")
			? NULL
			: calloc(1, layout_bytes(request->plane_count));
		if (!registration->layout)
			goto free_registration;
		if (layout_build(registration->layout, request, control->options.info.chunk_tokens,
			    client->connection.regions, CONTROL_REGIONS_MAX, error))
			goto free_registration;
	}
	registration->connection = &client->connection;
	registration->number = control->next_registration++;
	registration->tenant = client->tenant;
	wire_text_take(registration->model_name, sizeof(registration->model_name), &request->identity.model);
	wire_text_take(registration->dtype, sizeof(registration->dtype), &request->identity.dtype);
	registration->world_size = request->identity.world_size;
	registration->rank = request->identity.rank;
	registration->readers = request->identity.readers;
	registration->reader = request->identity.reader;
	registration->scheduler = request->group_count == 0;
	registration->request_id = request->header.request_id;
	registration->control = client;
	tenant.bytes = control->tenants[client->tenant].name;
	tenant.length = (uint32_t)strlen(tenant.bytes);
	error->status = STATUS_MALFORMED;
	error->what = "the tenant's or the model's name is too long";
	if (digest_model_key(&control->digester, &tenant, &request->identity, registration->model_key))
		goto free_registration;
	control_client_keep(client, registration);
	return registration;
free_registration:
	free(registration->layout);
	free(registration);
	return NULL;
}

void control_client_on_register(struct control_client *client, const struct wire_header *header, const uint8_t *bytes)
{
	struct registration *registration;
	struct register_request request;
	struct wire_error error;

	if (register_request_decode(bytes, header->length, &request, &error)) {
		control_client_send_malformed(client, header, &error);
		return;
	}
	registration = control_make_registration(client, &request, &error);
	if (!registration) {
		control_client_send_error(client, header, error.status, "%s", error.what);
		return;
	}
	client->answer_pending = true;
	control_post(client->control, MANAGEMENT_REGISTER, registration, 0);
}

void control_registered(struct control *control, struct registration *registration)
{
	struct control_client *client = registration->control;
	struct wire_header header = { .type = WIRE_REGISTER, .request_id = registration->request_id };
	struct register_reply reply;
	uint8_t out[WIRE_HEADER_BYTES + 64];

	client->answer_pending = false;
	if (registration->reply_status != STATUS_OK) {
		control_client_send_error(client, &header, registration->reply_status, "%s",
			registration->reply_text[0] ? registration->reply_text
						    : status_text(registration->reply_status));
		control_client_drop(client, registration);
		return;
	}
	memset(&reply, 0, sizeof(reply));
	reply.header = control_client_reply_header(client, &header, STATUS_OK);
	reply.registration = registration->number;
	for (uint32_t g = 0; registration->layout && g < registration->layout->group_count; g++)
		reply.object_bytes += registration->layout->groups[g].object_bytes;
	reply.token_bytes = reply.object_bytes / control->options.info.chunk_tokens;
	control_client_reply_done(client, &header, out, register_reply_encode(out, sizeof(out), &reply));
}

void control_client_on_unregister(struct control_client *client, const struct wire_header *header, const uint8_t *bytes)
{
	struct unregister_request request;
	struct wire_error error;

	if (unregister_request_decode(bytes, header->length, &request, &error)) {
		control_client_send_malformed(client, header, &error);
		return;
	}
	for (uint32_t i = 0; i < CONTROL_REGISTRATIONS_MAX; i++) {
		struct registration *registration = client->registrations[i];

		if (!registration || registration->number != request.registration)
			continue;
		registration->request_id = header->request_id;
		client->answer_pending = true;
		control_post(client->control, MANAGEMENT_UNREGISTER, registration, 0);
		return;
	}
	control_client_send_error(client, header, STATUS_NOT_REGISTERED,
		"there is no registration %u on this connection", request.registration);
}

void control_unregistered(struct control *control, struct registration *registration)
{
	struct control_client *client = registration->control;
	struct wire_header header = { .type = WIRE_UNREGISTER, .request_id = registration->request_id };
	struct empty_reply reply;
	uint8_t out[WIRE_HEADER_BYTES + 32];

	(void)control;
	client->answer_pending = false;
	control_client_drop(client, registration);
	if (!client->stream || client->state != CLIENT_CONNECTED)
		return;
	memset(&reply, 0, sizeof(reply));
	reply.header = control_client_reply_header(client, &header, STATUS_OK);
	control_client_reply_done(client, &header, out, empty_reply_encode(out, sizeof(out), &reply));
}
