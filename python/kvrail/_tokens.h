/* _tokens.h - what the files of the extension module kvrail._tokens share. */
#ifndef KVRAIL_PYTHON_TOKENS_H
#define KVRAIL_PYTHON_TOKENS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

struct tokens {
	PyObject_HEAD uint32_t *ids;
	size_t count, capacity;
	Py_ssize_t exports; /* buffers that are out: the array must neither move nor grow */
};

/* Hidden from other modules by the build's -fvisibility. */
extern PyTypeObject tokens_type, history_type;

#endif
