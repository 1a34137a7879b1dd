/* Words: aligned 8-byte words of a buffer, its fields and its bytes. load acquires, store releases, add does both. */
#include "extension.h"
#include "memory.h"

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

static word *field_argument(Words *self, PyObject *number)
{
    int64_t offset = PyLong_AsLongLong(number);
    if ((offset == -1 && PyErr_Occurred()) || at_offset(self, offset + 3 * (int64_t)sizeof(word)) == NULL)
        return NULL;
    return at_offset(self, offset);
}

/* publish(offset, word, first, second): write a field. */
static PyObject *words_publish(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t published, first, second;
    word *field;
    if (!count_is("publish", count, 4) || (field = field_argument((Words *)self, args[0])) == NULL ||
        !as_word(args[1], &published) || !as_word(args[2], &first) || !as_word(args[3], &second))
        return NULL;
    publish_field(field, published, first, second);
    Py_RETURN_NONE;
}

/* field(offset, word): the payload that was published with `word`; None if it is not there, or not in order. */
static PyObject *words_field(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uint64_t published, first, second;
    word *field;
    if (!count_is("field", count, 2) || (field = field_argument((Words *)self, args[0])) == NULL ||
        !as_word(args[1], &published))
        return NULL;
    if (atomic_load_explicit(field, memory_order_acquire) != published ||
        !read_field(field, published, &first, &second))
        Py_RETURN_NONE;
    return Py_BuildValue("(KK)", (unsigned long long)first, (unsigned long long)second);
}

/* write(offset, data): copy all of `data` to `offset`. */
static PyObject *words_write(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    Words *self = (Words *)object;
    Py_buffer data;
    if (!count_is("write", count, 2))
        return NULL;
    int64_t offset = PyLong_AsLongLong(args[0]);
    if ((offset == -1 && PyErr_Occurred()) || PyObject_GetBuffer(args[1], &data, PyBUF_SIMPLE) != 0)
        return NULL;
    if (offset < 0 || data.len > self->view.len || offset > self->view.len - data.len) {
        PyErr_Format(PyExc_IndexError, "%zd bytes at offset %lld do not fit into %zd", data.len, (long long)offset,
                     self->view.len);
        PyBuffer_Release(&data);
        return NULL;
    }
    char *to = (char *)self->view.buf + offset;
    if (data.len < HOLD_BYTES)
        copy_out(to, data.buf, (size_t)data.len);
    else {
        Py_BEGIN_ALLOW_THREADS
        copy_out(to, data.buf, (size_t)data.len);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data);
    Py_RETURN_NONE;
}

/* read(offset, into): fill `into` from `offset`. */
static PyObject *words_read(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    Words *self = (Words *)object;
    Py_buffer into;
    if (!count_is("read", count, 2))
        return NULL;
    int64_t offset = PyLong_AsLongLong(args[0]);
    if ((offset == -1 && PyErr_Occurred()) || !writable(args[1], &into))
        return NULL;
    if (offset < 0 || into.len > self->view.len || offset > self->view.len - into.len) {
        PyErr_Format(PyExc_IndexError, "there are no %zd bytes at offset %lld of %zd", into.len, (long long)offset,
                     self->view.len);
        PyBuffer_Release(&into);
        return NULL;
    }
    const char *from = (const char *)self->view.buf + offset;
    if (into.len < HOLD_BYTES)
        memcpy(into.buf, from, (size_t)into.len);
    else {
        Py_BEGIN_ALLOW_THREADS
        copy_in(into.buf, from, (size_t)into.len);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&into);
    Py_RETURN_NONE;
}

static PyMethodDef words_methods[] = {
    {"load", words_load, METH_O, NULL},
    {"store", (PyCFunction)(void (*)(void))words_store, METH_FASTCALL, NULL},
    {"add", (PyCFunction)(void (*)(void))words_add, METH_FASTCALL, NULL},
    {"add_each", (PyCFunction)(void (*)(void))words_add_each, METH_FASTCALL, NULL},
    {"read", (PyCFunction)(void (*)(void))words_read, METH_FASTCALL, NULL},
    {"write", (PyCFunction)(void (*)(void))words_write, METH_FASTCALL, NULL},
    {"publish", (PyCFunction)(void (*)(void))words_publish, METH_FASTCALL, NULL},
    {"field", (PyCFunction)(void (*)(void))words_field, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot words_slots[] = {
    {Py_tp_new, words_new},
    {Py_tp_dealloc, words_dealloc},
    {Py_tp_methods, words_methods},
    {0, NULL},
};

PyType_Spec words_spec = {"xccl._native.Words", sizeof(Words), 0, Py_TPFLAGS_DEFAULT, words_slots};
