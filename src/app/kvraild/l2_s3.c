#include "app/kvraild/l2_s3.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tier/s3_adapter.h"

#define CREDENTIALS_FILE_MAX 65536

struct s3_settings {
	char endpoint[208];
	char region[64];
	char credentials_file[160];
	char profile[64];
	char ca_file[160];
	uint64_t timeout, retry;
	uint32_t depth, tries, payload;
	char compress[24];
	uint32_t element;
	bool read_only;
};

#define AT(field) offsetof(struct s3_settings, field)
#define TEXT(field) AT(field), sizeof(((struct s3_settings *)0)->field)

static const struct option_spec specs[] = {
	{ "endpoint", OPTION_TEXT, TEXT(endpoint), NULL, NULL, NULL, "Place",
		"http://HOST[:PORT] or https://HOST[:PORT]; (none): https://s3.REGION.amazonaws.com" },
	{ "region", OPTION_TEXT, TEXT(region), NULL, NULL, NULL, "Place",
		"(none): AWS_REGION or AWS_DEFAULT_REGION of the environment, else us-east-1" },
	{ "credentials-file", OPTION_TEXT, TEXT(credentials_file), NULL, NULL, NULL, "Place",
		"shared credentials file; (none): AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of the environment, else ~/.aws/credentials" },
	{ "profile", OPTION_TEXT, TEXT(profile), NULL, NULL, NULL, "Place",
		"of the credentials file; (none): AWS_PROFILE of the environment, else default" },
	{ "ca-file", OPTION_TEXT, TEXT(ca_file), NULL, NULL, NULL, "Place",
		"certificates that are trusted; (none): the system's" },
	{ "payload", OPTION_CHOICE, AT(payload), 0, "auto", "auto|signed|unsigned", NULL, "Place",
		"whether bytes are signed as well, which costs SHA-256 of them; auto: over http" },
	{ "depth", OPTION_U32, AT(depth), 0, "32", "1", "256", "Place", "objects under way at once" },
	{ "tries", OPTION_U32, AT(tries), 0, "3", "1", "10", "Place",
		"times that a request is sent that fails in a way that may pass" },
	{ "timeout", OPTION_TIME, AT(timeout), 0, "5s", "1ms", "10m", "Place",
		"for a connection, and for a request beside 1 s for each MiB of it" },
	{ "retry", OPTION_TIME, AT(retry), 0, "100ms", "1ms", "10s", "Place",
		"wait before the second try, twice as long before each further one" },
	{ "compress", OPTION_TEXT, TEXT(compress), "none", NULL, NULL, "Place",
		"none, or zstd:LEVEL with a level from 1 to 19, by the place's one thread; see docs/L2_ADAPTERS.md" },
	{ "element", OPTION_U32, AT(element), 0, "2", "1", "4", "Place",
		"compressing: bytes of a number in the KV cache, 2 for bf16 and fp16, 1 for fp8, 4" },
	{ "read-only", OPTION_BOOL, AT(read_only), 0, "no", NULL, NULL, "Place", "nothing is written or removed" },
};

static const struct option_table table = { "kvraild --l2 s3:BUCKET",
	"a bucket of S3, or of a server that speaks as S3 does", "BUCKET or BUCKET/PREFIX, then ?name=value&...", specs,
	KVR_COUNT_OF(specs) };

static int s3_check(const struct place *place, const void *opaque, struct option_error *error)
{
	const struct s3_settings *settings = opaque;
	char text[200] = "";

	if (s3_adapter_check(place->where, settings->endpoint, text, sizeof(text)) != 0) {
		/* the text is there */
	} else if (settings->credentials_file[0] && access(settings->credentials_file, R_OK) != 0) {
		snprintf(text, sizeof(text), "credentials-file can't be read: %s", strerror(errno));
	} else if (settings->ca_file[0] && access(settings->ca_file, R_OK) != 0) {
		snprintf(text, sizeof(text), "ca-file can't be read: %s", strerror(errno));
	}
	if (!text[0])
		l2_compress_check(settings->compress, settings->element, text, sizeof(text));
	if (!text[0])
		return 0;
	snprintf(error->text, sizeof(error->text), "--l2 s3:%.200s: %s", place->where, text);
	return -EINVAL;
}

static const char *environment(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

/* False: it does not fit. */
static bool take(char *out, size_t size, const char *value)
{
	size_t length = value ? strlen(value) : 0;

	if (length >= size)
		return false;
	if (value)
		memcpy(out, value, length + 1);
	else
		out[0] = '\0';
	return true;
}

static ssize_t read_file(const char *path, char *bytes, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length;

	if (fd < 0)
		return -errno;
	length = read(fd, bytes, size - 1);
	if (length < 0)
		length = -errno;
	close(fd);
	return length;
}

static int read_profile(
	const char *path, const char *profile, struct s3_credentials *credentials, char *error, size_t error_size)
{
	char *bytes = malloc(CREDENTIALS_FILE_MAX);
	ssize_t length;
	int result;

	if (!bytes) {
		snprintf(error, error_size, "no memory");
		return -ENOMEM;
	}
	length = read_file(path, bytes, CREDENTIALS_FILE_MAX);
	if (length < 0) {
		snprintf(error, error_size,
			"no credentials: neither AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, nor %.200s: %s", path,
			strerror((int)-length));
		free(bytes);
		return -EACCES;
	}
	bytes[length] = '\0';
	result = s3_read_profile(bytes, profile, credentials);
	if (result)
		snprintf(error, error_size, "%.200s: %s %.64s", path,
			result == -ENOENT ? "there is no profile"
					  : "aws_access_key_id or aws_secret_access_key is missing in",
			profile);
	explicit_bzero(bytes, CREDENTIALS_FILE_MAX);
	free(bytes);
	return result ? -EINVAL : 0;
}

static int find_credentials(
	const struct s3_settings *settings, struct s3_credentials *credentials, char *error, size_t error_size)
{
	const char *profile = settings->profile[0] ? settings->profile : environment("AWS_PROFILE");
	const char *path = settings->credentials_file[0] ? settings->credentials_file : NULL;
	const char *access_key = environment("AWS_ACCESS_KEY_ID"), *secret_key = environment("AWS_SECRET_ACCESS_KEY");
	const char *home = environment("HOME");
	char name[300];

	if (!path && access_key && secret_key) {
		if (take(credentials->access_key, sizeof(credentials->access_key), access_key) &&
			take(credentials->secret_key, sizeof(credentials->secret_key), secret_key) &&
			take(credentials->token, sizeof(credentials->token), environment("AWS_SESSION_TOKEN")))
			return 0;
		snprintf(
			error, error_size, "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or AWS_SESSION_TOKEN is too long");
		return -EINVAL;
	}
	if (!path)
		path = environment("AWS_SHARED_CREDENTIALS_FILE");
	if (!path) {
		snprintf(name, sizeof(name), "%.255s/.aws/credentials", home ? home : "");
		path = name;
	}
	return read_profile(path, profile ? profile : "default", credentials, error, error_size);
}

static bool find_region(const struct s3_settings *settings, struct s3_credentials *credentials)
{
	const char *region = settings->region[0] ? settings->region : environment("AWS_REGION");

	if (!region)
		region = environment("AWS_DEFAULT_REGION");
	return take(credentials->region, sizeof(credentials->region), region ? region : "us-east-1");
}

static int s3_open(const struct place *place, const void *opaque, const struct l1_area *areas, uint32_t area_count,
	struct l2_adapter **adapter, char *error, size_t error_size)
{
	const struct s3_settings *settings = opaque;
	struct s3_adapter_options options;
	struct s3_credentials credentials;
	int result;

	(void)areas;
	(void)area_count;
	memset(&credentials, 0, sizeof(credentials));
	result = find_credentials(settings, &credentials, error, error_size);
	if (!result && !find_region(settings, &credentials)) {
		snprintf(error, error_size, "the region has at most %zu characters", sizeof(credentials.region) - 1);
		result = -EINVAL;
	}
	if (!result) {
		memset(&options, 0, sizeof(options));
		options.where = place->where;
		options.endpoint = settings->endpoint;
		options.ca_file = settings->ca_file;
		options.credentials = &credentials;
		options.depth = settings->depth;
		options.tries = settings->tries;
		options.timeout_ns = settings->timeout;
		options.retry_ns = settings->retry;
		options.payload = (enum s3_payload)settings->payload;
		options.compress_level = l2_compress_level(settings->compress);
		options.element = settings->element;
		options.read_only = settings->read_only;
		result = s3_adapter_open(&options, adapter, error, error_size);
	}
	explicit_bzero(&credentials, sizeof(credentials));
	return result;
}

const struct l2_kind l2_s3_kind = { "s3", &table, sizeof(struct s3_settings), s3_check, s3_open };
