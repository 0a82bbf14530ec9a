/*
 * A server is killed while it writes, again and again: whatever has a name afterwards is whole, whatever had ended is
 * there, and nothing else is left (pitfalls H05). KVRAIL_KILLS (100) is how often, KVRAIL_SEED (1) what it does.
 */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/random.h"
#include "base/text.h"
#include "tier/place.h"

#define FLIGHTS 8
#define OBJECTS 100000
#define BYTES_MAX 200000

/* In memory of both processes. */
struct ledger {
	uint8_t stored[OBJECTS]; /* the STORE had ended with 0 */
	uint32_t begun;          /* objects below have been begun */
};

static uint64_t setting(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);
	uint64_t value;

	return text && text_parse_u64(text, &value) == 0 ? value : otherwise;
}

static uint64_t bytes_of(uint32_t number)
{
	return 1 + random_mix(number + 77) % BYTES_MAX;
}

struct writer_flight {
	struct l2_request request;
	uint32_t number;
};

/* The child: stores one object after the other until it is killed. */
static void write_for_ever(const struct place *place, struct file_adapter_options options, struct ledger *ledger)
{
	static struct writer_flight flights[FLIGHTS];
	struct l2_adapter *adapter = place_open(place, &options);
	struct list_node ended, idle;

	list_init(&ended);
	list_init(&idle);
	for (int i = 0; i < FLIGHTS; i++) {
		flights[i].request.memory = aligned_alloc(4096, 204800);
		list_init(&flights[i].request.node);
		list_add_last(&idle, &flights[i].request.node);
	}
	while (ledger->begun < OBJECTS) {
		struct list_node *node = list_pop_first(&idle);
		struct writer_flight *flight;

		if (!node) {
			if (adapter->driver->poll(adapter, &ended, FLIGHTS) == 0)
				sched_yield();
			while ((node = list_pop_first(&ended))) {
				flight = KVR_CONTAINER_OF(
					KVR_CONTAINER_OF(node, struct l2_request, node), struct writer_flight, request);
				if (flight->request.status == 0)
					__atomic_store_n(&ledger->stored[flight->number], 1, __ATOMIC_RELEASE);
				list_add_last(&idle, node);
			}
			continue;
		}
		flight = KVR_CONTAINER_OF(
			KVR_CONTAINER_OF(node, struct l2_request, node), struct writer_flight, request);
		flight->number = ledger->begun;
		ledger->begun++;
		flight->request.operation = L2_STORE;
		flight->request.identity = object_identity(flight->number, bytes_of(flight->number));
		object_fill(flight->number, flight->request.memory, bytes_of(flight->number));
		if (adapter->driver->submit(adapter, &flight->request) != 0)
			_exit(3);
	}
	_exit(0);
}

static void kill_at_some_point(pid_t pid, struct random *random)
{
	struct timespec time = { .tv_nsec = (long)random_below(random, 30 * 1000 * 1000) };
	int status;

	/* No waiting for anything: where in its work the child dies is the point. */
	nanosleep(&time, NULL);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
}

/* Every file there is holds its object, and every object that was stored has its file. */
static uint32_t check_all(const struct place *place, const struct ledger *ledger, uint32_t from)
{
	struct file_adapter_options options = { .queue_depth = 0 };
	struct l2_adapter *adapter = place_open(place, &options);
	uint32_t good = 0;

	wait_scanned(adapter);
	for (uint32_t i = from; i < ledger->begun; i++) {
		int status = do_load(adapter, i, bytes_of(i)); /* asserts each byte */

		assert_true(status == 0 || (status == -ENOENT && !ledger->stored[i]));
		good += status == 0;
		/* The next round begins with an empty place. */
		assert_int_equal(do_remove(adapter, i, bytes_of(i)), 0);
	}
	assert_int_equal(stats_of(adapter).corrupt, 0);
	assert_int_equal(stats_of(adapter).objects, 0);
	adapter->driver->close(adapter);
	assert_int_equal(place_count(place, "", NULL), 0); /* no lock, no temporary file */
	return good;
}

static void no_kill_leaves_a_wrong_byte(void **state)
{
	static const struct file_adapter_options ways[] = { { .queue_depth = 8 }, { .no_uring = true },
		{ .buffered = true, .io_threads = 2 }, { .sync = FILE_SYNC_DATA } };
	uint32_t kills = (uint32_t)setting("KVRAIL_KILLS", 100), good = 0;
	uint64_t seed = setting("KVRAIL_SEED", 1);
	struct ledger *ledger;
	struct random random;
	struct place place;

	(void)state;
	random_init(&random, seed);
	place_make(&place);
	ledger = mmap(NULL, sizeof(*ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(ledger != MAP_FAILED);
	for (uint32_t i = 0; i < kills; i++) {
		uint32_t from = ledger->begun;
		pid_t pid = fork();

		assert_true(pid >= 0);
		if (pid == 0)
			write_for_ever(&place, ways[i % KVR_COUNT_OF(ways)], ledger);
		kill_at_some_point(pid, &random);
		good += check_all(&place, ledger, from);
	}
	print_message("seed %llu: %u kills, %u objects begun, %u found whole\n", (unsigned long long)seed, kills,
		ledger->begun, good);
	munmap(ledger, sizeof(*ledger));
	place_remove(&place);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(no_kill_leaves_a_wrong_byte) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
