/* The largest messages that the format allows pass; one element more is refused, by encode and by decode. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "protocol/golden.h"

#define CAPACITY (WIRE_MESSAGE_BYTES_MAX + 4096u)

struct buffers {
	uint8_t *message;
	uint8_t *digests;
	uint8_t *runs;
	uint8_t group_runs[4 * (WIRE_GROUPS_MAX + 1)];
	uint8_t groups[WIRE_GROUP_BYTES * (WIRE_GROUPS_MAX + 1)];
	uint8_t planes[WIRE_PLANE_BYTES * (WIRE_PLANES_MAX + 1)];
	uint8_t outcomes[WIRE_CHUNKS_MAX + 1];
	char text[70000];
};

static void write_u32(uint8_t *bytes, uint32_t value)
{
	memcpy(bytes, &value, sizeof(value));
}

static int set_up(void **state)
{
	struct buffers *buffers = calloc(1, sizeof(*buffers));

	assert_non_null(buffers);
	buffers->message = malloc(CAPACITY);
	buffers->digests = malloc((WIRE_CHUNKS_MAX + 1) * WIRE_DIGEST_BYTES);
	buffers->runs = malloc((WIRE_RUNS_MAX + 1) * sizeof(struct block_run));
	assert_non_null(buffers->message);
	assert_non_null(buffers->digests);
	assert_non_null(buffers->runs);
	for (uint32_t i = 0; i < (WIRE_CHUNKS_MAX + 1) * WIRE_DIGEST_BYTES; i++)
		buffers->digests[i] = (uint8_t)(i * 7);
	for (uint32_t i = 0; i <= WIRE_RUNS_MAX; i++) {
		write_u32(buffers->runs + 8 * i, i * 3);
		write_u32(buffers->runs + 8 * i + 4, 2);
	}
	memset(buffers->outcomes, CHUNK_STORED, sizeof(buffers->outcomes));
	memset(buffers->text, 'x', sizeof(buffers->text));
	*state = buffers;
	return 0;
}

static int tear_down(void **state)
{
	struct buffers *buffers = *state;

	free(buffers->message);
	free(buffers->digests);
	free(buffers->runs);
	free(buffers);
	return 0;
}

/* Encodes, moves the bytes into an allocation of their exact length, decodes, and compares all that is pointed at. */
static void assert_passes(struct buffers *buffers, enum any_kind kind, const union any_message *message)
{
	ssize_t length = any_encode(kind, buffers->message, CAPACITY, message);
	union any_message again;
	struct wire_error error;
	uint8_t *exact;

	assert_true(length > 0);
	exact = malloc((size_t)length);
	assert_non_null(exact);
	memcpy(exact, buffers->message, (size_t)length);
	assert_int_equal(any_decode(kind, exact, (size_t)length, &again, &error), 0);
	assert_int_equal(any_touch(kind, &again), any_touch(kind, message));
	free(exact);
}

static void assert_refused(struct buffers *buffers, enum any_kind kind, const union any_message *message)
{
	assert_int_equal(any_encode(kind, buffers->message, CAPACITY, message), -EINVAL);
}

static struct wire_text text(const struct buffers *buffers, uint32_t length)
{
	struct wire_text made = { buffers->text, length };

	return made;
}

static void the_longest_chain_passes_and_one_chunk_more_does_not(void **state)
{
	struct buffers *buffers = *state;
	union any_message message = { .lookup_request = { .chunk_count = WIRE_CHUNKS_MAX } };
	struct session_ref *session = &message.lookup_request.session;

	session->id = text(buffers, WIRE_SESSION_ID_MAX);
	session->salt = buffers->digests;
	session->parent = buffers->digests;
	session->digests = buffers->digests;
	session->first_chunk = 1;
	session->digest_count = WIRE_CHUNKS_MAX - 1;
	assert_passes(buffers, ANY_lookup_request, &message);
	session->digest_count = WIRE_CHUNKS_MAX;
	assert_refused(buffers, ANY_lookup_request, &message);
	session->digest_count = WIRE_CHUNKS_MAX - 1;
	session->id = text(buffers, WIRE_SESSION_ID_MAX + 1);
	assert_refused(buffers, ANY_lookup_request, &message);
}

static void the_longest_run_list_passes_and_one_run_more_does_not(void **state)
{
	struct buffers *buffers = *state;
	union any_message message = { .transfer_request = { .header.type = WIRE_STORE } };
	struct transfer_request *transfer = &message.transfer_request;

	transfer->chunk_count = WIRE_CHUNKS_MAX;
	transfer->group_count = WIRE_GROUPS_MAX;
	transfer->run_count = WIRE_RUNS_MAX;
	transfer->group_runs = buffers->group_runs;
	transfer->runs = buffers->runs;
	transfer->session.id = text(buffers, WIRE_SESSION_ID_MAX);
	transfer->session.salt = buffers->digests;
	transfer->session.parent = NULL;
	transfer->session.digests = buffers->digests;
	transfer->session.digest_count = 0;
	for (uint32_t i = 0; i < WIRE_GROUPS_MAX; i++)
		write_u32(buffers->group_runs + 4 * i, WIRE_RUNS_MAX / WIRE_GROUPS_MAX);
	assert_passes(buffers, ANY_transfer_request, &message);

	transfer->run_count = WIRE_RUNS_MAX + 1;
	write_u32(buffers->group_runs, WIRE_RUNS_MAX / WIRE_GROUPS_MAX + 1);
	assert_refused(buffers, ANY_transfer_request, &message);

	transfer->run_count = WIRE_GROUPS_MAX + 1;
	transfer->group_count = WIRE_GROUPS_MAX + 1;
	for (uint32_t i = 0; i <= WIRE_GROUPS_MAX; i++)
		write_u32(buffers->group_runs + 4 * i, 1);
	assert_refused(buffers, ANY_transfer_request, &message);
}

static void the_largest_request_of_all_fits_a_message(void **state)
{
	struct buffers *buffers = *state;
	union any_message message = { .transfer_request = { .header.type = WIRE_RETRIEVE } };
	struct transfer_request *transfer = &message.transfer_request;

	transfer->chunk_count = WIRE_CHUNKS_MAX;
	transfer->group_count = 1;
	transfer->run_count = WIRE_RUNS_MAX;
	write_u32(buffers->group_runs, WIRE_RUNS_MAX);
	transfer->group_runs = buffers->group_runs;
	transfer->runs = buffers->runs;
	transfer->session.id = text(buffers, WIRE_SESSION_ID_MAX);
	transfer->session.digests = buffers->digests;
	transfer->session.digest_count = WIRE_CHUNKS_MAX;
	assert_true(transfer_request_size(transfer) <= WIRE_MESSAGE_BYTES_MAX);
	assert_int_equal(
		transfer_request_encode(buffers->message, CAPACITY, transfer), transfer_request_size(transfer));
}

static void fill_layout(struct buffers *buffers, uint32_t group_count, uint32_t plane_count)
{
	struct wire_group group = { 16, WIRE_WINDOW_FULL, 1000, 1 };
	struct wire_plane plane = { 0x10000, 0x1000, 0x800, 0 };

	for (uint32_t i = 0; i < group_count; i++) {
		group.plane_count = i + 1 < group_count ? 1 : plane_count - i;
		register_write_group(buffers->groups + i * WIRE_GROUP_BYTES, &group);
	}
	for (uint32_t i = 0; i < plane_count; i++) {
		plane.region = i;
		register_write_plane(buffers->planes + i * WIRE_PLANE_BYTES, &plane);
	}
}

static void the_largest_registration_passes_and_one_more_does_not(void **state)
{
	struct buffers *buffers = *state;
	union any_message message = { .register_request = {
					      .group_count = WIRE_GROUPS_MAX, .plane_count = WIRE_PLANES_MAX } };
	struct register_request *request = &message.register_request;

	request->identity.model = text(buffers, WIRE_NAME_MAX);
	request->identity.dtype = text(buffers, WIRE_NAME_MAX);
	request->identity.fingerprint = buffers->digests;
	request->identity.world_size = WIRE_WORLD_SIZE_MAX;
	request->identity.rank = WIRE_WORLD_SIZE_MAX - 1;
	request->identity.readers = WIRE_READERS_MAX;
	request->identity.reader = WIRE_READERS_MAX - 1;
	request->groups = buffers->groups;
	request->planes = buffers->planes;
	fill_layout(buffers, WIRE_GROUPS_MAX, WIRE_PLANES_MAX);
	assert_passes(buffers, ANY_register_request, &message);

	request->plane_count = WIRE_PLANES_MAX + 1;
	fill_layout(buffers, WIRE_GROUPS_MAX, WIRE_PLANES_MAX + 1);
	assert_refused(buffers, ANY_register_request, &message);

	request->plane_count = request->group_count = WIRE_GROUPS_MAX + 1;
	fill_layout(buffers, WIRE_GROUPS_MAX + 1, WIRE_GROUPS_MAX + 1);
	assert_refused(buffers, ANY_register_request, &message);

	request->plane_count = request->group_count = 1;
	fill_layout(buffers, 1, 1);
	assert_passes(buffers, ANY_register_request, &message);
	request->identity.model = text(buffers, WIRE_NAME_MAX + 1);
	assert_refused(buffers, ANY_register_request, &message);
	request->identity.model = text(buffers, 0);
	assert_refused(buffers, ANY_register_request, &message);
}

static void the_longest_reply_passes_and_one_chunk_more_does_not(void **state)
{
	struct buffers *buffers = *state;
	union any_message message = { .transfer_reply = { .header.type = WIRE_STORE_REPLY } };

	message.transfer_reply.chunk_count = message.transfer_reply.good_count = WIRE_CHUNKS_MAX;
	message.transfer_reply.outcomes = buffers->outcomes;
	assert_passes(buffers, ANY_transfer_reply, &message);
	message.transfer_reply.chunk_count = message.transfer_reply.good_count = WIRE_CHUNKS_MAX + 1;
	assert_refused(buffers, ANY_transfer_reply, &message);
}

static void texts_and_handles_pass_up_to_their_limits(void **state)
{
	struct buffers *buffers = *state;
	union any_message hello = { .hello = { .version_min = 1, .version_max = 1 } };
	union any_message error = { .error_reply = { .header.status = STATUS_BUSY, .header.type = WIRE_PING_REPLY } };
	union any_message connect = { .connect_request = {
					      .address = buffers->digests, .address_length = WIRE_ADDRESS_MAX } };
	union any_message memory = { .memory_request = {
					     .length = 1, .kind = MEMORY_DEVICE, .handle = buffers->digests } };

	hello.hello.driver = hello.hello.client = hello.hello.tenant = text(buffers, WIRE_NAME_MAX);
	assert_passes(buffers, ANY_hello, &hello);
	hello.hello.client = text(buffers, WIRE_NAME_MAX + 1);
	assert_refused(buffers, ANY_hello, &hello);
	hello.hello.client = text(buffers, 65536); /* would wrap in the u16 length */
	assert_refused(buffers, ANY_hello, &hello);
	error.error_reply.text = text(buffers, WIRE_ERROR_TEXT_MAX);
	assert_passes(buffers, ANY_error_reply, &error);
	error.error_reply.text = text(buffers, WIRE_ERROR_TEXT_MAX + 1);
	assert_refused(buffers, ANY_error_reply, &error);
	assert_passes(buffers, ANY_connect_request, &connect);
	connect.connect_request.address_length++;
	assert_refused(buffers, ANY_connect_request, &connect);
	memory.memory_request.handle_length = WIRE_HANDLE_MAX;
	assert_passes(buffers, ANY_memory_request, &memory);
	memory.memory_request.handle_length++;
	assert_refused(buffers, ANY_memory_request, &memory);
	memory.memory_request.handle_length = 0;
	memory.memory_request.kind = MEMORY_REMOTE;
	memory.memory_request.rkey_count = WIRE_RAILS_MAX;
	assert_passes(buffers, ANY_memory_request, &memory);
	memory.memory_request.rkey_count++;
	assert_refused(buffers, ANY_memory_request, &memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_longest_chain_passes_and_one_chunk_more_does_not),
		cmocka_unit_test(the_longest_run_list_passes_and_one_run_more_does_not),
		cmocka_unit_test(the_largest_request_of_all_fits_a_message),
		cmocka_unit_test(the_largest_registration_passes_and_one_more_does_not),
		cmocka_unit_test(the_longest_reply_passes_and_one_chunk_more_does_not),
		cmocka_unit_test(texts_and_handles_pass_up_to_their_limits),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
