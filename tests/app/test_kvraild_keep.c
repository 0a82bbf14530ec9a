/* kvraild --l1-keep as an operator meets it: killed, and full again after its start. */
#include "app/process.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cmocka_all.h"
#include "kvrail.h"

#define CHUNKS 6u
#define CHUNK_TOKENS 256u
#define BLOCK_TOKENS 16u
#define BLOCK_BYTES 1024u
#define BLOCKS (CHUNKS * CHUNK_TOKENS / BLOCK_TOKENS)

struct engine {
	char url[128];
	struct kvr_client *client;
	struct kvr_session *session;
	uint32_t registration;
	uint8_t *pages;
	uint32_t ids[BLOCKS];
};

static void engine_join(struct engine *engine, const struct server_process *server)
{
	struct kvr_options options = KVR_OPTIONS_INIT;
	struct kvr_model model = KVR_MODEL_INIT;
	uint32_t tokens[CHUNKS * CHUNK_TOKENS];
	struct kvr_plane plane;
	struct kvr_group group = { BLOCK_TOKENS, KVR_WINDOW_FULL, BLOCKS, 1, &plane };
	struct kvr_layout layout = { sizeof(layout), 1, &group };
	void *pages;

	memset(engine, 0, sizeof(*engine));
	snprintf(engine->url, sizeof(engine->url), "unix:%s", server->socket);
	options.url = engine->url;
	assert_int_equal(kvr_open(&options, &engine->client), 0);
	assert_int_equal(kvr_alloc(engine->client, BLOCKS * BLOCK_BYTES, &pages), 0);
	engine->pages = pages;
	plane.address = pages;
	plane.block_stride = BLOCK_BYTES;
	plane.block_bytes = BLOCK_BYTES;
	model.name = "kept";
	model.dtype = "bfloat16";
	assert_int_equal(kvr_register(engine->client, &model, &layout, NULL, &engine->registration), 0);
	for (uint32_t i = 0; i < CHUNKS * CHUNK_TOKENS; i++)
		tokens[i] = i * 7;
	for (uint32_t i = 0; i < BLOCKS; i++)
		engine->ids[i] = BLOCKS - 1 - i;
	assert_int_equal(
		kvr_session_create(engine->client, engine->registration, "request", NULL, &engine->session), 0);
	assert_int_equal(kvr_session_tokens(engine->session, tokens, CHUNKS * CHUNK_TOKENS), 0);
}

static void engine_leave(struct engine *engine)
{
	assert_int_equal(kvr_end(engine->session, 0), 0);
	kvr_session_destroy(&engine->session);
	kvr_close(&engine->client);
}

static uint8_t byte_of(uint64_t at)
{
	return (uint8_t)(at * 131 + at / 1024);
}

static void engine_store(struct engine *engine)
{
	struct kvr_transfer transfer = KVR_TRANSFER_INIT;
	struct kvr_blocks blocks = { engine->ids, BLOCKS };
	struct kvr_result result;

	for (uint64_t i = 0; i < BLOCKS * BLOCK_BYTES; i++)
		engine->pages[i] = byte_of(i);
	transfer.group_count = 1;
	transfer.groups = &blocks;
	transfer.chunk_count = CHUNKS;
	assert_int_equal(kvr_store(engine->session, &transfer, 0, &result), 0);
	assert_int_equal(result.chunks, CHUNKS);
}

static void engine_expects(struct engine *engine, uint32_t chunks)
{
	struct kvr_transfer transfer = KVR_TRANSFER_INIT;
	struct kvr_blocks blocks = { engine->ids, BLOCKS };
	struct kvr_result result;

	assert_int_equal(kvr_lookup(engine->session, 0, &result), 0);
	assert_int_equal(result.chunks, chunks);
	if (chunks == 0)
		return;
	memset(engine->pages, 0xee, BLOCKS * BLOCK_BYTES);
	transfer.group_count = 1;
	transfer.groups = &blocks;
	transfer.chunk_count = CHUNKS;
	assert_int_equal(kvr_retrieve(engine->session, &transfer, 0, &result), 0);
	for (uint64_t i = 0; i < BLOCKS * BLOCK_BYTES; i++)
		assert_int_equal(engine->pages[i], byte_of(i));
}

static void remove_kept(const char *folder)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/index", folder);
	unlink(path);
	snprintf(path, sizeof(path), "%s/l1.0", folder);
	unlink(path);
	assert_int_equal(rmdir(folder), 0);
}

static void make_folder(char folder[64])
{
	strcpy(folder, "/dev/shm/kvrail-test-XXXXXX");
	assert_non_null(mkdtemp(folder));
}

static void a_server_that_was_killed_and_one_that_left_are_followed_by_a_full_one(void **state)
{
	static const int ends[] = { SIGKILL, SIGTERM };
	struct server_process server;
	struct engine engine;
	char folder[64];

	(void)state;
	make_folder(folder);
	SERVER_START(&server, "--l1-keep", folder);
	engine_join(&engine, &server);
	engine_expects(&engine, 0);
	engine_store(&engine);
	engine_leave(&engine);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(server_process_stop(&server, ends[i]), ends[i] == SIGKILL ? 128 + SIGKILL : 0);
		unlink(server.socket);
		server_process_clean(&server);
		SERVER_START(&server, "--l1-keep", folder);
		assert_int_equal(server_process_logged(&server, "6 objects of the server before are in L1 again"), 1);
		engine_join(&engine, &server);
		engine_expects(&engine, CHUNKS);
		engine_leave(&engine);
	}
	assert_int_equal(server_process_stop(&server, SIGTERM), 0);
	assert_true(server_process_clean(&server));
	remove_kept(folder);
}

static void what_cannot_be_used_is_refused_with_what_to_do(void **state)
{
	struct text words = { NULL, 0, 0, false };
	struct server_process server;
	char folder[64], socket[128];

	(void)state;
	make_folder(folder);
	SERVER_START(&server, "--l1-keep", folder);
	snprintf(socket, sizeof(socket), "%s/second", server.folder);
	assert_int_equal(PROCESS_RUN("kvraild", NULL, &words, "--socket", socket, "--http", "off", "--l1-size", "16MiB",
				 "--cores", "any", "--l1-keep", folder),
		1);
	assert_non_null(strstr(words.bytes, "is used by another server"));
	assert_int_equal(server_process_stop(&server, SIGTERM), 0);
	words.length = 0;
	assert_int_equal(PROCESS_RUN("kvraild", NULL, &words, "--socket", socket, "--http", "off", "--l1-size", "32MiB",
				 "--cores", "any", "--l1-keep", folder),
		1);
	assert_non_null(strstr(words.bytes, "another size"));
	assert_non_null(strstr(words.bytes, "/index to begin with an empty cache"));
	words.length = 0;
	assert_int_equal(chmod(folder, 0777), 0);
	assert_int_equal(PROCESS_RUN("kvraild", NULL, &words, "--socket", socket, "--http", "off", "--l1-size", "16MiB",
				 "--cores", "any", "--l1-keep", folder),
		1);
	assert_non_null(strstr(words.bytes, "writable by nobody else"));
	text_fini(&words);
	assert_true(server_process_clean(&server));
	remove_kept(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_server_that_was_killed_and_one_that_left_are_followed_by_a_full_one),
		cmocka_unit_test(what_cannot_be_used_is_refused_with_what_to_do),
	};

	if (access("/dev/shm", W_OK) != 0) {
		printf("no /dev/shm to write to: skipped\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
