/* What the parts of xccl._native share as parts of an extension module: arguments, and what each part offers.
 *
 * Only the stable ABI is used (Python 3.11 and later).
 */
#ifndef XCCL_EXTENSION_H
#define XCCL_EXTENSION_H

#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* words.c */
extern PyType_Spec words_spec;

/* ring.c */
extern PyType_Spec ring_spec;
enum { DECLINED = -3, PARTIAL = -2, UNACKNOWLEDGED = -1 };

/* sum.c */
PyObject *weighted_sum(PyObject *self, PyObject *const *args, Py_ssize_t count);

static inline int count_is(const char *name, Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted)
        return 1;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, %zd given", name, wanted, given);
    return 0;
}

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
