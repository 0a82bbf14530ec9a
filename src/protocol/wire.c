#include "protocol/wire.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "protocol/cursor.h"

#define OFFSET_MAGIC 0u
#define OFFSET_LENGTH 4u
#define OFFSET_FIXED_LENGTH 10u

/* The widths of the header, in order: magic, length, type, fixed_length, flags, status, request_id, boot_id. */
KVR_STATIC_ASSERT(4 + 4 + 2 + 2 + 2 + 2 + 8 + 8 == WIRE_HEADER_BYTES, "the header is 32 bytes");

static KVR_COLD int bad_header(struct wire_error *error, uint16_t status, uint32_t offset, const char *what)
{
	error->status = status;
	error->offset = offset;
	error->what = what;
	return -EBADMSG;
}

int wire_header_decode(const void *bytes, size_t available, struct wire_header *header, struct wire_error *error)
{
	struct get_cursor in = { (const uint8_t *)bytes, (const uint8_t *)bytes + available };
	uint32_t magic;

	if (available < WIRE_HEADER_BYTES)
		return bad_header(error, STATUS_MALFORMED, (uint32_t)available, "shorter than a header");
	if (!get_u32(&in, &magic) || !get_u32(&in, &header->length) || !get_u16(&in, &header->type) ||
		!get_u16(&in, &header->fixed_length) || !get_u16(&in, &header->flags) ||
		!get_u16(&in, &header->status) || !get_u64(&in, &header->request_id) || !get_u64(&in, &header->boot_id))
		return bad_header(error, STATUS_MALFORMED, 0, "shorter than a header");
	if (magic != WIRE_MAGIC)
		return bad_header(error, STATUS_MALFORMED, OFFSET_MAGIC, "magic: this is not the kvrail protocol");
	if (header->length < WIRE_HEADER_BYTES)
		return bad_header(error, STATUS_MALFORMED, OFFSET_LENGTH, "length: shorter than a header");
	if (header->length > WIRE_MESSAGE_BYTES_MAX)
		return bad_header(error, STATUS_TOO_BIG, OFFSET_LENGTH, "length: above the limit of a message");
	if (header->length > available)
		return bad_header(error, STATUS_MALFORMED, OFFSET_LENGTH, "length: more bytes than there are");
	if (header->fixed_length < WIRE_HEADER_BYTES || header->fixed_length > header->length)
		return bad_header(error, STATUS_MALFORMED, OFFSET_FIXED_LENGTH,
			"fixed_length: must lie between the header's length and the message's");
	return 0;
}

uint32_t wire_first_length(const void *bytes, uint32_t available)
{
	uint32_t length;

	if (available < WIRE_HEADER_BYTES)
		return available;
	memcpy(&length, (const uint8_t *)bytes + OFFSET_LENGTH, sizeof(length));
	return length < WIRE_HEADER_BYTES || length > available ? available : length;
}

void wire_header_encode(void *bytes, const struct wire_header *header)
{
	struct put_cursor out = { (uint8_t *)bytes, (uint8_t *)bytes + WIRE_HEADER_BYTES };
	bool fits = put_u32(&out, WIRE_MAGIC) && put_u32(&out, header->length) && put_u16(&out, header->type) &&
		put_u16(&out, header->fixed_length) && put_u16(&out, header->flags) && put_u16(&out, header->status) &&
		put_u64(&out, header->request_id) && put_u64(&out, header->boot_id);

	(void)fits; /* the assertion above: the widths are the header's length */
}

int wire_stream_length(const void *bytes, size_t available, uint32_t limit, struct wire_error *error)
{
	const uint32_t magic = WIRE_MAGIC;
	uint32_t length;

	if (memcmp(bytes, &magic, available < sizeof(magic) ? available : sizeof(magic)) != 0)
		return bad_header(error, STATUS_MALFORMED, OFFSET_MAGIC, "magic: this is not the kvrail protocol");
	if (available < OFFSET_LENGTH + sizeof(length))
		return 0;
	memcpy(&length, (const uint8_t *)bytes + OFFSET_LENGTH, sizeof(length));
	if (length < WIRE_HEADER_BYTES)
		return bad_header(error, STATUS_MALFORMED, OFFSET_LENGTH, "length: shorter than a header");
	if (length > limit || length > WIRE_MESSAGE_BYTES_MAX)
		return bad_header(error, STATUS_TOO_BIG, OFFSET_LENGTH, "length: above the limit of a message");
	return (int)length;
}

/* By number; the gaps stay empty. */
static const char *const type_names[] = {
#define WIRE_TYPE_NAME(name) [WIRE_##name] = #name, [WIRE_##name##_REPLY] = #name "_REPLY",
	WIRE_TYPE_NAME(HELLO) WIRE_TYPE_NAME(AUTHENTICATE) WIRE_TYPE_NAME(CONNECT) WIRE_TYPE_NAME(MEMORY)
		WIRE_TYPE_NAME(FORGET_MEMORY) WIRE_TYPE_NAME(REGISTER)
			WIRE_TYPE_NAME(UNREGISTER)[WIRE_INDIRECT] = "INDIRECT",
	WIRE_TYPE_NAME(PING) WIRE_TYPE_NAME(GET_INFO) WIRE_TYPE_NAME(LOOKUP) WIRE_TYPE_NAME(QUERY)
		WIRE_TYPE_NAME(RETRIEVE) WIRE_TYPE_NAME(STORE) WIRE_TYPE_NAME(FREE_LOCKS) WIRE_TYPE_NAME(CANCEL)
			WIRE_TYPE_NAME(END_SESSION) WIRE_TYPE_NAME(CLEAR)
#undef WIRE_TYPE_NAME
};

const char *wire_type_name(uint16_t type)
{
	if (type >= KVR_COUNT_OF(type_names) || !type_names[type])
		return "UNKNOWN";
	return type_names[type];
}
