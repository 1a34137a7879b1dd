/* What the parts of flowserve.model._native share: buffers of NumPy's arrays, and what each part offers. */
#ifndef FLOWSERVE_MODEL_EXTENSION_H
#define FLOWSERVE_MODEL_EXTENSION_H

#include "native_extension.h"

/* int8.c */
PyObject *supported(PyObject *self, PyObject *none);
PyObject *quantise(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *product(PyObject *self, PyObject *const *args, Py_ssize_t count);

/* experts.c */
PyObject *swiglu(PyObject *self, PyObject *const *args, Py_ssize_t count);

/* rows.c */
PyObject *norm(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *route(PyObject *self, PyObject *const *args, Py_ssize_t count);

/* Contiguous buffers of all arguments, the last `writable` of them to be written; 0, or -1 with an error. */
static inline int buffers(PyObject *const *args, int count, int writable, Py_buffer *views)
{
    for (int i = 0; i < count; i++) {
        int flags = PyBUF_C_CONTIGUOUS | (i >= count - writable ? PyBUF_WRITABLE : 0);
        if (PyObject_GetBuffer(args[i], views + i, flags) < 0) {
            while (i-- > 0)
                PyBuffer_Release(views + i);
            return -1;
        }
    }
    return 0;
}

/* Releases buffers, and returns None, or NULL with a ValueError if there is something to say. */
static inline PyObject *finish(Py_buffer *views, int count, const char *error)
{
    for (int i = 0; i < count; i++)
        PyBuffer_Release(views + i);
    if (error != NULL) {
        PyErr_SetString(PyExc_ValueError, error);
        return NULL;
    }
    return Py_NewRef(Py_None);
}

#endif
