/* What every extension module of the house begins with. Only the stable ABI is used (Python 3.11 and later). */
#ifndef NATIVE_EXTENSION_H
#define NATIVE_EXTENSION_H

#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

static inline int count_is(const char *name, Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted)
        return 1;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, %zd given", name, wanted, given);
    return 0;
}

#endif
