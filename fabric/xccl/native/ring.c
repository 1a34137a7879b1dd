/* RingEnd: the protocol of ring.py for a message in chunks, in a single call.
 *
 * It shares its counters with the protocol in Python and falls back to it wherever something is unusual: each call either
 * does the ordinary thing whole, or says how far it came. It waits for a moment only, for a peer that runs on another
 * core; waits are the drivers' (steps.py).
 */
#include "ring.h"

enum { SHORTEST_CHUNK = 2048, LINE = 64 };

static PyObject *ring_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *own, *remote, *counters;
    unsigned long long acknowledged, fields, field_stride, payload, slots, slot_bytes, most_contended;
    if (kwargs != NULL && PyDict_Size(kwargs) != 0) {
        PyErr_SetString(PyExc_TypeError, "RingEnd takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OOOKKKKKKK:RingEnd", &own, &remote, &counters, &acknowledged, &fields, &field_stride,
                          &payload, &slots, &slot_bytes, &most_contended))
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
    self->most_contended = most_contended;
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
    for (int i = 0; i < REGIONS; i++)
        forget_region(&self->regions[i]);
    release(object);
    Py_DECREF(type);
}

/* `chunk_bytes` of layout.py. */
static uint64_t chunk_bytes(const RingEnd *self, uint64_t length)
{
    uint64_t quarter = (length + 4 * LINE - 1) / (4 * LINE) * LINE;
    uint64_t chunk = quarter < SHORTEST_CHUNK ? SHORTEST_CHUNK : quarter;
    return chunk < self->slot_bytes ? chunk : self->slot_bytes;
}

static void publish_chunk(RingEnd *self, uint64_t tail, uint64_t event, const char *data, uint64_t length, uint64_t left)
{
    uint64_t slot = tail % self->slots, second = left << 32 | length;
    copy_out((char *)self->remote.buf + self->payload + slot * self->slot_bytes, data, (size_t)length);
    publish_field(word_at(&self->remote, self->fields + slot * self->field_stride), tail, event, second);
}

/* Publish all chunks and wait for the receiver, as far as that goes in bounded waits. */
static int send_chunks(RingEnd *self, const char *data, uint64_t length, uint64_t event)
{
    uint64_t *counter = self->counters.buf, chunk = chunk_bytes(self, length);
    word *acknowledged = word_at(&self->own, self->acknowledged);
    uint64_t rest = length - counter[POSTED];
    counter[SENT_EVENT] = event;
    for (uint64_t left = rest == 0 ? 1 : (rest + chunk - 1) / chunk; left-- > 0;) {
        uint64_t tail = counter[SENT] + 1, piece = left > 0 ? chunk : length - counter[POSTED];
        if (tail > self->slots) {
            uint64_t done = await_word(acknowledged, tail - self->slots);
            if (done < tail - self->slots || done > counter[SENT])
                return PARTIAL;
        }
        publish_chunk(self, tail, event, data + counter[POSTED], piece, left);
        counter[SENT] = tail;
        counter[POSTED] += piece;
    }
    return await_word(acknowledged, counter[SENT]) == counter[SENT] ? 0 : UNACKNOWLEDGED;
}

/* send(data, event, most, resume): 0 when all was copied out, UNACKNOWLEDGED when it is published, PARTIAL when only
 * counter[POSTED] bytes are, after which it may be resumed; DECLINED with nothing done, as for more than `most` bytes. */
static PyObject *ring_send(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    RingEnd *self = (RingEnd *)object;
    uint64_t *counter = self->counters.buf, event, most;
    Py_buffer data;
    int resume = count == 4 ? PyObject_IsTrue(args[3]) : 0;
    if (!count_is("send", count, 4) || !as_word(args[1], &event) || !as_word(args[2], &most) || resume < 0)
        return NULL;
    if (PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) != 0)
        return declined_buffer();
    uint64_t length = (uint64_t)data.len;
    uint64_t done = atomic_load_explicit(word_at(&self->own, self->acknowledged), memory_order_acquire);
    int result = DECLINED;
    if (!resume)
        counter[POSTED] = 0;
    if (resume ? event == counter[SENT_EVENT] && counter[POSTED] < length
               : event > counter[SENT_EVENT] && length <= (done < counter[SENT] ? self->most_contended : most)) {
        if (length < HOLD_BYTES)
            result = send_chunks(self, data.buf, length, event);
        else {
            Py_BEGIN_ALLOW_THREADS
            result = send_chunks(self, data.buf, length, event);
            Py_END_ALLOW_THREADS
        }
    }
    PyBuffer_Release(&data);
    return PyLong_FromLong(result);
}

/* Take the chunks of a message; whether it is there whole. The counters say how far it came. */
static int receive_chunks(RingEnd *self, char *into, uint64_t size, uint64_t event)
{
    uint64_t *counter = self->counters.buf, left = counter[LEFT];
    do {
        uint64_t tail = counter[RECEIVED] + 1, slot = tail % self->slots;
        word *field = word_at(&self->own, self->fields + slot * self->field_stride);
        if (await_word(field, tail) != tail)
            return 0;
        uint64_t sent_event, second;
        int sound = read_field(field, tail, &sent_event, &second);
        uint64_t length = second & UINT32_MAX;
        if (sound && sent_event == event && second == BY_REFERENCE + REFERENCE_BYTES && counter[FILLED] == 0)
            return receive_reference(self, into, size, event, tail);
        if (!sound || sent_event != event || second >> 63 ||
            length > self->slot_bytes || length > size - counter[FILLED] ||
            (counter[FILLED] != 0 && left != (second >> 32) + 1))
            return 0;
        left = second >> 32;
        memcpy(into + counter[FILLED], (char *)self->own.buf + self->payload + slot * self->slot_bytes,
               (size_t)length);
        counter[FILLED] += length;
        counter[LEFT] = left;
        counter[RECEIVED] = tail;
        counter[CONSUMED_EVENT] = event;
        atomic_store_explicit(word_at(&self->remote, self->acknowledged), tail, memory_order_release);
    } while (left > 0);
    return 1;
}

/* receive(into, event, resume): the message's bytes, or DECLINED with counter[FILLED] of them done, after which it may
 * be resumed. */
static PyObject *ring_receive(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    RingEnd *self = (RingEnd *)object;
    uint64_t *counter = self->counters.buf, event;
    Py_buffer into;
    int resume = count == 3 ? PyObject_IsTrue(args[2]) : 0;
    if (!count_is("receive", count, 3) || !as_word(args[1], &event) || resume < 0)
        return NULL;
    if (!resume)
        counter[FILLED] = 0;
    if (!writable(args[0], &into))
        return declined_buffer();
    int whole = 0;
    int in_turn = resume ? event == counter[CONSUMED_EVENT] && counter[FILLED] <= (uint64_t)into.len
                         : event > counter[CONSUMED_EVENT];
    if (in_turn) {
        if (into.len < HOLD_BYTES)
            whole = receive_chunks(self, into.buf, (uint64_t)into.len, event);
        else {
            Py_BEGIN_ALLOW_THREADS
            whole = receive_chunks(self, into.buf, (uint64_t)into.len, event);
            Py_END_ALLOW_THREADS
        }
    }
    PyBuffer_Release(&into);
    return whole ? PyLong_FromUnsignedLongLong(counter[FILLED]) : PyLong_FromLong(DECLINED);
}

static PyMethodDef ring_methods[] = {
    {"send", (PyCFunction)(void (*)(void))ring_send, METH_FASTCALL, NULL},
    {"receive", (PyCFunction)(void (*)(void))ring_receive, METH_FASTCALL, NULL},
    {"send_reference", (PyCFunction)(void (*)(void))ring_send_reference, METH_FASTCALL, NULL},
    {"know_region", (PyCFunction)(void (*)(void))ring_know_region, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot ring_slots[] = {
    {Py_tp_new, ring_new},
    {Py_tp_dealloc, ring_dealloc},
    {Py_tp_methods, ring_methods},
    {0, NULL},
};

PyType_Spec ring_spec = {"xccl._native.RingEnd", sizeof(RingEnd), 0, Py_TPFLAGS_DEFAULT, ring_slots};
