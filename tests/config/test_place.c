/* Places of options: KIND:WHERE?name=value&name=value. */
#include <errno.h>
#include <string.h>

#include "base/cmocka_all.h"
#include "config/place.h"

static void a_place_has_a_kind_where_and_options(void **state)
{
	struct option_error error;
	struct place place;

	(void)state;
	assert_int_equal(place_parse("file:/var/cache/kvrail?size=100GiB&sync=all", &place, &error), 0);
	assert_string_equal(place.kind, "file");
	assert_string_equal(place.where, "/var/cache/kvrail");
	assert_string_equal(place.options, "size=\"100GiB\"\nsync=\"all\"\n");
	assert_int_equal(place_parse("redis:host:6379/0", &place, &error), 0);
	assert_string_equal(place.where, "host:6379/0");
	assert_string_equal(place.options, "");
}

static void bytes_may_be_written_as_hexadecimal_digits(void **state)
{
	struct option_error error;
	struct place place;

	(void)state;
	assert_int_equal(place_parse("file:/a%3Fb%20c?x=%26%22%5c%25", &place, &error), 0);
	assert_string_equal(place.where, "/a?b c");
	assert_string_equal(place.options, "x=\"&\\\"\\\\%\"\n");
}

static void what_is_no_place_is_refused_with_the_reason(void **state)
{
	static const struct {
		const char *text, *why;
	} wrong[] = {
		{ "", "no kind" },
		{ "/var/cache", "no kind" },
		{ ":/var", "no kind" },
		{ "file?size=1", "no kind" },
		{ "a-very-long-kind:/x", "no such kind" },
		{ "file:", "no place" },
		{ "file:?size=1", "no place" },
		{ "file:/x?", "name=value" },
		{ "file:/x?size", "name=value" },
		{ "file:/x?=1", "name=value" },
		{ "file:/x?size=1&", "name=value" },
		{ "file:/x?SIZE=1", "small letters" },
		{ "file:/x?a=1\nb=2", "printable" },
		{ "file:/x&size=1GiB", "begin with ?" },
		{ "file:/x&y?size=1GiB", "begin with ?" },
		{ "file:/x%2", "printable" },
		{ "file:/x%zz", "printable" },
		{ "file:/x%00", "printable" },
		{ "file:/x?a=%0a", "printable" },
	};
	struct option_error error;
	struct place place;

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(wrong); i++) {
		error.text[0] = '\0';
		assert_int_equal(place_parse(wrong[i].text, &place, &error), -EINVAL);
		if (!strstr(error.text, wrong[i].why))
			fail_msg("'%s' is refused with: %s", wrong[i].text, error.text);
	}
}

static void what_is_too_long_is_refused(void **state)
{
	struct option_error error;
	struct place place;
	char text[3000];

	(void)state;
	for (size_t length = 250; length < 270; length++) {
		memset(text, 'x', sizeof(text));
		memcpy(text, "file:", 5);
		text[5 + length] = '\0';
		assert_int_equal(place_parse(text, &place, &error), length < 256 ? 0 : -EINVAL);
	}
	for (size_t length = 1000; length < 1040; length++) {
		memset(text, 'x', sizeof(text));
		memcpy(text, "file:/x?a=", 10);
		text[10 + length] = '\0';
		/* a="...", the line's end and the 0 take 6 bytes. */
		assert_int_equal(place_parse(text, &place, &error), length + 6 <= 1024 ? 0 : -EINVAL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_place_has_a_kind_where_and_options),
		cmocka_unit_test(bytes_may_be_written_as_hexadecimal_digits),
		cmocka_unit_test(what_is_no_place_is_refused_with_the_reason),
		cmocka_unit_test(what_is_too_long_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
