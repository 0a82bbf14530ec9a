#include "app/kvraild/l2_redis.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/kvraild/options.h"
#include "tier/redis_adapter.h"

#define PASSWORD_VARIABLE "KVRAIL_REDIS_PASSWORD"

struct redis_settings {
	char user[64];
	char password_file[160];
	char password_env[48];
	char prefix[64];
	uint64_t timeout, retry, expire;
	uint32_t database, connections, depth;
	char compress[24];
	uint32_t element;
	bool cluster, read_only;
};

#define AT(field) offsetof(struct redis_settings, field)
#define TEXT(field) AT(field), sizeof(((struct redis_settings *)0)->field)

static const struct option_spec specs[] = {
	{ "user", OPTION_TEXT, TEXT(user), NULL, NULL, NULL, "Place", "ACL user; (none): the default one" },
	{ "password-file", OPTION_TEXT, TEXT(password_file), NULL, NULL, NULL, "Place",
		"file whose first line is the password" },
	{ "password-env", OPTION_TEXT, TEXT(password_env), PASSWORD_VARIABLE, NULL, NULL, "Place",
		"environment variable with the password, where there is no file" },
	{ "prefix", OPTION_TEXT, TEXT(prefix), "kvrail:", NULL, NULL, "Place", "what each key begins with" },
	{ "database", OPTION_U32, AT(database), 0, "0", "0", "1048575", "Place", "number of the database (SELECT)" },
	{ "cluster", OPTION_BOOL, AT(cluster), 0, "no", NULL, NULL, "Place",
		"the server belongs to a cluster; up to 8 of its servers may be named, with commas" },
	{ "connections", OPTION_U32, AT(connections), 0, "4", "1", "16", "Place",
		"connections to each server that carry objects; one more asks and removes" },
	{ "depth", OPTION_U32, AT(depth), 0, "32", "1", "1024", "Place", "objects under way at once" },
	{ "timeout", OPTION_TIME, AT(timeout), 0, "2s", "1ms", "10m", "Place",
		"for a connection, and for an answer beside 1 s for each MiB of it" },
	{ "retry", OPTION_TIME, AT(retry), 0, "50ms", "1ms", "10s", "Place",
		"wait after a failure, twice as long after each further one, up to 10 s" },
	{ "expire", OPTION_TIME, AT(expire), 0, "0", "0", "8760h", "Place",
		"time to live of each object (PX); 0: as long as the server keeps it" },
	{ "compress", OPTION_TEXT, TEXT(compress), "none", NULL, NULL, "Place",
		"none, or zstd:LEVEL with a level from 1 to 19, by the place's one thread; see docs/L2_ADAPTERS.md" },
	{ "element", OPTION_U32, AT(element), 0, "2", "1", "4", "Place",
		"compressing: bytes of a number in the KV cache, 2 for bf16 and fp16, 1 for fp8, 4" },
	{ "read-only", OPTION_BOOL, AT(read_only), 0, "no", NULL, NULL, "Place", "nothing is written or removed" },
};

static const struct option_table table = { "kvraild --l2 redis:SERVER", "a Redis or Valkey server",
	"HOST:PORT or the path of a Unix socket, then ?name=value&...", specs, KVR_COUNT_OF(specs) };

static int redis_check(const struct place *place, const void *opaque, struct option_error *error)
{
	const struct redis_settings *settings = opaque;
	char text[160] = "";

	if (redis_adapter_check_where(place->where, settings->cluster, text, sizeof(text)) != 0) {
		/* the text is there */
	} else if (settings->cluster && settings->database) {
		snprintf(text, sizeof(text), "a cluster has database 0 alone");
	} else if (!settings->prefix[0]) {
		snprintf(text, sizeof(text), "the prefix of keys is empty: other keys could be taken for ours");
	} else if (settings->expire && settings->expire < 1000000) {
		snprintf(text, sizeof(text), "expire is 1ms or more, or 0");
	} else if (settings->password_file[0] && access(settings->password_file, R_OK) != 0) {
		snprintf(text, sizeof(text), "password-file can't be read: %s", strerror(errno));
	}
	if (!text[0])
		l2_compress_check(settings->compress, settings->element, text, sizeof(text));
	if (!text[0])
		return 0;
	snprintf(error->text, sizeof(error->text), "--l2 redis:%.200s: %s", place->where, text);
	return -EINVAL;
}

/* From the file, or from the environment; "": none. */
static int read_password(
	const struct redis_settings *settings, char *password, size_t size, char *error, size_t error_size)
{
	const char *value = settings->password_env[0] ? getenv(settings->password_env) : NULL;
	struct option_error why;

	password[0] = '\0';
	if (settings->password_file[0]) {
		int result = kvraild_read_secret("password-file", settings->password_file, 1, password, size, &why);

		if (result)
			snprintf(error, error_size, "%s", why.text);
		return result;
	}
	if (!value && strcmp(settings->password_env, PASSWORD_VARIABLE) != 0 && settings->password_env[0]) {
		snprintf(error, error_size, "password-env: there is no %s in the environment", settings->password_env);
		return -EINVAL;
	}
	if (value && strlen(value) >= size) {
		snprintf(error, error_size, "password-env: %s is longer than %zu characters", settings->password_env,
			size - 1);
		return -EINVAL;
	}
	if (value)
		memcpy(password, value, strlen(value) + 1);
	return 0;
}

static int redis_open(const struct place *place, const void *opaque, const struct l1_area *areas, uint32_t area_count,
	struct l2_adapter **adapter, char *error, size_t error_size)
{
	const struct redis_settings *settings = opaque;
	struct redis_adapter_options options;
	char password[256];
	int result = read_password(settings, password, sizeof(password), error, error_size);

	(void)areas;
	(void)area_count;
	if (result)
		return result;
	memset(&options, 0, sizeof(options));
	options.where = place->where;
	options.user = settings->user;
	options.password = password;
	options.prefix = settings->prefix;
	options.database = settings->database;
	options.connections = settings->connections;
	options.depth = settings->depth;
	options.timeout_ns = settings->timeout;
	options.retry_ns = settings->retry;
	options.expire_ns = settings->expire;
	options.cluster = settings->cluster;
	options.compress_level = l2_compress_level(settings->compress);
	options.element = settings->element;
	options.read_only = settings->read_only;
	result = redis_adapter_open(&options, adapter, error, error_size);
	explicit_bzero(password, sizeof(password));
	return result;
}

const struct l2_kind l2_redis_kind = { "redis", &table, sizeof(struct redis_settings), redis_check, redis_open };
