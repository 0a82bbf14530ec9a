/* topo_svg.c - the machine and its plan as an SVG drawing: a box a NUMA node, a square a processor, a line a device. */
#include <stdio.h>
#include <string.h>

#include "app/kvrailctl/topo.h"

#define MARGIN 12
#define WIDTH 760
#define CELL 11
#define CELLS_A_ROW 64
#define LINE 16

/* What is not text of our own. */
static void append_escaped(struct text *out, const char *string)
{
	for (; *string; string++) {
		if (*string == '&')
			text_append(out, "&amp;");
		else if (*string == '<')
			text_append(out, "&lt;");
		else if (*string == '>')
			text_append(out, "&gt;");
		else
			text_append(out, "%c", *string);
	}
}

static void line_of_text(struct text *out, int x, int y, const char *words)
{
	text_append(out, "<text x=\"%d\" y=\"%d\">", x, y);
	append_escaped(out, words);
	text_append(out, "</text>\n");
}

/* One square for each processor of the node; returns the y below them. */
static int draw_processors(
	const struct machine *machine, const struct plan *plan, uint32_t node, int y, struct text *out)
{
	for (uint32_t thread = 0;; thread++) {
		int column = 0;

		for (uint32_t i = 0; i < machine->cpu_count; i++) {
			const struct machine_cpu *cpu = &machine->cpus[i];
			const struct topo_legend *use;

			if (cpu->node != node || topo_thread(machine, i) != thread)
				continue;
			use = &topo_legend[topo_use(machine, plan, cpu)];
			if (column && column % CELLS_A_ROW == 0)
				y += CELL;
			text_append(out,
				"<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"><title>processor %d: %s</title></rect>\n",
				2 * MARGIN + column % CELLS_A_ROW * CELL, y, CELL - 2, CELL - 2, use->colour,
				cpu->number, use->words);
			column++;
		}
		if (!column)
			return y;
		y += CELL;
	}
}

static int draw_devices(const struct machine *machine, const struct plan *plan, int node, int y, struct text *out)
{
	for (uint32_t i = 0; i < machine->nic_count + machine->gpu_count; i++) {
		struct text words = { NULL, 0, 0, false };
		bool is_nic = i < machine->nic_count;
		uint32_t gpu = i - machine->nic_count;

		if (topo_node_of(machine, is_nic ? machine->nics[i].nodes : machine->gpus[gpu].nodes) != node)
			continue;
		if (is_nic)
			topo_nic_words(machine, plan, i, &words);
		else
			topo_gpu_words(machine, plan, gpu, &words);
		y += LINE;
		line_of_text(out, 2 * MARGIN, y, words.bytes ? words.bytes : "");
		out->failed |= words.failed;
		text_fini(&words);
	}
	return y;
}

static int draw_node(const struct machine *machine, const struct plan *plan, uint32_t node, int y, struct text *out)
{
	uint64_t l1 = topo_l1_on(machine, plan, node);
	char bytes[TEXT_SHORT], has[TEXT_SHORT], words[128];
	int top = y;

	snprintf(words, sizeof(words), "node %d: %s%s%s%s", machine->nodes[node].number,
		text_size(bytes, machine->nodes[node].bytes),
		machine->nodes[node].memory == MACHINE_GPU_MEMORY ? ", GPU memory" : "", l1 ? ", L1: " : "",
		l1 ? text_size(has, l1) : "");
	line_of_text(out, 2 * MARGIN, y + LINE, words);
	y = draw_processors(machine, plan, node, y + LINE + 8, out);
	y = draw_devices(machine, plan, (int)node, y, out) + 8;
	text_append(out,
		"<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#495057\" rx=\"4\"/>\n",
		MARGIN, top, WIDTH - 2 * MARGIN, y - top);
	return y + MARGIN;
}

static int draw_legend(int y, struct text *out)
{
	for (size_t i = 0; i < TOPO_USES; i++) {
		text_append(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"/>\n", MARGIN, y,
			CELL - 2, CELL - 2, topo_legend[i].colour);
		line_of_text(out, MARGIN + 16, y + 9, topo_legend[i].words);
		y += LINE;
	}
	return y;
}

void topo_svg(const struct machine *machine, const struct plan *plan, struct text *out)
{
	struct text body = { NULL, 0, 0, false };
	int y = 2 * LINE;

	line_of_text(&body, MARGIN, LINE, machine->name);
	for (uint32_t node = 0; node < machine->node_count; node++)
		y = draw_node(machine, plan, node, y, &body);
	y = draw_devices(machine, plan, -1, y, &body);
	y = draw_legend(y + MARGIN, &body);
	for (uint32_t i = 0; i < plan->warning_count; i++) {
		y += LINE;
		line_of_text(&body, MARGIN, y, plan->warnings[i]);
	}
	text_append(out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"monospace\" "
		"font-size=\"12\">\n%s</svg>\n",
		WIDTH, y + MARGIN, body.bytes ? body.bytes : "");
	out->failed |= body.failed;
	text_fini(&body);
}
