/* machine_text.c - reads a machine text or a side file: any bytes are safe, and an error says the line. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "poll/machine_reader.h"

#define LINE_MAX_BYTES 4096
/* hwloc builds whatever a description asks for: more than this many objects are no machine. */
#define SYNTHETIC_MAX 4096

int reader_refuse(struct machine_reader *reader, const char *format, ...)
{
	char words[160];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(words, sizeof(words), format, arguments);
	va_end(arguments);
	machine_fail(reader->error, -EINVAL, "%.80s:%u: %s", reader->name, reader->line, words);
	return -EINVAL;
}

char *reader_next_piece(char **list, char separator)
{
	char *piece = *list;
	char *end;

	if (!piece)
		return NULL;
	end = strchr(piece, separator);
	if (end)
		*end = '\0';
	*list = end ? end + 1 : NULL;
	return piece;
}

char *reader_take(struct machine_reader *reader, const char *key)
{
	size_t length = strlen(key);

	for (uint32_t i = 1; i < reader->word_count; i++) {
		char *word = reader->words[i];

		if (strncmp(word, key, length) != 0 || word[length] != '=')
			continue;
		reader->words[i] = "";
		return word + length + 1;
	}
	return NULL;
}

int reader_refuse_rest(struct machine_reader *reader, uint32_t from)
{
	for (uint32_t i = from; i < reader->word_count; i++) {
		if (reader->words[i][0])
			return reader_refuse(reader, "%s has no %.40s", reader->words[0], reader->words[i]);
	}
	return 0;
}

int reader_number(struct machine_reader *reader, const char *text, uint64_t most, uint64_t *value)
{
	uint64_t number;

	if (!text || text_parse_u64(text, &number) != 0 || number > most)
		return reader_refuse(reader, "%s: %.40s is no number up to %llu", reader->words[0],
			text ? text : "nothing", (unsigned long long)most);
	*value = number;
	return 0;
}

int reader_size(struct machine_reader *reader, const char *text, uint64_t *bytes)
{
	if (!text || text_parse_size(text, bytes) != 0)
		return reader_refuse(reader, "%s: %.40s is no size", reader->words[0], text ? text : "nothing");
	return 0;
}

int reader_name(struct machine_reader *reader, const char *text, char *out, size_t size)
{
	if (!text || !text[0] || strlen(text) >= size)
		return reader_refuse(reader, "%s: a name has 1 to %zu characters", reader->words[0], size - 1);
	for (const char *at = text; *at; at++) {
		/* Names are printed: nothing in them may steer a terminal, or end a word of a machine text. */
		if (*at <= ' ' || *at >= 0x7f || *at == '=' || *at == '#')
			return reader_refuse(reader, "%s: a name has letters, digits and . : _ -", reader->words[0]);
	}
	text_copy(out, size, text);
	return 0;
}

int reader_list(struct machine_reader *reader, const char *text, int *numbers, uint32_t *count)
{
	int got = text ? cores_parse(text, numbers, MACHINE_CPUS_MAX) : -EINVAL;

	if (got < 0)
		return reader_refuse(reader, "%s: %.40s is no list like 0-3,8 of numbers below %d", reader->words[0],
			text ? text : "nothing", MACHINE_CPUS_MAX);
	*count = (uint32_t)got;
	return 0;
}

/* "1GiB:32/40,2MiB:0/0": size:free/total. */
static int read_huge(struct machine_reader *reader, char *text, struct machine_node *node)
{
	char *entry;
	int why = 0;

	while (!why && (entry = reader_next_piece(&text, ',')) != NULL) {
		uint64_t bytes = 0, free_pages = 0, total = 0;
		char *rest = entry;
		char *size = reader_next_piece(&rest, ':');
		char *free_text = reader_next_piece(&rest, '/');

		why = reader_size(reader, size, &bytes);
		if (!why)
			why = reader_number(reader, free_text, 1ULL << 40, &free_pages);
		if (!why)
			why = reader_number(reader, rest, 1ULL << 40, &total);
		if (!why && (bytes <= 65536 || bytes & (bytes - 1) || bytes > 1ULL << 40 || free_pages > total))
			why = reader_refuse(reader, "huge: a power of two:free/total, and no more free than in total");
		if (!why)
			machine_set_huge(node, bytes, total, free_pages);
	}
	return why;
}

static int read_memory_kind(struct machine_reader *reader, const char *text, struct machine_node *node)
{
	if (strcmp(text, "dram") == 0)
		node->memory = MACHINE_DRAM;
	else if (strcmp(text, "gpu") == 0)
		node->memory = MACHINE_GPU_MEMORY;
	else if (strcmp(text, "other") == 0)
		node->memory = MACHINE_OTHER_MEMORY;
	else
		return reader_refuse(reader, "kind is dram, gpu or other");
	return 0;
}

/* The node of the line's number, a new one unless it amends. */
static int have_node(struct machine_reader *reader, struct machine_node **node)
{
	struct machine *machine = reader->machine;
	uint64_t number = 0;
	int why = reader_number(reader, reader->word_count > 1 ? reader->words[1] : NULL, 65535, &number);
	int found = why ? -1 : machine_find_node(machine, (int)number);

	if (why)
		return why;
	if (found >= 0) {
		*node = &machine->nodes[found];
		return reader->amend ? 0 : reader_refuse(reader, "node %d is there twice", (int)number);
	}
	if (machine->node_count == MACHINE_NODES_MAX)
		return reader_refuse(reader, "more than %d nodes", MACHINE_NODES_MAX);
	*node = &machine->nodes[machine->node_count++];
	(*node)->number = (int)number;
	(*node)->package = -1;
	(*node)->allowed = true;
	return 0;
}

static int read_node(struct machine_reader *reader)
{
	struct machine_node *node = NULL;
	uint64_t package = 0;
	char *value;
	int why = have_node(reader, &node);

	if (!node)
		return why;
	if (!why && (value = reader_take(reader, "package")) != NULL) {
		why = reader_number(reader, value, 65535, &package);
		if (!why)
			node->package = (int)package;
	}
	if (!why && (value = reader_take(reader, "memory")) != NULL)
		why = reader_size(reader, value, &node->bytes);
	if (!why && (value = reader_take(reader, "kind")) != NULL)
		why = read_memory_kind(reader, value, node);
	if (!why && (value = reader_take(reader, "huge")) != NULL)
		why = read_huge(reader, value, node);
	if (!why && (value = reader_take(reader, "allowed")) != NULL)
		node->allowed = strcmp(value, "no") != 0;
	return why ? why : reader_refuse_rest(reader, 2);
}

static int read_distance(struct machine_reader *reader)
{
	struct machine *machine = reader->machine;
	uint64_t number = 0, value = 0;
	int from;
	int why = reader_number(reader, reader->word_count > 1 ? reader->words[1] : NULL, 65535, &number);

	if (why)
		return why;
	from = machine_find_node(machine, (int)number);
	if (from < 0)
		return reader_refuse(reader, "there is no node %d", (int)number);
	if (reader->word_count - 2 != machine->node_count)
		return reader_refuse(reader, "one distance to each of %u nodes", machine->node_count);
	for (uint32_t to = 0; !why && to < machine->node_count; to++) {
		why = reader_number(reader, reader->words[to + 2], 1000, &value);
		machine->distances[from][to] = (uint16_t)value;
	}
	return why;
}

static int add_cpu(struct machine_reader *reader, int number, uint32_t core, uint32_t node)
{
	struct machine *machine = reader->machine;
	struct machine_cpu *cpu = &machine->cpus[machine->cpu_count];

	if (machine_find_cpu(machine, number) >= 0)
		return reader_refuse(reader, "processor %d is there twice", number);
	/* Numbers are below the count that there is room for, and none is there twice: it fits. */
	*cpu = (struct machine_cpu){ number, core, node, true, false, false };
	machine->cpu_count++;
	return 0;
}

static int read_cores(struct machine_reader *reader)
{
	struct machine *machine = reader->machine;
	int first[MACHINE_CPUS_MAX], list[MACHINE_CPUS_MAX];
	uint32_t count = 0, more = 0, base = machine->core_count;
	char *siblings = reader_take(reader, "siblings");
	uint64_t number = 0;
	int why = reader_number(reader, reader_take(reader, "node"), 65535, &number);
	int node = why ? -1 : machine_find_node(machine, (int)number);
	char *piece;

	if (!why && node < 0)
		why = reader_refuse(reader, "there is no node %d: node lines come first", (int)number);
	if (!why)
		why = reader_list(reader, reader->word_count > 1 ? reader->words[1] : NULL, first, &count);
	for (uint32_t i = 0; !why && i < count; i++)
		why = add_cpu(reader, first[i], base + i, (uint32_t)node);
	while (!why && (piece = reader_next_piece(&siblings, '/')) != NULL) {
		why = reader_list(reader, piece, list, &more);
		if (!why && more != count)
			why = reader_refuse(reader, "siblings: as many as the first list has");
		for (uint32_t i = 0; !why && i < count; i++)
			why = add_cpu(reader, list[i], base + i, (uint32_t)node);
	}
	machine->core_count += count;
	return why ? why : reader_refuse_rest(reader, 2);
}

static bool *flag_of(struct machine_cpu *cpu, const char *word)
{
	if (strcmp(word, "allowed") == 0)
		return &cpu->allowed;
	return strcmp(word, "isolated") == 0 ? &cpu->isolated : &cpu->nohz_full;
}

/* allowed, isolated, nohz_full: whose processors have it; the others have not. */
static int read_flags(struct machine_reader *reader)
{
	struct machine *machine = reader->machine;
	int list[MACHINE_CPUS_MAX];
	uint32_t count = 0;
	int why = reader_list(reader, reader->word_count > 1 ? reader->words[1] : NULL, list, &count);

	if (why)
		return why;
	for (uint32_t i = 0; i < machine->cpu_count; i++)
		*flag_of(&machine->cpus[i], reader->words[0]) = false;
	for (uint32_t i = 0; i < count; i++) {
		int found = machine_find_cpu(machine, list[i]);

		if (found < 0)
			return reader_refuse(reader, "there is no processor %d: cores lines come first", list[i]);
		*flag_of(&machine->cpus[found], reader->words[0]) = true;
	}
	return reader_refuse_rest(reader, 2);
}

/* How many objects a description asks for, SYNTHETIC_MAX + 1 for more. */
static uint64_t synthetic_objects(const char *text)
{
	uint64_t product = 1;
	int depth = 0;

	for (const char *at = text; *at; at++) {
		bool starts = at == text || at[-1] == ':' || at[-1] == ' ';
		uint64_t number = 0;

		depth += *at == '(' || *at == '[';
		depth -= *at == ')' || *at == ']';
		if (depth > 0 || !starts || *at < '0' || *at > '9')
			continue;
		for (const char *digit = at; *digit >= '0' && *digit <= '9' && number <= SYNTHETIC_MAX; digit++)
			number = 10 * number + (uint64_t)(*digit - '0');
		product *= number;
		if (number > SYNTHETIC_MAX || product > SYNTHETIC_MAX)
			return SYNTHETIC_MAX + 1;
	}
	return product;
}

static int read_synthetic(struct machine_reader *reader, const char *rest)
{
	struct machine_error error = { "" };

	if (reader->amend || reader->machine->node_count || reader->machine->cpu_count)
		return reader_refuse(reader, "synthetic stands before all nodes and cores, and not in a side file");
	if (strlen(rest) > 512 || synthetic_objects(rest) > SYNTHETIC_MAX || strchr(rest, ';'))
		return reader_refuse(reader, "synthetic describes more than %d objects", SYNTHETIC_MAX);
	if (machine_from_hwloc_synthetic(reader->machine, rest, &error) != 0)
		return reader_refuse(reader, "%s", error.text);
	return 0;
}

static int read_thp(struct machine_reader *reader)
{
	static const char *const words[] = { "unknown", "never", "madvise", "always" };

	for (size_t i = 0; reader->word_count == 2 && i < KVR_COUNT_OF(words); i++) {
		if (strcmp(reader->words[1], words[i]) == 0) {
			reader->machine->thp = (enum machine_thp)i;
			return 0;
		}
	}
	return reader_refuse(reader, "thp is always, madvise or never");
}

static int read_quota(struct machine_reader *reader)
{
	uint64_t millis = 0;
	int why = reader_number(reader, reader->word_count == 2 ? reader->words[1] : NULL, 100000000, &millis);

	if (!why)
		reader->machine->quota_millis = (uint32_t)millis;
	return why;
}

static int read_memory_limit(struct machine_reader *reader)
{
	return reader_size(
		reader, reader->word_count == 2 ? reader->words[1] : NULL, &reader->machine->memory_limit_bytes);
}

static const struct {
	const char *word;
	int (*read)(struct machine_reader *reader);
} kinds[] = {
	{ "node", read_node },
	{ "distance", read_distance },
	{ "cores", read_cores },
	{ "allowed", read_flags },
	{ "isolated", read_flags },
	{ "nohz_full", read_flags },
	{ "switch", reader_switch },
	{ "nic", reader_nic },
	{ "gpu", reader_gpu },
	{ "thp", read_thp },
	{ "quota", read_quota },
	{ "memory-limit", read_memory_limit },
};

/* name and synthetic take the rest of the line as it stands. True: it was one of them. */
static bool read_whole_line(struct machine_reader *reader, char *line, int *why)
{
	if (strncmp(line, "name ", 5) == 0) {
		machine_set_name(reader->machine, line + 5);
		return true;
	}
	if (strncmp(line, "synthetic ", 10) == 0) {
		*why = read_synthetic(reader, line + 10);
		return true;
	}
	return false;
}

static int read_words(struct machine_reader *reader)
{
	for (size_t i = 0; i < KVR_COUNT_OF(kinds); i++) {
		if (strcmp(reader->words[0], kinds[i].word) == 0)
			return kinds[i].read(reader);
	}
	return reader_refuse(reader, "no line begins with %.40s", reader->words[0]);
}

static int read_line(struct machine_reader *reader, char *line)
{
	char *rest = line;
	int why = 0;

	line[strcspn(line, "#")] = '\0';
	rest += strspn(rest, " \t\r");
	for (size_t end = strlen(rest); end > 0 && strchr(" \t\r", rest[end - 1]); end--)
		rest[end - 1] = '\0';
	if (!rest[0] || read_whole_line(reader, rest, &why))
		return why;
	reader->word_count = 0;
	while (*rest) {
		if (reader->word_count == READER_WORDS_MAX)
			return reader_refuse(reader, "more than %d words", READER_WORDS_MAX);
		reader->words[reader->word_count++] = rest;
		rest += strcspn(rest, " \t");
		if (*rest)
			*rest++ = '\0';
		rest += strspn(rest, " \t");
	}
	return read_words(reader);
}

/* What only the whole text shows. */
static int check_whole(struct machine_reader *reader)
{
	const struct machine *machine = reader->machine;

	if (machine->node_count == 0 || machine->cpu_count == 0)
		return reader_refuse(reader, "a machine has at least one node and one core");
	for (uint32_t i = 0; i < machine->cpu_count; i++) {
		if (machine->nodes[machine->cpus[i].node].memory == MACHINE_GPU_MEMORY)
			return reader_refuse(
				reader, "processor %d is on a node of GPU memory", machine->cpus[i].number);
	}
	return 0;
}

int machine_read_lines(struct machine *machine, const char *name, const char *text, size_t length, bool amend,
	struct machine_error *error)
{
	struct machine_reader reader = { machine, name, 0, amend, error, { NULL }, 0 };
	char line[LINE_MAX_BYTES];
	int why = 0;

	if (length > MACHINE_TEXT_MAX)
		return reader_refuse(&reader, "larger than %u bytes", MACHINE_TEXT_MAX);
	while (!why && length > 0) {
		const char *end = memchr(text, '\n', length);
		size_t bytes = end ? (size_t)(end - text) : length;

		reader.line++;
		if (bytes >= sizeof(line) || memchr(text, '\0', bytes))
			return reader_refuse(&reader, "a line is text of fewer than %d bytes", LINE_MAX_BYTES);
		memcpy(line, text, bytes);
		line[bytes] = '\0';
		bytes += end ? 1 : 0;
		text += bytes;
		length -= bytes;
		if (reader.line > 1 || amend)
			why = read_line(&reader, line);
		else if (strcmp(line, "kvrail-machine 1") != 0)
			why = reader_refuse(&reader, "a machine text begins with the line: kvrail-machine 1");
	}
	if (!why)
		why = check_whole(&reader);
	if (!why)
		machine_sort_cpus(machine);
	return why;
}
