/* test_control_memory.c - MEMORY, FORGET_MEMORY, REGISTER and UNREGISTER: what is refused leaves nothing behind. */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mgmt/control_private.h"
#include "mgmt/control_rig.h"

#define REGION_BYTES ((uint64_t)65536)
#define ADDRESS UINT64_C(0x700000000000) /* nobody looks at what lies there */

static unsigned open_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	unsigned count = 0;

	assert_non_null(directory);
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

static struct control_client_status the_client(struct rig *rig)
{
	struct control_client_status status;

	assert_int_equal(control_list_clients(server_control(rig->server), &status, 1), 1);
	return status;
}

static uint32_t registrations_kept(struct rig *rig)
{
	return the_client(rig).registrations;
}

/* ---- MEMORY ---- */

static void a_region_too_many_is_refused_and_there_is_room_after_one_is_forgotten(void **state)
{
	uint32_t region;
	struct peer peer;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	peer_join(&rig, &peer);
	for (uint32_t i = 0; i < CONTROL_REGIONS_MAX; i++) {
		assert_int_equal(peer_memory(&peer, ADDRESS + i * REGION_BYTES, REGION_BYTES, &region), STATUS_OK);
		assert_int_equal(region, i);
	}
	assert_int_equal(peer_memory(&peer, ADDRESS, REGION_BYTES, &region), STATUS_BUSY);
	assert_non_null(strstr(peer.text, "256"));
	assert_int_equal(the_client(&rig).regions, CONTROL_REGIONS_MAX);
	assert_int_equal(the_client(&rig).region_bytes, CONTROL_REGIONS_MAX * REGION_BYTES);
	assert_int_equal(peer_forget(&peer, 100), STATUS_OK);
	assert_int_equal(peer_memory(&peer, ADDRESS, REGION_BYTES, &region), STATUS_OK);
	assert_int_equal(region, 100);
	peer_fini(&peer);
	rig_stop(&rig);
}

static int import_error;
static ino_t imported_file;

static int import_that_fails(struct ibv_qp *qp, const struct verbs_remote_memory *memory, struct verbs_import *import)
{
	(void)qp;
	(void)memory;
	(void)import;
	return import_error;
}

static void memory_that_cannot_be_reached_is_told_with_words_and_not_kept(void **state)
{
	static const struct rig_calls calls = { .import_memory = import_that_fails };
	static const struct {
		int error, status;
		const char *words;
	} table[] = {
		{ -EPERM, STATUS_MEMORY_UNUSABLE, "F_SEAL_SHRINK" },
		{ -EOPNOTSUPP, STATUS_MEMORY_UNUSABLE, "can't be reached" },
		{ -EFAULT, STATUS_INVALID_MEMORY, "shorter" },
		{ -EINVAL, STATUS_INVALID_MEMORY, "Invalid argument" },
		{ -ENOTRECOVERABLE, STATUS_MEMORY_UNUSABLE, "has lost that GPU" },
		{ -ENOMEM, STATUS_BUSY, "no memory" },
		{ -ENOSPC, STATUS_BUSY, "too many regions" },
	};
	uint8_t bytes[RIG_MESSAGE];
	unsigned before, i;
	struct peer peer;
	struct rig rig;
	int fd = memfd_create("region", MFD_CLOEXEC);

	(void)state;
	assert_true(fd >= 0);
	rig_make(&rig);
	rig_use(&rig, &calls);
	peer_join(&rig, &peer);
	before = open_descriptors();
	for (i = 0; i < KVR_COUNT_OF(table); i++) {
		import_error = table[i].error;
		peer_send(&peer, bytes, make_memory_shared(bytes, ADDRESS, REGION_BYTES), &fd, 1);
		assert_int_equal(peer_reply(&peer), table[i].status);
		assert_non_null(strstr(peer.text, table[i].words));
		assert_int_equal(open_descriptors(), before);
	}
	assert_int_equal(rig_counters(&rig)->memory_import_failures_total, i);
	assert_int_equal(rig_counters(&rig)->memory_imports_total, 0);
	assert_int_equal(the_client(&rig).regions, 0);
	assert_int_equal(the_client(&rig).region_bytes, 0);
	assert_int_equal(peer_forget(&peer, 0), STATUS_INVALID_MEMORY);
	peer_fini(&peer);
	rig_stop(&rig);
	close(fd);
}

static void shared_memory_without_its_descriptor_is_refused(void **state)
{
	uint8_t bytes[RIG_MESSAGE];
	struct peer peer;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	peer_join(&rig, &peer);
	assert_int_equal(
		peer_ask(&peer, bytes, make_memory_shared(bytes, ADDRESS, REGION_BYTES)), STATUS_INVALID_MEMORY);
	assert_non_null(strstr(peer.text, "descriptor"));
	peer_fini(&peer);
	rig_stop(&rig);
}

static int import_that_notes_the_file(
	struct ibv_qp *qp, const struct verbs_remote_memory *memory, struct verbs_import *import)
{
	struct stat file;

	(void)qp;
	assert_int_equal(fstat(memory->fd, &file), 0);
	imported_file = file.st_ino;
	import->rkey = 5;
	import->address = memory->address;
	import->length = memory->length;
	return 0;
}

static void forget_nothing(struct ibv_qp *qp, uint32_t rkey)
{
	(void)qp;
	(void)rkey;
}

/* Descriptors that came beside messages which have no use for them, or were refused. */
static void memory_is_never_that_of_an_earlier_messages_descriptor(void **state)
{
	static const struct rig_calls calls = {
		.import_memory = import_that_notes_the_file,
		.forget_memory = forget_nothing,
	};
	int stale = memfd_create("stale", MFD_CLOEXEC), right = memfd_create("right", MFD_CLOEXEC);
	const uint32_t unknown_kind = 99;
	uint8_t bytes[RIG_MESSAGE];
	struct stat file;
	unsigned before;
	struct peer peer;
	struct rig rig;
	size_t length;

	(void)state;
	assert_int_equal(fstat(right, &file), 0);
	rig_make(&rig);
	rig_use(&rig, &calls);
	peer_join(&rig, &peer);
	before = open_descriptors();
	length = make_memory_shared(bytes, ADDRESS, REGION_BYTES);
	memcpy(bytes + 56, &unknown_kind, 4);
	peer_send(&peer, bytes, length, &stale, 1);
	assert_int_equal(peer_reply(&peer), STATUS_UNSUPPORTED);
	peer_send(&peer, bytes, make_unregister(bytes, 7), &stale, 1);
	assert_int_equal(peer_reply(&peer), STATUS_NOT_REGISTERED);
	peer_send(&peer, bytes, make_memory_shared(bytes, ADDRESS, REGION_BYTES), &right, 1);
	assert_int_equal(peer_reply(&peer), STATUS_OK);
	assert_int_equal(imported_file, file.st_ino);
	assert_int_equal(open_descriptors(), before);
	peer_fini(&peer);
	rig_stop(&rig);
	close(stale);
	close(right);
}

static void descriptors_beside_any_message_are_closed_with_the_client(void **state)
{
	unsigned before = open_descriptors();
	int fds[STREAM_FDS_MAX];
	uint8_t bytes[RIG_MESSAGE];
	struct peer peer;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	for (unsigned i = 0; i < STREAM_FDS_MAX; i++)
		fds[i] = memfd_create("many", MFD_CLOEXEC);
	assert_int_equal(peer_open(&rig, &peer), 0);
	for (unsigned i = 0; i < 4; i++) { /* more than a client may hold */
		peer_send(&peer, &"KVRL"[i], 1, fds, STREAM_FDS_MAX);
		rig_steps(&rig, 50);
	}
	peer_fini(&peer);
	assert_int_equal(peer_open(&rig, &peer), 0);
	peer_send(&peer, bytes, make_hello(bytes, "sim", ""), fds, STREAM_FDS_MAX);
	assert_int_equal(peer_reply(&peer), STATUS_OK);
	peer_send(&peer, bytes, make_connect(bytes, &peer), fds, STREAM_FDS_MAX);
	assert_int_equal(peer_reply(&peer), STATUS_OK);
	peer_fini(&peer);
	for (unsigned i = 0; i < STREAM_FDS_MAX; i++)
		close(fds[i]);
	rig_stop(&rig);
	assert_int_equal(open_descriptors(), before);
}

/* ---- FORGET_MEMORY ---- */

static void a_region_that_a_registration_uses_is_not_forgotten(void **state)
{
	uint32_t used, unused, registration;
	struct peer peer;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	peer_join(&rig, &peer);
	assert_int_equal(peer_memory(&peer, ADDRESS, REGION_BYTES, &used), STATUS_OK);
	assert_int_equal(peer_memory(&peer, ADDRESS + REGION_BYTES, REGION_BYTES, &unused), STATUS_OK);
	assert_int_equal(peer_register(&peer, 2, ADDRESS, used, &registration), STATUS_OK);
	assert_int_equal(peer_forget(&peer, used), STATUS_BUSY);
	assert_int_equal(peer_forget(&peer, unused), STATUS_OK);
	assert_int_equal(peer_forget(&peer, unused), STATUS_INVALID_MEMORY);
	assert_int_equal(peer_forget(&peer, UINT32_MAX), STATUS_INVALID_MEMORY);
	assert_int_equal(peer_unregister(&peer, registration), STATUS_OK);
	assert_int_equal(peer_forget(&peer, used), STATUS_OK);
	assert_int_equal(the_client(&rig).regions, 0);
	assert_int_equal(the_client(&rig).region_bytes, 0);
	peer_fini(&peer);
	rig_stop(&rig);
}

static unsigned forgotten;

static void forget_that_counts(struct ibv_qp *qp, uint32_t rkey)
{
	forgotten++;
	verbs_sim.forget_memory(qp, rkey);
}

static void memory_is_given_back_once_whether_the_client_asks_or_goes(void **state)
{
	static const struct rig_calls calls = { .forget_memory = forget_that_counts };
	struct peer peer;
	struct rig rig;

	(void)state;
	forgotten = 0;
	rig_make(&rig);
	rig_use(&rig, &calls);
	peer_join(&rig, &peer);
	for (uint32_t i = 0; i < 5; i++)
		assert_int_equal(peer_memory(&peer, ADDRESS + i * REGION_BYTES, REGION_BYTES, NULL), STATUS_OK);
	assert_int_equal(peer_forget(&peer, 1), STATUS_OK);
	assert_int_equal(peer_forget(&peer, 3), STATUS_OK);
	assert_int_equal(forgotten, 2);
	peer_fini(&peer);
	rig_settle(&rig, 0);
	assert_int_equal(forgotten, 5);
	rig_stop(&rig);
}

static void memory_is_given_back_only_when_the_worker_reads_no_more_from_it(void **state)
{
	static const struct rig_calls calls = { .forget_memory = forget_that_counts };
	uint8_t bytes[RIG_MESSAGE];
	struct peer peer;
	struct rig rig;

	(void)state;
	forgotten = 0;
	rig_make(&rig);
	rig_use(&rig, &calls);
	peer_join(&rig, &peer);
	assert_int_equal(peer_memory(&peer, ADDRESS, REGION_BYTES, NULL), STATUS_OK);
	rig.management_stands = true;
	peer_send(&peer, bytes, make_forget(bytes, 0), NULL, 0);
	rig_steps(&rig, 200);
	assert_false(peer_look(&peer));
	assert_int_equal(peer.length, peer.message); /* nothing behind the reply to MEMORY */
	assert_int_equal(forgotten, 0);
	rig.management_stands = false;
	assert_int_equal(peer_reply(&peer), STATUS_OK);
	assert_int_equal(forgotten, 1);
	peer_fini(&peer);
	rig_stop(&rig);
}

/* ---- REGISTER ---- */

static void a_registration_tells_its_objects_size(void **state)
{
	struct register_reply reply;
	struct wire_error error;
	struct peer peer;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	peer_join(&rig, &peer);
	assert_int_equal(peer_memory(&peer, ADDRESS, REGION_BYTES, NULL), STATUS_OK);
	assert_int_equal(peer_register(&peer, 2, ADDRESS, 0, NULL), STATUS_OK);
	assert_int_equal(register_reply_decode(peer.received, peer.length, &reply, &error), 0);
	assert_int_equal(reply.object_bytes, 2 * (RIG_CHUNK_TOKENS / 4) * 64);
	assert_int_equal(reply.token_bytes, 2 * 64 / 4);
	assert_int_equal(peer_register(&peer, 0, 0, 0, NULL), STATUS_OK);
	assert_int_equal(register_reply_decode(peer.received, peer.length, &reply, &error), 0);
	assert_int_equal(reply.object_bytes, 0);
	peer_fini(&peer);
	rig_stop(&rig);
}

static void a_refused_registration_keeps_nothing(void **state)
{
	uint8_t bytes[RIG_MESSAGE];
	uint32_t registration;
	struct peer peer;
	struct rig rig;
	size_t length;

	(void)state;
	rig_make(&rig);
	peer_join(&rig, &peer);
	assert_int_equal(peer_memory(&peer, ADDRESS, REGION_BYTES, NULL), STATUS_OK);
	/* refused by the layout */
	assert_int_equal(peer_register(&peer, 2, ADDRESS, 1, NULL), STATUS_INVALID_MEMORY);
	assert_int_equal(peer_register(&peer, 2, ADDRESS, UINT32_MAX, NULL), STATUS_INVALID_MEMORY);
	assert_int_equal(peer_register(&peer, 2, ADDRESS - 1, 0, NULL), STATUS_INVALID_MEMORY);
	assert_int_equal(peer_register(&peer, 2, ADDRESS + REGION_BYTES - 1023, 0, NULL), STATUS_INVALID_MEMORY);
	length = make_register(bytes, "model", 2, ADDRESS, 0);
	bytes[88 + 2 + 5 + 2 + 5] = 3; /* tokens_per_block: does not divide 16 */
	assert_int_equal(peer_ask(&peer, bytes, length), STATUS_UNSUPPORTED);
	assert_int_equal(registrations_kept(&rig), 0);
	assert_int_equal(peer_register(&peer, 2, ADDRESS + REGION_BYTES - 1024, 0, &registration), STATUS_OK);
	/* refused by the management core: another size under the same identity */
	assert_int_equal(peer_register(&peer, 3, ADDRESS, 0, NULL), STATUS_LAYOUT_MISMATCH);
	assert_int_equal(registrations_kept(&rig), 1);
	assert_int_equal(peer_unregister(&peer, registration), STATUS_OK);
	assert_int_equal(peer_unregister(&peer, registration), STATUS_NOT_REGISTERED);
	assert_int_equal(registrations_kept(&rig), 0);
	assert_int_equal(peer_forget(&peer, 0), STATUS_OK);
	peer_fini(&peer);
	rig_stop(&rig);
}

static void a_registration_too_many_is_refused_and_there_is_room_after_one_is_given_back(void **state)
{
	uint32_t numbers[CONTROL_REGISTRATIONS_MAX], number;
	struct peer peer;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	peer_join(&rig, &peer);
	assert_int_equal(peer_memory(&peer, ADDRESS, REGION_BYTES, NULL), STATUS_OK);
	for (unsigned i = 0; i < CONTROL_REGISTRATIONS_MAX; i++)
		assert_int_equal(peer_register(&peer, i % 2, ADDRESS, 0, &numbers[i]), STATUS_OK);
	assert_int_equal(peer_register(&peer, 1, ADDRESS, 0, &number), STATUS_BUSY);
	assert_non_null(strstr(peer.text, "unregister"));
	assert_int_equal(registrations_kept(&rig), CONTROL_REGISTRATIONS_MAX);
	assert_int_equal(peer_unregister(&peer, numbers[31]), STATUS_OK);
	assert_int_equal(peer_register(&peer, 1, ADDRESS, 0, &number), STATUS_OK);
	for (unsigned i = 0; i < CONTROL_REGISTRATIONS_MAX; i++)
		assert_int_not_equal(number, numbers[i]);
	peer_fini(&peer);
	rig_settle(&rig, 0);
	rig_stop(&rig);
}

static void a_registration_of_another_connection_is_none(void **state)
{
	struct peer one, other;
	uint32_t registration;
	struct rig rig;

	(void)state;
	rig_make(&rig);
	peer_join(&rig, &one);
	peer_join(&rig, &other);
	assert_int_equal(peer_register(&one, 0, 0, 0, &registration), STATUS_OK);
	assert_int_equal(peer_unregister(&other, registration), STATUS_NOT_REGISTERED);
	assert_int_equal(peer_memory(&one, ADDRESS, REGION_BYTES, NULL), STATUS_OK);
	assert_int_equal(peer_register(&other, 1, ADDRESS, 0, NULL), STATUS_INVALID_MEMORY);
	assert_int_equal(peer_forget(&other, 0), STATUS_INVALID_MEMORY);
	assert_int_equal(peer_unregister(&one, registration), STATUS_OK);
	peer_fini(&one);
	peer_fini(&other);
	rig_stop(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_region_too_many_is_refused_and_there_is_room_after_one_is_forgotten),
		cmocka_unit_test(memory_that_cannot_be_reached_is_told_with_words_and_not_kept),
		cmocka_unit_test(shared_memory_without_its_descriptor_is_refused),
		cmocka_unit_test(memory_is_never_that_of_an_earlier_messages_descriptor),
		cmocka_unit_test(descriptors_beside_any_message_are_closed_with_the_client),
		cmocka_unit_test(a_region_that_a_registration_uses_is_not_forgotten),
		cmocka_unit_test(memory_is_given_back_once_whether_the_client_asks_or_goes),
		cmocka_unit_test(memory_is_given_back_only_when_the_worker_reads_no_more_from_it),
		cmocka_unit_test(a_registration_tells_its_objects_size),
		cmocka_unit_test(a_refused_registration_keeps_nothing),
		cmocka_unit_test(a_registration_too_many_is_refused_and_there_is_room_after_one_is_given_back),
		cmocka_unit_test(a_registration_of_another_connection_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
