/* What the parts of xccl._native share as parts of an extension module: arguments, and what each part offers. */
#ifndef XCCL_EXTENSION_H
#define XCCL_EXTENSION_H

#include "native_extension.h"

/* words.c */
extern PyType_Spec words_spec;

/* ring.c */
extern PyType_Spec ring_spec;
enum { DECLINED = -3, PARTIAL = -2, UNACKNOWLEDGED = -1 };

/* sum.c */
PyObject *weighted_sum(PyObject *self, PyObject *const *args, Py_ssize_t count);

static inline int as_word(PyObject *number, uint64_t *value)
{
    *value = PyLong_AsUnsignedLongLong(number);
    return !(*value == (uint64_t)-1 && PyErr_Occurred());
}

static inline int writable(PyObject *buffer, Py_buffer *view)
{
    return PyObject_GetBuffer(buffer, view, PyBUF_WRITABLE) == 0;
}

#endif
