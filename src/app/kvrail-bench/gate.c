#include "app/kvrail-bench/gate.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/atomic.h"
#include "base/clock.h"

void gate_init(struct gate *gate, uint32_t threads)
{
	*gate = (struct gate){ .threads = threads };
	pthread_mutex_init(&gate->mutex, NULL);
	pthread_cond_init(&gate->changed, NULL);
}

void gate_fini(struct gate *gate)
{
	pthread_cond_destroy(&gate->changed);
	pthread_mutex_destroy(&gate->mutex);
}

void gate_request(struct gate *gate)
{
	kvr_store_release(&gate->due, 1);
}

bool gate_due(const struct gate *gate)
{
	return kvr_load_acquire(&gate->due) != 0;
}

/* Mutex held, all threads are here. */
static void gate_open(struct gate *gate, void (*action)(void *context), void *context)
{
	uint64_t begin_ns = clock_now_ns();

	if (action)
		action(context);
	gate->paused_ns += clock_now_ns() - begin_ns;
	gate->waiting = 0;
	gate->round++;
	kvr_store_release(&gate->due, 0);
	pthread_cond_broadcast(&gate->changed);
}

void gate_arrive(struct gate *gate, void (*action)(void *context), void *context)
{
	uint64_t round;

	pthread_mutex_lock(&gate->mutex);
	round = gate->round;
	if (++gate->waiting == gate->threads)
		gate_open(gate, action, context);
	while (gate->round == round)
		pthread_cond_wait(&gate->changed, &gate->mutex);
	pthread_mutex_unlock(&gate->mutex);
}

void gate_leave(struct gate *gate, void (*action)(void *context), void *context)
{
	pthread_mutex_lock(&gate->mutex);
	gate->threads--;
	if (gate->threads > 0 && gate->waiting == gate->threads)
		gate_open(gate, action, context);
	pthread_mutex_unlock(&gate->mutex);
}

void complaints_init(struct complaints *complaints)
{
	*complaints = (struct complaints){ .count = 0 };
	pthread_mutex_init(&complaints->mutex, NULL);
}

void complaints_fini(struct complaints *complaints)
{
	pthread_mutex_destroy(&complaints->mutex);
}

void complain(struct complaints *complaints, const char *format, ...)
{
	va_list arguments;

	pthread_mutex_lock(&complaints->mutex);
	if (complaints->count++ < COMPLAINTS_PRINTED) {
		fprintf(stderr, "kvrail-bench: ");
		va_start(arguments, format);
		vfprintf(stderr, format, arguments);
		va_end(arguments);
		fputc('\n', stderr);
		if (complaints->count == COMPLAINTS_PRINTED)
			fprintf(stderr, "kvrail-bench: more of them are counted, not printed\n");
	}
	if (complaints->count == COMPLAINTS_MAX) {
		fprintf(stderr, "kvrail-bench: %u errors: stopping\n", COMPLAINTS_MAX);
		kvr_store_release(&complaints->stop, 1);
	}
	pthread_mutex_unlock(&complaints->mutex);
}
