/*
 * _history.c - History: earlier prompts and the digests of their chunks. The next turn of a conversation begins with
 * the last one's tokens, so comparing them takes the place of hashing them. Nothing is believed that was not compared
 * token by token; a guess is what still has to be.
 */
#include "_tokens.h"

#define DIGEST_BYTES 32
#define TAIL_TOKENS 8 /* last tokens of a prompt, by which it is found */
#define HISTORY_BUCKETS 4096u
#define HISTORY_LENGTHS 1024u
#define PROBES 16 /* tokens all over a prompt that are looked at before it is guessed */

struct prompt {
	struct prompt *next;          /* of the bucket */
	struct prompt *newer, *older; /* by last use */
	PyObject *tokens, *digests;   /* Tokens that nobody appends to any more; bytes */
	uint64_t hash;
	size_t chunks, bytes;
};

struct history {
	PyObject_HEAD struct prompt *buckets[HISTORY_BUCKETS];
	uint32_t
		lengths[HISTORY_LENGTHS]; /* how many prompts have so many chunks, or some multiple of the table more */
	struct prompt *newest, *oldest;
	size_t chunk_tokens, bytes, bytes_max;
	unsigned long long hits, misses;
};

/* The array may be other Tokens', too, which may go: all of it counts. */
static size_t prompt_bytes(const struct prompt *prompt)
{
	return sizeof(*prompt) + ((struct tokens *)prompt->tokens)->ids->capacity * sizeof(uint32_t) +
		(size_t)PyBytes_GET_SIZE(prompt->digests);
}

static const uint32_t *prompt_ids(const struct prompt *prompt)
{
	return ((struct tokens *)prompt->tokens)->ids->at;
}

static size_t tail_length(size_t end)
{
	return end < TAIL_TOKENS ? end : TAIL_TOKENS;
}

/* Of the last tokens before `end`, and how many there are: whatever meets here is compared whole. */
static uint64_t tail_hash(const uint32_t *tail, size_t end)
{
	size_t length = tail_length(end);
	uint64_t hash = end;

	for (size_t i = 0; i < length; i++)
		hash = (hash ^ tail[i]) * 0x9e3779b97f4a7c15ull, hash ^= hash >> 29;
	return hash;
}

static void prompt_unlink(struct history *history, struct prompt *prompt)
{
	if (prompt->newer)
		prompt->newer->older = prompt->older;
	else
		history->newest = prompt->older;
	if (prompt->older)
		prompt->older->newer = prompt->newer;
	else
		history->oldest = prompt->newer;
}

static void prompt_push(struct history *history, struct prompt *prompt)
{
	prompt->newer = NULL;
	prompt->older = history->newest;
	if (history->newest)
		history->newest->newer = prompt;
	else
		history->oldest = prompt;
	history->newest = prompt;
}

static void prompt_forget(struct history *history, struct prompt *prompt)
{
	struct prompt **at = &history->buckets[prompt->hash % HISTORY_BUCKETS];

	while (*at != prompt)
		at = &(*at)->next;
	*at = prompt->next;
	prompt_unlink(history, prompt);
	history->lengths[prompt->chunks % HISTORY_LENGTHS]--;
	history->bytes -= prompt->bytes;
	Py_DECREF(prompt->tokens);
	Py_DECREF(prompt->digests);
	PyMem_Free(prompt);
}

/* The longest remembered prompt of which all chunks are the first ones of `tokens`. */
static struct prompt *history_search(struct history *history, const struct tokens *tokens)
{
	for (size_t chunks = tokens->count / history->chunk_tokens; chunks > 0; chunks--) {
		size_t count = chunks * history->chunk_tokens;
		uint64_t hash;

		if (history->lengths[chunks % HISTORY_LENGTHS] == 0)
			continue;
		hash = tail_hash(tokens->ids->at + count - tail_length(count), count);
		for (struct prompt *prompt = history->buckets[hash % HISTORY_BUCKETS]; prompt; prompt = prompt->next)
			if (prompt->hash == hash && prompt->chunks == chunks &&
				memcmp(prompt_ids(prompt), tokens->ids->at, count * sizeof(uint32_t)) == 0)
				return prompt;
	}
	return NULL;
}

/* ---- guessing ---- */

/* Whether the prompt's tokens first .. end - 1 are the source's, each `step`-th of them. */
static int source_agrees(const struct source *source, const uint32_t *ids, size_t first, size_t end, size_t step)
{
	uint32_t id;

	for (size_t at = first; at < end; at += step)
		if (source_peek(source, at, 1, &id) || id != ids[at])
			return 0;
	return 1;
}

/* The longest remembered prompt of which all chunks seem to be the source's first ones. */
static struct prompt *history_guess_prompt(struct history *history, const struct source *source)
{
	uint32_t tail[TAIL_TOKENS];

	for (size_t chunks = source->count / history->chunk_tokens; chunks > 0; chunks--) {
		size_t count = chunks * history->chunk_tokens, length = tail_length(count);
		uint64_t hash;

		if (history->lengths[chunks % HISTORY_LENGTHS] == 0)
			continue;
		if (source_peek(source, count - length, length, tail))
			return NULL;
		hash = tail_hash(tail, count);
		for (struct prompt *prompt = history->buckets[hash % HISTORY_BUCKETS]; prompt; prompt = prompt->next)
			if (prompt->hash == hash && prompt->chunks == chunks &&
				source_agrees(source, prompt_ids(prompt), 0, count, count / PROBES + 1))
				return prompt;
	}
	return NULL;
}

/* The source's tokens as the prompt's and what comes behind them. */
static PyObject *prompt_continued(struct history *history, const struct prompt *prompt, const struct source *source)
{
	const struct tokens *tokens = (struct tokens *)prompt->tokens;
	size_t count = prompt->chunks * history->chunk_tokens;
	PyObject *made;

	if (tokens->count <= source->count && source_agrees(source, tokens->ids->at, count, tokens->count, 1))
		count = tokens->count;
	made = tokens_begin(tokens, count);
	if (made && tokens_add((struct tokens *)made, source, count))
		Py_CLEAR(made);
	return made;
}

int guess(PyObject *self, const struct source *source, PyObject **tokens, PyObject **digests)
{
	struct history *history = (struct history *)self;
	struct prompt *prompt = history_guess_prompt(history, source);

	if (!prompt)
		return 0;
	history->hits++;
	prompt_unlink(history, prompt);
	prompt_push(history, prompt);
	*digests = Py_NewRef(prompt->digests); /* reading the source may run Python code, which may clear the history */
	*tokens = prompt_continued(history, prompt, source);
	if (*tokens)
		return 1;
	Py_CLEAR(*digests);
	return -1;
}

static PyObject *history_guess(PyObject *self, PyObject *argument)
{
	PyObject *tokens, *digests, *both;
	struct source source;
	int found;

	if (source_open(&source, argument))
		return NULL;
	found = guess(self, &source, &tokens, &digests);
	source_close(&source);
	if (found == 0)
		Py_RETURN_NONE;
	if (found < 0)
		return NULL;
	both = PyTuple_Pack(2, tokens, digests);
	Py_DECREF(tokens);
	Py_DECREF(digests);
	return both;
}

/* ---- the type ---- */

static int is_tokens(PyObject *argument)
{
	if (PyObject_TypeCheck(argument, &tokens_type))
		return 1;
	PyErr_SetString(PyExc_TypeError, "tokens are given as Tokens");
	return 0;
}

static PyObject *history_find(PyObject *self, PyObject *argument)
{
	struct history *history = (struct history *)self;
	struct prompt *prompt;

	if (!is_tokens(argument))
		return NULL;
	prompt = history_search(history, (struct tokens *)argument);
	if (!prompt) {
		history->misses++;
		Py_RETURN_NONE;
	}
	history->hits++;
	prompt_unlink(history, prompt);
	prompt_push(history, prompt);
	return Py_NewRef(prompt->digests);
}

static PyObject *history_remember(PyObject *self, PyObject *arguments)
{
	struct history *history = (struct history *)self;
	struct prompt *prompt, *former;
	PyObject *tokens, *digests;
	size_t chunks;

	if (!PyArg_ParseTuple(arguments, "O!S:remember", &tokens_type, &tokens, &digests))
		return NULL;
	chunks = (size_t)PyBytes_GET_SIZE(digests) / DIGEST_BYTES;
	if (chunks * history->chunk_tokens > ((struct tokens *)tokens)->count || chunks == 0 ||
		PyBytes_GET_SIZE(digests) % DIGEST_BYTES) {
		PyErr_SetString(PyExc_ValueError, "digests of more chunks than there are tokens, or of none");
		return NULL;
	}
	/* What it goes on from serves no one better than this does. */
	former = history_search(history, (struct tokens *)tokens);
	if (former && former->chunks >= chunks)
		Py_RETURN_NONE;
	prompt = PyMem_Calloc(1, sizeof(*prompt));
	if (!prompt)
		return PyErr_NoMemory();
	if (former)
		prompt_forget(history, former);
	prompt->tokens = Py_NewRef(tokens);
	prompt->digests = Py_NewRef(digests);
	prompt->chunks = chunks;
	prompt->hash = tail_hash(
		prompt_ids(prompt) + chunks * history->chunk_tokens - tail_length(chunks * history->chunk_tokens),
		chunks * history->chunk_tokens);
	prompt->next = history->buckets[prompt->hash % HISTORY_BUCKETS];
	history->buckets[prompt->hash % HISTORY_BUCKETS] = prompt;
	prompt_push(history, prompt);
	history->lengths[chunks % HISTORY_LENGTHS]++;
	prompt->bytes = prompt_bytes(prompt);
	history->bytes += prompt->bytes;
	while (history->oldest && history->bytes > history->bytes_max)
		prompt_forget(history, history->oldest);
	Py_RETURN_NONE;
}

static PyObject *history_clear(PyObject *self, PyObject *unused)
{
	struct history *history = (struct history *)self;

	(void)unused;
	while (history->oldest)
		prompt_forget(history, history->oldest);
	Py_RETURN_NONE;
}

static PyObject *history_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
	static char *names[] = { "chunk_tokens", "bytes_max", NULL };
	Py_ssize_t chunk_tokens, bytes_max;
	struct history *history;

	if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "nn:History", names, &chunk_tokens, &bytes_max))
		return NULL;
	if (chunk_tokens < 1 || bytes_max < 0) {
		PyErr_SetString(PyExc_ValueError, "a chunk has tokens, and no memory is less than none");
		return NULL;
	}
	history = (struct history *)type->tp_alloc(type, 0);
	if (history) {
		history->chunk_tokens = (size_t)chunk_tokens;
		history->bytes_max = (size_t)bytes_max;
	}
	return (PyObject *)history;
}

static void history_free(PyObject *self)
{
	Py_XDECREF(history_clear(self, NULL));
	Py_TYPE(self)->tp_free(self);
}

static PyObject *history_number(PyObject *self, void *closure)
{
	struct history *history = (struct history *)self;

	switch (*(const char *)closure) {
	case 'b':
		return PyLong_FromSize_t(history->bytes);
	case 'h':
		return PyLong_FromUnsignedLongLong(history->hits);
	default:
		return PyLong_FromUnsignedLongLong(history->misses);
	}
}

static PyMethodDef history_methods[] = {
	{ "find", history_find, METH_O,
		"find(tokens) -> digests or None: of the longest remembered prompt that `tokens` begin with." },
	{ "guess", history_guess, METH_O,
		"guess(source) -> (Tokens, digests) or None: what find(Tokens(source)) would find, most likely, and the source's "
		"tokens, of which those that the digests are of were taken from the history: nothing of it may be believed "
		"before tokens.common(source) has said that all are the same." },
	{ "remember", history_remember, METH_VARARGS,
		"remember(tokens, digests): nobody may append to these tokens from now on." },
	{ "clear", history_clear, METH_NOARGS, "Forgets all." },
	{ NULL, NULL, 0, NULL },
};

static PyGetSetDef history_getset[] = {
	{ "bytes", history_number, NULL, "memory in use", "b" },
	{ "hits", history_number, NULL, "finds that found one", "h" },
	{ "misses", history_number, NULL, "finds that did not", "m" },
	{ NULL, NULL, NULL, NULL, NULL },
};

PyTypeObject history_type = {
	PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kvrail._tokens.History",
	.tp_doc =
		"History(chunk_tokens, bytes_max): earlier prompts with their digests; the least recently used go first.",
	.tp_basicsize = sizeof(struct history),
	.tp_flags = Py_TPFLAGS_DEFAULT,
	.tp_new = history_new,
	.tp_dealloc = history_free,
	.tp_methods = history_methods,
	.tp_getset = history_getset,
};
