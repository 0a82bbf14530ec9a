/* table.c - from a queue pair's number (24 bits) to the queue pair, in two steps of 12 bits. */
#include <errno.h>
#include <stdlib.h>

#include "base/fault.h"
#include "verbs/nic/nic.h"

#define ENTRIES (1u << NIC_TABLE_BITS)

int nic_table_set(struct nic_table *table, uint32_t number, struct nic_qp *qp)
{
	uint32_t page = number >> NIC_TABLE_BITS & (ENTRIES - 1);

	if (!table->pages[page]) {
		struct nic_qp **entries = fault_point("nic_table_set") ? NULL
								       : calloc(ENTRIES, sizeof(struct nic_qp *));

		if (!entries)
			return -ENOMEM;
		/* pairs with the load-acquire in nic_table_find */
		kvr_store_release(&table->pages[page], entries);
	}
	kvr_store_release(&table->pages[page][number & (ENTRIES - 1)], qp);
	return 0;
}

void nic_table_clear(struct nic_table *table, uint32_t number)
{
	struct nic_qp **entries = table->pages[number >> NIC_TABLE_BITS & (ENTRIES - 1)];

	if (entries)
		kvr_store_release(&entries[number & (ENTRIES - 1)], NULL);
}

void nic_table_fini(struct nic_table *table)
{
	for (uint32_t i = 0; i < ENTRIES; i++)
		free(table->pages[i]);
}

void nic_table_each(const struct nic_table *table, void (*call)(struct nic_qp *qp, void *context), void *context)
{
	for (uint32_t page = 0; page < 1u << NIC_TABLE_BITS; page++) {
		for (uint32_t i = 0; table->pages[page] && i < 1u << NIC_TABLE_BITS; i++) {
			if (table->pages[page][i])
				call(table->pages[page][i], context);
		}
	}
}
