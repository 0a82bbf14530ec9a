#include "verbs/conformance.h"

#include <stdlib.h>

#include "verbs/conformance_world.h"

static const struct case_table *const tables[] = {
	&conformance_send_cases,
	&conformance_queue_cases,
	&conformance_transfer_cases,
	&conformance_access_cases,
	&conformance_error_cases,
	&conformance_object_cases,
};

int conformance_run(const struct conformance_harness *harness)
{
	struct CMUnitTest *tests;
	size_t count = 0;
	int failed;

	for (size_t i = 0; i < KVR_COUNT_OF(tables); i++)
		count += tables[i]->count;
	tests = calloc(count, sizeof(*tests));
	if (!tests)
		return 1;
	count = 0;
	for (size_t i = 0; i < KVR_COUNT_OF(tables); i++) {
		for (size_t j = 0; j < tables[i]->count; j++) {
			tests[count] = tables[i]->cases[j];
			tests[count++].initial_state = (void *)(uintptr_t)harness;
		}
	}
	failed = _cmocka_run_group_tests(harness->name, tests, count, NULL, NULL);
	free(tests);
	return failed;
}
