/*
 * _gate.c - Gate: counts the calls that are in the library with a handle, so that it isn't freed underneath them; and
 * ask(), a lookup of a prompt whose beginning is known.
 *
 * A gate is C because every call passes it twice. The interpreter's lock, which is held in all of it, makes it exact.
 */
#include "_tokens.h"

#include <errno.h>
#include <kvrail.h>
#include <math.h>

struct gate {
	PyObject_HEAD PyObject *handle, *refuse; /* cffi's pointer, NULL: not asked for yet; what makes the exception */
	struct gate *outer;
	void *pointer;
	Py_ssize_t calls;
	int shut, foreign;
};

/*
 * The library's functions: it is linked into the cffi module, which tells where they are. And what makes a session's
 * handle of its address, and the exception of a closed one's calls.
 */
static struct {
	enum kvr_health (*health)(const struct kvr_client *);
	int (*session_create)(struct kvr_client *, uint32_t, const char *, const char *, struct kvr_session **);
	int (*session_digests)(struct kvr_session *, const uint8_t *, uint32_t);
	int (*session_tokens)(struct kvr_session *, const uint32_t *, size_t);
	int (*submit_lookup)(struct kvr_session *, uint32_t, kvr_ticket *);
	int (*wait)(struct kvr_client *, kvr_ticket, uint64_t, struct kvr_result *);
	const char *(*error_text)(void);
} library;

static PyObject *handle_of, *refuse_session;

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

static PyObject *gate_handle(PyObject *self, void *closure)
{
	struct gate *gate = (struct gate *)self;

	(void)closure;
	if (!gate->handle) {
		PyObject *handle = PyObject_CallFunction(handle_of, "N", PyLong_FromVoidPtr(gate->pointer));

		if (!handle)
			return NULL;
		Py_XSETREF(gate->handle, handle); /* another thread may have made one meanwhile */
	}
	return Py_NewRef(gate->handle);
}

static PyObject *gate_enter(PyObject *self, PyObject *unused)
{
	struct gate *gate = (struct gate *)self;
	PyObject *handle;

	(void)unused;
	if (gate_pass(gate))
		return NULL;
	handle = gate_handle(self, NULL);
	if (!handle)
		gate_unpass(gate);
	return handle;
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

#define ASK_WAIT_MAX 0.1 /* seconds: a signal's handler is not kept waiting */

PyObject *ask_bind(PyObject *module, PyObject *arguments)
{
	PyObject *handle, *refuse;
	Py_ssize_t at[7];

	(void)module;
	if (!PyArg_ParseTuple(arguments, "OOnnnnnnn:bind", &handle, &refuse, &at[0], &at[1], &at[2], &at[3], &at[4],
		    &at[5], &at[6]))
		return NULL;
	_Static_assert(sizeof(library) == sizeof(at), "a function's address is as large as an integer");
	memcpy(&library, at, sizeof(library));
	Py_XSETREF(handle_of, Py_NewRef(handle));
	Py_XSETREF(refuse_session, Py_NewRef(refuse));
	Py_RETURN_NONE;
}

struct question {
	struct gate *client, *gate; /* the gate of the session */
	struct kvr_session *session;
	const char *id, *salt;
	PyObject *tokens, *digests; /* bytes */
	struct source *source;      /* NULL: nothing is compared */
	Py_ssize_t common;          /* how many of the tokens are the source's; -1: that can't be said */
	kvr_ticket ticket;
	double wait; /* seconds */
	unsigned int registration;
	int error;
	struct kvr_result result;
};

/* Without the interpreter's lock. */
static void question_submit(struct question *question)
{
	struct kvr_client *client = question->client->pointer;
	const struct tokens *tokens = (struct tokens *)question->tokens;
	int error = 0;

	if (!question->session) {
		error = library.health(client) == KVR_HEALTHY ? 0 : -ENOTCONN;
		if (!error)
			error = library.session_create(
				client, question->registration, question->id, question->salt, &question->session);
		if (!error)
			error = library.session_digests(question->session,
				(const uint8_t *)PyBytes_AS_STRING(question->digests),
				(uint32_t)(PyBytes_GET_SIZE(question->digests) / 32));
		if (!error)
			error = library.session_tokens(question->session, tokens->ids->at, tokens->count);
	}
	if (!error)
		error = library.submit_lookup(question->session, 0, &question->ticket);
	question->error = error;
	if (error && error != -ENOTCONN)
		snprintf(question->result.text, sizeof(question->result.text), "%s", library.error_text());
}

/* The tokens are compared while the server looks. */
static void question_run(struct question *question)
{
	struct tokens *tokens = (struct tokens *)question->tokens;
	const struct source *source = question->source;
	PyThreadState *thread;

	tokens->exports++;
	thread = PyEval_SaveThread();
	question_submit(question);
	PyEval_RestoreThread(thread);
	if (!question->error && source)
		question->common = source_common(
			source, tokens->ids->at, tokens->count < source->count ? tokens->count : source->count);
	tokens->exports--;
	PyErr_Clear(); /* what is no token is said by who reads it in full */
	if (question->error)
		return;
	thread = PyEval_SaveThread();
	question->error = library.wait(
		question->client->pointer, question->ticket, (uint64_t)(question->wait * 1e9), &question->result);
	PyEval_RestoreThread(thread);
}

/* A new session's gate, which must not be entered before it has its pointer. */
static struct gate *gate_of_session(struct gate *client)
{
	struct gate *gate = (struct gate *)gate_type.tp_alloc(&gate_type, 0);

	if (gate) {
		gate->refuse = Py_NewRef(refuse_session);
		gate->outer = (struct gate *)Py_NewRef((PyObject *)client);
	}
	return gate;
}

/* In the session's gate, or a new one. */
static PyObject *question_ask(struct question *question)
{
	struct gate *inside = question->gate ? question->gate : question->client;
	PyObject *gate;

	if (question->gate)
		question->session = question->gate->pointer;
	gate = question->gate ? Py_NewRef((PyObject *)question->gate) : (PyObject *)gate_of_session(question->client);
	if (!gate || gate_pass(inside)) {
		Py_XDECREF(gate);
		return NULL;
	}
	question_run(question);
	gate_unpass(inside);
	((struct gate *)gate)->pointer = question->session;
	if (!question->session)
		Py_SETREF(gate, Py_NewRef(Py_None));
	return Py_BuildValue("NKniIIOs", gate, (unsigned long long)question->ticket, question->common, question->error,
		question->result.status, question->result.tokens, question->tokens, question->result.text);
}

static int question_parse(struct question *question, PyObject *arguments, PyObject **known, PyObject **object)
{
	PyObject *session;

	if (!PyArg_ParseTuple(arguments, "O!OIszOSOd:ask", &gate_type, &question->client, &session,
		    &question->registration, &question->id, &question->salt, known, &question->digests, object,
		    &question->wait))
		return -1;
	question->wait = fmax(0, fmin(question->wait, ASK_WAIT_MAX));
	if (session != Py_None)
		question->gate = (struct gate *)session;
	if ((question->gate && !PyObject_TypeCheck(session, &gate_type)) || !library.wait ||
		!(PyObject_TypeCheck(*known, &history_type) ||
			(PyObject_TypeCheck(*known, &tokens_type) && ((struct tokens *)*known)->ids))) {
		PyErr_SetString(PyExc_TypeError, "ask() takes gates, and Tokens of some tokens or a History");
		return -1;
	}
	return 0;
}

PyObject *ask(PyObject *module, PyObject *arguments)
{
	struct question question = { .common = -1 };
	PyObject *known, *object, *answer = NULL;
	struct source source;
	int found = 1;

	(void)module;
	if (question_parse(&question, arguments, &known, &object) ||
		(object != Py_None && source_open(&source, object)))
		return NULL;
	question.source = object != Py_None ? &source : NULL;
	if (PyObject_TypeCheck(known, &tokens_type)) {
		question.tokens = Py_NewRef(known);
		Py_INCREF(question.digests);
	} else {
		question.digests = NULL;
		found = question.source ? guess(known, &source, &question.tokens, &question.digests) : 0;
	}
	if (found > 0)
		answer = question_ask(&question);
	else if (found == 0)
		answer = Py_NewRef(Py_None);
	Py_XDECREF(question.tokens);
	Py_XDECREF(question.digests);
	if (question.source)
		source_close(&source);
	return answer;
}
