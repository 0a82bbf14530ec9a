/* machine_hwloc.c - facts out of an hwloc topology: of this machine, of an XML file, of a synthetic description. */
#include <errno.h>
#include <hwloc.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "poll/machine_private.h"

#define PCI_CLASS_DISPLAY 0x03
#define PCI_CLASS_VGA 0x0300
#define PCI_CLASS_ACCELERATOR 0x1200
#define PCI_VENDOR_NVIDIA 0x10de
#define PCI_VENDOR_AMD 0x1002

/* Disallowed processors and nodes are facts too: they are kept, and marked. */
static int topology_begin(hwloc_topology_t *topology, struct machine_error *error)
{
	if (fault_point("machine/topology") || hwloc_topology_init(topology) != 0) {
		machine_fail(error, -ENOMEM, "hwloc: out of memory");
		return -ENOMEM;
	}
	hwloc_topology_set_cache_types_filter(*topology, HWLOC_TYPE_FILTER_KEEP_NONE);
	hwloc_topology_set_io_types_filter(*topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
	hwloc_topology_set_flags(*topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
	return 0;
}

static enum machine_memory memory_of(hwloc_obj_t node)
{
	if (!node->subtype)
		return MACHINE_DRAM;
	if (strcmp(node->subtype, "GPUMemory") == 0)
		return MACHINE_GPU_MEMORY;
	return strcmp(node->subtype, "DRAM") == 0 ? MACHINE_DRAM : MACHINE_OTHER_MEMORY;
}

static int package_of(hwloc_obj_t object)
{
	while (object && object->type != HWLOC_OBJ_PACKAGE)
		object = object->parent;
	return object ? (int)object->os_index : -1;
}

static int add_nodes(struct machine *machine, hwloc_topology_t topology, struct machine_error *error)
{
	hwloc_const_nodeset_t allowed = hwloc_topology_get_allowed_nodeset(topology);
	hwloc_obj_t object = NULL;

	while ((object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, object)) != NULL) {
		struct machine_node *node = &machine->nodes[machine->node_count];

		if (machine->node_count == MACHINE_NODES_MAX || object->os_index > INT_MAX)
			return machine_fail(error, -ENOSPC, "more than %d NUMA nodes", MACHINE_NODES_MAX);
		node->number = (int)object->os_index;
		node->package = package_of(object);
		node->memory = memory_of(object);
		node->allowed = hwloc_bitmap_isset(allowed, object->os_index);
		node->bytes = object->attr->numanode.local_memory;
		for (unsigned i = 0; i < object->attr->numanode.page_types_len; i++) {
			const struct hwloc_memory_page_type_s *pages = &object->attr->numanode.page_types[i];

			/* The smallest are no huge ones: 4 KiB, 16 KiB or 64 KiB. */
			if (pages->size > 65536)
				machine_set_huge(node, pages->size, pages->count, pages->count);
		}
		machine->node_count++;
	}
	return machine->node_count ? 0 : machine_fail(error, -EINVAL, "a machine without NUMA nodes");
}

/* The node with DRAM that a processor belongs to; the first one where there is none. */
static uint32_t node_of(const struct machine *machine, hwloc_topology_t topology, unsigned cpu)
{
	hwloc_obj_t object = NULL;

	while ((object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, object)) != NULL) {
		int found = machine_find_node(machine, (int)object->os_index);

		if (found >= 0 && machine->nodes[found].memory == MACHINE_DRAM && object->cpuset &&
			hwloc_bitmap_isset(object->cpuset, cpu))
			return (uint32_t)found;
	}
	return 0;
}

static int add_cpus(struct machine *machine, hwloc_topology_t topology, struct machine_error *error)
{
	hwloc_const_cpuset_t allowed = hwloc_topology_get_allowed_cpuset(topology);
	hwloc_obj_t object = NULL;

	while ((object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, object)) != NULL) {
		struct machine_cpu *cpu = &machine->cpus[machine->cpu_count];
		hwloc_obj_t core = object;

		if (machine->cpu_count == MACHINE_CPUS_MAX || object->os_index >= MACHINE_CPUS_MAX)
			return machine_fail(error, -ENOSPC, "processor numbers are below %d", MACHINE_CPUS_MAX);
		while (core && core->type != HWLOC_OBJ_CORE)
			core = core->parent;
		cpu->number = (int)object->os_index;
		/* A processor without a core object is one by itself. */
		cpu->core = core && core->logical_index < MACHINE_CPUS_MAX ? core->logical_index : machine->cpu_count;
		cpu->node = node_of(machine, topology, object->os_index);
		cpu->allowed = hwloc_bitmap_isset(allowed, object->os_index);
		machine->cpu_count++;
	}
	machine_sort_cpus(machine);
	return machine->cpu_count ? 0 : machine_fail(error, -EINVAL, "a machine without processors");
}

static void add_distances(struct machine *machine, hwloc_topology_t topology)
{
	struct hwloc_distances_s *found[1];
	unsigned count = 1;

	if (hwloc_distances_get_by_type(
		    topology, HWLOC_OBJ_NUMANODE, &count, found, HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0) != 0 ||
		count == 0)
		return;
	for (unsigned i = 0; i < found[0]->nbobjs; i++) {
		for (unsigned j = 0; j < found[0]->nbobjs; j++) {
			int from = machine_find_node(machine, (int)found[0]->objs[i]->os_index);
			int to = machine_find_node(machine, (int)found[0]->objs[j]->os_index);
			hwloc_uint64_t value = found[0]->values[i * found[0]->nbobjs + j];

			if (from >= 0 && to >= 0 && value <= UINT16_MAX)
				machine->distances[from][to] = (uint16_t)value;
		}
	}
	hwloc_distances_release(topology, found[0]);
}

static void pci_address(char out[MACHINE_PCI], const struct hwloc_pcidev_attr_s *pci)
{
	char text[32];

	snprintf(text, sizeof(text), "%04x:%02x:%02x.%01x", (unsigned)pci->domain & 0xffff, pci->bus, pci->dev,
		pci->func);
	text_copy(out, MACHINE_PCI, text);
}

/* The nodes that a device is near to, of those that have DRAM; all of several is no knowledge. */
static uint64_t locality(const struct machine *machine, hwloc_topology_t topology, hwloc_obj_t device)
{
	hwloc_obj_t above = hwloc_get_non_io_ancestor_obj(topology, device);
	uint64_t nodes = 0, all = 0;

	for (uint32_t i = 0; i < machine->node_count; i++) {
		if (machine->nodes[i].memory != MACHINE_DRAM)
			continue;
		all |= 1ULL << i;
		if (above && above->nodeset && hwloc_bitmap_isset(above->nodeset, (unsigned)machine->nodes[i].number))
			nodes |= 1ULL << i;
	}
	return nodes == all && (all & (all - 1)) ? 0 : nodes;
}

static bool is_pci_bridge(hwloc_obj_t object)
{
	return object && object->type == HWLOC_OBJ_BRIDGE && object->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI;
}

/* A bridge with several bridges below is the upstream port of a switch. Index of the nearest above `object`; -1: none. */
static int switch_above(struct machine *machine, hwloc_obj_t object)
{
	for (hwloc_obj_t up = object->parent; is_pci_bridge(up); up = up->parent) {
		char pci[MACHINE_PCI];
		int found;

		if (up->io_arity < 2)
			continue;
		pci_address(pci, &up->attr->bridge.upstream.pci);
		found = machine_find_switch(machine, pci);
		if (found >= 0)
			return found;
		if (machine->switch_count == MACHINE_SWITCHES_MAX)
			return -1;
		found = (int)machine->switch_count++;
		text_copy(machine->switches[found].pci, MACHINE_PCI, pci);
		machine->switches[found].above = -1;
		machine->switches[found].above = switch_above(machine, up);
		return found;
	}
	return -1;
}

static bool is_gpu(const struct hwloc_pcidev_attr_s *pci)
{
	if (pci->class_id == PCI_CLASS_ACCELERATOR)
		return true;
	if (pci->class_id >> 8 != PCI_CLASS_DISPLAY)
		return false;
	/* A graphics core inside the processor, or that of a management controller, is none that engines use. */
	return pci->vendor_id == PCI_VENDOR_NVIDIA ||
		(pci->vendor_id == PCI_VENDOR_AMD && pci->class_id != PCI_CLASS_VGA);
}

static int add_gpu(struct machine *machine, hwloc_topology_t topology, hwloc_obj_t device, struct machine_error *error)
{
	struct machine_gpu *gpu = &machine->gpus[machine->gpu_count];
	const char *model = hwloc_obj_get_info_by_name(device, "PCIDevice");

	if (machine->gpu_count == MACHINE_GPUS_MAX)
		return machine_fail(error, -ENOSPC, "more than %d GPUs", MACHINE_GPUS_MAX);
	snprintf(gpu->name, sizeof(gpu->name), "%u", machine->gpu_count);
	text_copy(gpu->model, sizeof(gpu->model), model ? model : "");
	pci_address(gpu->pci, &device->attr->pcidev);
	gpu->nodes = locality(machine, topology, device);
	gpu->above = switch_above(machine, device);
	machine->gpu_count++;
	return 0;
}

/* hwloc's "Port1State" and so on of an RDMA device. */
static void add_ports(struct machine_nic *nic, hwloc_obj_t rdma)
{
	for (uint32_t number = 1; number <= MACHINE_PORTS_MAX; number++) {
		char name[32];
		const char *state;

		snprintf(name, sizeof(name), "Port%uState", number);
		state = hwloc_obj_get_info_by_name(rdma, name);
		if (!state)
			return;
		nic->ports[nic->port_count++] = (struct machine_port){ number, strtol(state, NULL, 10) == 4, 0 };
	}
}

/* A PCI device with a network interface, an RDMA device, or both. One with several RDMA devices is several. */
static int add_nics(struct machine *machine, hwloc_topology_t topology, hwloc_obj_t device, struct machine_error *error)
{
	const char *netdev = NULL;
	bool rdma = false;

	for (hwloc_obj_t child = device->io_first_child; child; child = child->next_sibling) {
		if (child->type != HWLOC_OBJ_OS_DEVICE || !child->name)
			continue;
		if (child->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK && !netdev)
			netdev = child->name;
		rdma |= child->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS;
	}
	for (hwloc_obj_t child = device->io_first_child; child; child = child->next_sibling) {
		bool is_rdma = child->type == HWLOC_OBJ_OS_DEVICE &&
			child->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS;
		struct machine_nic *nic;

		if (child->type != HWLOC_OBJ_OS_DEVICE || !child->name || (rdma ? !is_rdma : child->name != netdev))
			continue;
		nic = machine_have_nic(machine, child->name);
		if (!nic)
			return machine_fail(error, -ENOSPC, "more than %d NICs", MACHINE_NICS_MAX);
		text_copy(nic->netdev, sizeof(nic->netdev), netdev ? netdev : "");
		pci_address(nic->pci, &device->attr->pcidev);
		/* Class 0207 is an InfiniBand controller; live facts know each port's link layer. */
		nic->kind = !is_rdma                              ? MACHINE_ETHERNET
			: device->attr->pcidev.class_id == 0x0207 ? MACHINE_INFINIBAND
								  : MACHINE_ROCE;
		nic->nodes = locality(machine, topology, device);
		nic->above = switch_above(machine, device);
		/* GB/s, 0 when unknown. */
		nic->link_gbits = 8 * (double)device->attr->pcidev.linkspeed;
		if (is_rdma && nic->port_count == 0)
			add_ports(nic, child);
	}
	return 0;
}

static int add_devices(struct machine *machine, hwloc_topology_t topology, struct machine_error *error)
{
	hwloc_obj_t device = NULL;
	int why = 0;

	while (!why && (device = hwloc_get_next_pcidev(topology, device)) != NULL) {
		/* Others have no such children. */
		why = add_nics(machine, topology, device, error);
		if (!why && is_gpu(&device->attr->pcidev))
			why = add_gpu(machine, topology, device, error);
	}
	return why;
}

static int add_all(struct machine *machine, hwloc_topology_t topology, struct machine_error *error)
{
	int why = add_nodes(machine, topology, error);

	if (!why)
		why = add_cpus(machine, topology, error);
	if (!why)
		why = add_devices(machine, topology, error);
	if (!why)
		add_distances(machine, topology);
	return why;
}

/* Loads and reads a topology whose source has been set, and destroys it. */
static int load_and_add(
	struct machine *machine, hwloc_topology_t topology, const char *what, struct machine_error *error)
{
	int why;

	if (hwloc_topology_load(topology) != 0)
		why = machine_fail(error, -EINVAL, "%s: hwloc can't read it", what);
	else
		why = add_all(machine, topology, error);
	hwloc_topology_destroy(topology);
	return why;
}

int machine_from_hwloc_live(struct machine *machine, struct machine_error *error)
{
	hwloc_topology_t topology;
	int why = topology_begin(&topology, error);

	return why ? why : load_and_add(machine, topology, "this machine", error);
}

int machine_from_hwloc_xml(
	struct machine *machine, const char *name, const char *xml, size_t length, struct machine_error *error)
{
	hwloc_topology_t topology;
	int why = topology_begin(&topology, error);

	if (why)
		return why;
	/* hwloc wants the terminating zero counted. */
	if (length >= INT_MAX || hwloc_topology_set_xmlbuffer(topology, xml, (int)length + 1) != 0) {
		hwloc_topology_destroy(topology);
		return machine_fail(error, -EINVAL, "%s is no hwloc XML", name);
	}
	return load_and_add(machine, topology, name, error);
}

int machine_from_hwloc_synthetic(struct machine *machine, const char *description, struct machine_error *error)
{
	hwloc_topology_t topology;
	int why = topology_begin(&topology, error);

	if (why)
		return why;
	if (hwloc_topology_set_synthetic(topology, description) != 0) {
		hwloc_topology_destroy(topology);
		return machine_fail(
			error, -EINVAL, "hwloc does not know the synthetic description \"%.100s\"", description);
	}
	return load_and_add(machine, topology, description, error);
}

int machine_export_xml(const char *path, struct text *facts, struct machine_error *error)
{
	struct machine *machine = machine_read_live(error);
	hwloc_topology_t topology;
	int why;

	if (!machine)
		return -EIO;
	machine_write_facts(machine, facts);
	machine_free(&machine);
	why = topology_begin(&topology, error);
	if (why)
		return why;
	/* Caches as well: a recorded machine is for other questions too. */
	hwloc_topology_set_cache_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_ALL);
	if (hwloc_topology_load(topology) != 0)
		why = machine_fail(error, -EIO, "this machine: hwloc can't read it");
	else if (hwloc_topology_export_xml(topology, path, 0) != 0)
		why = machine_fail(error, -EIO, "%s can't be written: %s", path, strerror(errno));
	hwloc_topology_destroy(topology);
	return why;
}
