/* What an interpreter cannot do: ordered machine accesses, and one message through a ring in a single call.
 *
 * Words: aligned 8-byte words of a buffer. load acquires, store releases, add does both; C11 atomics, so that the
 * compiler emits what the processor needs (mov and lock xadd on x86; ldar, stlr and ldaddal on ARM).
 *
 * RingEnd: the protocol of channel.py for a message that fits one slot. It shares its counters with the protocol in
 * Python and falls back to it wherever something is unusual: each call either does the ordinary thing whole, or says
 * how far it came. It waits for a moment only, for a peer that runs on another core; waits are the drivers' (steps.py).
 *
 * Only the stable ABI is used (Python 3.11 and later).
 */
#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

typedef _Atomic uint64_t word;

enum { SPINS = 1000, STREAM_BYTES = 1024, HOLD_BYTES = 64 * 1024, LARGE_BYTES = 2 << 20 };

static inline void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Odd multipliers of field.py: the seal over a field's three words. */
static uint64_t seal(uint64_t published, uint64_t first, uint64_t second)
{
    return published * 0x9E3779B97F4A7C15u + first * 0xC2B2AE3D27D4EB4Fu + second * 0x165667B19E3779F9u;
}

/* Wait until the word is at least `least`, for a moment; the word as last seen. */
static uint64_t await_word(word *at, uint64_t least)
{
    uint64_t seen = atomic_load_explicit(at, memory_order_acquire);
    for (int i = 0; i < SPINS && seen < least; i++) {
        pause_briefly();
        seen = atomic_load_explicit(at, memory_order_acquire);
    }
    return seen;
}

/* A field, as field.py tells: payload and seal, then the publishing word. */
static void publish_field(word *field, uint64_t published, uint64_t first, uint64_t second)
{
    atomic_store_explicit(field + 1, first, memory_order_relaxed);
    atomic_store_explicit(field + 2, second, memory_order_relaxed);
    atomic_store_explicit(field + 3, seal(published, first, second), memory_order_relaxed);
    atomic_store_explicit(field, published, memory_order_release);
}

/* Whether the field's payload is there and matches its seal; its publishing word was loaded before. */
static int read_field(word *field, uint64_t published, uint64_t *first, uint64_t *second)
{
    *first = atomic_load_explicit(field + 1, memory_order_relaxed);
    *second = atomic_load_explicit(field + 2, memory_order_relaxed);
    return atomic_load_explicit(field + 3, memory_order_relaxed) == seal(published, *first, *second);
}

/* Copy what another core will read: past the own cache, which spares both cores the fight for its lines. */
static void copy_out(char *to, const char *from, size_t length)
{
#if defined(__x86_64__)
    if (length >= STREAM_BYTES && ((uintptr_t)to & 15) == 0) {
        size_t done = 0;
        for (; done + 64 <= length; done += 64) {
            const __m128i *source = (const __m128i *)(from + done);
            __m128i *target = (__m128i *)(to + done);
            __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
            __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
            _mm_stream_si128(target, a);
            _mm_stream_si128(target + 1, b);
            _mm_stream_si128(target + 2, c);
            _mm_stream_si128(target + 3, d);
        }
        _mm_sfence(); /* streamed stores are not ordered by the release that follows */
        to += done;
        from += done;
        length -= done;
    }
#endif
    memcpy(to, from, length);
}

/* ---- arguments ---- */

static int count_is(const char *name, Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted)
        return 1;
    PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, %zd given", name, wanted, given);
    return 0;
}

static int as_word(PyObject *number, uint64_t *value)
{
    *value = PyLong_AsUnsignedLongLong(number);
    return !(*value == (uint64_t)-1 && PyErr_Occurred());
}

static int writable(PyObject *buffer, Py_buffer *view)
{
    return PyObject_GetBuffer(buffer, view, PyBUF_WRITABLE) == 0;
}

/* ---- Words ---- */

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

/* read(offset, into): fill `into` from `offset`; what is larger than caches goes past them. */
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
        if (into.len < LARGE_BYTES)
            memcpy(into.buf, from, (size_t)into.len);
        else
            copy_out(into.buf, from, (size_t)into.len);
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

static PyType_Spec words_spec = {"xccl._native.Words", sizeof(Words), 0, Py_TPFLAGS_DEFAULT, words_slots};

/* ---- weighted_sum ---- */

enum { TILE = 64 };

/* out[h] = sum over k of weight[k] * row[k][h], in the order of k. Product and sum are statements of their own, so that
 * no compiler fuses them: the result is that of NumPy, bit for bit. */
static void sum_rows(float *out, const float *const *row, const float *weight, int64_t top_k, int64_t width)
{
    for (int64_t begin = 0; begin < width; begin += TILE) {
        float sum[TILE] = {0};
        if (width - begin >= TILE)
            for (int64_t k = 0; k < top_k; k++)
                for (int i = 0; i < TILE; i++) {
                    float product = weight[k] * row[k][begin + i];
                    sum[i] = k == 0 ? product : sum[i] + product;
                }
        else
            for (int64_t k = 0; k < top_k; k++)
                for (int64_t i = 0; i < width - begin; i++) {
                    float product = weight[k] * row[k][begin + i];
                    sum[i] = k == 0 ? product : sum[i] + product;
                }
        memcpy(out + begin, sum, (size_t)(width - begin < TILE ? width - begin : TILE) * sizeof *out);
    }
}

enum { MOST_ROWS = 64 };

typedef struct {
    Py_buffer out, which, offsets, weights, *memories;
    Py_ssize_t taken, number; /* of the memories */
} Sum;

/* A row of a memory; NULL when it does not lie in one. */
static const float *row_at(const Sum *sum, int64_t which, int64_t offset, int64_t width)
{
    if (which < 0 || which >= sum->number)
        return NULL;
    const Py_buffer *view = &sum->memories[which];
    if (offset < 0 || offset % (int64_t)sizeof(float) != 0 || offset > view->len - width * (int64_t)sizeof(float))
        return NULL;
    return (const float *)((const char *)view->buf + offset);
}

static int sum_tokens(const Sum *sum)
{
    int64_t tokens = sum->weights.shape[0], top_k = sum->weights.shape[1], width = sum->out.shape[1];
    const int64_t *which = sum->which.buf, *offset = sum->offsets.buf;
    const float *weight = sum->weights.buf, *row[MOST_ROWS];
    for (int64_t token = 0; token < tokens; token++, which += top_k, offset += top_k, weight += top_k) {
        for (int64_t k = 0; k < top_k; k++)
            if ((row[k] = row_at(sum, which[k], offset[k], width)) == NULL)
                return 0;
        sum_rows((float *)sum->out.buf + token * width, row, weight, top_k, width);
    }
    return 1;
}

static int shapes_fit(const Sum *sum)
{
    const Py_buffer *out = &sum->out, *weights = &sum->weights;
    return out->ndim == 2 && weights->ndim == 2 && out->shape[0] == weights->shape[0] &&
           weights->shape[1] >= 1 && weights->shape[1] <= MOST_ROWS && out->itemsize == sizeof(float) &&
           weights->itemsize == sizeof(float) && sum->which.len == 2 * weights->len && sum->offsets.len == sum->which.len;
}

static int take_views(Sum *sum, PyObject *const *args)
{
    sum->number = PyTuple_Size(args[0]);
    if (sum->number < 0 || (sum->memories = PyMem_Calloc((size_t)sum->number + 1, sizeof *sum->memories)) == NULL)
        return 0;
    if (PyObject_GetBuffer(args[1], &sum->out, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) != 0 ||
        PyObject_GetBuffer(args[2], &sum->which, PyBUF_C_CONTIGUOUS) != 0 ||
        PyObject_GetBuffer(args[3], &sum->offsets, PyBUF_C_CONTIGUOUS) != 0 ||
        PyObject_GetBuffer(args[4], &sum->weights, PyBUF_C_CONTIGUOUS) != 0)
        return 0;
    for (; sum->taken < sum->number; sum->taken++)
        if (PyObject_GetBuffer(PyTuple_GetItem(args[0], sum->taken), &sum->memories[sum->taken], PyBUF_SIMPLE) != 0)
            return 0;
    return 1;
}

static void release_views(Sum *sum)
{
    Py_buffer *views[] = {&sum->out, &sum->which, &sum->offsets, &sum->weights};
    for (int i = 0; i < 4; i++)
        if (views[i]->obj != NULL)
            PyBuffer_Release(views[i]);
    while (sum->taken-- > 0)
        PyBuffer_Release(&sum->memories[sum->taken]);
    PyMem_Free(sum->memories);
}

/* weighted_sum(memories, out, which, offsets, weights): f32[T, H] from rows that lie at offsets[T, K] (int64, bytes) of
 * the buffers (a tuple) that which[T, K] (int64) names. */
static PyObject *weighted_sum(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    Sum sum = {0};
    if (!count_is("weighted_sum", count, 5))
        return NULL;
    int sound = take_views(&sum, args);
    if (sound && !(sound = shapes_fit(&sum)))
        PyErr_SetString(PyExc_ValueError, "out, which, offsets and weights do not fit each other");
    if (sound) {
        Py_BEGIN_ALLOW_THREADS
        sound = sum_tokens(&sum);
        Py_END_ALLOW_THREADS
        if (!sound)
            PyErr_SetString(PyExc_IndexError, "a row lies outside of its memory");
    }
    release_views(&sum);
    if (!sound)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"weighted_sum", (PyCFunction)(void (*)(void))weighted_sum, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

/* ---- RingEnd ---- */

enum { SENT, SENT_EVENT, RECEIVED, CONSUMED_EVENT, FILLED, LEFT, POSTED, COUNTERS };
enum { SHORTEST_CHUNK = 2048, LINE = 64 };
enum { DECLINED = -3, PARTIAL = -2, UNACKNOWLEDGED = -1 };

typedef struct {
    PyObject_HEAD
    Py_buffer own, remote, counters;
    uint64_t acknowledged, fields, field_stride, payload, slots, slot_bytes, most_contended;
} RingEnd;

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
    release(object);
    Py_DECREF(type);
}

static word *word_at(Py_buffer *view, uint64_t offset)
{
    return (word *)((char *)view->buf + offset);
}

/* The Steps will say what is wrong with the buffer. */
static PyObject *declined_buffer(void)
{
    PyErr_Clear();
    return PyLong_FromLong(DECLINED);
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
    {NULL, NULL, 0, NULL},
};

static PyType_Slot ring_slots[] = {
    {Py_tp_new, ring_new},
    {Py_tp_dealloc, ring_dealloc},
    {Py_tp_methods, ring_methods},
    {0, NULL},
};

static PyType_Spec ring_spec = {"xccl._native.RingEnd", sizeof(RingEnd), 0, Py_TPFLAGS_DEFAULT, ring_slots};

/* ---- module ---- */

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
