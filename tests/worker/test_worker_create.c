/* Making and unmaking a worker. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/log.h"
#include "verbs/sim/fabric.h"
#include "worker/worker.h"

static void no_line(void *context, enum log_level level, const char *line)
{
	(void)context;
	(void)level;
	(void)line;
}

static int silence(void **state)
{
	(void)state;
	log_set_sink(no_line, NULL);
	return 0;
}

struct device_alone {
	struct sim_fabric *fabric;
	struct verbs_device *device, *rail;
	uint32_t lkeys[2];
	struct worker_options options;
};

static void device_open(struct device_alone *alone)
{
	struct sim_options options;
	struct verbs_open open = { 0 };

	sim_options_default(&options);
	assert_int_equal(sim_fabric_create(1, &options, &alone->fabric), 0);
	open.fabric = alone->fabric;
	assert_int_equal(verbs_sim.open(&open, &alone->device), 0);
	assert_int_equal(verbs_sim.open(&open, &alone->rail), 0);
	alone->options = (struct worker_options){
		.device = alone->device,
		.connections_max = 3,
		.credits = 4,
		.large_buffers = 2,
		.message_bytes_max = WIRE_INLINE_BYTES,
		.send_depth = 64,
	};
}

static void device_close(struct device_alone *alone)
{
	struct sim_counters counters;

	sim_fabric_counters(alone->fabric, &counters);
	verbs_sim.close(alone->device);
	verbs_sim.close(alone->rail);
	sim_fabric_destroy(&alone->fabric);
	assert_int_equal(counters.misuses, 0); /* nothing was left open */
}

static void wrong_options_are_refused(void **state)
{
	struct device_alone alone;
	struct worker *worker = (struct worker *)&alone;
	struct worker_options good;

	(void)state;
	device_open(&alone);
	good = alone.options;
#define REFUSED(field, value)                                                      \
	do {                                                                       \
		alone.options = good;                                              \
		alone.options.field = (value);                                     \
		assert_int_equal(worker_create(&alone.options, &worker), -EINVAL); \
		assert_null(worker);                                               \
	} while (0)
	REFUSED(device, NULL);
	REFUSED(connections_max, 0);
	REFUSED(credits, 0);
	REFUSED(large_buffers, 0);
	REFUSED(message_bytes_max, WIRE_INLINE_BYTES - 1);
	REFUSED(message_bytes_max, WIRE_MESSAGE_BYTES_MAX + 1);
	REFUSED(send_depth, 63);
	REFUSED(send_depth, alone.device->limits.max_send_wr + 1);
	REFUSED(connections_max, UINT32_MAX); /* pitfalls I15: more completions than the queue could hold */
	REFUSED(credits, alone.device->limits.max_recv_wr);
	REFUSED(rail_count, WIRE_RAILS_MAX);
	REFUSED(rail_count, 1); /* without keys of the areas */
	alone.rail->driver = &verbs_local;
	good.area_lkeys = alone.lkeys;
	good.area_count = 1;
	good.rails[0] = alone.rail;
	REFUSED(rail_count, 1); /* of another driver */
	alone.rail->driver = &verbs_sim;
#undef REFUSED
	device_close(&alone);
}

static void fail_everywhere(uint32_t rails)
{
	struct device_alone alone;
	struct worker *worker;
	uint64_t nth = 0;
	int error;

	device_open(&alone);
	alone.options.rails[0] = alone.rail;
	alone.options.rail_count = rails;
	alone.options.area_lkeys = alone.lkeys;
	alone.options.area_count = 1;
	do {
		fault_arm(++nth);
		error = worker_create(&alone.options, &worker);
		if (error)
			assert_null(worker);
	} while (error);
	assert_null(fault_fired());
	fault_arm(0);
	assert_true(nth > 12);
	worker_destroy(&worker);
	worker_destroy(&worker);
	device_close(&alone);
}

static void a_failure_while_creating_leaves_nothing(void **state)
{
	(void)state;
	fail_everywhere(0);
	fail_everywhere(1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wrong_options_are_refused),
		cmocka_unit_test(a_failure_while_creating_leaves_nothing),
	};

	return cmocka_run_group_tests(tests, silence, NULL);
}
