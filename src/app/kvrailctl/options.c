/* options.c - the table of kvrailctl's options. */
#include "app/kvrailctl/kvrailctl.h"

#define AT(field) offsetof(struct kvrailctl_settings, field)
#define TEXT(field) AT(field), sizeof(((struct kvrailctl_settings *)0)->field)

static const struct option_spec specs[] = {
	{ "config", OPTION_TEXT, TEXT(config), NULL, NULL, NULL, "Options",
		"file to read options from, lines of the form name = value" },
	{ "http", OPTION_TEXT, TEXT(http), "http://127.0.0.1:9464", NULL, NULL, "Options",
		"where kvraild's pages are" },
	{ "timeout", OPTION_TIME, AT(timeout_ns), 0, "5s", "10ms", "10m", "Options",
		"the longest that an answer may take" },
	{ "json", OPTION_BOOL, AT(json), 0, "no", NULL, NULL, "Options",
		"status, sessions, clear, quota, pin, unpin: print JSON as kvraild gives it; topo: the plan as JSON" },
	{ "token-file", OPTION_TEXT, TEXT(token_file), NULL, NULL, NULL, "Options",
		"clear, quota, pin, unpin: file with the token that kvraild was given as --admin-token-file" },
	{ "tiers", OPTION_CHOICE, AT(tiers), 0, "all", "all|l1", NULL, "Options",
		"clear: where; all: L1 and the places of L2 (give --timeout time for its files)" },
	{ "tenant", OPTION_TEXT, TEXT(tenant), "default", NULL, NULL, "Options", "quota, pin: the tenant" },
	{ "quota", OPTION_TEXT, TEXT(quota), NULL, NULL, NULL, "Options",
		"quota: the tenant's limits in L1 from now on, SOFT:HARD, each a size or none; default: those of --default-quota" },
	{ "name", OPTION_TEXT, TEXT(pin_name), NULL, NULL, NULL, "Options", "pin, unpin: what the pin is called" },
	{ "model", OPTION_TEXT, TEXT(model), NULL, NULL, NULL, "Options",
		"pin: name of the model as its engine registers it, see kvrailctl status" },
	{ "dtype", OPTION_TEXT, TEXT(dtype), NULL, NULL, NULL, "Options",
		"pin: its dtype, where the tenant has several models of that name" },
	{ "salt", OPTION_TEXT, TEXT(salt), NULL, NULL, NULL, "Options",
		"pin: the salt that the requests have; default: none" },
	{ "tokens", OPTION_TEXT, TEXT(tokens), NULL, NULL, NULL, "Options",
		"pin: file with the token ids of the prefix, decimal numbers with blanks, commas or brackets between them; - : standard input" },
	{ "interval", OPTION_TIME, AT(interval_ns), 0, "1s", "10ms", "1h", "Options", "top: time between two looks" },
	{ "count", OPTION_U32, AT(count), 0, "0", NULL, NULL, "Options",
		"top: so many frames; 0: until it is interrupted, and one where the output is no terminal" },
	{ "socket", OPTION_TEXT, TEXT(socket), NULL, NULL, NULL, "Options",
		"check: the socket of the server, as kvraild's option" },
	{ "device", OPTION_TEXT, TEXT(device), NULL, NULL, NULL, "Options",
		"check: RDMA device that kvraild is to use, as its option; without it, having none is no fault" },
	{ "l1-size", OPTION_SIZE, AT(l1_bytes), 0, "1GiB", "1MiB", "64TiB", "Options",
		"check: memory for L1 that there should be; topo: L1 to plan for" },
	{ "xml", OPTION_TEXT, TEXT(topo_xml), NULL, NULL, NULL, "Options",
		"topo: a recorded machine instead of this one: hwloc XML, or what --export has written" },
	{ "plan", OPTION_BOOL, AT(topo_plan), 0, "no", NULL, NULL, "Options",
		"topo: the plan alone, without the picture" },
	{ "what-if", OPTION_TEXT, TEXT(topo_what_if), NULL, NULL, NULL, "Options",
		"topo: plan for rails=N,cores=N,l1=SIZE, each may be left out" },
	{ "export", OPTION_TEXT, TEXT(topo_export), NULL, NULL, NULL, "Options",
		"topo: record the machine in this file, as text; a name that ends in .xml: as hwloc XML with FILE.facts beside it" },
	{ "svg", OPTION_TEXT, TEXT(topo_svg), NULL, NULL, NULL, "Options",
		"topo: draw the picture into this SVG file" },
};

const struct option_table kvrailctl_options = { "kvrailctl", "the operator's tool of kvraild",
	"COMMAND [options]\n"
	"\n"
	"  status      what the server holds and does, its models, clients and threads\n"
	"  top         rates of operations, again and again\n"
	"  sessions    sessions and locks\n"
	"  clear       drops all chunks that are not in use, from L1 and L2\n"
	"  quota       what tenants hold in L1 and may; with --quota: sets it\n"
	"  pin         keeps a prefix in L1; without --tokens: lists what is kept\n"
	"  unpin       keeps it no longer\n"
	"  check       whether this machine is ready for kvraild, and whether one runs\n"
	"  topo        the machine, where kvrail's threads and memory belong on it, and why",
	specs, KVR_COUNT_OF(specs) };
