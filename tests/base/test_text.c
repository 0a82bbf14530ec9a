#include "base/fault.h"
#include "base/random.h"
#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cmocka_all.h"

#define UNTOUCHED UINT64_C(0x5eed)

static void appended_text_grows_and_is_always_terminated(void **state)
{
	struct text text = { 0 };
	char expected[4 * 2000 + 1] = "";

	(void)state;
	for (unsigned i = 0; i < 2000; i++) {
		text_append(&text, "%04u", i);
		snprintf(expected + 4 * i, 5, "%04u", i);
		assert_int_equal(text.bytes[text.length], '\0');
	}
	assert_int_equal(text.length, 8000);
	assert_string_equal(text.bytes, expected);
	text_append_bytes(&text, "\0x", 2);
	assert_int_equal(text.length, 8002);
	assert_memory_equal(text.bytes + 8000, "\0x", 3);
	text_append_bytes(&text, NULL, 0);
	assert_int_equal(text.length, 8002);
	assert_false(text.failed);
	text_fini(&text);
	assert_null(text.bytes);
	text_fini(&text);
}

static void lengths_around_the_capacity_fit_with_their_terminator(void **state)
{
	(void)state;
	for (int length = 250; length < 260; length++) {
		struct text text = { 0 };

		text_append(&text, "%*s", length, "");
		assert_int_equal(strlen(text.bytes), length);
		text_append(&text, "y");
		assert_int_equal(strlen(text.bytes), length + 1);
		text_fini(&text);
	}
}

static void after_a_failed_growth_the_text_stays_failed_and_whole(void **state)
{
	struct text text = { 0 };

	(void)state;
	text_append(&text, "kept");
#ifdef KVRAIL_FAULT_POINTS
	fault_arm_name("text_append/bytes", 1);
	text_append(&text, "%*s", 5000, "");
	fault_arm(0);
#else
	text_append_bytes(&text, "", SIZE_MAX / 2);
#endif
	assert_true(text.failed);
	text_append(&text, "more");
	text_append_json_string(&text, "more");
	assert_string_equal(text.bytes, "kept");
	text_fini(&text);
	assert_false(text.failed);
}

static void assert_json(const char *string, const char *expected)
{
	struct text text = { 0 };

	text_append_json_string(&text, string);
	assert_string_equal(text.bytes, expected);
	text_fini(&text);
}

#define REPLACED "\xef\xbf\xbd"

static void json_strings_are_escaped(void **state)
{
	(void)state;
	assert_json("", "\"\"");
	assert_json("plain /text", "\"plain /text\"");
	assert_json("\"\\", "\"\\\"\\\\\"");
	assert_json("\b\f\n\r\t\x01\x1f\x7f", "\"\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\"");
	assert_json("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"");
}

static void bytes_that_are_no_utf8_are_replaced_in_json(void **state)
{
	static const struct {
		const char *bytes, *json;
	} cases[] = {
		{ "a\x80z", "\"a" REPLACED "z\"" },                                    /* a lone continuation byte */
		{ "\xc3", "\"" REPLACED "\"" },                                        /* cut at the end */
		{ "\xe2\x82", "\"" REPLACED REPLACED "\"" },                           /* cut at the end */
		{ "\xe2\x82\"", "\"" REPLACED REPLACED "\\\"\"" },                     /* a quote is not swallowed */
		{ "\xc0\xaf", "\"" REPLACED REPLACED "\"" },                           /* longer than necessary */
		{ "\xe0\x9f\xbf", "\"" REPLACED REPLACED REPLACED "\"" },              /* longer than necessary */
		{ "\xed\xa0\x80", "\"" REPLACED REPLACED REPLACED "\"" },              /* a surrogate */
		{ "\xf4\x90\x80\x80", "\"" REPLACED REPLACED REPLACED REPLACED "\"" }, /* above U+10FFFF */
		{ "\xf8\xff", "\"" REPLACED REPLACED "\"" },                           /* bytes that never occur */
		{ "\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf", "\"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\"" },
	};

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(cases); i++)
		assert_json(cases[i].bytes, cases[i].json);
}

/* Every single byte, and random strings: what comes out never holds a raw control, quote or backslash inside. */
static void no_byte_breaks_out_of_a_json_string(void **state)
{
	struct random random;

	(void)state;
	random_init(&random, 6);
	for (int round = 0; round < 20000; round++) {
		char bytes[12] = "";
		struct text text = { 0 };

		if (round < 256)
			bytes[0] = (char)round;
		else
			for (size_t i = 0; i < random_below(&random, sizeof(bytes)); i++)
				bytes[i] = (char)random_next(&random);
		text_append_json_string(&text, bytes);
		assert_int_equal(text.bytes[0], '"');
		assert_int_equal(text.bytes[text.length - 1], '"');
		for (size_t i = 1; i + 1 < text.length; i++) {
			assert_true((unsigned char)text.bytes[i] >= 0x20);
			assert_int_not_equal(text.bytes[i], '"');
			if (text.bytes[i] == '\\') {
				assert_non_null(strchr("\"\\bfnrtu", text.bytes[i + 1]));
				i++;
			}
		}
		text_fini(&text);
	}
}

struct parse_case {
	const char *text;
	int error;
	uint64_t value;
};

static void assert_parses(const struct parse_case *cases, size_t count, int (*parse)(const char *, uint64_t *))
{
	for (size_t i = 0; i < count; i++) {
		uint64_t value = UNTOUCHED;

		if (parse(cases[i].text, &value) != cases[i].error ||
			value != (cases[i].error ? UNTOUCHED : cases[i].value))
			fail_msg("\"%s\": %llu", cases[i].text, (unsigned long long)value);
	}
}

static void sizes_are_read_in_binary_units_only(void **state)
{
	static const struct parse_case cases[] = {
		{ "0", 0, 0 },
		{ "4096", 0, 4096 },
		{ "512B", 0, 512 },
		{ "64K", 0, 65536 },
		{ "64k", 0, 65536 },
		{ "64KiB", 0, 65536 },
		{ "1.5G", 0, UINT64_C(3) << 29 },
		{ "2GiB", 0, UINT64_C(2) << 30 },
		{ "1T", 0, UINT64_C(1) << 40 },
		{ "0.1M", 0, 104857 },
		{ "1.000000001T", 0, (UINT64_C(1) << 40) + 1099 },
		{ "18446744073709551615", 0, UINT64_MAX },
		{ "16777215T", 0, UINT64_C(16777215) << 40 },
		{ "18446744073709551616", -ERANGE, 0 },
		{ "99999999999999999999999K", -ERANGE, 0 },
		{ "16777216T", -ERANGE, 0 },
		{ "10MB", -EINVAL, 0 },
		{ "10kB", -EINVAL, 0 },
		{ "10GB", -EINVAL, 0 },
		{ "", -EINVAL, 0 },
		{ "K", -EINVAL, 0 },
		{ "1.5", -EINVAL, 0 },
		{ "1.5B", -EINVAL, 0 },
		{ "1.G", -EINVAL, 0 },
		{ ".5G", -EINVAL, 0 },
		{ "1.0000000001G", -EINVAL, 0 },
		{ "-1", -EINVAL, 0 },
		{ "+1", -EINVAL, 0 },
		{ " 1", -EINVAL, 0 },
		{ "1 G", -EINVAL, 0 },
		{ "1G ", -EINVAL, 0 },
		{ "1g", -EINVAL, 0 },
		{ "1Gi", -EINVAL, 0 },
		{ "1GiBs", -EINVAL, 0 },
		{ "0x10", -EINVAL, 0 },
		{ "1e3", -EINVAL, 0 },
	};

	(void)state;
	assert_parses(cases, KVR_COUNT_OF(cases), text_parse_size);
}

static void a_refused_size_says_why(void **state)
{
	(void)state;
	assert_null(text_size_refusal("10MiB"));
	assert_string_equal(text_size_refusal("10MB"), "MB is a decimal unit, write MiB");
	assert_string_equal(text_size_refusal("1.5GB"), "GB is a decimal unit, write GiB");
	assert_string_equal(text_size_refusal("1kB"), "kB is a decimal unit, write KiB");
	assert_string_equal(text_size_refusal("16777216T"), "is larger than 16 EiB");
	assert_non_null(strstr(text_size_refusal("many"), "is no size"));
	assert_non_null(strstr(text_size_refusal("MB"), "is no size"));
}

static void times_need_a_unit(void **state)
{
	static const struct parse_case cases[] = {
		{ "7ns", 0, 7 },
		{ "10us", 0, 10000 },
		{ "250ms", 0, 250000000 },
		{ "5s", 0, UINT64_C(5000000000) },
		{ "1.5s", 0, 1500000000 },
		{ "2m", 0, UINT64_C(120000000000) },
		{ "1h", 0, UINT64_C(3600000000000) },
		{ "0", 0, 0 },
		{ "0s", 0, 0 },
		{ "5124095h", 0, UINT64_C(18446742000000000000) },
		{ "5124096h", -ERANGE, 0 },
		{ "99999999999999999999s", -ERANGE, 0 },
		{ "5", -EINVAL, 0 },
		{ "0.5", -EINVAL, 0 },
		{ "99999999999999999999", -EINVAL, 0 },
		{ "", -EINVAL, 0 },
		{ "s", -EINVAL, 0 },
		{ "5 s", -EINVAL, 0 },
		{ "5S", -EINVAL, 0 },
		{ "5min", -EINVAL, 0 },
		{ "-5s", -EINVAL, 0 },
		{ "5s5ms", -EINVAL, 0 },
	};

	(void)state;
	assert_parses(cases, KVR_COUNT_OF(cases), text_parse_time);
}

static void whole_numbers_have_nothing_behind_them(void **state)
{
	static const struct parse_case cases[] = {
		{ "0", 0, 0 },
		{ "007", 0, 7 },
		{ "18446744073709551615", 0, UINT64_MAX },
		{ "18446744073709551616", -ERANGE, 0 },
		{ "18446744073709551616x", -EINVAL, 0 },
		{ "", -EINVAL, 0 },
		{ "1x", -EINVAL, 0 },
		{ "1 ", -EINVAL, 0 },
		{ "-1", -EINVAL, 0 },
		{ "1.0", -EINVAL, 0 },
	};

	(void)state;
	assert_parses(cases, KVR_COUNT_OF(cases), text_parse_u64);
}

static void sizes_and_times_are_short_to_read(void **state)
{
	static const struct {
		uint64_t value;
		const char *size, *time;
	} cases[] = {
		{ 0, "0 B", "0 ns" },
		{ 812, "812 B", "812 ns" },
		{ 1023, "1023 B", "1.0 us" },
		{ 1024, "1.00 KiB", "1.0 us" },
		{ 1500, "1.46 KiB", "1.5 us" },
		{ 999949, "976.51 KiB", "999.9 us" },
		{ 999950, "976.51 KiB", "1.0 ms" },
		{ 1048575, "1.00 MiB", "1.0 ms" },
		{ UINT64_C(3) << 29, "1.50 GiB", "1.6 s" },
		{ UINT64_C(1) << 40, "1.00 TiB", "1099.5 s" },
		{ UINT64_MAX, "16.00 EiB", "18446744073.7 s" },
	};
	char buffer[TEXT_SHORT];

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(cases); i++) {
		assert_ptr_equal(text_size(buffer, cases[i].value), buffer);
		assert_string_equal(buffer, cases[i].size);
		assert_ptr_equal(text_time(buffer, cases[i].value), buffer);
		assert_string_equal(buffer, cases[i].time);
	}
}

static void hex_goes_both_ways_and_refuses_other_letters(void **state)
{
	static const char *const wrong[] = { "", "0", "000", "00ffabc", "00ffabcg", "00ffabc ", "0xffabcd" };
	static const unsigned char bytes[4] = { 0x00, 0xff, 0xab, 0xcd };
	unsigned char back[4];
	char hex[9];

	(void)state;
	text_hex(hex, bytes, sizeof(bytes));
	assert_string_equal(hex, "00ffabcd");
	assert_true(text_unhex(back, sizeof(back), hex));
	assert_memory_equal(back, bytes, sizeof(bytes));
	assert_true(text_unhex(back, sizeof(back), "00FfaBCD"));
	assert_memory_equal(back, bytes, sizeof(bytes));
	for (size_t i = 0; i < KVR_COUNT_OF(wrong); i++)
		assert_false(text_unhex(back, sizeof(back), wrong[i]));
	text_hex(hex, NULL, 0);
	assert_string_equal(hex, "");
}

static void the_nearest_name_is_found_and_a_distant_one_is_not(void **state)
{
	static const char *const names[] = { "l1-size", "listen", "socket", "cores", "http" };
	static const struct {
		const char *word, *nearest;
	} cases[] = {
		{ "l1size", "l1-size" },
		{ "lisetn", "listen" },
		{ "core", "cores" },
		{ "sockets", "socket" },
		{ "http", "http" },
		{ "htp", "http" },
		{ "prefetch-depth", NULL },
		{ "zz", NULL },
		{ "", NULL },
		{ "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", NULL },
	};

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(cases); i++) {
		const char *nearest = text_nearest(cases[i].word, names, KVR_COUNT_OF(names));

		if (cases[i].nearest)
			assert_string_equal(nearest, cases[i].nearest);
		else
			assert_null(nearest);
	}
	assert_null(text_nearest("core", names, 0));
}

static void names_of_a_list_are_found_by_their_number(void **state)
{
	char name[6];

	(void)state;
	assert_true(text_list_item("a,bc,def", 0, name, sizeof(name)));
	assert_string_equal(name, "a");
	assert_true(text_list_item("a,bc,def", 2, name, sizeof(name)));
	assert_string_equal(name, "def");
	assert_false(text_list_item("a,bc,def", 3, name, sizeof(name)));
	assert_true(text_list_item("a,,b", 1, name, sizeof(name)));
	assert_string_equal(name, "");
	assert_true(text_list_item("", 0, name, sizeof(name)));
	assert_string_equal(name, "");
	assert_true(text_list_item("too long,b", 0, name, sizeof(name)));
	assert_string_equal(name, "too l");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_of_a_list_are_found_by_their_number),
		cmocka_unit_test(appended_text_grows_and_is_always_terminated),
		cmocka_unit_test(lengths_around_the_capacity_fit_with_their_terminator),
		cmocka_unit_test(after_a_failed_growth_the_text_stays_failed_and_whole),
		cmocka_unit_test(json_strings_are_escaped),
		cmocka_unit_test(bytes_that_are_no_utf8_are_replaced_in_json),
		cmocka_unit_test(no_byte_breaks_out_of_a_json_string),
		cmocka_unit_test(sizes_are_read_in_binary_units_only),
		cmocka_unit_test(a_refused_size_says_why),
		cmocka_unit_test(times_need_a_unit),
		cmocka_unit_test(whole_numbers_have_nothing_behind_them),
		cmocka_unit_test(sizes_and_times_are_short_to_read),
		cmocka_unit_test(hex_goes_both_ways_and_refuses_other_letters),
		cmocka_unit_test(the_nearest_name_is_found_and_a_distant_one_is_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
