/* list.h - intrusive doubly linked list, circular, with a head node. A node that is on no list points to itself. */
#ifndef KVRAIL_BASE_LIST_H
#define KVRAIL_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list_node {
	struct list_node *prev;
	struct list_node *next;
};

static inline void list_init(struct list_node *node)
{
	node->prev = node;
	node->next = node;
}

static inline bool list_empty(const struct list_node *head)
{
	return head->next == head;
}

/* True when the node is on some list (a head: when it is not empty). Nodes must have been list_init'ed once. */
static inline bool list_linked(const struct list_node *node)
{
	return node->next != node;
}

static inline void list_add_before(struct list_node *position, struct list_node *node)
{
	node->prev = position->prev;
	node->next = position;
	position->prev->next = node;
	position->prev = node;
}

static inline void list_add_first(struct list_node *head, struct list_node *node)
{
	list_add_before(head->next, node);
}

static inline void list_add_last(struct list_node *head, struct list_node *node)
{
	list_add_before(head, node);
}

/* Harmless on a node that is on no list. */
static inline void list_remove(struct list_node *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

/* Removes and returns the first node, NULL when empty. */
static inline struct list_node *list_pop_first(struct list_node *head)
{
	struct list_node *node = head->next;

	if (node == head)
		return NULL;
	list_remove(node);
	return node;
}

/* Moves all nodes of the list `from` to the end of `head`, in their order. */
static inline void list_splice_last(struct list_node *head, struct list_node *from)
{
	if (list_empty(from))
		return;
	from->next->prev = head->prev;
	head->prev->next = from->next;
	from->prev->next = head;
	head->prev = from->prev;
	list_init(from);
}

#define list_for_each(node, head) for (struct list_node *node = (head)->next; node != (head); node = node->next)
/* The body may remove `node`. */
#define list_for_each_safe(node, head)                                                          \
	for (struct list_node *node = (head)->next, *node##_after = node->next; node != (head); \
		node = node##_after, node##_after = node->next)

#endif
