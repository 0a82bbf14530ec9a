/*
 * _tokens.c - token ids out of Python objects, and the memory of earlier prompts.
 *
 * Tokens: an array of 32-bit token ids, filled from a list of ints, or from anything with the buffer protocol. It reads the ints
 * directly: one call for each of 32,768 tokens is several times the time of hashing them.
 *
 * History: earlier prompts and the digests of their chunks. The next turn of a conversation begins with the last one's tokens, so
 * comparing them (memcmp) takes the place of hashing them. Nothing is believed that was not compared token by token.
 *
 * All of it runs with the interpreter's lock held, which also excludes threads from one another.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

#define DIGEST_BYTES 32
#define TAIL_TOKENS 8 /* last tokens of a prompt, by which it is found */

#define TOKENS_MAX ((size_t)1 << 28) /* 65,536 chunks of 4,096 tokens */

struct tokens {
	PyObject_HEAD
	uint32_t *ids;
	size_t count, capacity;
	Py_ssize_t exports; /* buffers that are out: the array must neither move nor grow */
};

static PyTypeObject tokens_type;

static int tokens_reserve(struct tokens *tokens, size_t count)
{
	size_t capacity = tokens->capacity ? tokens->capacity : 256;
	uint32_t *ids;

	if (count > TOKENS_MAX) {
		PyErr_Format(PyExc_ValueError, "%zu tokens: at most %zu are possible", count, TOKENS_MAX);
		return -1;
	}
	if (tokens->exports > 0) {
		PyErr_SetString(PyExc_BufferError, "the tokens are in use as a buffer and can't grow");
		return -1;
	}
	if (count <= tokens->capacity)
		return 0;
	while (capacity < count)
		capacity *= 2;
	ids = PyMem_Realloc(tokens->ids, capacity * sizeof(*ids));
	if (!ids) {
		PyErr_NoMemory();
		return -1;
	}
	tokens->ids = ids;
	tokens->capacity = capacity;
	return 0;
}

/* ---- out of sequences of ints ---- */

/* One token from any int-like object. */
static int token_slowly(PyObject *item, uint32_t *id)
{
	PyObject *number = PyNumber_Index(item);
	unsigned long long value;

	if (!number)
		return -1;
	value = PyLong_AsUnsignedLongLong(number);
	Py_DECREF(number);
	if ((value == (unsigned long long)-1 && PyErr_Occurred()) || value > UINT32_MAX) {
		PyErr_Clear();
		PyErr_Format(PyExc_ValueError, "token %R is not in 0 .. 4294967295", item);
		return -1;
	}
	*id = (uint32_t)value;
	return 0;
}

/* The value of an int of one digit (below 2^30), or -1: those are nearly all there are. */
static inline int64_t token_quickly(PyObject *item)
{
#if PY_VERSION_HEX >= 0x030C0000
	if (PyLong_CheckExact(item) && PyUnstable_Long_IsCompact((PyLongObject *)item))
		return PyUnstable_Long_CompactValue((PyLongObject *)item);
#else
	if (PyLong_CheckExact(item)) {
		Py_ssize_t digits = Py_SIZE(item);

		if (digits == 1)
			return ((PyLongObject *)item)->ob_digit[0];
		if (digits == 0)
			return 0;
	}
#endif
	return -1;
}

#define PREFETCH_ITEMS 24 /* ints lie all over memory */

/* As many of `items` as are plain ints of one digit. Runs no Python code. */
static size_t tokens_quickly(uint32_t *ids, PyObject **items, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		int64_t value;

		if (i + PREFETCH_ITEMS < count)
			__builtin_prefetch(items[i + PREFETCH_ITEMS]);
		value = token_quickly(items[i]);
		if (value < 0 || value > (int64_t)UINT32_MAX)
			return i;
		ids[i] = (uint32_t)value;
	}
	return count;
}

static int tokens_from_items(uint32_t *ids, PyObject *sequence, size_t count)
{
	size_t at = 0;

	for (;;) {
		/* An item's __index__ may have changed a list. */
		if ((size_t)PySequence_Fast_GET_SIZE(sequence) != count) {
			PyErr_SetString(PyExc_RuntimeError, "the list of tokens changed while it was read");
			return -1;
		}
		at += tokens_quickly(ids + at, PySequence_Fast_ITEMS(sequence) + at, count - at);
		if (at == count)
			return 0;
		if (token_slowly(PySequence_Fast_GET_ITEM(sequence, (Py_ssize_t)at), &ids[at]))
			return -1;
		at++;
	}
}

static int tokens_add_sequence(struct tokens *tokens, PyObject *source)
{
	PyObject *sequence = PySequence_Fast(source, "tokens: a sequence of ints, or a one-dimensional buffer of integers");
	size_t count;
	int error;

	if (!sequence)
		return -1;
	count = (size_t)PySequence_Fast_GET_SIZE(sequence);
	error = tokens_reserve(tokens, tokens->count + count);
	if (!error)
		error = tokens_from_items(tokens->ids + tokens->count, sequence, count);
	if (!error)
		tokens->count += count;
	Py_DECREF(sequence);
	return error;
}

/* ---- out of buffers ---- */

/* The item's letter, without the marks of native byte order. */
static char buffer_letter(const Py_buffer *view)
{
	const char *format = view->format ? view->format : "B";

	if (*format == '@' || *format == '=' || *format == '<')
		format++;
	return format[0] && !format[1] ? format[0] : '\0';
}

static int out_of_range(void)
{
	PyErr_SetString(PyExc_ValueError, "a token is not in 0 .. 4294967295");
	return -1;
}

static int tokens_from_buffer(uint32_t *ids, const Py_buffer *view, size_t count)
{
	char letter = buffer_letter(view);
	uint64_t seen = 0;

	if (view->itemsize == 8 && letter && strchr("qQlLnN", letter)) {
		const uint64_t *from = view->buf;

		for (size_t i = 0; i < count; i++) {
			seen |= from[i];
			ids[i] = (uint32_t)from[i];
		}
		return seen > UINT32_MAX ? out_of_range() : 0;
	}
	if (view->itemsize == 4 && letter && strchr("iIlL", letter)) {
		const uint32_t *from = view->buf;

		memcpy(ids, from, count * sizeof(*ids));
		for (size_t i = 0; i < count; i++)
			seen |= from[i];
		return (letter == 'i' || letter == 'l') && seen >> 31 ? out_of_range() : 0;
	}
	PyErr_Format(PyExc_TypeError, "a buffer of tokens holds 32-bit or 64-bit integers, not '%s'",
		view->format ? view->format : "B");
	return -1;
}

static int tokens_add_buffer(struct tokens *tokens, PyObject *source)
{
	Py_buffer view;
	size_t count;
	int error;

	if (PyObject_GetBuffer(source, &view, PyBUF_ND | PyBUF_FORMAT))
		return -1;
	if (view.ndim != 1) {
		PyErr_Format(PyExc_TypeError, "a buffer of tokens has one dimension, not %d", view.ndim);
		PyBuffer_Release(&view);
		return -1;
	}
	count = (size_t)view.shape[0];
	error = tokens_reserve(tokens, tokens->count + count);
	if (!error)
		error = tokens_from_buffer(tokens->ids + tokens->count, &view, count);
	if (!error)
		tokens->count += count;
	PyBuffer_Release(&view);
	return error;
}

/* ---- the type ---- */

static PyObject *tokens_append(PyObject *self, PyObject *source)
{
	struct tokens *tokens = (struct tokens *)self;

	if (PyObject_CheckBuffer(source) ? tokens_add_buffer(tokens, source) : tokens_add_sequence(tokens, source))
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *tokens_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
	PyObject *source = NULL, *done;
	struct tokens *tokens;

	if (keywords && PyDict_GET_SIZE(keywords) > 0) {
		PyErr_SetString(PyExc_TypeError, "Tokens() takes no keyword arguments");
		return NULL;
	}
	if (!PyArg_ParseTuple(arguments, "|O:Tokens", &source))
		return NULL;
	tokens = (struct tokens *)type->tp_alloc(type, 0);
	if (!tokens || !source)
		return (PyObject *)tokens;
	done = tokens_append((PyObject *)tokens, source);
	if (!done) {
		Py_DECREF(tokens);
		return NULL;
	}
	Py_DECREF(done);
	return (PyObject *)tokens;
}

static void tokens_free(PyObject *self)
{
	PyMem_Free(((struct tokens *)self)->ids);
	Py_TYPE(self)->tp_free(self);
}

static Py_ssize_t tokens_length(PyObject *self)
{
	return (Py_ssize_t)((struct tokens *)self)->count;
}

static PyObject *tokens_item(PyObject *self, Py_ssize_t index)
{
	struct tokens *tokens = (struct tokens *)self;

	if (index < 0 || (size_t)index >= tokens->count) {
		PyErr_SetString(PyExc_IndexError, "there are not so many tokens");
		return NULL;
	}
	return PyLong_FromUnsignedLong(tokens->ids[index]);
}

static PyObject *tokens_address(PyObject *self, void *closure)
{
	(void)closure;
	return PyLong_FromVoidPtr(((struct tokens *)self)->ids);
}

/* common(other): how many leading tokens are the same in both. */
static PyObject *tokens_common(PyObject *self, PyObject *argument)
{
	struct tokens *a = (struct tokens *)self, *b = (struct tokens *)argument;
	size_t count, at = 0;

	if (!PyObject_TypeCheck(argument, &tokens_type)) {
		PyErr_SetString(PyExc_TypeError, "common() compares with Tokens");
		return NULL;
	}
	count = a->count < b->count ? a->count : b->count;
	while (count - at >= 256 && memcmp(a->ids + at, b->ids + at, 256 * sizeof(*a->ids)) == 0)
		at += 256;
	while (at < count && a->ids[at] == b->ids[at])
		at++;
	return PyLong_FromSize_t(at);
}

static int tokens_get_buffer(PyObject *self, Py_buffer *view, int flags)
{
	struct tokens *tokens = (struct tokens *)self;
	int error = PyBuffer_FillInfo(view, self, tokens->ids ? (void *)tokens->ids : (void *)"",
		(Py_ssize_t)(tokens->count * sizeof(*tokens->ids)), 1, flags);

	if (error)
		return error;
	view->itemsize = sizeof(*tokens->ids);
	if (view->format)
		view->format = "I";
	if (view->shape)
		view->shape = (Py_ssize_t *)&tokens->count; /* which stays while the buffer is out */
	tokens->exports++;
	return 0;
}

static void tokens_release_buffer(PyObject *self, Py_buffer *view)
{
	(void)view;
	((struct tokens *)self)->exports--;
}

static PyMethodDef tokens_methods[] = {
	{ "append", tokens_append, METH_O, "append(tokens): adds the ids of a sequence or buffer." },
	{ "common", tokens_common, METH_O, "common(other) -> int: how many leading ids are the same." },
	{ NULL, NULL, 0, NULL },
};

static PyGetSetDef tokens_getset[] = {
	{ "address", tokens_address, NULL, "where the ids are; 0: there are none. Good until append().", NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};

static PySequenceMethods tokens_sequence = { .sq_length = tokens_length, .sq_item = tokens_item };
static PyBufferProcs tokens_buffer = { tokens_get_buffer, tokens_release_buffer };

static PyTypeObject tokens_type = {
	PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kvrail._tokens.Tokens",
	.tp_doc = "Tokens([tokens]): an array of 32-bit token ids.",
	.tp_basicsize = sizeof(struct tokens),
	.tp_flags = Py_TPFLAGS_DEFAULT,
	.tp_new = tokens_new,
	.tp_dealloc = tokens_free,
	.tp_methods = tokens_methods,
	.tp_getset = tokens_getset,
	.tp_as_sequence = &tokens_sequence,
	.tp_as_buffer = &tokens_buffer,
};

/* ---- history ---- */

#define HISTORY_BUCKETS 4096u

struct prompt {
	struct prompt *next;           /* of the bucket */
	struct prompt *newer, *older; /* by last use */
	PyObject *tokens, *digests;    /* Tokens that nobody appends to any more; bytes */
	uint64_t hash;
	size_t chunks;
};

struct history {
	PyObject_HEAD
	struct prompt *buckets[HISTORY_BUCKETS];
	struct prompt *newest, *oldest;
	size_t chunk_tokens, bytes, bytes_max;
	unsigned long long hits, misses;
};

static size_t prompt_bytes(const struct prompt *prompt)
{
	return sizeof(*prompt) + ((struct tokens *)prompt->tokens)->capacity * sizeof(uint32_t) +
		(size_t)PyBytes_GET_SIZE(prompt->digests);
}

/* Of the last tokens before `end`, and how many there are: whatever meets here is compared whole. */
static uint64_t tail_hash(const uint32_t *ids, size_t end)
{
	size_t begin = end > TAIL_TOKENS ? end - TAIL_TOKENS : 0;
	uint64_t hash = end;

	for (size_t i = begin; i < end; i++)
		hash = (hash ^ ids[i]) * 0x9e3779b97f4a7c15ull, hash ^= hash >> 29;
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
	history->bytes -= prompt_bytes(prompt);
	Py_DECREF(prompt->tokens);
	Py_DECREF(prompt->digests);
	PyMem_Free(prompt);
}

/* The longest remembered prompt of which all chunks are the first ones of `tokens`. */
static struct prompt *history_search(struct history *history, const struct tokens *tokens)
{
	for (size_t chunks = tokens->count / history->chunk_tokens; chunks > 0; chunks--) {
		size_t count = chunks * history->chunk_tokens;
		uint64_t hash = tail_hash(tokens->ids, count);

		for (struct prompt *prompt = history->buckets[hash % HISTORY_BUCKETS]; prompt; prompt = prompt->next)
			if (prompt->hash == hash && prompt->chunks == chunks &&
				memcmp(((struct tokens *)prompt->tokens)->ids, tokens->ids, count * sizeof(*tokens->ids)) == 0)
				return prompt;
	}
	return NULL;
}

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
	prompt->hash = tail_hash(((struct tokens *)tokens)->ids, chunks * history->chunk_tokens);
	prompt->next = history->buckets[prompt->hash % HISTORY_BUCKETS];
	history->buckets[prompt->hash % HISTORY_BUCKETS] = prompt;
	prompt_push(history, prompt);
	history->bytes += prompt_bytes(prompt);
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
	case 'b': return PyLong_FromSize_t(history->bytes);
	case 'h': return PyLong_FromUnsignedLongLong(history->hits);
	default: return PyLong_FromUnsignedLongLong(history->misses);
	}
}

static PyMethodDef history_methods[] = {
	{ "find", history_find, METH_O,
		"find(tokens) -> digests or None: of the longest remembered prompt that `tokens` begin with." },
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

static PyTypeObject history_type = {
	PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kvrail._tokens.History",
	.tp_doc = "History(chunk_tokens, bytes_max): earlier prompts with their digests; the least recently used go first.",
	.tp_basicsize = sizeof(struct history),
	.tp_flags = Py_TPFLAGS_DEFAULT,
	.tp_new = history_new,
	.tp_dealloc = history_free,
	.tp_methods = history_methods,
	.tp_getset = history_getset,
};

/* ---- pages ---- */

/* A page's number, or -1 when its slots are not one whole page: placeholders (negative numbers) never are. */
static int64_t page_number(const int64_t *slots, Py_ssize_t page)
{
	uint64_t wrong = 0;

	for (Py_ssize_t i = 1; i < page; i++)
		wrong |= (uint64_t)slots[i] ^ ((uint64_t)slots[0] + (uint64_t)i);
	if (wrong || slots[0] < 0 || slots[0] % page || slots[0] / page >= UINT32_MAX)
		return -1;
	return slots[0] / page;
}

static int pages_fill(struct tokens *tokens, const int64_t *slots, Py_ssize_t first, Py_ssize_t count, Py_ssize_t page)
{
	if (tokens_reserve(tokens, (size_t)(count / page)))
		return -1;
	for (Py_ssize_t at = first; at < first + count; at += page) {
		int64_t number = page_number(slots + at, page);

		if (number < 0) {
			PyErr_Format(PyExc_ValueError, "slots from %zd on (%lld ...) are no whole page of %zd", at,
				(long long)slots[at], page);
			return -1;
		}
		tokens->ids[tokens->count++] = (uint32_t)number;
	}
	return 0;
}

static PyObject *pages(PyObject *module, PyObject *arguments)
{
	Py_ssize_t first, count, page;
	PyObject *source, *result = NULL;
	Py_buffer view;
	char letter;

	(void)module;
	if (!PyArg_ParseTuple(arguments, "Onnn:pages", &source, &first, &count, &page))
		return NULL;
	if (PyObject_GetBuffer(source, &view, PyBUF_ND | PyBUF_FORMAT))
		return NULL;
	letter = buffer_letter(&view);
	if (view.ndim != 1 || view.itemsize != 8 || (letter != 'q' && letter != 'l') || page < 1 || first < 0 || count < 0 ||
		count > view.shape[0] || first > view.shape[0] - count || count % page)
		PyErr_Format(PyExc_ValueError, "slots %zd to %zd of %zd: whole pages of %zd 64-bit integers are needed", first,
			first + count, view.ndim == 1 ? view.shape[0] : 0, page);
	else
		result = tokens_type.tp_alloc(&tokens_type, 0);
	if (result && pages_fill((struct tokens *)result, view.buf, first, count, page))
		Py_CLEAR(result);
	PyBuffer_Release(&view);
	return result;
}

static PyMethodDef module_methods[] = {
	{ "pages", pages, METH_VARARGS,
		"pages(slots, first, count, page) -> Tokens: the page numbers of a range of 64-bit slot numbers, which must be "
		"whole pages in order; ValueError otherwise." },
	{ NULL, NULL, 0, NULL },
};

static struct PyModuleDef module = {
	PyModuleDef_HEAD_INIT,
	.m_name = "kvrail._tokens",
	.m_doc = "Token ids and page numbers out of Python objects, at the speed of C.",
	.m_size = -1,
	.m_methods = module_methods,
};

PyMODINIT_FUNC PyInit__tokens(void)
{
	PyObject *created = PyModule_Create(&module);

	if (!created)
		return NULL;
	if (PyType_Ready(&tokens_type) || PyType_Ready(&history_type) ||
		PyModule_AddObjectRef(created, "Tokens", (PyObject *)&tokens_type) ||
		PyModule_AddObjectRef(created, "History", (PyObject *)&history_type)) {
		Py_DECREF(created);
		return NULL;
	}
	return created;
}
