/* Signatures as the examples of Amazon's documentation have them ("Signature Calculations for the Authorization Header"), errors, credentials. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tier/s3_adapter.h"

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define DATE "20130524T000000Z"
#define HOST "examplebucket.s3.amazonaws.com"

static const struct s3_credentials example = {
	"AKIAIOSFODNN7EXAMPLE",
	"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
	"",
	"us-east-1",
};

static void signed_so(const struct s3_request *request, const char *names, const char *signature)
{
	char out[S3_AUTHORIZATION_MAX], expected[S3_AUTHORIZATION_MAX];
	struct digester digester;

	assert_int_equal(digester_init(&digester), 0);
	assert_int_equal(s3_sign(&digester, &example, request, out), 0);
	snprintf(expected, sizeof(expected),
		"AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders=%s,"
		"Signature=%s",
		names, signature);
	assert_string_equal(out, expected);
	digester_fini(&digester);
}

static void the_examples_of_the_documentation_have_their_signatures(void **state)
{
	const struct s3_header get[] = { { "host", HOST }, { "range", "bytes=0-9" }, { "x-amz-content-sha256", EMPTY },
		{ "x-amz-date", DATE } };
	const struct s3_header plain[] = { { "host", HOST }, { "x-amz-content-sha256", EMPTY },
		{ "x-amz-date", DATE } };
	char hash[S3_HASH_BYTES];
	const struct s3_header put[] = { { "date", "Fri, 24 May 2013 00:00:00 GMT" }, { "host", HOST },
		{ "x-amz-content-sha256", hash }, { "x-amz-date", DATE },
		{ "x-amz-storage-class", "REDUCED_REDUNDANCY" } };
	struct digester digester;

	(void)state;
	signed_so(&(struct s3_request){ "GET", "/test.txt", "", get, 4, EMPTY, DATE },
		"host;range;x-amz-content-sha256;x-amz-date",
		"f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
	assert_int_equal(digester_init(&digester), 0);
	s3_hash(&digester, "Welcome to", 10, " Amazon S3.", 11, hash);
	digester_fini(&digester);
	signed_so(&(struct s3_request){ "PUT", "/test%24file.text", "", put, 5, hash, DATE },
		"date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
		"98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
	signed_so(&(struct s3_request){ "GET", "/", "lifecycle=", plain, 3, EMPTY, DATE },
		"host;x-amz-content-sha256;x-amz-date",
		"fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
	signed_so(&(struct s3_request){ "GET", "/", "max-keys=2&prefix=J", plain, 3, EMPTY, DATE },
		"host;x-amz-content-sha256;x-amz-date",
		"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

static void what_does_not_fit_is_refused(void **state)
{
	struct s3_header headers[S3_HEADERS_MAX + 1];
	struct s3_request request = { "GET", "/", "", headers, S3_HEADERS_MAX + 1, EMPTY, DATE };
	char out[S3_AUTHORIZATION_MAX], name[100];
	struct digester digester;

	(void)state;
	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	for (uint32_t i = 0; i <= S3_HEADERS_MAX; i++)
		headers[i] = (struct s3_header){ name, "v" };
	assert_int_equal(digester_init(&digester), 0);
	assert_int_equal(s3_sign(&digester, &example, &request, out), -EINVAL);
	request.header_count = S3_HEADERS_MAX;
	assert_int_equal(s3_sign(&digester, &example, &request, out), -ENAMETOOLONG);
	request.header_count = 1;
	assert_int_equal(s3_sign(&digester, &example, &request, out), 0);
	request.date = "20130524";
	assert_int_equal(s3_sign(&digester, &example, &request, out), -EINVAL);
	digester_fini(&digester);
}

static void dates_are_written_in_one_way(void **state)
{
	char date[S3_DATE_BYTES];

	(void)state;
	s3_date(1369353600, date);
	assert_string_equal(date, DATE);
	s3_date(0, date);
	assert_string_equal(date, "19700101T000000Z");
	s3_date(UINT64_MAX / 2, date); /* no such year */
	assert_string_equal(date, "");
}

static void the_word_of_an_error_is_found(void **state)
{
	static const char body[] = "<?xml?><Error><Code>NoSuchKey</Code><Message>x</Message></Error>";
	char out[64];

	(void)state;
	s3_error_code(body, sizeof(body) - 1, out, sizeof(out));
	assert_string_equal(out, "NoSuchKey");
	for (size_t length = 0; length < sizeof(body); length++)
		s3_error_code(body, length, out, sizeof(out));
	s3_error_code(body, 22, out, sizeof(out)); /* cut */
	assert_string_equal(out, "No");
	s3_error_code(body, sizeof(body) - 1, out, 4);
	assert_string_equal(out, "NoS");
	s3_error_code("<Code>a\x1b[31m</Code>", 19, out, sizeof(out));
	assert_string_equal(out, "a");
	s3_error_code("", 0, out, sizeof(out));
	assert_string_equal(out, "");
}

static void a_profile_is_read_from_a_shared_credentials_file(void **state)
{
	static const char text[] = "# comment\n[default]\naws_access_key_id = A1\n  aws_secret_access_key=S/1+=\r\n"
				   "region = x\n\n[ two ]\naws_access_key_id=A2\naws_secret_access_key=S2\n"
				   "aws_session_token = T=2\n;x=y\n[half]\naws_access_key_id=A3\n[empty]";
	struct s3_credentials credentials;
	char large[3000];

	(void)state;
	memset(&credentials, 0, sizeof(credentials));
	assert_int_equal(s3_read_profile(text, "default", &credentials), 0);
	assert_string_equal(credentials.access_key, "A1");
	assert_string_equal(credentials.secret_key, "S/1+=");
	assert_string_equal(credentials.token, "");
	assert_int_equal(s3_read_profile(text, "two", &credentials), 0);
	assert_string_equal(credentials.access_key, "A2");
	assert_string_equal(credentials.token, "T=2");
	memset(&credentials, 0, sizeof(credentials));
	assert_int_equal(s3_read_profile(text, "half", &credentials), -EINVAL);
	memset(&credentials, 0, sizeof(credentials));
	assert_int_equal(s3_read_profile(text, "empty", &credentials), -EINVAL);
	assert_int_equal(s3_read_profile(text, "three", &credentials), -ENOENT);
	assert_int_equal(s3_read_profile("", "default", &credentials), -ENOENT);
	snprintf(large, sizeof(large), "[default]\naws_access_key_id=%0200d\naws_secret_access_key=x", 0);
	assert_int_equal(s3_read_profile(large, "default", &credentials), -EINVAL);
}

static void places_that_would_need_encoding_are_refused(void **state)
{
	static const char *const bad[] = { "", "ab", "bucket with blanks", "bucket/a//b", "bucket/../x", ".bucket",
		"bucket?x", "bucket/%41", "bucket/\xc3\xa4" };
	static const char *const endpoints[] = { "host", "ftp://host", "http://", "http://host/path",
		"http://user@host" };
	char error[200];

	(void)state;
	for (uint32_t i = 0; i < KVR_COUNT_OF(bad); i++)
		assert_int_equal(s3_adapter_check(bad[i], NULL, error, sizeof(error)), -EINVAL);
	for (uint32_t i = 0; i < KVR_COUNT_OF(endpoints); i++)
		assert_int_equal(s3_adapter_check("bucket", endpoints[i], error, sizeof(error)), -EINVAL);
	assert_int_equal(s3_adapter_check("my-bucket.x/pre_fix/2/", "http://127.0.0.1:9000", error, sizeof(error)), 0);
	assert_int_equal(s3_adapter_check("bucket", "https://[::1]:9000", error, sizeof(error)), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_examples_of_the_documentation_have_their_signatures),
		cmocka_unit_test(what_does_not_fit_is_refused),
		cmocka_unit_test(dates_are_written_in_one_way),
		cmocka_unit_test(the_word_of_an_error_is_found),
		cmocka_unit_test(a_profile_is_read_from_a_shared_credentials_file),
		cmocka_unit_test(places_that_would_need_encoding_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
