/* RingEnd, as its two halves see it: chunks through slots (ring.c), and data that stay in a region (reference.c). */
#ifndef XCCL_RING_H
#define XCCL_RING_H

#include "extension.h"
#include "memory.h"

enum { SENT, SENT_EVENT, RECEIVED, CONSUMED_EVENT, FILLED, LEFT, POSTED, COUNTERS };
enum { REGIONS = 16, REFERENCE_BYTES = 32 };
#define BY_REFERENCE ((uint64_t)1 << 63)

/* A region of the peer's: its number, and the word that says that it was given up. */
typedef struct {
    Py_buffer view;
    uint64_t number, closed;
} Region;

typedef struct {
    PyObject_HEAD
    Py_buffer own, remote, counters;
    uint64_t acknowledged, fields, field_stride, payload, slots, slot_bytes, most_contended;
    Region regions[REGIONS];
    uint64_t known; /* regions so far: the oldest gives way */
} RingEnd;

static inline word *word_at(const Py_buffer *view, uint64_t offset)
{
    return (word *)((char *)view->buf + offset);
}

/* The Steps will say what is wrong with the buffer. */
static inline PyObject *declined_buffer(void)
{
    PyErr_Clear();
    return PyLong_FromLong(DECLINED);
}

/* Take the message whose reference lies in the slot of `tail`; whether that could be done here. */
int receive_reference(RingEnd *self, char *into, uint64_t size, uint64_t event, uint64_t tail);

void forget_region(Region *region);

PyObject *ring_send_reference(PyObject *object, PyObject *const *args, Py_ssize_t count);
PyObject *ring_know_region(PyObject *object, PyObject *const *args, Py_ssize_t count);

#endif
