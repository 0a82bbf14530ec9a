#include "tier/s3_sign.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/text.h"

#define HMAC_BLOCK 64

static void hmac(struct digester *digester, const void *key, size_t key_length, const char *text, uint8_t out[32])
{
	uint8_t inner[HMAC_BLOCK] = { 0 }, outer[HMAC_BLOCK], hash[32];

	if (key_length > HMAC_BLOCK)
		digester_hash(digester, key, key_length, "", 0, inner);
	else
		memcpy(inner, key, key_length);
	for (int i = 0; i < HMAC_BLOCK; i++) {
		outer[i] = inner[i] ^ 0x5c;
		inner[i] ^= 0x36;
	}
	digester_hash(digester, inner, sizeof(inner), text, strlen(text), hash);
	digester_hash(digester, outer, sizeof(outer), hash, sizeof(hash), out);
	explicit_bzero(inner, sizeof(inner));
	explicit_bzero(outer, sizeof(outer));
}

void s3_date(uint64_t seconds, char out[S3_DATE_BYTES])
{
	time_t when = (time_t)seconds;
	struct tm parts;

	if (!gmtime_r(&when, &parts) || strftime(out, S3_DATE_BYTES, "%Y%m%dT%H%M%SZ", &parts) == 0)
		out[0] = '\0';
}

void s3_hash(struct digester *digester, const void *first, size_t first_length, const void *second,
	size_t second_length, char out[S3_HASH_BYTES])
{
	uint8_t hash[32];

	digester_hash(digester, first, first_length, second, second_length, hash);
	text_hex(out, hash, sizeof(hash));
}

/* "host;range;x-amz-date" */
static int header_names(const struct s3_request *request, char *out, size_t size)
{
	size_t length = 0;

	for (uint32_t i = 0; i < request->header_count; i++) {
		int written = snprintf(out + length, size - length, "%s%s", i ? ";" : "", request->headers[i].name);

		if (written < 0 || (size_t)written >= size - length)
			return -ENAMETOOLONG;
		length += (size_t)written;
	}
	return 0;
}

/* The hash of the canonical request. */
static int request_hash(
	struct digester *digester, const struct s3_request *request, const char *names, char out[S3_HASH_BYTES])
{
	struct text text = { 0 };
	int error = 0;

	text_append(&text, "%s\n%s\n%s\n", request->method, request->path, request->query);
	for (uint32_t i = 0; i < request->header_count; i++)
		text_append(&text, "%s:%s\n", request->headers[i].name, request->headers[i].value);
	text_append(&text, "\n%s\n%s", names, request->payload_hash);
	if (text.failed)
		error = -ENOMEM;
	else
		s3_hash(digester, text.bytes, text.length, "", 0, out);
	text_fini(&text);
	return error;
}

static void signing_key(
	struct digester *digester, const struct s3_credentials *credentials, const char *day, uint8_t key[32])
{
	char first[sizeof(credentials->secret_key) + 4];

	snprintf(first, sizeof(first), "AWS4%s", credentials->secret_key);
	hmac(digester, first, strlen(first), day, key);
	hmac(digester, key, 32, credentials->region, key);
	hmac(digester, key, 32, "s3", key);
	hmac(digester, key, 32, "aws4_request", key);
	explicit_bzero(first, sizeof(first));
}

int s3_sign(struct digester *digester, const struct s3_credentials *credentials, const struct s3_request *request,
	char out[S3_AUTHORIZATION_MAX])
{
	char names[256], scope[128], day[9], canonical[S3_HASH_BYTES], to_sign[320], signature[S3_HASH_BYTES];
	uint8_t key[32], mac[32];
	int error, written;

	if (request->header_count > S3_HEADERS_MAX || strlen(request->date) != S3_DATE_BYTES - 1)
		return -EINVAL;
	error = header_names(request, names, sizeof(names));
	if (!error)
		error = request_hash(digester, request, names, canonical);
	if (error)
		return error;
	text_copy(day, sizeof(day), request->date); /* its first 8 characters */
	snprintf(scope, sizeof(scope), "%s/%s/s3/aws4_request", day, credentials->region);
	snprintf(to_sign, sizeof(to_sign), "AWS4-HMAC-SHA256\n%s\n%s\n%s", request->date, scope, canonical);
	signing_key(digester, credentials, day, key);
	hmac(digester, key, sizeof(key), to_sign, mac);
	text_hex(signature, mac, sizeof(mac));
	explicit_bzero(key, sizeof(key));
	written = snprintf(out, S3_AUTHORIZATION_MAX, "AWS4-HMAC-SHA256 Credential=%s/%s,SignedHeaders=%s,Signature=%s",
		credentials->access_key, scope, names, signature);
	return written < 0 || written >= S3_AUTHORIZATION_MAX ? -ENAMETOOLONG : 0;
}

/* ---- what a server says ---- */

static bool is_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_';
}

void s3_error_code(const char *body, size_t length, char *out, size_t size)
{
	static const char tag[] = "<Code>";
	const char *at = memmem(body, length, tag, sizeof(tag) - 1), *end = body + length;
	size_t count = 0;

	if (at) {
		for (at += sizeof(tag) - 1; at < end && is_word(*at) && count + 1 < size; at++)
			out[count++] = *at;
	}
	out[count] = '\0';
}

/* ---- the shared credentials file ---- */

struct line {
	const char *name, *value;
	size_t name_length, value_length;
};

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static void trim(const char **at, size_t *length)
{
	while (*length > 0 && blank(**at)) {
		(*at)++;
		(*length)--;
	}
	while (*length > 0 && blank((*at)[*length - 1]))
		(*length)--;
}

/* name = value; false: something else. */
static bool split(const char *at, size_t length, struct line *line)
{
	const char *equals = memchr(at, '=', length);

	if (!equals)
		return false;
	*line = (struct line){ at, equals + 1, (size_t)(equals - at), length - (size_t)(equals + 1 - at) };
	trim(&line->name, &line->name_length);
	trim(&line->value, &line->value_length);
	return true;
}

static bool is_profile(const char *at, size_t length, const char *profile)
{
	if (length < 2 || at[0] != '[' || at[length - 1] != ']')
		return false;
	at++;
	length -= 2;
	trim(&at, &length);
	return length == strlen(profile) && strncmp(at, profile, length) == 0;
}

static bool take_value(const struct line *line, const char *name, char *out, size_t size)
{
	if (line->name_length != strlen(name) || strncmp(line->name, name, line->name_length) != 0)
		return true;
	if (line->value_length >= size)
		return false;
	memcpy(out, line->value, line->value_length);
	out[line->value_length] = '\0';
	return true;
}

int s3_read_profile(const char *text, const char *profile, struct s3_credentials *credentials)
{
	bool ours = false, found = false, good = true;

	while (*text) {
		size_t length = strcspn(text, "\n"), whole = length;
		const char *at = text;
		struct line line;

		trim(&at, &length);
		if (length > 0 && at[0] == '[') {
			ours = is_profile(at, length, profile);
			found |= ours;
		} else if (ours && length > 0 && at[0] != '#' && at[0] != ';' && split(at, length, &line)) {
			good = good &&
				take_value(&line, "aws_access_key_id", credentials->access_key,
					sizeof(credentials->access_key)) &&
				take_value(&line, "aws_secret_access_key", credentials->secret_key,
					sizeof(credentials->secret_key)) &&
				take_value(&line, "aws_session_token", credentials->token, sizeof(credentials->token));
		}
		text += whole + (text[whole] == '\n');
	}
	if (!found)
		return -ENOENT;
	return good && credentials->access_key[0] && credentials->secret_key[0] ? 0 : -EINVAL;
}
