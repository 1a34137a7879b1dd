/* xccl._native: what an interpreter cannot do. Ordered machine accesses, one message through a ring in a single call, and
 * combine's sum; nothing that is not also there in Python. */
#include "extension.h"

static PyMethodDef functions[] = {
    {"weighted_sum", (PyCFunction)(void (*)(void))weighted_sum, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static int add_types(PyObject *module)
{
    PyObject *words = PyType_FromSpec(&words_spec), *ring = PyType_FromSpec(&ring_spec);
    int failed = words == NULL || ring == NULL || PyModule_AddObjectRef(module, "Words", words) != 0 ||
                 PyModule_AddObjectRef(module, "RingEnd", ring) != 0 ||
                 PyModule_AddIntConstant(module, "DECLINED", DECLINED) != 0 ||
                 PyModule_AddIntConstant(module, "PARTIAL", PARTIAL) != 0 ||
                 PyModule_AddIntConstant(module, "UNACKNOWLEDGED", UNACKNOWLEDGED) != 0;
    Py_XDECREF(words);
    Py_XDECREF(ring);
    return failed ? -1 : 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, add_types}, {0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "xccl._native", NULL, 0, functions, module_slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&module);
}
