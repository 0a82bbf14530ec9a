/* object_pack_nozstd.c - where libzstd is missing: bytes are kept as they are, and what was compressed is no object. */
#include <errno.h>

#include "tier/object_body.h"

bool object_pack_available(void)
{
	return false;
}

int object_pack_init(struct object_codec *codec)
{
	(void)codec;
	return 0;
}

void object_pack_fini(struct object_codec *codec)
{
	(void)codec;
}

uint64_t object_pack(struct object_codec *codec, const void *bytes, uint64_t length, void *out, uint64_t room)
{
	(void)codec;
	(void)bytes;
	(void)length;
	(void)out;
	(void)room;
	return 0;
}

int object_unpack(struct object_codec *codec, const void *packed, uint64_t packed_length, void *out, uint64_t length)
{
	(void)codec;
	(void)packed;
	(void)packed_length;
	(void)out;
	(void)length;
	return -EBADMSG;
}
