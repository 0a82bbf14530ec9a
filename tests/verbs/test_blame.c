/* test_blame.c - each completion status has one blame and one action. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "verbs/blame.h"

static void every_status_has_words_a_blame_and_an_action(void **state)
{
	(void)state;
	for (int status = IBV_WC_SUCCESS; status <= IBV_WC_GENERAL_ERR; status++) {
		const struct verbs_verdict *verdict = verbs_judge((enum ibv_wc_status)status);
		bool cause = status != IBV_WC_SUCCESS && status != IBV_WC_WR_FLUSH_ERR;

		assert_true(verdict->words[0] != '\0');
		assert_non_null(verdict->hint);
		assert_int_equal(verdict->blame != VERBS_BLAME_NONE, cause);
		assert_int_equal(verdict->action != VERBS_ACTION_NONE, cause);
		assert_null(strstr(verdict->words, "not known"));
	}
}

/* pitfalls I01: what this side did wrong is not tried again at once; what the network did is. */
static void blame_decides_how_soon_it_is_tried_again(void **state)
{
	static const struct {
		enum ibv_wc_status status;
		enum verbs_blame blame;
		enum verbs_action action;
	} rows[] = {
		{ IBV_WC_LOC_LEN_ERR, VERBS_BLAME_LOCAL, VERBS_ACTION_RECONNECT_LATE },
		{ IBV_WC_LOC_PROT_ERR, VERBS_BLAME_MEMORY, VERBS_ACTION_RECONNECT_LATE },
		{ IBV_WC_REM_ACCESS_ERR, VERBS_BLAME_MEMORY, VERBS_ACTION_RECONNECT_LATE },
		{ IBV_WC_RETRY_EXC_ERR, VERBS_BLAME_LINK, VERBS_ACTION_RECONNECT },
		{ IBV_WC_RNR_RETRY_EXC_ERR, VERBS_BLAME_PEER, VERBS_ACTION_RECONNECT },
		{ IBV_WC_REM_OP_ERR, VERBS_BLAME_PEER, VERBS_ACTION_RECONNECT },
		{ IBV_WC_WR_FLUSH_ERR, VERBS_BLAME_NONE, VERBS_ACTION_NONE },
		{ (enum ibv_wc_status)99, VERBS_BLAME_LOCAL, VERBS_ACTION_RECONNECT_LATE },
	};

	(void)state;
	for (size_t i = 0; i < KVR_COUNT_OF(rows); i++) {
		assert_int_equal(verbs_judge(rows[i].status)->blame, rows[i].blame);
		assert_int_equal(verbs_judge(rows[i].status)->action, rows[i].action);
	}
	assert_string_equal(verbs_blame_text(VERBS_BLAME_LINK), "link");
	assert_string_equal(verbs_blame_text((enum verbs_blame)77), "none");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_status_has_words_a_blame_and_an_action),
		cmocka_unit_test(blame_decides_how_soon_it_is_tried_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
