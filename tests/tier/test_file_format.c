/* The file of an object: its header byte by byte, what is refused, its name. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "tier/checksum.h"
#include "tier/file_format.h"

static struct object_header sample(void)
{
	struct object_header header = { .checksum = UINT64_C(0x1122334455667788) };

	for (int i = 0; i < 32; i++) {
		header.identity.model_key[i] = (uint8_t)i;
		header.identity.salt[i] = (uint8_t)(32 + i);
		header.identity.digest[i] = (uint8_t)(64 + i);
	}
	header.identity.digest[0] = 0xa7;
	header.identity.digest[1] = 0xf1;
	header.identity.part = 7;
	header.identity.bytes = 12345;
	return header;
}

/* Written down once, by a few lines of Python from the table in object_format.h. */
static const char golden[] = "894b56524f0d0a1a0100000000100000"
			     "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
			     "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"
			     "a7f142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f"
			     "07000000000000003930000000000000"
			     "887766554433221100000000000000003930000000000000";

static void a_header_is_the_bytes_that_the_table_says(void **state)
{
	struct object_header header = sample();
	uint8_t block[FILE_BLOCK], expected[FILE_BLOCK] = { 0 };
	uint64_t checksum;

	(void)state;
	assert_true(text_unhex(expected, (sizeof(golden) - 1) / 2, golden));
	checksum = checksum_bytes(expected, 4088);
	memcpy(expected + 4088, &checksum, 8);
	object_header_encode(&header, block);
	assert_memory_equal(block, expected, FILE_BLOCK);
}

static void a_header_comes_back_as_it_was(void **state)
{
	struct object_header header = sample(), back;
	uint8_t block[FILE_BLOCK];

	(void)state;
	object_header_encode(&header, block);
	assert_int_equal(object_header_decode(block, &back), 0);
	assert_true(object_identity_equal(&header.identity, &back.identity));
	assert_int_equal(back.checksum, header.checksum);
}

/* pitfalls H05 */
static void every_flipped_bit_of_a_header_is_seen(void **state)
{
	struct object_header header = sample(), back;
	uint8_t block[FILE_BLOCK];

	(void)state;
	object_header_encode(&header, block);
	for (uint32_t bit = 0; bit < FILE_BLOCK * 8; bit++) {
		block[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(object_header_decode(block, &back), -EBADMSG);
		block[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	assert_int_equal(object_header_decode(block, &back), 0);
}

static void refused_with(uint32_t offset, const void *bytes, size_t length)
{
	struct object_header header = sample(), back;
	uint8_t block[FILE_BLOCK];
	uint64_t checksum;

	object_header_encode(&header, block);
	memcpy(block + offset, bytes, length);
	checksum = checksum_bytes(block, 4088);
	memcpy(block + 4088, &checksum, 8);
	memset(&back, 0x5a, sizeof(back));
	assert_int_equal(object_header_decode(block, &back), -EBADMSG);
	assert_int_equal(back.identity.part, 0x5a5a5a5a);
}

static void fields_that_are_not_of_this_version_are_refused_though_the_checksum_is_right(void **state)
{
	uint32_t zero = 0, two = 2, small = 512;
	uint64_t none = 0, large = OBJECT_BYTES_MAX + 1, other = 12346;

	(void)state;
	refused_with(0, "\x89KVRP", 5);
	refused_with(8, &zero, 4);
	refused_with(8, &two, 4);
	refused_with(12, &small, 4);
	refused_with(116, &two, 4);
	refused_with(120, &none, 8);
	refused_with(120, &large, 8);
	refused_with(136, &two, 4);
	refused_with(140, &two, 4);
	refused_with(144, &other, 8);
	refused_with(152, &two, 4);
	refused_with(4084, &two, 4);
}

static void each_field_of_the_identity_counts(void **state)
{
	struct l2_identity a = sample().identity, b;
	struct digester digester;
	struct file_name first, second;

	(void)state;
	assert_int_equal(digester_init(&digester), 0);
	file_name_make(&digester, &a, &first);
	for (int field = 0; field < 6; field++) {
		b = a;
		switch (field) {
		case 0:
			b.model_key[31]++;
			break;
		case 1:
			b.salt[31]++;
			break;
		case 2:
			b.digest[31]++;
			break;
		case 3:
			b.part++;
			break;
		case 4:
			b.bytes++;
			break;
		default:
			b.reserved++;
			break;
		}
		file_name_make(&digester, &b, &second);
		assert_false(object_identity_equal(&a, &b));
		assert_memory_not_equal(first.hash, second.hash, 32);
	}
	assert_true(object_identity_equal(&a, &a));
	digester_fini(&digester);
}

static void a_name_is_the_hash_of_the_identity(void **state)
{
	struct l2_identity identity = sample().identity;
	char path[FILE_PATH_BYTES];
	struct digester digester;
	struct file_name name, back;
	uint16_t fan;

	(void)state;
	assert_int_equal(digester_init(&digester), 0);
	file_name_make(&digester, &identity, &name);
	file_name_path(&name, path);
	assert_string_equal(path, "a7f/e25d75a8f9bf65ef79ac592bf7fd6ed08937e34979543617d57709bd5f033b97.kvo");
	path[3] = '\0';
	assert_true(file_fan_parse(path, &fan));
	assert_int_equal(fan, 0xa7f);
	assert_true(file_name_parse(fan, path + 4, &back));
	assert_memory_equal(&back.hash, &name.hash, 32);
	assert_int_equal(back.fan, name.fan);
	digester_fini(&digester);
}

static void other_names_are_not_ours(void **state)
{
	static const char *const folders[] = { "", "a7", "A7f", "a7g", "a7f0", "..", "tmp" };
	char name[FILE_NAME_BYTES + 1];
	struct file_name out;
	uint16_t fan;

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(folders); i++)
		assert_false(file_fan_parse(folders[i], &fan));
	memset(name, '0', sizeof(name));
	text_copy(name + 64, 5, ".kvo");
	assert_true(file_name_parse(1, name, &out));
	name[10] = 'F';
	assert_false(file_name_parse(1, name, &out));
	name[10] = '0';
	name[67] = 'p';
	assert_false(file_name_parse(1, name, &out));
	text_copy(name + 64, 6, ".kvo~");
	assert_false(file_name_parse(1, name, &out));
	assert_false(file_name_parse(1, name + 1, &out));
	assert_false(file_name_parse(1, "", &out));
}

static void a_file_is_as_long_as_its_blocks(void **state)
{
	(void)state;
	assert_int_equal(file_image_bytes(1), 8192);
	assert_int_equal(file_image_bytes(4096), 8192);
	assert_int_equal(file_image_bytes(4097), 12288);
	assert_int_equal(file_image_bytes(OBJECT_BYTES_MAX), OBJECT_BYTES_MAX + 4096);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_header_is_the_bytes_that_the_table_says),
		cmocka_unit_test(a_header_comes_back_as_it_was),
		cmocka_unit_test(every_flipped_bit_of_a_header_is_seen),
		cmocka_unit_test(fields_that_are_not_of_this_version_are_refused_though_the_checksum_is_right),
		cmocka_unit_test(each_field_of_the_identity_counts),
		cmocka_unit_test(a_name_is_the_hash_of_the_identity),
		cmocka_unit_test(other_names_are_not_ours),
		cmocka_unit_test(a_file_is_as_long_as_its_blocks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
