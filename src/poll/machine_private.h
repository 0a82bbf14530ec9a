/* machine_private.h - what the readers of a machine share. */
#ifndef KVRAIL_POLL_MACHINE_PRIVATE_H
#define KVRAIL_POLL_MACHINE_PRIVATE_H

#include "poll/machine.h"

KVR_BEGIN_C

/* Writes error->text; returns `code`. */
int machine_fail(struct machine_error *error, int code, const char *format, ...) KVR_PRINTF(3, 4);

/* machine_hwloc.c: fill an empty machine. 0, -errno with *error. */
KVR_MUST_CHECK int machine_from_hwloc_live(struct machine *machine, struct machine_error *error);
KVR_MUST_CHECK int machine_from_hwloc_xml(
	struct machine *machine, const char *name, const char *xml, size_t length, struct machine_error *error);
KVR_MUST_CHECK int machine_from_hwloc_synthetic(
	struct machine *machine, const char *description, struct machine_error *error);

/* machine_text.c: reads lines into the machine. amend: a side file. 0, -errno with *error. */
KVR_MUST_CHECK int machine_read_lines(struct machine *machine, const char *name, const char *text, size_t length,
	bool amend, struct machine_error *error);

/* machine_live.c: adds what /proc and /sys below `root` ("" for this machine's) say. What cannot be read stays unknown. */
void machine_add_live_facts(struct machine *machine, const char *root);

/* machine_write.c: what hwloc XML lacks. */
void machine_write_facts(const struct machine *machine, struct text *out);

/* The existing one of that name, or a new one with everything unknown; NULL: no room. */
struct machine_nic *machine_have_nic(struct machine *machine, const char *name);
/* As much of it as fits, printable, as a name line of a machine text can hold it. */
void machine_set_name(struct machine *machine, const char *name);
int machine_find_switch(const struct machine *machine, const char *pci);
/* Keeps the list largest page first. A size that is there is replaced; no room: dropped. */
void machine_set_huge(struct machine_node *node, uint64_t page_bytes, uint64_t total, uint64_t free_pages);
/* Order of what is read in any order: cpus by number, physical cores numbered by their first cpu. */
void machine_sort_cpus(struct machine *machine);

KVR_END_C

#endif
