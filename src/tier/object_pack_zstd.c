#include <errno.h>
#include <zstd.h>

#include "base/fault.h"
#include "tier/object_body.h"

bool object_pack_available(void)
{
	return true;
}

int object_pack_init(struct object_codec *codec)
{
	codec->compressor = codec->level == 0 || fault_point("object_pack/compressor") ? NULL : ZSTD_createCCtx();
	codec->decompressor = fault_point("object_pack/decompressor") ? NULL : ZSTD_createDCtx();
	return (codec->level > 0 && !codec->compressor) || !codec->decompressor ? -ENOMEM : 0;
}

void object_pack_fini(struct object_codec *codec)
{
	ZSTD_freeCCtx(codec->compressor);
	ZSTD_freeDCtx(codec->decompressor);
	codec->compressor = codec->decompressor = NULL;
}

uint64_t object_pack(struct object_codec *codec, const void *bytes, uint64_t length, void *out, uint64_t room)
{
	size_t made = ZSTD_compressCCtx(codec->compressor, out, room, bytes, length, codec->level);

	return ZSTD_isError(made) ? 0 : made;
}

int object_unpack(struct object_codec *codec, const void *packed, uint64_t packed_length, void *out, uint64_t length)
{
	size_t made = ZSTD_decompressDCtx(codec->decompressor, out, length, packed, packed_length);

	return ZSTD_isError(made) || made != length ? -EBADMSG : 0;
}
