/* The ring between two real threads. Only ThreadSanitizer sees a missing release or acquire on a strongly ordered
 * machine. */
#include "base/random.h"
#include "base/ring.h"

#include <pthread.h>
#include <sched.h>

#include "base/cmocka_all.h"

#define MESSAGES UINT64_C(1000000)

struct run {
	struct ring there;
	struct ring back; /* only in the round trip */
	uint64_t messages;
};

/* The other side may need this core. */
static void wait_a_little(unsigned *turns)
{
	if (++*turns % 64 == 0)
		sched_yield();
	else
		kvr_cpu_pause();
}

static void fill(struct ring_message *message, uint64_t number)
{
	message->kind = (uint32_t)number;
	message->count = (uint32_t)(number >> 32);
	for (size_t i = 0; i < KVR_COUNT_OF(message->word); i++)
		message->word[i] = random_mix(number + i);
}

static bool is_filled(const struct ring_message *message, uint64_t number)
{
	bool same = message->kind == (uint32_t)number && message->count == (uint32_t)(number >> 32);

	for (size_t i = 0; i < KVR_COUNT_OF(message->word); i++)
		same &= message->word[i] == random_mix(number + i);
	return same;
}

static void *produce(void *argument)
{
	struct run *run = argument;
	unsigned turns = 0;

	for (uint64_t number = 0; number < run->messages;) {
		struct ring_message *slot = ring_push_begin(&run->there);

		if (!slot) {
			wait_a_little(&turns);
			continue;
		}
		fill(slot, number++);
		ring_push_end(&run->there);
	}
	return NULL;
}

static void pass_messages(uint32_t capacity, uint64_t start, uint64_t messages)
{
	struct run run = { .messages = messages };
	uint64_t wrong = 0;
	unsigned turns = 0;
	pthread_t producer;

	assert_int_equal(ring_init(&run.there, capacity), 0);
	run.there.head = run.there.tail = run.there.head_copy = run.there.tail_copy = start;
	assert_int_equal(pthread_create(&producer, NULL, produce, &run), 0);
	for (uint64_t number = 0; number < run.messages;) {
		const struct ring_message *slot = ring_pop_begin(&run.there);

		if (!slot) {
			wait_a_little(&turns);
			continue;
		}
		wrong += !is_filled(slot, number++);
		ring_pop_end(&run.there);
	}
	assert_int_equal(pthread_join(producer, NULL), 0);
	assert_int_equal(wrong, 0);
	assert_true(ring_empty(&run.there));
	ring_fini(&run.there);
}

static void a_million_messages_arrive_whole_and_in_order(void **state)
{
	(void)state;
	pass_messages(256, 0, MESSAGES);
}

/* On a busy machine every second message waits for a turn of its thread: fewer do. */
static void messages_arrive_through_a_ring_of_two_while_the_indices_overflow(void **state)
{
	(void)state;
	pass_messages(2, UINT64_MAX - MESSAGES / 40, MESSAGES / 20);
}

static void *echo(void *argument)
{
	struct run *run = argument;
	struct ring_message message;
	unsigned turns = 0;

	for (uint64_t number = 0; number < run->messages;) {
		if (!ring_pop(&run->there, &message)) {
			wait_a_little(&turns);
			continue;
		}
		/* One message is on the way at most, so that there is always room. */
		ring_push(&run->back, &message);
		number++;
	}
	return NULL;
}

static void every_message_comes_back_over_a_second_ring(void **state)
{
	struct run run = { .messages = MESSAGES / 100 }; /* each waits for the other thread to get a core */
	struct ring_message message;
	uint64_t wrong = 0;
	unsigned turns = 0;
	pthread_t other;

	(void)state;
	assert_int_equal(ring_init(&run.there, 4), 0);
	assert_int_equal(ring_init(&run.back, 4), 0);
	assert_int_equal(pthread_create(&other, NULL, echo, &run), 0);
	for (uint64_t number = 0; number < run.messages; number++) {
		fill(&message, number);
		wrong += !ring_push(&run.there, &message);
		while (!ring_pop(&run.back, &message))
			wait_a_little(&turns);
		wrong += !is_filled(&message, number);
	}
	assert_int_equal(pthread_join(other, NULL), 0);
	assert_int_equal(wrong, 0);
	ring_fini(&run.back);
	ring_fini(&run.there);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_million_messages_arrive_whole_and_in_order),
		cmocka_unit_test(messages_arrive_through_a_ring_of_two_while_the_indices_overflow),
		cmocka_unit_test(every_message_comes_back_over_a_second_ring),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
