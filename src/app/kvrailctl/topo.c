/* topo.c - kvrailctl topo: this machine or a recorded one, and the plan for it, as a picture, a table, JSON; recording. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/common/program.h"
#include "app/kvrailctl/topo.h"

static bool ends_with(const char *text, const char *ending)
{
	size_t length = strlen(text), end = strlen(ending);

	return length > end && strcmp(text + length - end, ending) == 0;
}

static int write_file(const char *path, const struct text *content)
{
	FILE *file = content->failed ? NULL : fopen(path, "we");
	bool good = file && fwrite(content->bytes, 1, content->length, file) == content->length;

	if (file)
		good &= fclose(file) == 0;
	if (good)
		return PROGRAM_GOOD;
	return kvrailctl_complain("%s can't be written: %s", path, content->failed ? "out of memory" : strerror(errno));
}

/* hwloc's XML of this machine, and what it lacks in a file beside it. */
static int export_xml(const char *path)
{
	struct text facts = { NULL, 0, 0, false }, beside = { NULL, 0, 0, false };
	struct machine_error error = { "" };
	int code;

	text_append(&beside, "%s.facts", path);
	if (beside.failed || machine_export_xml(path, &facts, &error) != 0)
		code = kvrailctl_complain("%s", error.text);
	else
		code = write_file(beside.bytes, &facts);
	if (code == PROGRAM_GOOD)
		fprintf(stderr,
			"kvrailctl: %s and %s are this machine; the XML has its host name, addresses and serial numbers\n",
			path, beside.bytes);
	text_fini(&facts);
	text_fini(&beside);
	return code;
}

static int export_machine(const struct kvrailctl_settings *settings, const struct machine *machine)
{
	struct text out = { NULL, 0, 0, false };
	int code;

	machine_write(machine, &out);
	code = write_file(settings->topo_export, &out);
	if (code == PROGRAM_GOOD)
		fprintf(stderr, "kvrailctl: %s is the machine; no host name, address or serial number is in it\n",
			settings->topo_export);
	text_fini(&out);
	return code;
}

/* What was asked for: the picture with its plan, or one of the others. */
static int show(const struct kvrailctl_settings *settings, const struct machine *machine, const struct plan *plan)
{
	struct text out = { NULL, 0, 0, false };
	int code;

	if (settings->json) {
		plan_json(machine, plan, &out);
	} else {
		if (!settings->topo_plan)
			topo_picture(machine, plan, &out);
		plan_print(machine, plan, &out);
	}
	code = kvrailctl_print(&out);
	text_fini(&out);
	if (code == PROGRAM_GOOD && settings->topo_svg[0]) {
		topo_svg(machine, plan, &out);
		code = write_file(settings->topo_svg, &out);
		text_fini(&out);
	}
	return code;
}

static int plan_and_show(const struct kvrailctl_settings *settings, const struct machine *machine)
{
	struct plan_options options = { .l1_bytes = settings->l1_bytes };
	struct plan *plan = calloc(1, sizeof(*plan));
	struct machine_error error = { "" };
	int code;

	if (!plan) {
		code = kvrailctl_complain("out of memory");
	} else if (plan_parse_options(settings->topo_what_if, &options, &error) != 0) {
		kvrailctl_complain("--what-if %s", error.text);
		code = PROGRAM_USAGE;
	} else if (plan_make(machine, &options, plan) != 0) {
		code = kvrailctl_complain("the process may use no processor of the machine");
	} else {
		code = show(settings, machine, plan);
	}
	free(plan);
	return code;
}

int kvrailctl_topo(const struct kvrailctl_settings *settings)
{
	struct machine_error error = { "" };
	struct machine *machine;
	int code;

	if (ends_with(settings->topo_export, ".xml")) {
		if (!settings->topo_xml[0])
			return export_xml(settings->topo_export);
		kvrailctl_complain("--export to .xml is of this machine, and not together with --xml");
		return PROGRAM_USAGE;
	}
	machine = settings->topo_xml[0] ? machine_read_file(settings->topo_xml, &error) : machine_read_live(&error);
	if (!machine)
		return kvrailctl_complain("%s", error.text);
	code = settings->topo_export[0] ? export_machine(settings, machine) : plan_and_show(settings, machine);
	machine_free(&machine);
	return code;
}
