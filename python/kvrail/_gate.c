/*
 * _gate.c - Gate: counts the calls that are in the library with a handle, so that it isn't freed underneath them; and
 * ask(), a lookup of a prompt whose beginning is known.
 *
 * A gate is C because every call passes it twice. The interpreter's lock, which is held in all of it, makes it exact.
 */
#include "_tokens.h"

#include <errno.h>
#include <kvrail.h>

struct gate {
	PyObject_HEAD PyObject *handle, *refuse; /* cffi's pointer; what makes the exception */
	struct gate *outer;
	void *pointer;
	Py_ssize_t calls;
	int shut, foreign;
};

static int gate_pass(struct gate *gate)
{
	PyObject *error;

	if (gate->outer && gate_pass(gate->outer))
		return -1;
	if (!gate->shut && !gate->foreign) {
		gate->calls++;
		return 0;
	}
	if (gate->outer)
		gate->outer->calls--;
	error = PyObject_CallFunction(gate->refuse, "i", gate->foreign);
	if (error)
		PyErr_SetObject((PyObject *)Py_TYPE(error), error);
	Py_XDECREF(error);
	return -1;
}

static void gate_unpass(struct gate *gate)
{
	for (; gate; gate = gate->outer)
		if (gate->calls > 0) /* the child of a fork begins at 0 */
			gate->calls--;
}

static PyObject *gate_enter(PyObject *self, PyObject *unused)
{
	struct gate *gate = (struct gate *)self;

	(void)unused;
	return gate_pass(gate) ? NULL : Py_NewRef(gate->handle);
}

static PyObject *gate_leave(PyObject *self, PyObject *unused)
{
	(void)unused;
	gate_unpass((struct gate *)self);
	Py_RETURN_NONE;
}

static PyObject *gate_close(PyObject *self, PyObject *unused)
{
	struct gate *gate = (struct gate *)self;
	int was = gate->shut;

	(void)unused;
	gate->shut = 1;
	return PyBool_FromLong(!was);
}

static PyObject *gate_open(PyObject *self, PyObject *unused)
{
	(void)unused;
	((struct gate *)self)->shut = 0;
	Py_RETURN_NONE;
}

static PyObject *gate_disown(PyObject *self, PyObject *unused)
{
	struct gate *gate = (struct gate *)self;

	(void)unused;
	gate->foreign = 1;
	gate->calls = 0;
	Py_RETURN_NONE;
}

static PyObject *gate_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
	PyObject *handle, *address, *refuse, *outer = NULL;
	struct gate *gate;
	void *pointer;

	(void)keywords;
	if (!PyArg_ParseTuple(arguments, "OO!O|O!:Gate", &handle, &PyLong_Type, &address, &refuse, &gate_type, &outer))
		return NULL;
	pointer = PyLong_AsVoidPtr(address);
	if (!pointer && PyErr_Occurred())
		return NULL;
	gate = (struct gate *)type->tp_alloc(type, 0);
	if (!gate)
		return NULL;
	gate->handle = Py_NewRef(handle);
	gate->refuse = Py_NewRef(refuse);
	gate->outer = (struct gate *)Py_XNewRef(outer);
	gate->pointer = pointer;
	return (PyObject *)gate;
}

static void gate_free(PyObject *self)
{
	struct gate *gate = (struct gate *)self;

	Py_XDECREF(gate->handle);
	Py_XDECREF(gate->refuse);
	Py_XDECREF((PyObject *)gate->outer);
	Py_TYPE(self)->tp_free(self);
}

static PyObject *gate_handle(PyObject *self, void *closure)
{
	(void)closure;
	return Py_NewRef(((struct gate *)self)->handle);
}

static PyObject *gate_calls(PyObject *self, void *closure)
{
	(void)closure;
	return PyLong_FromSsize_t(((struct gate *)self)->calls);
}

static PyObject *gate_shut(PyObject *self, void *closure)
{
	(void)closure;
	return PyBool_FromLong(((struct gate *)self)->shut);
}

static PyMethodDef gate_methods[] = {
	{ "enter", gate_enter, METH_NOARGS, "enter() -> handle: one more call, in this and in the outer gates." },
	{ "leave", gate_leave, METH_NOARGS, "leave(): the call has returned." },
	{ "close", gate_close, METH_NOARGS, "close() -> bool: nobody enters any more; false: it was so already." },
	{ "open", gate_open, METH_NOARGS, "open(): takes close() back." },
	{ "disown", gate_disown, METH_NOARGS, "disown(): this process is a child; nobody enters any more." },
	{ NULL, NULL, 0, NULL },
};

static PyGetSetDef gate_getset[] = {
	{ "handle", gate_handle, NULL, "as given", NULL },
	{ "calls", gate_calls, NULL, "how many are inside", NULL },
	{ "closed", gate_shut, NULL, "whether close() was called", NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};

PyTypeObject gate_type = {
	PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kvrail._tokens.Gate",
	.tp_doc = "Gate(handle, address, refuse[, outer]): refuse(foreign) makes the exception of who may not enter.",
	.tp_basicsize = sizeof(struct gate),
	.tp_flags = Py_TPFLAGS_DEFAULT,
	.tp_new = gate_new,
	.tp_dealloc = gate_free,
	.tp_methods = gate_methods,
	.tp_getset = gate_getset,
};

/* ---- ask ---- */

#define ASK_WAIT_NS 100000000u /* so that a signal's handler is not kept waiting */

/* The library's functions. It is linked into the cffi module, which tells where they are. */
static struct {
	enum kvr_health (*health)(const struct kvr_client *);
	int (*session_create)(struct kvr_client *, uint32_t, const char *, const char *, struct kvr_session **);
	int (*session_digests)(struct kvr_session *, const uint8_t *, uint32_t);
	int (*session_tokens)(struct kvr_session *, const uint32_t *, size_t);
	int (*submit_lookup)(struct kvr_session *, uint32_t, kvr_ticket *);
	int (*wait)(struct kvr_client *, kvr_ticket, uint64_t, struct kvr_result *);
	const char *(*error_text)(void);
} library;

PyObject *ask_bind(PyObject *module, PyObject *arguments)
{
	Py_ssize_t at[7];

	(void)module;
	if (!PyArg_ParseTuple(arguments, "nnnnnnn:bind", &at[0], &at[1], &at[2], &at[3], &at[4], &at[5], &at[6]))
		return NULL;
	_Static_assert(sizeof(library) == sizeof(at), "a function's address is as large as an integer");
	memcpy(&library, at, sizeof(library));
	Py_RETURN_NONE;
}

struct question {
	struct kvr_client *client;
	struct kvr_session *session;
	const char *id, *salt;
	const uint8_t *digests;
	const struct tokens *tokens;
	Py_ssize_t digests_bytes;
	kvr_ticket ticket;
	unsigned int registration;
	int error;
	struct kvr_result result;
};

/* Without the interpreter's lock. */
static void question_submit(struct question *question)
{
	const struct tokens *tokens = question->tokens;
	int error = 0;

	if (!question->session) {
		error = library.health(question->client) == KVR_HEALTHY ? 0 : -ENOTCONN;
		if (!error)
			error = library.session_create(question->client, question->registration, question->id,
				question->salt, &question->session);
		if (!error)
			error = library.session_digests(
				question->session, question->digests, (uint32_t)(question->digests_bytes / 32));
		if (!error)
			error = library.session_tokens(question->session, tokens->ids->at, tokens->count);
	}
	if (!error)
		error = library.submit_lookup(question->session, 0, &question->ticket);
	question->error = error;
	if (error && error != -ENOTCONN)
		snprintf(question->result.text, sizeof(question->result.text), "%s", library.error_text());
}

/* How many of the tokens are the source's, or -1; while the server looks. Without a source nothing is compared. */
static Py_ssize_t question_run(struct question *question, struct tokens *tokens, const struct source *source)
{
	Py_ssize_t common = -1;
	PyThreadState *thread;

	question->tokens = tokens;
	tokens->exports++;
	thread = PyEval_SaveThread();
	question_submit(question);
	PyEval_RestoreThread(thread);
	if (!question->error && source)
		common = source_common(
			source, tokens->ids->at, tokens->count < source->count ? tokens->count : source->count);
	tokens->exports--;
	PyErr_Clear(); /* what is no token is said by who reads it in full */
	if (question->error)
		return common;
	thread = PyEval_SaveThread();
	question->error = library.wait(question->client, question->ticket, ASK_WAIT_NS, &question->result);
	PyEval_RestoreThread(thread);
	return common;
}

static int question_parse(
	struct question *question, PyObject *arguments, struct gate **gate, struct tokens **tokens, PyObject **object)
{
	PyObject *session;

	if (!PyArg_ParseTuple(arguments, "O!OIszO!y#O:ask", &gate_type, gate, &session, &question->registration,
		    &question->id, &question->salt, &tokens_type, tokens, &question->digests, &question->digests_bytes,
		    object))
		return -1;
	if ((session != Py_None && !PyObject_TypeCheck(session, &gate_type)) || !(*tokens)->ids || !library.wait) {
		PyErr_SetString(PyExc_TypeError, "ask() takes gates, and Tokens of some tokens");
		return -1;
	}
	question->client = (*gate)->pointer;
	if (session != Py_None) {
		question->session = ((struct gate *)session)->pointer;
		*gate = (struct gate *)session;
	}
	return 0;
}

PyObject *ask(PyObject *module, PyObject *arguments)
{
	struct question question = { 0 };
	struct tokens *tokens;
	struct source source;
	struct gate *gate;
	PyObject *object;
	Py_ssize_t common;

	(void)module;
	if (question_parse(&question, arguments, &gate, &tokens, &object) ||
		(object != Py_None && source_open(&source, object)))
		return NULL;
	if (gate_pass(gate)) {
		if (object != Py_None)
			source_close(&source);
		return NULL;
	}
	common = question_run(&question, tokens, object != Py_None ? &source : NULL);
	gate_unpass(gate);
	if (object != Py_None)
		source_close(&source);
	return Py_BuildValue("NKniIIs", PyLong_FromVoidPtr(question.session), (unsigned long long)question.ticket,
		common, question.error, question.result.status, question.result.tokens, question.result.text);
}
