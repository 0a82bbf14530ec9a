/*
 * libFuzzer target for every decoder of src/protocol: the input is one message, the header says which. What decodes is touched
 * wherever it points, encoded, and decoded again: that must give the same. The input is given to all other decoders as well,
 * which must refuse it.
 */
#include <stdlib.h>

#include "protocol/any_message.h"

/* Kept on: a broken promise ends the run and leaves the input behind. */
static void demand(bool holds)
{
	if (!holds)
		abort();
}

static void check_error(const struct wire_error *error, size_t size)
{
	demand(error->what && error->what[0]);
	demand(!status_has_body(error->status));
	demand(error->offset <= size);
}

static void check_round_trip(enum any_kind kind, const union any_message *message, size_t size)
{
	union any_message again;
	struct wire_error error;
	size_t foretold = any_size(kind, message);
	uint8_t *bytes = malloc(size);
	uint8_t *twice = malloc(size);
	ssize_t length;

	demand(bytes && twice);
	length = any_encode(kind, bytes, size, message); /* never longer than what was read */
	demand(length >= WIRE_HEADER_BYTES);
	demand(foretold == 0 || foretold == (size_t)length);
	demand(any_encode(kind, twice, (size_t)length - 1, message) == -EMSGSIZE);
	demand(any_decode(kind, bytes, (size_t)length, &again, &error) == 0);
	demand(any_touch(kind, &again) == any_touch(kind, message));
	demand(any_encode(kind, twice, (size_t)length, &again) == length);
	demand(memcmp(bytes, twice, (size_t)length) == 0);
	free(bytes);
	free(twice);
}

static void check_stream(const uint8_t *data, size_t size, const struct wire_header *header)
{
	struct wire_error error;
	int length = wire_stream_length(data, size, WIRE_MESSAGE_BYTES_MAX, &error);

	if (header)
		demand((uint32_t)length == header->length);
	else if (length < 0)
		check_error(&error, size);
}

/* The input as a SEND of several messages: whatever it is, all of it is somebody's, and what is told apart decodes by itself. */
static void check_send(const uint8_t *data, size_t size)
{
	uint32_t left = size < WIRE_INLINE_BYTES ? (uint32_t)size : WIRE_INLINE_BYTES;

	while (left > 0) {
		uint32_t here = wire_first_length(data, left);
		struct wire_header header;
		struct wire_error error;
		uint8_t *alone;

		demand(here > 0 && here <= left);
		alone = malloc(here);
		demand(alone != NULL);
		memcpy(alone, data, here);
		if (wire_header_decode(alone, here, &header, &error))
			check_error(&error, here);
		else
			demand(header.length == here);
		free(alone);
		data += here;
		left -= here;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct wire_header header;
	struct wire_error error;
	union any_message message;

	check_send(data, size);
	if (wire_header_decode(data, size, &header, &error)) {
		check_error(&error, size);
		check_stream(data, size, NULL);
		return 0;
	}
	check_stream(data, size, &header);
	(void)wire_type_name(header.type);
	(void)status_text(header.status);
	for (int kind = 0; kind < ANY_COUNT; kind++) {
		int result = any_decode((enum any_kind)kind, data, size, &message, &error);

		if (result)
			check_error(&error, size);
		else if (kind == (int)any_kind_of(&header))
			check_round_trip((enum any_kind)kind, &message, size);
		else
			demand(kind == ANY_error_reply); /* which takes any type, also one that is no reply's */
	}
	return 0;
}
