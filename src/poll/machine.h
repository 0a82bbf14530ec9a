/*
 * machine.h - what is to be known about a machine for placing threads and memory: facts alone, no decision (plan.h decides).
 *
 * Facts come from this machine (hwloc, /sys, /proc), from an hwloc XML file with a side file FILE.facts of what XML lacks, or from a
 * machine text, which holds everything and is what topology/ records:
 *
 *     kvrail-machine 1                     first line of a machine text; a side file has none
 *     name edge box with one rail          to the end of the line
 *     synthetic pack:1 core:8 pu:2         processors and nodes by an hwloc synthetic description, instead of node and cores lines
 *     node 0 package=0 memory=64GiB huge=1GiB:32/40,2MiB:0/0 [kind=dram|gpu|other] [allowed=no]      huge: size:free/total
 *     distance 0 10 21                     from node 0 to each node in the order of the node lines
 *     cores 0-7 siblings=8-15 node=0       the first of each list are one physical core, and so on; siblings=8-15/16-23 for three
 *     allowed 0-15                         processors that the process may use; without the line: all
 *     isolated 2-7                         by isolcpus; nohz_full likewise
 *     quota 2000                           thousandths of a processor that the cgroup grants; memory-limit 16GiB
 *     thp always                           transparent huge pages: always, madvise, never
 *     switch 0000:10:00.0 [parent=0000:0f:00.0]
 *     nic mlx5_0 kind=roce netdev=eth2 pci=0000:11:00.0 switch=0000:10:00.0 node=0 link=x16@32 link-max=x16@32 ports=1:up:400
 *     gpu 0 pci=0000:12:00.0 switch=0000:10:00.0 node=0 model=H200
 *
 * '#' begins a comment. Sizes as in options; link is lanes@GT/s, or
 * link-gbits=252 where only that is known; a port is number:up|down:Gbit/s, several by '/'. In a side file a line
 * about something that exists changes what it names.
 */
#ifndef KVRAIL_POLL_MACHINE_H
#define KVRAIL_POLL_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/text.h"
#include "poll/cores.h"

KVR_BEGIN_C

#define MACHINE_CPUS_MAX CORES_MAX
#define MACHINE_NODES_MAX 64
#define MACHINE_NICS_MAX 64
#define MACHINE_GPUS_MAX 32
#define MACHINE_SWITCHES_MAX 64
#define MACHINE_PORTS_MAX 4
#define MACHINE_HUGE_MAX 4
#define MACHINE_NAME 32
#define MACHINE_PCI 16
#define MACHINE_TEXT_MAX (1U << 20) /* bytes of a machine text */

/* What the kernel numbers and a thread is pinned to: a hardware thread of a physical core. */
struct machine_cpu {
	int number;
	uint32_t core; /* siblings have the same; from 0 without gaps */
	uint32_t node; /* index in nodes */
	bool allowed;  /* this process may run there */
	bool isolated; /* by isolcpus: the scheduler puts nothing there by itself */
	bool nohz_full;
};

enum machine_memory { MACHINE_DRAM, MACHINE_GPU_MEMORY, MACHINE_OTHER_MEMORY /* HBM, CXL, persistent */ };

struct machine_huge {
	uint64_t page_bytes;
	uint64_t total, free; /* pages */
};

struct machine_node {
	int number;
	int package; /* its number; -1 unknown */
	enum machine_memory memory;
	bool allowed; /* memory may be had there (cpuset.mems) */
	uint64_t bytes;
	struct machine_huge huge[MACHINE_HUGE_MAX]; /* largest page first */
	uint32_t huge_count;
};

struct machine_link {
	uint32_t lanes;  /* 0: unknown */
	double gt_per_s; /* of a lane; 0: unknown */
};

enum machine_nic_kind { MACHINE_ETHERNET /* no RDMA device */, MACHINE_SOFT_ROCE, MACHINE_ROCE, MACHINE_INFINIBAND };

struct machine_port {
	uint32_t number; /* as verbs count: from 1 */
	bool up;
	uint32_t gbits; /* a second; 0: unknown */
};

struct machine_nic {
	char name[MACHINE_NAME];   /* of the RDMA device, else of the network interface */
	char netdev[MACHINE_NAME]; /* of soft-RoCE: its parent; "": unknown */
	char pci[MACHINE_PCI];     /* "0000:41:00.0"; "": no PCI device */
	enum machine_nic_kind kind;
	uint64_t nodes; /* bit per index in nodes: those that it is near to; 0: unknown */
	int above;      /* index in switches of the PCIe switch that it is behind; -1: none known */
	struct machine_link link, link_max;
	double link_gbits; /* where lanes and their rate are not known (hwloc XML); else 0 */
	struct machine_port ports[MACHINE_PORTS_MAX];
	uint32_t port_count;
};

struct machine_gpu {
	char name[MACHINE_NAME]; /* its number, in the order of PCI addresses */
	char model[MACHINE_NAME];
	char pci[MACHINE_PCI];
	uint64_t nodes;
	int above;
};

struct machine_switch {
	char pci[MACHINE_PCI]; /* of its upstream port */
	int above;             /* the switch that it is behind; -1: none */
};

enum machine_thp { MACHINE_THP_UNKNOWN, MACHINE_THP_NEVER, MACHINE_THP_MADVISE, MACHINE_THP_ALWAYS };

struct machine {
	char name[96];
	uint32_t cpu_count, core_count, node_count, nic_count, gpu_count, switch_count;
	struct machine_cpu cpus[MACHINE_CPUS_MAX]; /* by ascending number */
	struct machine_node nodes[MACHINE_NODES_MAX];
	uint16_t distances[MACHINE_NODES_MAX][MACHINE_NODES_MAX]; /* 10 is local; 0: unknown */
	struct machine_nic nics[MACHINE_NICS_MAX];
	struct machine_gpu gpus[MACHINE_GPUS_MAX];
	struct machine_switch switches[MACHINE_SWITCHES_MAX];
	enum machine_thp thp;
	uint32_t quota_millis;       /* thousandths of a processor; 0: no limit */
	uint64_t memory_limit_bytes; /* 0: none */
};

struct machine_error {
	char text[256]; /* what was wrong, where, what to do */
};

/*
 * All of these give a machine on the heap, for machine_free, or NULL with *error. They read files and take milliseconds to a second:
 * not on the hot path, and machine_read_live before the main thread is pinned.
 */
struct machine *machine_read_live(struct machine_error *error);
/* An hwloc XML file (its content begins with '<'; FILE.facts beside it is read when it exists) or a machine text. */
struct machine *machine_read_file(const char *path, struct machine_error *error);
/* A machine text; `name` is what errors call it. Any bytes are safe. */
struct machine *machine_read_text(const char *name, const char *text, size_t length, struct machine_error *error);
void machine_free(struct machine **machine);

/* The machine text; reads back to the same facts. No host name, serial number or network address is in it. */
void machine_write(const struct machine *machine, struct text *out);
/* This machine as hwloc XML, and the side file's text. 0, -errno. The XML has what lstopo shows: host name, serials, addresses. */
KVR_MUST_CHECK int machine_export_xml(const char *path, struct text *facts, struct machine_error *error);

/* Index in cpus or nodes of what the kernel calls `number`; -1: none. */
int machine_find_cpu(const struct machine *machine, int number);
int machine_find_node(const struct machine *machine, int number);
int machine_find_nic(const struct machine *machine, const char *name);
/* From node to node, by index: the table's value; unknown: 10 to itself, 15 within a package, 20 else. */
uint32_t machine_distance(const struct machine *machine, uint32_t from, uint32_t to);
/* Payload that the link carries, Gbit/s, after the line code; 0: unknown. */
double machine_link_gbits(const struct machine_link *link);
/* "0-3,8" of ascending numbers. */
void machine_list(struct text *out, const int *numbers, uint32_t count);

KVR_END_C

#endif
