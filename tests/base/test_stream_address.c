#include "base/stream.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cmocka_all.h"

static void addresses_are_read(void **state)
{
	static const struct {
		const char *url, *path, *host;
		uint16_t port;
	} cases[] = {
		{ "unix:/run/kvrail/kvrail.sock", "/run/kvrail/kvrail.sock", NULL, 0 },
		{ "unix:relative.sock", "relative.sock", NULL, 0 },
		{ "kvrail://host", NULL, "host", STREAM_DEFAULT_PORT },
		{ "kvrail://host:7472", NULL, "host", 7472 },
		{ "kvrail://node-3.rack_1.example:1", NULL, "node-3.rack_1.example", 1 },
		{ "kvrail://10.0.0.7:65535", NULL, "10.0.0.7", 65535 },
		{ "kvrail://127.0.0.1:0", NULL, "127.0.0.1", 0 },
		{ "kvrail://[::1]", NULL, "::1", STREAM_DEFAULT_PORT },
		{ "kvrail://[::1]:7472", NULL, "::1", 7472 },
		{ "kvrail://[fe80::1%eth0]:7472", NULL, "fe80::1%eth0", 7472 },
	};

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(cases); i++) {
		struct stream_address address;

		assert_int_equal(stream_parse_address(cases[i].url, &address), 0);
		assert_int_equal(address.is_unix, cases[i].path != NULL);
		assert_string_equal(address.path, cases[i].path ? cases[i].path : "");
		assert_string_equal(address.host, cases[i].host ? cases[i].host : "");
		assert_int_equal(address.port, cases[i].port);
	}
}

static void wrong_addresses_are_refused_and_change_nothing(void **state)
{
	static const char *const wrong[] = { "", "host:7471", "/run/kvrail.sock", "unix", "unix:", "unix:/run/",
		"tcp://host", "KVRAIL://host", "kvrail:host", "kvrail:/host", "kvrail://", "kvrail://:7471",
		"kvrail://host:", "kvrail://host:65536", "kvrail://host:-1", "kvrail://host:+1", "kvrail://host:74x",
		"kvrail://host:7471/", "kvrail://host/", "kvrail://ho st", "kvrail://ho\nst", "kvrail://user@host",
		"kvrail://::1", "kvrail://::1:7471", "kvrail://[::1", "kvrail://[]", "kvrail://[::1]7471",
		"kvrail://[::1]:", "kvrail://fe80%eth0", "kvrail://h\xc3\xb6st" };
	struct stream_address address, before;

	(void)state;
	memset(&address, 0x5e, sizeof(address));
	before = address;
	for (size_t i = 0; i < KVR_COUNT_OF(wrong); i++) {
		if (stream_parse_address(wrong[i], &address) != -EINVAL)
			fail_msg("\"%s\" is taken", wrong[i]);
		assert_memory_equal(&address, &before, sizeof(address));
	}
}

/* Exactly what fits, and one more. */
static void lengths_are_held(void **state)
{
	char url[600];
	struct stream_address address;

	(void)state;
	snprintf(url, sizeof(url), "unix:/%0106d", 0);
	assert_int_equal(stream_parse_address(url, &address), 0);
	assert_int_equal(strlen(address.path), sizeof(address.path) - 1);
	snprintf(url, sizeof(url), "unix:/%0107d", 0);
	assert_int_equal(stream_parse_address(url, &address), -EINVAL);
	snprintf(url, sizeof(url), "kvrail://%0255d:1", 0);
	assert_int_equal(stream_parse_address(url, &address), 0);
	assert_int_equal(strlen(address.host), sizeof(address.host) - 1);
	snprintf(url, sizeof(url), "kvrail://%0256d:1", 0);
	assert_int_equal(stream_parse_address(url, &address), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(addresses_are_read),
		cmocka_unit_test(wrong_addresses_are_refused_and_change_nothing),
		cmocka_unit_test(lengths_are_held),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
