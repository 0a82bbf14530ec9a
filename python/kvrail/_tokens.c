/*
 * _tokens.c - the type Tokens: an array of 32-bit token ids, out of a list of ints or anything with the buffer
 * protocol. And page numbers out of slots.
 *
 * Tokens that go on from others share their array: the next turn of a conversation copies nothing.
 *
 * All of it runs with the interpreter's lock held, which also excludes threads from one another.
 */
#include "_tokens.h"

#define TOKENS_MAX ((size_t)1 << 28) /* 65,536 chunks of 4,096 tokens */

static void ids_drop(struct ids *ids)
{
	if (ids && --ids->refs == 0)
		PyMem_Free(ids);
}

/* An array that is the tokens' alone, with their ids. Other Tokens keep the former one. */
static int ids_move(struct tokens *tokens, size_t capacity)
{
	struct ids *former = tokens->ids;
	struct ids *ids = PyMem_Malloc(sizeof(*ids) + capacity * sizeof(ids->at[0]));

	if (!ids) {
		PyErr_NoMemory();
		return -1;
	}
	ids->refs = 1;
	ids->used = tokens->count;
	ids->capacity = capacity;
	if (tokens->count > 0)
		memcpy(ids->at, former->at, tokens->count * sizeof(ids->at[0]));
	tokens->ids = ids;
	ids_drop(former);
	return 0;
}

/* Room for `more` ids, which is the tokens' own from then on: they are `used`, and to be filled at once. */
static int tokens_take(struct tokens *tokens, size_t more)
{
	size_t count = tokens->count + more;
	struct ids *ids = tokens->ids;

	if (tokens->exports > 0) {
		PyErr_SetString(PyExc_BufferError, "the tokens are in use as a buffer and can't grow");
		return -1;
	}
	if (more > TOKENS_MAX || count > TOKENS_MAX) {
		PyErr_Format(PyExc_ValueError, "%zu tokens: at most %zu are possible", count, TOKENS_MAX);
		return -1;
	}
	if ((!ids || count > ids->capacity || (ids->used != tokens->count && ids->refs > 1)) &&
		ids_move(tokens, count + count / 4 + 256)) /* room for the next turn: going on copies nothing */
		return -1;
	tokens->ids->used = count;
	return 0;
}

int tokens_add(struct tokens *tokens, const struct source *source, size_t first)
{
	size_t more = source->count - first;
	int error;

	if (more == 0)
		return 0;
	if (tokens_take(tokens, more))
		return -1;
	tokens->exports++; /* an item's __index__ may be about to append, too */
	error = source_read(source, first, more, tokens->ids->at + tokens->count);
	tokens->exports--;
	if (error)
		return -1;
	tokens->count += more;
	return 0;
}

PyObject *tokens_begin(const struct tokens *tokens, size_t count)
{
	struct tokens *made = (struct tokens *)tokens_type.tp_alloc(&tokens_type, 0);

	if (made && tokens->ids) {
		made->ids = tokens->ids;
		made->ids->refs++;
		made->count = count;
	}
	return (PyObject *)made;
}

/* ---- the type ---- */

static PyObject *tokens_append(PyObject *self, PyObject *source)
{
	struct source from;
	int error;

	if (source_open(&from, source))
		return NULL;
	error = tokens_add((struct tokens *)self, &from, 0);
	source_close(&from);
	if (error)
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
	ids_drop(((struct tokens *)self)->ids);
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
	return PyLong_FromUnsignedLong(tokens->ids->at[index]);
}

static PyObject *tokens_address(PyObject *self, void *closure)
{
	struct tokens *tokens = (struct tokens *)self;

	(void)closure;
	return PyLong_FromVoidPtr(tokens->ids ? tokens->ids->at : NULL);
}

/* common(source): how many leading tokens are the same in both. */
static PyObject *tokens_common(PyObject *self, PyObject *argument)
{
	struct tokens *tokens = (struct tokens *)self;
	struct source source;
	Py_ssize_t common = 0;
	size_t count;

	if (source_open(&source, argument))
		return NULL;
	count = tokens->count < source.count ? tokens->count : source.count;
	if (count > 0) {
		tokens->exports++; /* an item's __index__ may be about to append to what is compared */
		common = source_common(&source, tokens->ids->at, count);
		tokens->exports--;
	}
	source_close(&source);
	return common < 0 ? NULL : PyLong_FromSsize_t(common);
}

/* continued(source): these tokens, and the source's behind as many. The former are not compared. */
static PyObject *tokens_continued(PyObject *self, PyObject *argument)
{
	struct tokens *tokens = (struct tokens *)self;
	struct source source;
	PyObject *made;

	if (source_open(&source, argument))
		return NULL;
	if (source.count < tokens->count) {
		PyErr_Format(PyExc_ValueError, "%zu tokens can't go on from %zu", source.count, tokens->count);
		made = NULL;
	} else {
		made = tokens_begin(tokens, tokens->count);
		if (made && tokens_add((struct tokens *)made, &source, tokens->count))
			Py_CLEAR(made);
	}
	source_close(&source);
	return made;
}

static int tokens_get_buffer(PyObject *self, Py_buffer *view, int flags)
{
	struct tokens *tokens = (struct tokens *)self;
	int error = PyBuffer_FillInfo(view, self, tokens->ids ? (void *)tokens->ids->at : (void *)"",
		(Py_ssize_t)(tokens->count * sizeof(uint32_t)), 1, flags);

	if (error)
		return error;
	view->itemsize = sizeof(uint32_t);
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
	{ "common", tokens_common, METH_O,
		"common(source) -> int: how many leading ids are the same in a sequence or buffer." },
	{ "continued", tokens_continued, METH_O,
		"continued(source) -> Tokens: these ids, not compared, and those of the source behind them." },
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
	if (tokens_take(tokens, (size_t)(count / page)))
		return -1;
	for (Py_ssize_t at = first; at < first + count; at += page) {
		int64_t number = page_number(slots + at, page);

		if (number < 0) {
			PyErr_Format(PyExc_ValueError, "slots from %zd on (%lld ...) are no whole page of %zd", at,
				(long long)slots[at], page);
			return -1;
		}
		tokens->ids->at[tokens->count++] = (uint32_t)number;
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
	{ "bind", ask_bind, METH_VARARGS, "bind(...): where the library's functions are, for ask()." },
	{ "ask", ask, METH_VARARGS,
		"ask(client's gate, session's gate or None, registration, id, salt, known, digests, source, seconds) -> (session's gate "
		"or None, ticket, common, error, status, found, tokens, text) or None: sends the LOOKUP of a prompt, in a new "
		"session or in this one, and compares its tokens with the source's, if there is one, while the server looks. "
		"known: Tokens; or a History, which guesses them and their digests, and None is returned when it can't. "
		"common: how many are the same, -1: that can't be said. error -ENOTCONN: there is no server, and nothing has "
		"happened; -ETIMEDOUT with status 0, after so many seconds and a tenth at most: the ticket must be waited for." },
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
	if (PyType_Ready(&tokens_type) || PyType_Ready(&history_type) || PyType_Ready(&gate_type) ||
		PyModule_AddObjectRef(created, "Gate", (PyObject *)&gate_type) ||
		PyModule_AddObjectRef(created, "Tokens", (PyObject *)&tokens_type) ||
		PyModule_AddObjectRef(created, "History", (PyObject *)&history_type)) {
		Py_DECREF(created);
		return NULL;
	}
	return created;
}
