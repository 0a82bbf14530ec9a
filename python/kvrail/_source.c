/* _source.c - token ids out of lists of ints and out of buffers: reading them, and comparing with them. */
#include "_tokens.h"

#include <stddef.h>

#define BLOCK 256         /* tokens of a buffer that are compared at once */
#define GROUP 8           /* items of a list, likewise */
#define PREFETCH_ITEMS 64 /* ints lie all over memory */

/* The item's letter, without the marks of native byte order. */
char buffer_letter(const Py_buffer *view)
{
	const char *format = view->format ? view->format : "B";

	if (*format == '@' || *format == '=' || *format == '<')
		format++;
	return format[0] && !format[1] ? format[0] : '\0';
}

/* ---- ints ---- */

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

/* What tells an int's sign and how many digits it has, and its first digit: 30 bits, or 15. */
#if PY_VERSION_HEX >= 0x030C0000
static inline uintptr_t int_tag(PyObject *item)
{
	return ((PyLongObject *)item)->long_value.lv_tag;
}

static inline uint32_t int_digit(PyObject *item)
{
	return ((PyLongObject *)item)->long_value.ob_digit[0];
}
#else
static inline uintptr_t int_tag(PyObject *item)
{
	return (uintptr_t)((PyVarObject *)item)->ob_size;
}

static inline uint32_t int_digit(PyObject *item)
{
	return ((PyLongObject *)item)->ob_digit[0];
}
#endif

/* Whether the item is an int of one digit: nearly all there are. 0 has none. */
static inline int token_quickly(const struct source *source, PyObject *item, uint32_t *id)
{
	if (!PyLong_CheckExact(item))
		return 0;
	if (int_tag(item) == source->tag)
		*id = int_digit(item);
	else if (int_tag(item) == source->zero)
		*id = 0;
	else
		return 0;
	return 1;
}

/* The next GROUP items' lines are on their way when they are looked at: two ints lie in one. */
static inline void prefetch_group(PyObject **items, size_t left)
{
	if (left >= PREFETCH_ITEMS + GROUP)
		for (size_t i = 0; i < GROUP; i += 2)
			__builtin_prefetch(items[PREFETCH_ITEMS + i]);
}

/* Whether all of a group's items are ints of one digit above 0. */
static inline int group_read(const struct source *source, PyObject **items, uint32_t *ids)
{
	for (size_t i = 0; i < GROUP; i++) {
		if (!PyLong_CheckExact(items[i]) || int_tag(items[i]) != source->tag)
			return 0;
		ids[i] = int_digit(items[i]);
	}
	return 1;
}

/* Whether all of a group's items are ints of one digit above 0, and these. */
static inline int group_alike(const struct source *source, PyObject **items, const uint32_t *ids)
{
	uint32_t wrong = 0;

	for (size_t i = 0; i < GROUP; i++) {
		if (!PyLong_CheckExact(items[i]) || int_tag(items[i]) != source->tag)
			return 0;
		wrong |= int_digit(items[i]) ^ ids[i];
	}
	return wrong == 0;
}

/* As many of the items as are plain ints of one digit. Runs no Python code. */
static size_t items_quickly(const struct source *source, size_t first, size_t count, uint32_t *ids)
{
	PyObject **items = PySequence_Fast_ITEMS(source->sequence) + first;
	size_t at = 0;

	while (at < count) {
		prefetch_group(items + at, count - at);
		if (count - at >= GROUP && group_read(source, items + at, ids + at))
			at += GROUP;
		else if (token_quickly(source, items[at], &ids[at]))
			at++;
		else
			break;
	}
	return at;
}

/* As many of the items as are plain ints of one digit, and these. Runs no Python code. */
static size_t items_alike(const struct source *source, size_t first, size_t count, const uint32_t *ids)
{
	PyObject **items = PySequence_Fast_ITEMS(source->sequence) + first;
	size_t at = 0;
	uint32_t id;

	while (at < count) {
		prefetch_group(items + at, count - at);
		if (count - at >= GROUP && group_alike(source, items + at, ids + at))
			at += GROUP;
		else if (token_quickly(source, items[at], &id) && id == ids[at])
			at++;
		else
			break;
	}
	return at;
}

/* An item's __index__ may have changed the list. */
static int source_changed(const struct source *source)
{
	if (!source->sequence || (size_t)PySequence_Fast_GET_SIZE(source->sequence) == source->count)
		return 0;
	PyErr_SetString(PyExc_RuntimeError, "the list of tokens changed while it was read");
	return -1;
}

static PyObject *item_at(const struct source *source, size_t at)
{
	return Py_NewRef(PySequence_Fast_GET_ITEM(source->sequence, (Py_ssize_t)at));
}

static int items_read(const struct source *source, size_t first, size_t count, uint32_t *ids)
{
	for (size_t at = 0;; at++) {
		PyObject *item;
		int error;

		if (source_changed(source))
			return -1;
		at += items_quickly(source, first + at, count - at, ids + at);
		if (at == count)
			return 0;
		item = item_at(source, first + at);
		error = token_slowly(item, &ids[at]);
		Py_DECREF(item);
		if (error)
			return -1;
	}
}

static Py_ssize_t items_common(const struct source *source, const uint32_t *ids, size_t count)
{
	for (size_t at = 0;; at++) {
		PyObject *item;
		uint32_t id;
		int error;

		if (source_changed(source))
			return -1;
		at += items_alike(source, at, count - at, ids + at);
		if (at == count)
			return (Py_ssize_t)at;
		item = item_at(source, at);
		error = token_slowly(item, &id);
		Py_DECREF(item);
		if (error)
			return -1;
		if (id != ids[at])
			return (Py_ssize_t)at;
	}
}

/* ---- buffers ---- */

static int out_of_range(void)
{
	PyErr_SetString(PyExc_ValueError, "a token is not in 0 .. 4294967295");
	return -1;
}

/* The bits that no token has. */
static uint32_t sign_bit(const struct source *source)
{
	return source->letter == 'i' || source->letter == 'l' ? UINT32_C(1) << 31 : 0;
}

/* Not 0: not all of them are tokens. */
static uint64_t buffer_read(const struct source *source, size_t first, size_t count, uint32_t *ids)
{
	uint64_t seen = 0;

	if (source->view.itemsize == 8) {
		const uint64_t *from = (const uint64_t *)source->view.buf + first;

		for (size_t i = 0; i < count; i++) {
			seen |= from[i];
			ids[i] = (uint32_t)from[i];
		}
		return seen > UINT32_MAX;
	}
	memcpy(ids, (const uint32_t *)source->view.buf + first, count * sizeof(*ids));
	for (size_t i = 0; i < count; i++)
		seen |= ids[i];
	return seen & sign_bit(source);
}

/* Whether tokens first .. first + count - 1 are these. */
static int buffer_alike(const struct source *source, size_t first, size_t count, const uint32_t *ids)
{
	uint64_t wrong = 0;

	if (source->view.itemsize == 8) {
		const uint64_t *from = (const uint64_t *)source->view.buf + first;

		for (size_t i = 0; i < count; i++)
			wrong |= from[i] ^ ids[i];
	} else {
		const uint32_t *from = (const uint32_t *)source->view.buf + first;
		uint32_t sign = sign_bit(source), bits = 0;

		for (size_t i = 0; i < count; i++)
			bits |= (from[i] ^ ids[i]) | (from[i] & sign);
		wrong = bits;
	}
	return wrong == 0;
}

static size_t buffer_common(const struct source *source, const uint32_t *ids, size_t count)
{
	size_t at = 0;

	while (count - at >= BLOCK && buffer_alike(source, at, BLOCK, ids + at))
		at += BLOCK;
	while (at < count && buffer_alike(source, at, 1, ids + at))
		at++;
	return at;
}

static int buffer_open(struct source *source, PyObject *object)
{
	if (PyObject_GetBuffer(object, &source->view, PyBUF_ND | PyBUF_FORMAT))
		return -1;
	source->letter = buffer_letter(&source->view);
	if (source->view.ndim != 1) {
		PyErr_Format(PyExc_TypeError, "a buffer of tokens has one dimension, not %d", source->view.ndim);
	} else if (!source->letter ||
		!((source->view.itemsize == 8 && strchr("qQlLnN", source->letter)) ||
			(source->view.itemsize == 4 && strchr("iIlL", source->letter)))) {
		PyErr_Format(PyExc_TypeError, "a buffer of tokens holds 32-bit or 64-bit integers, not '%s'",
			source->view.format ? source->view.format : "B");
	} else {
		source->count = (size_t)source->view.shape[0];
		return 0;
	}
	PyBuffer_Release(&source->view);
	return -1;
}

/* ---- either ---- */

int source_open(struct source *source, PyObject *object)
{
	PyObject *sample, *zero;

	source->sequence = NULL;
	if (PyObject_CheckBuffer(object))
		return buffer_open(source, object);
	sample = PyLong_FromLong(20011);
	zero = PyLong_FromLong(0);
	if (sample && zero) {
		source->tag = int_tag(sample);
		source->zero = int_tag(zero);
	}
	Py_XDECREF(sample);
	Py_XDECREF(zero);
	if (!sample || !zero)
		return -1;
	source->sequence = PySequence_Fast(
		object, "tokens: a sequence of ints, or a one-dimensional buffer of integers");
	if (!source->sequence)
		return -1;
	source->count = (size_t)PySequence_Fast_GET_SIZE(source->sequence);
	return 0;
}

void source_close(struct source *source)
{
	if (source->sequence)
		Py_DECREF(source->sequence);
	else
		PyBuffer_Release(&source->view);
}

int source_read(const struct source *source, size_t first, size_t count, uint32_t *ids)
{
	if (source->sequence)
		return items_read(source, first, count, ids);
	return buffer_read(source, first, count, ids) ? out_of_range() : 0;
}

int source_peek(const struct source *source, size_t first, size_t count, uint32_t *ids)
{
	if (source->sequence)
		return items_quickly(source, first, count, ids) == count ? 0 : -1;
	return buffer_read(source, first, count, ids) ? -1 : 0;
}

Py_ssize_t source_common(const struct source *source, const uint32_t *ids, size_t count)
{
	if (source->sequence)
		return items_common(source, ids, count);
	return (Py_ssize_t)buffer_common(source, ids, count);
}
