/* RingEnd's zero-copy half: a slot that only says where in a region of the sender the message lies. */
#include "ring.h"

/* As _REFERENCE of ring.py: all in bytes, from the region's start. */
typedef struct {
    uint64_t number, region_bytes, offset, bytes;
} Reference;

void forget_region(Region *region)
{
    if (region->view.obj != NULL)
        PyBuffer_Release(&region->view);
}

static int is_closed(const Region *region)
{
    return atomic_load_explicit(word_at(&region->view, region->closed), memory_order_relaxed) != 0;
}

/* Where a further region has its place: those that were given up go, and if none is free, the oldest. */
static Region *place(RingEnd *self)
{
    Region *region = &self->regions[self->known++ % REGIONS];
    for (int i = 0; i < REGIONS; i++) {
        if (self->regions[i].view.obj != NULL && is_closed(&self->regions[i]))
            forget_region(&self->regions[i]);
        if (self->regions[i].view.obj == NULL)
            region = &self->regions[i];
    }
    forget_region(region);
    return region;
}

/* know_region(number, buffer, closed): messages that lie in this region of the peer's may be read there; `closed` is the
 * offset of the word that is not zero once the peer has given it up. */
PyObject *ring_know_region(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    RingEnd *self = (RingEnd *)object;
    uint64_t number, closed;
    Py_buffer view;
    if (!count_is("know_region", count, 3) || !as_word(args[0], &number) || !as_word(args[2], &closed) ||
        !writable(args[1], &view))
        return NULL;
    if (closed % sizeof(word) != 0 || view.len < (Py_ssize_t)sizeof(word) ||
        closed > (uint64_t)view.len - sizeof(word)) {
        PyErr_SetString(PyExc_ValueError, "the region has no such word");
        PyBuffer_Release(&view);
        return NULL;
    }
    *place(self) = (Region){.view = view, .number = number, .closed = closed};
    Py_RETURN_NONE;
}

int receive_reference(RingEnd *self, char *into, uint64_t size, uint64_t event, uint64_t tail)
{
    uint64_t *counter = self->counters.buf;
    Reference at;
    memcpy(&at, (char *)self->own.buf + self->payload + tail % self->slots * self->slot_bytes, sizeof at);
    for (int i = 0; i < REGIONS; i++) {
        const Region *region = &self->regions[i];
        if (region->view.obj == NULL || region->number != at.number || (uint64_t)region->view.len != at.region_bytes)
            continue;
        if (at.bytes > size || at.bytes > at.region_bytes || at.offset > at.region_bytes - at.bytes)
            return 0;
        copy_in(into, (const char *)region->view.buf + at.offset, at.bytes);
        atomic_thread_fence(memory_order_acquire); /* what was read was read before this is */
        if (is_closed(region))
            return 0;
        counter[FILLED] = at.bytes;
        counter[LEFT] = 0;
        counter[RECEIVED] = tail;
        counter[CONSUMED_EVENT] = event;
        atomic_store_explicit(word_at(&self->remote, self->acknowledged), tail, memory_order_release);
        return 1;
    }
    return 0;
}

/* Where `data` lie, if it is in one of `regions`, a dict of buffers by number. */
static int find(PyObject *regions, const Py_buffer *data, Reference *at)
{
    PyObject *number, *buffer;
    Py_ssize_t position = 0;
    while (PyDict_Next(regions, &position, &number, &buffer)) {
        Py_buffer region;
        if (!as_word(number, &at->number) || PyObject_GetBuffer(buffer, &region, PyBUF_SIMPLE) != 0)
            return -1;
        uintptr_t begin = (uintptr_t)region.buf, from = (uintptr_t)data->buf;
        *at = (Reference){at->number, (uint64_t)region.len, from - begin, (uint64_t)data->len};
        int inside = from >= begin && from - begin <= (uintptr_t)region.len - (uintptr_t)data->len &&
                     data->len <= region.len;
        PyBuffer_Release(&region);
        if (inside)
            return 1;
    }
    return 0;
}

/* Publish `at` and wait for the receiver, as far as that goes in bounded waits. */
static int send_whole(RingEnd *self, const Reference *at, uint64_t event)
{
    uint64_t *counter = self->counters.buf, tail = counter[SENT] + 1;
    word *acknowledged = word_at(&self->own, self->acknowledged);
    if (tail > self->slots) {
        uint64_t done = await_word(acknowledged, tail - self->slots);
        if (done < tail - self->slots || done > counter[SENT])
            return DECLINED;
    }
    memcpy((char *)self->remote.buf + self->payload + tail % self->slots * self->slot_bytes, at, sizeof *at);
    publish_field(word_at(&self->remote, self->fields + tail % self->slots * self->field_stride), tail, event,
                  BY_REFERENCE | sizeof *at);
    counter[SENT] = tail;
    counter[SENT_EVENT] = event;
    return await_word(acknowledged, tail) == tail ? 0 : UNACKNOWLEDGED;
}

/* send_reference(data, event, regions, least): 0 when all was copied out, UNACKNOWLEDGED when it is published; DECLINED
 * with nothing done, as for data of less than `least` bytes or outside of all `regions`. */
PyObject *ring_send_reference(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    RingEnd *self = (RingEnd *)object;
    uint64_t *counter = self->counters.buf, event, least;
    Py_buffer data;
    Reference at = {0};
    if (!count_is("send_reference", count, 4) || !as_word(args[1], &event) || !as_word(args[3], &least))
        return NULL;
    if (!PyDict_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "regions must be a dict");
        return NULL;
    }
    if (PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) != 0)
        return declined_buffer();
    int result = DECLINED, found = 0;
    if (event > counter[SENT_EVENT] && data.len > 0 && (uint64_t)data.len >= least)
        found = find(args[2], &data, &at);
    if (found > 0) {
        Py_BEGIN_ALLOW_THREADS
        result = send_whole(self, &at, event);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data);
    return found < 0 ? NULL : PyLong_FromLong(result);
}
