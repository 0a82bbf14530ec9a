/* _tokens.h - what the files of the extension module kvrail._tokens share. */
#ifndef KVRAIL_PYTHON_TOKENS_H
#define KVRAIL_PYTHON_TOKENS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

/*
 * Where tokens come from: a list or tuple of ints, or a buffer of 32-bit or 64-bit integers. The ints are read
 * directly: one call for each of 32,768 tokens is several times the time of hashing them.
 */
struct source {
	PyObject *sequence; /* a list or tuple; NULL: a buffer */
	Py_buffer view;
	size_t count;
	char letter;         /* of the buffer's items, without the marks of native byte order */
	uintptr_t tag, zero; /* of ints of one digit that are above 0, and of 0 */
};

/* Hidden from other modules by the build's -fvisibility. The interpreter's lock is held. -1: an exception is set. */

int source_open(struct source *source, PyObject *object);
void source_close(struct source *source);

/* Tokens first .. first + count - 1, which there must be. May run Python code, which may change what it likes. */
int source_read(const struct source *source, size_t first, size_t count, uint32_t *ids);

/* The same without running Python code and without an exception: 0, or -1 when that is not possible. */
int source_peek(const struct source *source, size_t first, size_t count, uint32_t *ids);

/* How many leading tokens, `count` at most, are these. May run Python code. */
Py_ssize_t source_common(const struct source *source, const uint32_t *ids, size_t count);

char buffer_letter(const Py_buffer *view);

/* Token ids, shared by Tokens that begin alike: what follows `used` belongs to who takes it first. */
struct ids {
	size_t refs, used, capacity;
	uint32_t at[];
};

struct tokens {
	PyObject_HEAD struct ids *ids; /* NULL: none */
	size_t count;
	Py_ssize_t exports; /* buffers that are out: the array must neither move nor grow */
};

/* New Tokens of the first `count` ones of these, which need not be alone with them. */
PyObject *tokens_begin(const struct tokens *tokens, size_t count);

/* Adds the source's tokens from `first` on. */
int tokens_add(struct tokens *tokens, const struct source *source, size_t first);

/*
 * The longest remembered prompt of which all chunks seem to be the source's first ones, with the source's tokens behind
 * them, and its digests: 1, and references to both; 0: there is none; -1: an exception is set.
 */
int guess(PyObject *history, const struct source *source, PyObject **tokens, PyObject **digests);

/* Of the module. */
PyObject *ask(PyObject *module, PyObject *arguments);
PyObject *ask_bind(PyObject *module, PyObject *arguments);

extern PyTypeObject tokens_type, history_type, gate_type;

#endif
