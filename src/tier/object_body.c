#include "tier/object_body.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "tier/checksum.h"

#define LEVEL_MAX 19
#define GAIN 32 /* less than a 32nd is not worth the time of a load */

int object_codec_init(struct object_codec *codec, int level, uint32_t element)
{
	memset(codec, 0, sizeof(*codec));
	codec->level = level;
	codec->element = element;
	if (level < 0 || level > LEVEL_MAX || (element != 1 && element != 2 && element != 4))
		return -EINVAL;
	if (!object_pack_available())
		return level ? -EOPNOTSUPP : 0;
	return object_pack_init(codec);
}

void object_codec_fini(struct object_codec *codec)
{
	object_pack_fini(codec);
	free(codec->scratch);
	codec->scratch = NULL;
	codec->scratch_bytes = 0;
}

/* NULL: no memory. */
static uint8_t *scratch(struct object_codec *codec, uint64_t bytes)
{
	uint8_t *larger;

	if (bytes <= codec->scratch_bytes)
		return codec->scratch;
	larger = fault_point("object_body/scratch") ? NULL : malloc(bytes);
	if (!larger)
		return NULL;
	free(codec->scratch);
	codec->scratch = larger;
	codec->scratch_bytes = bytes;
	return larger;
}

static void split_planes(const uint8_t *from, uint8_t *to, uint64_t bytes, uint32_t element)
{
	uint64_t count = bytes / element;

	memcpy(to + count * element, from + count * element, bytes - count * element);
	for (uint64_t i = 0; element == 2 && i < count; i++) {
		to[i] = from[2 * i];
		to[count + i] = from[2 * i + 1];
	}
	for (uint32_t plane = 0; element != 2 && plane < element; plane++)
		for (uint64_t i = 0; i < count; i++)
			to[plane * count + i] = from[i * element + plane];
}

static void join_planes(const uint8_t *from, uint8_t *to, uint64_t bytes, uint32_t element)
{
	uint64_t count = bytes / element;

	memcpy(to + count * element, from + count * element, bytes - count * element);
	for (uint64_t i = 0; element == 2 && i < count; i++) {
		to[2 * i] = from[i];
		to[2 * i + 1] = from[count + i];
	}
	for (uint32_t plane = 0; element != 2 && plane < element; plane++)
		for (uint64_t i = 0; i < count; i++)
			to[i * element + plane] = from[plane * count + i];
}

/* body->packed, or nothing where that is no gain or there is no memory. */
static void compress(struct object_codec *codec, const struct l2_request *request, struct object_body *body)
{
	uint64_t bytes = request->identity.bytes, room = bytes - bytes / GAIN - 1;
	const uint8_t *from = request->memory;
	uint8_t *planes;

	if (bytes < GAIN * 2)
		return;
	if (codec->element > 1) {
		planes = scratch(codec, bytes);
		if (!planes)
			return;
		split_planes(from, planes, bytes, codec->element);
		from = planes;
	}
	body->packed = fault_point("object_body/packed") ? NULL : malloc(room);
	if (!body->packed)
		return;
	body->length = object_pack(codec, from, bytes, body->packed, room);
	body->bytes = body->packed;
	if (body->length == 0)
		object_body_free(body);
}

int object_body_store(struct object_codec *codec, const struct l2_request *request, struct object_body *body,
	uint8_t out[OBJECT_HEADER_BYTES])
{
	struct object_header header = { .identity = request->identity };

	memset(body, 0, sizeof(*body));
	header.checksum = checksum_bytes(request->memory, request->identity.bytes);
	if (request->has_checksum && request->checksum != header.checksum)
		return -EBADMSG;
	if (codec->level > 0)
		compress(codec, request, body);
	if (body->packed) {
		header.encoding = OBJECT_ENCODING_ZSTD;
		header.element = codec->element;
	} else {
		body->bytes = request->memory;
		body->length = request->identity.bytes;
	}
	header.stored_bytes = body->length;
	object_header_encode(&header, out);
	return 0;
}

bool object_body_may_be(const struct l2_identity *identity, uint64_t whole_bytes)
{
	if (whole_bytes <= OBJECT_HEADER_BYTES)
		return false;
	if (!object_pack_available())
		return whole_bytes == OBJECT_HEADER_BYTES + identity->bytes;
	return whole_bytes <= OBJECT_HEADER_BYTES + identity->bytes;
}

int object_body_load(const struct l2_request *request, uint64_t whole_bytes, struct object_body *body)
{
	memset(body, 0, sizeof(*body));
	if (!object_body_may_be(&request->identity, whole_bytes))
		return -EBADMSG;
	body->length = whole_bytes - OBJECT_HEADER_BYTES;
	body->bytes = request->memory;
	if (body->length == request->identity.bytes)
		return 0;
	body->packed = fault_point("object_body/load") ? NULL : malloc(body->length);
	body->bytes = body->packed;
	return body->packed ? 0 : -ENOMEM;
}

static int expand(
	struct object_codec *codec, const struct l2_request *request, const struct object_body *body, uint32_t element)
{
	uint64_t bytes = request->identity.bytes;
	uint8_t *planes = element > 1 ? scratch(codec, bytes) : request->memory;

	if (!planes)
		return -ENOMEM;
	if (object_unpack(codec, body->bytes, body->length, planes, bytes))
		return -EBADMSG;
	if (element > 1)
		join_planes(planes, request->memory, bytes, element);
	return 0;
}

int object_body_check(struct object_codec *codec, struct l2_request *request, const struct object_body *body,
	const uint8_t in[OBJECT_HEADER_BYTES])
{
	struct object_header header;
	int error = 0;

	if (object_header_decode(in, &header) || !object_identity_equal(&header.identity, &request->identity) ||
		header.stored_bytes != body->length)
		return -EBADMSG;
	if (header.encoding == OBJECT_ENCODING_ZSTD)
		error = expand(codec, request, body, header.element);
	if (error)
		return error;
	if (checksum_bytes(request->memory, request->identity.bytes) != header.checksum)
		return -EBADMSG;
	request->checksum = header.checksum;
	return 0;
}

void object_body_free(struct object_body *body)
{
	free(body->packed);
	memset(body, 0, sizeof(*body));
}
