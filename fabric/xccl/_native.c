/* What an interpreter cannot do: ordered machine accesses, and one message through a ring in a single call.
 *
 * Words: aligned 8-byte words of a buffer. load acquires, store releases, add does both; C11 atomics, so that the
 * compiler emits what the processor needs (mov and lock xadd on x86; ldar, stlr and ldaddal on ARM).
 *
 * RingEnd: the protocol of channel.py for a message that fits one slot. It shares its counters with the protocol in
 * Python and falls back to it wherever something is unusual: each call either does the ordinary thing whole, or says
 * how far it came. Waiting is bounded: a short spin for a peer that runs on another core, then the core is given away
 * a few times; longer waits are the drivers' (steps.py).
 *
 * Only the stable ABI is used (Python 3.11 and later).
 */
#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

typedef _Atomic uint64_t word;

enum { SPINS = 400, YIELDS = 40 };

static inline void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Wait until the word is at least `least`, for a bounded time; the word as last seen. */
static uint64_t await_word(word *at, uint64_t least)
{
    uint64_t seen = 0;
    for (int i = 0; i < SPINS; i++) {
        if ((seen = atomic_load_explicit(at, memory_order_acquire)) >= least)
            return seen;
        pause_briefly();
    }
    Py_BEGIN_ALLOW_THREADS
    for (int i = 0; i < YIELDS && seen < least; i++) {
        sched_yield();
        seen = atomic_load_explicit(at, memory_order_acquire);
    }
    Py_END_ALLOW_THREADS
    return seen;
}

/* ---- arguments ---- */

static int count_is(const char *name, Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted)
        return 1;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, %zd given", name, wanted, given);
    return 0;
}

static int as_word(PyObject *number, uint64_t *value)
{
    *value = PyLong_AsUnsignedLongLong(number);
    return !(*value == (uint64_t)-1 && PyErr_Occurred());
}

static int writable(PyObject *buffer, Py_buffer *view)
{
    return PyObject_GetBuffer(buffer, view, PyBUF_WRITABLE) == 0;
}

/* ---- Words ---- */

typedef struct {
    PyObject_HEAD
    Py_buffer view;
} Words;

static PyObject *words_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *buffer;
    if (kwargs != NULL && PyDict_Size(kwargs) != 0) {
        PyErr_SetString(PyExc_TypeError, "Words takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O:Words", &buffer))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Words *self = (Words *)alloc(type, 0);
    if (self == NULL)
        return NULL;
    if (!writable(buffer, &self->view)) {
        Py_DECREF(self);
        return NULL;
    }
    if ((uintptr_t)self->view.buf % sizeof(word) != 0) {
        PyErr_SetString(PyExc_ValueError, "the buffer is not aligned to 8 bytes");
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void words_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    if (((Words *)object)->view.obj != NULL)
        PyBuffer_Release(&((Words *)object)->view);
    release(object);
    Py_DECREF(type);
}

static word *at_offset(Words *self, int64_t offset)
{
    if (offset < 0 || offset % (int64_t)sizeof(word) != 0 || offset > self->view.len - (int64_t)sizeof(word)) {
        PyErr_Format(PyExc_IndexError, "offset %lld is no word of %zd bytes", (long long)offset, self->view.len);
        return NULL;
    }
    return (word *)((char *)self->view.buf + offset);
}

static word *at_argument(Words *self, PyObject *number)
{
    int64_t offset = PyLong_AsLongLong(number);
    return offset == -1 && PyErr_Occurred() ? NULL : at_offset(self, offset);
}

static PyObject *words_load(PyObject *self, PyObject *offset)
{
    word *at = at_argument((Words *)self, offset);
    return at == NULL ? NULL : PyLong_FromUnsignedLongLong(atomic_load_explicit(at, memory_order_acquire));
}

static PyObject *words_store(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t value;
    word *at;
    if (!count_is("store", count, 2) || (at = at_argument((Words *)self, args[0])) == NULL || !as_word(args[1], &value))
        return NULL;
    atomic_store_explicit(at, value, memory_order_release);
    Py_RETURN_NONE;
}

static PyObject *words_add(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t value;
    word *at;
    if (!count_is("add", count, 2) || (at = at_argument((Words *)self, args[0])) == NULL || !as_word(args[1], &value))
        return NULL;
    return PyLong_FromUnsignedLongLong(atomic_fetch_add_explicit(at, value, memory_order_acq_rel));
}

static PyObject *words_add_each(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t value;
    Py_buffer offsets;
    if (!count_is("add_each", count, 2) || !as_word(args[1], &value) ||
        PyObject_GetBuffer(args[0], &offsets, PyBUF_SIMPLE) != 0)
        return NULL;
    const int64_t *offset = offsets.buf;
    Py_ssize_t i, number = offsets.len / (Py_ssize_t)sizeof *offset;
    for (i = 0; i < number; i++) {
        word *at = at_offset((Words *)self, offset[i]);
        if (at == NULL)
            break;
        atomic_fetch_add_explicit(at, value, memory_order_acq_rel);
    }
    PyBuffer_Release(&offsets);
    if (i < number)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *words_wait(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t least;
    word *at;
    if (!count_is("wait", count, 2) || (at = at_argument((Words *)self, args[0])) == NULL || !as_word(args[1], &least))
        return NULL;
    return PyLong_FromUnsignedLongLong(await_word(at, least));
}

static PyMethodDef words_methods[] = {
    {"load", words_load, METH_O, NULL},
    {"store", (PyCFunction)(void (*)(void))words_store, METH_FASTCALL, NULL},
    {"add", (PyCFunction)(void (*)(void))words_add, METH_FASTCALL, NULL},
    {"add_each", (PyCFunction)(void (*)(void))words_add_each, METH_FASTCALL, NULL},
    {"wait", (PyCFunction)(void (*)(void))words_wait, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot words_slots[] = {
    {Py_tp_new, words_new},
    {Py_tp_dealloc, words_dealloc},
    {Py_tp_methods, words_methods},
    {0, NULL},
};

static PyType_Spec words_spec = {"xccl._native.Words", sizeof(Words), 0, Py_TPFLAGS_DEFAULT, words_slots};

/* ---- RingEnd ---- */

enum { SENT, SENT_EVENT, RECEIVED, CONSUMED_EVENT, FILLED, LEFT, COUNTERS };
enum { SHORTEST_CHUNK = 2048 };
enum { DECLINED = -2, UNACKNOWLEDGED = -1 };

typedef struct {
    PyObject_HEAD
    Py_buffer own, remote, counters;
    uint64_t acknowledged, fields, field_stride, payload, slots, slot_bytes;
} RingEnd;

static PyObject *ring_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *own, *remote, *counters;
    unsigned long long acknowledged, fields, field_stride, payload, slots, slot_bytes;
    if (kwargs != NULL && PyDict_Size(kwargs) != 0) {
        PyErr_SetString(PyExc_TypeError, "RingEnd takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OOOKKKKKK:RingEnd", &own, &remote, &counters, &acknowledged, &fields, &field_stride,
                          &payload, &slots, &slot_bytes))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    RingEnd *self = (RingEnd *)alloc(type, 0);
    if (self == NULL)
        return NULL;
    if (!writable(own, &self->own) || !writable(remote, &self->remote) || !writable(counters, &self->counters)) {
        Py_DECREF(self);
        return NULL;
    }
    uint64_t end = payload + slots * slot_bytes;
    if (self->own.len < (Py_ssize_t)end || self->remote.len < (Py_ssize_t)end ||
        self->counters.len != COUNTERS * (Py_ssize_t)sizeof(uint64_t) || slots == 0 ||
        fields + slots * field_stride > payload || acknowledged + sizeof(word) > fields ||
        (acknowledged | fields | field_stride) % sizeof(word) != 0) {
        PyErr_SetString(PyExc_ValueError, "the ring does not lie within its buffers");
        Py_DECREF(self);
        return NULL;
    }
    self->acknowledged = acknowledged;
    self->fields = fields;
    self->field_stride = field_stride;
    self->payload = payload;
    self->slots = slots;
    self->slot_bytes = slot_bytes;
    return (PyObject *)self;
}

static void ring_dealloc(PyObject *object)
{
    RingEnd *self = (RingEnd *)object;
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    Py_buffer *views[] = {&self->own, &self->remote, &self->counters};
    for (int i = 0; i < 3; i++)
        if (views[i]->obj != NULL)
            PyBuffer_Release(views[i]);
    release(object);
    Py_DECREF(type);
}

static word *word_at(Py_buffer *view, uint64_t offset)
{
    return (word *)((char *)view->buf + offset);
}

/* Odd multipliers of field.py: the seal over a field's three words. */
static uint64_t seal(uint64_t published, uint64_t first, uint64_t second)
{
    return published * 0x9E3779B97F4A7C15u + first * 0xC2B2AE3D27D4EB4Fu + second * 0x165667B19E3779F9u;
}

/* Chunks of a message: see `chunk_bytes` in layout.py. */
static uint64_t chunk_bytes(const RingEnd *self, uint64_t length)
{
    if (length <= SHORTEST_CHUNK)
        return length;
    uint64_t quarter = ((length + 3) / 4 + 63) & ~(uint64_t)63;
    quarter = quarter < SHORTEST_CHUNK ? SHORTEST_CHUNK : quarter;
    return quarter < self->slot_bytes ? quarter : self->slot_bytes;
}

static void publish_chunk(RingEnd *self, uint64_t tail, uint64_t event, const char *data, uint64_t length, uint64_t left)
{
    uint64_t slot = tail % self->slots, second = left << 32 | length;
    memcpy((char *)self->remote.buf + self->payload + slot * self->slot_bytes, data, (size_t)length);
    word *field = word_at(&self->remote, self->fields + slot * self->field_stride);
    atomic_store_explicit(field + 1, event, memory_order_relaxed);
    atomic_store_explicit(field + 2, second, memory_order_relaxed);
    atomic_store_explicit(field + 3, seal(tail, event, second), memory_order_relaxed);
    atomic_store_explicit(field, tail, memory_order_release);
}

/* send(data, event): DECLINED when nothing was done, UNACKNOWLEDGED when it is sent, 0 when it was copied out. */
static PyObject *ring_send(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    RingEnd *self = (RingEnd *)object;
    uint64_t *counter = self->counters.buf, event;
    Py_buffer data;
    if (!count_is("send", count, 2) || !as_word(args[1], &event) || PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE))
        return NULL;
    word *acknowledged = word_at(&self->own, self->acknowledged);
    uint64_t length = (uint64_t)data.len, chunk = chunk_bytes(self, length);
    uint64_t chunks = length == 0 ? 1 : (length + chunk - 1) / chunk;
    uint64_t tail = counter[SENT] + chunks, done = atomic_load_explicit(acknowledged, memory_order_acquire);
    if (event <= counter[SENT_EVENT] || done > counter[SENT] || tail - done > self->slots) {
        PyBuffer_Release(&data);
        return PyLong_FromLong(DECLINED);
    }
    const char *from = data.buf;
    for (uint64_t left = chunks; left-- > 0; length -= chunk, from += chunk)
        publish_chunk(self, tail - left, event, from, left > 0 ? chunk : length, left);
    PyBuffer_Release(&data);
    counter[SENT] = tail;
    counter[SENT_EVENT] = event;
    return PyLong_FromLong(await_word(acknowledged, tail) == tail ? 0 : UNACKNOWLEDGED);
}

/* receive(into, event): the message's bytes, or DECLINED. The counters say how far it came. */
static PyObject *ring_receive(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    RingEnd *self = (RingEnd *)object;
    uint64_t *counter = self->counters.buf, event, left = 0;
    Py_buffer into;
    if (!count_is("receive", count, 2) || !as_word(args[1], &event) || !writable(args[0], &into))
        return NULL;
    counter[FILLED] = 0;
    if (event <= counter[CONSUMED_EVENT])
        goto declined;
    do {
        uint64_t tail = counter[RECEIVED] + 1, slot = tail % self->slots;
        word *field = word_at(&self->own, self->fields + slot * self->field_stride);
        if (await_word(field, tail) != tail)
            goto declined;
        uint64_t sent_event = atomic_load_explicit(field + 1, memory_order_relaxed);
        uint64_t second = atomic_load_explicit(field + 2, memory_order_relaxed);
        uint64_t sealed = atomic_load_explicit(field + 3, memory_order_relaxed);
        uint64_t length = second & UINT32_MAX, room = (uint64_t)into.len - counter[FILLED];
        if (sent_event != event || sealed != seal(tail, sent_event, second) || length > self->slot_bytes ||
            length > room || (counter[FILLED] != 0 && left != (second >> 32) + 1))
            goto declined;
        left = second >> 32;
        memcpy((char *)into.buf + counter[FILLED], (char *)self->own.buf + self->payload + slot * self->slot_bytes,
               (size_t)length);
        counter[FILLED] += length;
        counter[LEFT] = left;
        counter[RECEIVED] = tail;
        counter[CONSUMED_EVENT] = event;
        atomic_store_explicit(word_at(&self->remote, self->acknowledged), tail, memory_order_release);
    } while (left > 0);
    PyBuffer_Release(&into);
    return PyLong_FromUnsignedLongLong(counter[FILLED]);
declined:
    PyBuffer_Release(&into);
    return PyLong_FromLong(DECLINED);
}

static PyMethodDef ring_methods[] = {
    {"send", (PyCFunction)(void (*)(void))ring_send, METH_FASTCALL, NULL},
    {"receive", (PyCFunction)(void (*)(void))ring_receive, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot ring_slots[] = {
    {Py_tp_new, ring_new},
    {Py_tp_dealloc, ring_dealloc},
    {Py_tp_methods, ring_methods},
    {0, NULL},
};

static PyType_Spec ring_spec = {"xccl._native.RingEnd", sizeof(RingEnd), 0, Py_TPFLAGS_DEFAULT, ring_slots};

/* ---- module ---- */

static int add_types(PyObject *module)
{
    PyObject *words = PyType_FromSpec(&words_spec), *ring = PyType_FromSpec(&ring_spec);
    int failed = words == NULL || ring == NULL || PyModule_AddObjectRef(module, "Words", words) != 0 ||
                 PyModule_AddObjectRef(module, "RingEnd", ring) != 0 ||
                 PyModule_AddIntConstant(module, "DECLINED", DECLINED) != 0 ||
                 PyModule_AddIntConstant(module, "UNACKNOWLEDGED", UNACKNOWLEDGED) != 0;
    Py_XDECREF(words);
    Py_XDECREF(ring);
    return failed ? -1 : 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, add_types}, {0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "xccl._native", NULL, 0, NULL, module_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&module);
}
