/* flowserve.model._native: what NumPy has no fast way for. Its users have a way of their own where this is not there. */
#include "extension.h"

#define METHOD(name, call) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, call}

static PyMethodDef methods[] = {
    {"supported", supported, METH_NOARGS, "Whether this processor can run quantise, product and swiglu."},
    METHOD(quantise, "quantise(x, codes, scales)"),
    METHOD(product, "product(codes, scales, weight, sums, steps, out)"),
    METHOD(swiglu, "swiglu(x, slots, experts, out)"),
    METHOD(norm, "norm(x, weight, eps, out)"),
    METHOD(route, "route(affinity, scores, groups, kept_groups, pairs, experts, gates)"),
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "flowserve.model._native", "What NumPy has no fast way for.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&module);
}
