/* machine_text_devices.c - the lines of a machine text about switches, NICs and GPUs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "poll/machine_reader.h"

/* A plain decimal number below a hundred thousand. */
static int read_real(struct machine_reader *reader, const char *text, double *value)
{
	char *end = NULL;
	double number = strtod(text, &end);

	if (end == text || *end || strspn(text, "0123456789.") != strlen(text) || number >= 100000)
		return reader_refuse(reader, "%.40s is no number", text);
	*value = number;
	return 0;
}

/* "x16@32", "x8". */
static int read_link(struct machine_reader *reader, char *text, struct machine_link *link)
{
	char *rest = text;
	char *lanes = reader_next_piece(&rest, '@');
	uint64_t number = 0;
	int why;

	if (lanes[0] != 'x')
		return reader_refuse(reader, "a link is lanes@GT/s, as x16@32");
	why = reader_number(reader, lanes + 1, 64, &number);
	link->lanes = (uint32_t)number;
	link->gt_per_s = 0;
	if (!why && rest)
		why = read_real(reader, rest, &link->gt_per_s);
	return why;
}

/* "1:up:400/2:down:0". */
static int read_ports(struct machine_reader *reader, char *text, struct machine_nic *nic)
{
	char *entry;
	int why = 0;

	nic->port_count = 0;
	while (!why && (entry = reader_next_piece(&text, '/')) != NULL) {
		uint64_t number = 0, gbits = 0;
		char *rest = entry;
		char *first = reader_next_piece(&rest, ':');
		char *state = reader_next_piece(&rest, ':');
		bool up = state && strcmp(state, "up") == 0;

		why = reader_number(reader, first, 255, &number);
		if (!why && !up && (!state || strcmp(state, "down") != 0))
			why = reader_refuse(reader, "a port is number:up|down:Gbit/s");
		if (!why && rest)
			why = reader_number(reader, rest, 100000, &gbits);
		if (!why && nic->port_count == MACHINE_PORTS_MAX)
			why = reader_refuse(reader, "more than %d ports", MACHINE_PORTS_MAX);
		if (!why)
			nic->ports[nic->port_count++] = (struct machine_port){ (uint32_t)number, up, (uint32_t)gbits };
	}
	return why;
}

/* pci, switch and node of a NIC or a GPU. */
static int read_place(struct machine_reader *reader, char pci[MACHINE_PCI], uint64_t *nodes, int *above)
{
	char *value = reader_take(reader, "pci");
	int list[MACHINE_CPUS_MAX];
	uint32_t count = 0;
	int why = value ? reader_name(reader, value, pci, MACHINE_PCI) : 0;

	if (!why && (value = reader_take(reader, "switch")) != NULL) {
		*above = machine_find_switch(reader->machine, value);
		if (*above < 0)
			why = reader_refuse(reader, "there is no switch %.20s: switch lines come first", value);
	}
	if (!why && (value = reader_take(reader, "node")) != NULL) {
		why = reader_list(reader, value, list, &count);
		*nodes = 0;
		for (uint32_t i = 0; !why && i < count; i++) {
			int found = machine_find_node(reader->machine, list[i]);

			if (found < 0)
				why = reader_refuse(reader, "there is no node %d: node lines come first", list[i]);
			else
				*nodes |= 1ULL << found;
		}
	}
	return why;
}

static int read_nic_kind(struct machine_reader *reader, const char *text, struct machine_nic *nic)
{
	static const char *const kinds[] = { "ethernet", "soft-roce", "roce", "infiniband" };

	for (size_t i = 0; i < KVR_COUNT_OF(kinds); i++) {
		if (strcmp(text, kinds[i]) == 0) {
			nic->kind = (enum machine_nic_kind)i;
			return 0;
		}
	}
	return reader_refuse(reader, "kind is ethernet, soft-roce, roce or infiniband");
}

int reader_nic(struct machine_reader *reader)
{
	char name[MACHINE_NAME];
	struct machine_nic *nic = NULL;
	char *value;
	int why = reader_name(reader, reader->word_count > 1 ? reader->words[1] : NULL, name, sizeof(name));

	if (!why && !reader->amend && machine_find_nic(reader->machine, name) >= 0)
		why = reader_refuse(reader, "nic %s is there twice", name);
	if (!why) {
		nic = machine_have_nic(reader->machine, name);
		if (!nic)
			return reader_refuse(reader, "more than %d NICs", MACHINE_NICS_MAX);
	}
	if (!why && (value = reader_take(reader, "kind")) != NULL)
		why = read_nic_kind(reader, value, nic);
	if (!why && (value = reader_take(reader, "netdev")) != NULL)
		why = reader_name(reader, value, nic->netdev, sizeof(nic->netdev));
	if (!why)
		why = read_place(reader, nic->pci, &nic->nodes, &nic->above);
	if (!why && (value = reader_take(reader, "link")) != NULL)
		why = read_link(reader, value, &nic->link);
	if (!why && (value = reader_take(reader, "link-max")) != NULL)
		why = read_link(reader, value, &nic->link_max);
	if (!why && (value = reader_take(reader, "link-gbits")) != NULL)
		why = read_real(reader, value, &nic->link_gbits);
	if (!why && (value = reader_take(reader, "ports")) != NULL)
		why = read_ports(reader, value, nic);
	return why ? why : reader_refuse_rest(reader, 2);
}

int reader_gpu(struct machine_reader *reader)
{
	struct machine *machine = reader->machine;
	struct machine_gpu made, *gpu = NULL;
	char *value;
	int why;

	memset(&made, 0, sizeof(made));
	made.above = -1;
	why = reader_name(reader, reader->word_count > 1 ? reader->words[1] : NULL, made.name, sizeof(made.name));
	for (uint32_t i = 0; !why && i < machine->gpu_count; i++) {
		if (strcmp(machine->gpus[i].name, made.name) == 0)
			gpu = &machine->gpus[i];
	}
	if (!why && gpu && !reader->amend)
		why = reader_refuse(reader, "gpu %s is there twice", made.name);
	if (!why && !gpu && machine->gpu_count == MACHINE_GPUS_MAX)
		why = reader_refuse(reader, "more than %d GPUs", MACHINE_GPUS_MAX);
	if (why)
		return why;
	if (!gpu) {
		gpu = &machine->gpus[machine->gpu_count++];
		*gpu = made;
	}
	why = read_place(reader, gpu->pci, &gpu->nodes, &gpu->above);
	if (!why && (value = reader_take(reader, "model")) != NULL)
		why = reader_name(reader, value, gpu->model, sizeof(gpu->model));
	return why ? why : reader_refuse_rest(reader, 2);
}

/* A parent stands in an earlier line, so that there are no circles. */
int reader_switch(struct machine_reader *reader)
{
	struct machine *machine = reader->machine;
	char pci[MACHINE_PCI];
	char *value;
	int above = -1;
	int why = reader_name(reader, reader->word_count > 1 ? reader->words[1] : NULL, pci, sizeof(pci));

	if (!why && machine_find_switch(machine, pci) >= 0)
		return reader->amend ? reader_refuse_rest(reader, 2)
				     : reader_refuse(reader, "switch %s is there twice", pci);
	if (!why && machine->switch_count == MACHINE_SWITCHES_MAX)
		why = reader_refuse(reader, "more than %d switches", MACHINE_SWITCHES_MAX);
	if (!why && (value = reader_take(reader, "parent")) != NULL) {
		above = machine_find_switch(machine, value);
		if (above < 0)
			why = reader_refuse(reader, "there is no switch %.20s before this line", value);
	}
	if (!why) {
		struct machine_switch *one = &machine->switches[machine->switch_count++];

		text_copy(one->pci, sizeof(one->pci), pci);
		one->above = above;
	}
	return why ? why : reader_refuse_rest(reader, 2);
}
