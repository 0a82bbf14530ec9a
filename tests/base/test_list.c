#include "base/compiler.h"
#include "base/list.h"

#include "base/cmocka_all.h"

struct item {
	int value;
	struct list_node node;
};

/* The values of a list as a decimal number, read forwards; checks that the way back agrees. */
static int digits_of(struct list_node *head)
{
	int forwards = 0, backwards = 0, scale = 1;

	list_for_each(node, head)
		forwards = forwards * 10 + KVR_CONTAINER_OF(node, struct item, node)->value;
	for (struct list_node *node = head->prev; node != head; node = node->prev) {
		backwards += KVR_CONTAINER_OF(node, struct item, node)->value * scale;
		scale *= 10;
	}
	assert_int_equal(forwards, backwards);
	return forwards;
}

static void init_items(struct item *items, int count)
{
	for (int i = 0; i < count; i++) {
		items[i].value = i + 1;
		list_init(&items[i].node);
	}
}

static void nodes_keep_the_order_in_which_they_were_added(void **state)
{
	struct list_node head;
	struct item items[4];

	(void)state;
	init_items(items, 4);
	list_init(&head);
	assert_true(list_empty(&head));
	list_add_last(&head, &items[0].node);
	list_add_last(&head, &items[1].node);
	list_add_first(&head, &items[2].node);
	list_add_before(&items[1].node, &items[3].node);
	assert_int_equal(digits_of(&head), 3142);
	assert_false(list_empty(&head));
}

static void a_removed_node_is_on_no_list(void **state)
{
	struct list_node head;
	struct item items[3];

	(void)state;
	init_items(items, 3);
	list_init(&head);
	for (int i = 0; i < 3; i++)
		list_add_last(&head, &items[i].node);
	assert_true(list_linked(&items[1].node));
	list_remove(&items[1].node);
	assert_false(list_linked(&items[1].node));
	list_remove(&items[1].node);
	assert_int_equal(digits_of(&head), 13);
}

static void pop_takes_the_first_and_ends_with_null(void **state)
{
	struct list_node head;
	struct item items[2];

	(void)state;
	init_items(items, 2);
	list_init(&head);
	list_add_last(&head, &items[0].node);
	list_add_last(&head, &items[1].node);
	assert_ptr_equal(list_pop_first(&head), &items[0].node);
	assert_false(list_linked(&items[0].node));
	assert_ptr_equal(list_pop_first(&head), &items[1].node);
	assert_null(list_pop_first(&head));
	assert_true(list_empty(&head));
}

static void a_safe_walk_survives_the_removal_of_each_node(void **state)
{
	struct list_node head;
	struct item items[5];
	int seen = 0;

	(void)state;
	init_items(items, 5);
	list_init(&head);
	for (int i = 0; i < 5; i++)
		list_add_last(&head, &items[i].node);
	list_for_each_safe(node, &head) {
		list_remove(node);
		seen++;
	}
	assert_int_equal(seen, 5);
	assert_true(list_empty(&head));
}

static void splice_moves_all_nodes_behind_the_others(void **state)
{
	struct list_node head, other;
	struct item items[4];

	(void)state;
	init_items(items, 4);
	list_init(&head);
	list_init(&other);
	list_splice_last(&head, &other);
	assert_true(list_empty(&head));
	list_add_last(&head, &items[0].node);
	list_add_last(&other, &items[1].node);
	list_add_last(&other, &items[2].node);
	list_splice_last(&head, &other);
	assert_int_equal(digits_of(&head), 123);
	assert_true(list_empty(&other));
	list_add_last(&other, &items[3].node);
	assert_int_equal(digits_of(&other), 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nodes_keep_the_order_in_which_they_were_added),
		cmocka_unit_test(a_removed_node_is_on_no_list),
		cmocka_unit_test(pop_takes_the_first_and_ends_with_null),
		cmocka_unit_test(a_safe_walk_survives_the_removal_of_each_node),
		cmocka_unit_test(splice_moves_all_nodes_behind_the_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
