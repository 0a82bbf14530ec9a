/* What follows an object's header: as it is, or compressed; and every damage of it. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/random.h"
#include "tier/checksum.h"
#include "tier/object_body.h"
#include "tier/place.h"

#define BYTES 10007

static void need_zstd(void)
{
	if (!object_pack_available())
		skip();
}

/* Numbers of two bytes as bf16 has them: few exponents, any mantissa. */
static void fill(uint8_t *memory, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++) {
		uint64_t word = random_mix(i / 2);

		memory[i] = i % 2 ? (uint8_t)(0x3e + word % 3) : (uint8_t)(word >> 8);
	}
}

struct stored {
	struct l2_request request;
	struct object_body body;
	uint8_t header[OBJECT_HEADER_BYTES];
	uint8_t memory[BYTES], back[BYTES];
};

static void store(struct object_codec *codec, struct stored *stored, uint64_t bytes)
{
	memset(stored, 0, sizeof(*stored));
	stored->request.operation = L2_STORE;
	stored->request.identity = object_identity(1, bytes);
	stored->request.memory = stored->memory;
	fill(stored->memory, bytes);
	assert_int_equal(object_body_store(codec, &stored->request, &stored->body, stored->header), 0);
}

/* As another server would load it. */
static int load(struct object_codec *codec, struct stored *stored, uint64_t whole_bytes)
{
	struct l2_request request = {
		.operation = L2_LOAD, .identity = stored->request.identity, .memory = stored->back
	};
	struct object_body body;
	int error;

	memset(stored->back, 0, sizeof(stored->back));
	error = object_body_load(&request, whole_bytes, &body);
	if (error)
		return error;
	memcpy(body.bytes, stored->body.bytes, kvr_min_u64(body.length, stored->body.length));
	error = object_body_check(codec, &request, &body, stored->header);
	object_body_free(&body);
	if (!error) {
		assert_int_equal(request.checksum, checksum_bytes(stored->memory, request.identity.bytes));
		assert_memory_equal(stored->back, stored->memory, request.identity.bytes);
	}
	return error;
}

static void what_is_compressed_comes_back(void **state)
{
	static const uint64_t lengths[] = { 1, 2, 63, 64, 65, 127, 4096, 10000, 10001, 10002, 10003, BYTES };
	static const uint32_t elements[] = { 1, 2, 4 };
	struct object_codec codec, plain;
	static struct stored stored;

	(void)state;
	need_zstd();
	assert_int_equal(object_codec_init(&plain, 0, 2), 0);
	for (uint32_t e = 0; e < 3; e++) {
		assert_int_equal(object_codec_init(&codec, 1 + (int)e, elements[e]), 0);
		for (uint32_t i = 0; i < KVR_COUNT_OF(lengths); i++) {
			store(&codec, &stored, lengths[i]);
			assert_true(stored.body.length <= lengths[i]);
			assert_int_equal(stored.body.packed != NULL, lengths[i] >= 4096);
			assert_int_equal(load(&plain, &stored, OBJECT_HEADER_BYTES + stored.body.length), 0);
			object_body_free(&stored.body);
		}
		object_codec_fini(&codec);
	}
	object_codec_fini(&plain);
}

static void planes_make_numbers_smaller_and_noise_stays_as_it_is(void **state)
{
	struct object_codec codec;
	static struct stored stored;
	uint64_t with, without;

	(void)state;
	need_zstd();
	assert_int_equal(object_codec_init(&codec, 1, 1), 0);
	store(&codec, &stored, BYTES);
	without = stored.body.length;
	object_body_free(&stored.body);
	codec.element = 2;
	store(&codec, &stored, BYTES);
	with = stored.body.length;
	object_body_free(&stored.body);
	assert_true(with < without);
	assert_true(with < BYTES * 3 / 4);
	object_fill(1, stored.memory, BYTES);
	assert_int_equal(object_body_store(&codec, &stored.request, &stored.body, stored.header), 0);
	assert_null(stored.body.packed);
	assert_int_equal(stored.body.length, BYTES);
	assert_int_equal(load(&codec, &stored, OBJECT_HEADER_BYTES + BYTES), 0);
	object_codec_fini(&codec);
}

/* pitfalls H05 */
static void each_damage_of_a_compressed_object_is_seen(void **state)
{
	struct object_codec codec;
	static struct stored stored;
	struct object_header header;
	uint64_t whole;

	(void)state;
	need_zstd();
	assert_int_equal(object_codec_init(&codec, 1, 2), 0);
	store(&codec, &stored, BYTES);
	whole = OBJECT_HEADER_BYTES + stored.body.length;
	for (uint64_t i = 0; i < stored.body.length; i += 7) {
		int error;

		stored.body.bytes[i] ^= (uint8_t)(1u << (i % 8));
		error = load(&codec, &stored, whole);
		assert_true(error == -EBADMSG || error == 0); /* 0: a bit that says nothing, the bytes were compared */
		stored.body.bytes[i] ^= (uint8_t)(1u << (i % 8));
	}
	assert_int_equal(load(&codec, &stored, whole - 1), -EBADMSG);
	assert_int_equal(load(&codec, &stored, whole + 1), -EBADMSG);
	assert_int_equal(load(&codec, &stored, OBJECT_HEADER_BYTES + BYTES), -EBADMSG);
	assert_int_equal(load(&codec, &stored, OBJECT_HEADER_BYTES + BYTES + 1), -EBADMSG);
	assert_int_equal(load(&codec, &stored, OBJECT_HEADER_BYTES), -EBADMSG);
	assert_int_equal(load(&codec, &stored, 0), -EBADMSG);
	/* The header tells other planes, or another encoding. */
	assert_int_equal(object_header_decode(stored.header, &header), 0);
	header.element = 4;
	object_header_encode(&header, stored.header);
	assert_int_equal(load(&codec, &stored, whole), -EBADMSG);
	header.element = 3;
	object_header_encode(&header, stored.header);
	assert_int_equal(load(&codec, &stored, whole), -EBADMSG);
	header.element = 2;
	object_header_encode(&header, stored.header);
	assert_int_equal(load(&codec, &stored, whole), 0);
	header.identity.part++;
	object_header_encode(&header, stored.header);
	assert_int_equal(load(&codec, &stored, whole), -EBADMSG);
	object_body_free(&stored.body);
	object_codec_fini(&codec);
}

static void want_of_memory_keeps_bytes_as_they_are_and_is_no_damage(void **state)
{
	static const char *const points[] = { "object_body/scratch", "object_body/packed" };
	struct object_codec codec, plain;
	static struct stored stored;

	(void)state;
	need_zstd();
	assert_int_equal(object_codec_init(&codec, -1, 2), -EINVAL);
	object_codec_fini(&codec);
	assert_int_equal(object_codec_init(&codec, 20, 2), -EINVAL);
	object_codec_fini(&codec);
	assert_int_equal(object_codec_init(&codec, 1, 3), -EINVAL);
	object_codec_fini(&codec);
	fault_arm_name("object_pack/compressor", 1);
	assert_int_equal(object_codec_init(&codec, 1, 2), -ENOMEM);
	object_codec_fini(&codec);
	fault_arm_name("object_pack/decompressor", 1);
	assert_int_equal(object_codec_init(&codec, 1, 2), -ENOMEM);
	object_codec_fini(&codec);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(object_codec_init(&codec, 1, 2), 0);
		fault_arm_name(points[i], 1);
		store(&codec, &stored, BYTES);
		assert_null(stored.body.packed);
		assert_int_equal(load(&codec, &stored, OBJECT_HEADER_BYTES + BYTES), 0);
		object_codec_fini(&codec);
	}
	assert_int_equal(object_codec_init(&codec, 1, 2), 0);
	assert_int_equal(object_codec_init(&plain, 0, 2), 0);
	store(&codec, &stored, BYTES);
	fault_arm_name("object_body/load", 1);
	assert_int_equal(load(&plain, &stored, OBJECT_HEADER_BYTES + stored.body.length), -ENOMEM);
	fault_arm_name("object_body/scratch", 1);
	assert_int_equal(load(&plain, &stored, OBJECT_HEADER_BYTES + stored.body.length), -ENOMEM);
	fault_arm(0);
	assert_int_equal(load(&plain, &stored, OBJECT_HEADER_BYTES + stored.body.length), 0);
	object_body_free(&stored.body);
	object_codec_fini(&codec);
	object_codec_fini(&plain);
}

static void without_compression_the_length_is_the_objects(void **state)
{
	struct object_codec codec;
	static struct stored stored;

	(void)state;
	assert_int_equal(object_codec_init(&codec, 0, 2), 0);
	store(&codec, &stored, BYTES);
	assert_null(stored.body.packed);
	assert_ptr_equal(stored.body.bytes, stored.memory);
	assert_int_equal(load(&codec, &stored, OBJECT_HEADER_BYTES + BYTES), 0);
	stored.request.has_checksum = true;
	stored.request.checksum = checksum_bytes(stored.memory, BYTES) ^ 1;
	assert_int_equal(object_body_store(&codec, &stored.request, &stored.body, stored.header), -EBADMSG);
	object_codec_fini(&codec);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_compressed_comes_back),
		cmocka_unit_test(planes_make_numbers_smaller_and_noise_stays_as_it_is),
		cmocka_unit_test(each_damage_of_a_compressed_object_is_seen),
		cmocka_unit_test(want_of_memory_keeps_bytes_as_they_are_and_is_no_damage),
		cmocka_unit_test(without_compression_the_length_is_the_objects),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
