/* A page of the list of a bucket: read in any pieces, and what is no such page is seen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tier/s3_list.h"

struct keys {
	char text[300];
	uint32_t count, limit;
};

static bool note(void *owner, const char *key, uint32_t length)
{
	struct keys *keys = owner;

	if (keys->count++ == keys->limit)
		return false;
	if (length < 100)
		strncat(keys->text, key, length);
	strcat(keys->text, ",");
	return true;
}

static bool read_page(const char *page, size_t step, struct s3_list *list, struct keys *keys)
{
	size_t length = strlen(page);

	memset(keys, 0, sizeof(*keys));
	keys->limit = 3;
	s3_list_init(list, note, keys);
	for (size_t at = 0; at < length; at += step)
		s3_list_take(list, page + at, at + step < length ? step : length - at);
	return s3_list_good(list);
}

static void a_page_is_read_in_any_pieces(void **state)
{
	static const char page[] =
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult "
		"xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name><Prefix>p/</Prefix>"
		"<NextContinuationToken>1&amp;2&lt;3+/=&#39;</NextContinuationToken><KeyCount>3</KeyCount>"
		"<IsTruncated>true</IsTruncated><Contents><Key>one</Key><Size>5</Size><Owner><ID>x</ID></Owner></Contents>"
		"<Contents><Key></Key></Contents><Contents><Key>t&amp;o</Key></Contents></ListBucketResult>\n";
	struct s3_list list;
	struct keys keys;

	(void)state;
	for (size_t step = 1; step <= sizeof(page); step++) {
		assert_true(read_page(page, step, &list, &keys));
		assert_true(list.truncated);
		assert_string_equal(list.token, "1&2<3+/='");
		assert_string_equal(keys.text, "one,,t&amp;o,");
	}
	assert_true(
		read_page("<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>", 7, &list, &keys));
	assert_false(list.truncated);
	assert_int_equal(keys.count, 0);
}

static void what_is_no_page_is_seen(void **state)
{
	static const char *const pages[] = {
		"",
		"no list",
		"<html></html>",
		"<Error><Code>AccessDenied</Code></Error>",
		"<ListBucketResult>",
		"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>", /* and no token */
		"<ListBucketResult><IsTruncated>perhaps</IsTruncated></ListBucketResult>",
		"<ListBucketResult><IsTruncated></IsTruncated></ListBucketResult>",
		"<ListBucketResult><NextContinuationToken></NextContinuationToken></ListBucketResult>",
		"<ListBucketResult><NextContinuationToken>a&b</NextContinuationToken></ListBucketResult>",
		"<ListBucketResult><NextContinuationToken>a\nb</NextContinuationToken></ListBucketResult>",
		"<ListBucketResult><ListBucketResult></ListBucketResult>",
		"<ListBucketResult></ListBucketResult><Contents>",
		"<ListBucketResult><Key<Key>x</Key></ListBucketResult>",
		"<ListBucketResult><Key>1</Key><Key>2</Key><Key>3</Key><Key>4</Key></ListBucketResult>", /* no room */
		"</ListBucketResult>",
	};
	struct s3_list list;
	struct keys keys;

	(void)state;
	for (uint32_t i = 0; i < KVR_COUNT_OF(pages); i++)
		if (read_page(pages[i], 3, &list, &keys))
			fail_msg("case %u: %s", i, pages[i]);
}

/* Its own is bounded, whatever comes. */
static void what_is_too_long_is_passed_over(void **state)
{
	static char page[5000];
	struct s3_list list;
	struct keys keys;

	(void)state;
	snprintf(page, sizeof(page), "<ListBucketResult><%02000d><Key>%01025d</Key><Key>%0*d</Key></ListBucketResult>",
		0, 0, S3_TOKEN_MAX, 0);
	assert_true(read_page(page, 11, &list, &keys));
	assert_string_equal(keys.text, ","); /* one of 1024, and not the longer one */
	snprintf(page, sizeof(page),
		"<ListBucketResult><NextContinuationToken>%01025d</NextContinuationToken></ListBucketResult>", 1);
	assert_false(read_page(page, 11, &list, &keys));
	/* Keys outside of a list are none. */
	assert_true(read_page("<Key>x</Key><ListBucketResult></ListBucketResult>", 2, &list, &keys));
	assert_int_equal(keys.count, 0);
}

static void queries_are_sorted_and_encoded(void **state)
{
	char query[100];

	(void)state;
	assert_true(s3_list_query("", "", query, sizeof(query)));
	assert_string_equal(query, "list-type=2&max-keys=1000");
	assert_true(s3_list_query("a/b_c/", "", query, sizeof(query)));
	assert_string_equal(query, "list-type=2&max-keys=1000&prefix=a%2Fb_c%2F");
	assert_true(s3_list_query("p/", "1+/= &\xff~", query, sizeof(query)));
	assert_string_equal(query, "continuation-token=1%2B%2F%3D%20%26%FF~&list-type=2&max-keys=1000&prefix=p%2F");
	for (size_t size = 1; size <= strlen(query); size++) {
		char small[100];

		assert_false(s3_list_query("p/", "1+/= &\xff~", small, size));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_page_is_read_in_any_pieces),
		cmocka_unit_test(what_is_no_page_is_seen),
		cmocka_unit_test(what_is_too_long_is_passed_over),
		cmocka_unit_test(queries_are_sorted_and_encoded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
