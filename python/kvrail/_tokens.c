/*
 * _tokens.c - token ids and page numbers out of Python objects.
 *
 * Tokens: an array of 32-bit token ids, filled from a list of ints, or from anything with the buffer protocol. It reads
 * the ints directly: one call for each of 32,768 tokens is several times the time of hashing them.
 *
 * All of it runs with the interpreter's lock held, which also excludes threads from one another.
 */
#include "_tokens.h"

#define TOKENS_MAX ((size_t)1 << 28) /* 65,536 chunks of 4,096 tokens */

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
	PyObject *sequence = PySequence_Fast(
		source, "tokens: a sequence of ints, or a one-dimensional buffer of integers");
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

PyTypeObject tokens_type = {
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
	if (view.ndim != 1 || view.itemsize != 8 || (letter != 'q' && letter != 'l') || page < 1 || first < 0 ||
		count < 0 || count > view.shape[0] || first > view.shape[0] - count || count % page)
		PyErr_Format(PyExc_ValueError, "slots %zd to %zd of %zd: whole pages of %zd 64-bit integers are needed",
			first, first + count, view.ndim == 1 ? view.shape[0] : 0, page);
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
