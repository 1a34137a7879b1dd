/* Experts of bytes: SwiGLU of rows that lie together by expert, in one call for a layer.
 *
 * Gate and up, then down, as int8.c multiplies them, with silu(gate) · up between them in float32. A row's result is the
 * same, bit for bit, whichever rows are beside it.
 */
#include "int8.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)

/* silu(gate) · up of rows f32[rows][2 · inner], into the first half of each. */
static void gate(float *rows, Py_ssize_t count, Py_ssize_t inner)
{
    for (Py_ssize_t t = 0; t < count; t++, rows += 2 * inner)
        for (Py_ssize_t k = 0; k < inner; k++)
            rows[k] = rows[k] / (1.0f + expf(-rows[k])) * rows[inner + k];
}

enum { GATE_UP = 0, DOWN = 3, EXPERT = 6, TILE = 64 };

/* What one call of swiglu works in. */
typedef struct {
    const float *x;
    float *out;
    Py_ssize_t hidden, copies;
    uint8_t *codes;
    float *scales, *middle, *results;
} Work;

/* One expert on the rows whose numbers are in `order`, at most TILE. */
VNNI static void one_expert(const Work *work, const Py_buffer *views, const Py_ssize_t *order, Py_ssize_t count,
                            Py_ssize_t inner, Py_ssize_t padded, Py_ssize_t padded_inner)
{
    for (Py_ssize_t t = 0; t < count; t++)
        work->scales[t] = quantise_row(work->x + order[t] / work->copies * work->hidden, work->hidden,
                                       work->codes + t * padded, padded);
    multiply(work->codes, work->scales, count, views[GATE_UP].buf, views[GATE_UP + 1].buf, views[GATE_UP + 2].buf,
             2 * inner, padded, work->middle, 2 * inner);
    gate(work->middle, count, inner);
    for (Py_ssize_t t = 0; t < count; t++)
        work->scales[t] = quantise_row(work->middle + t * 2 * inner, inner, work->codes + t * padded_inner, padded_inner);
    multiply(work->codes, work->scales, count, views[DOWN].buf, views[DOWN + 1].buf, views[DOWN + 2].buf, work->hidden,
             padded_inner, work->results, work->hidden);
    for (Py_ssize_t t = 0; t < count; t++)
        memcpy(work->out + order[t] * work->hidden, work->results + t * work->hidden,
               (size_t)work->hidden * sizeof(float));
}

static Py_ssize_t lanes(Py_ssize_t inner)
{
    return (inner + LANES - 1) / LANES * LANES;
}

/* Whether buffers are those of a projection of these sizes. */
static int projects(const Py_buffer *views, Py_ssize_t inner, Py_ssize_t outer)
{
    Py_ssize_t blocks = (outer + COLUMNS - 1) / COLUMNS;
    return views[0].len == blocks * COLUMNS * lanes(inner) && views[1].len == outer * (Py_ssize_t)sizeof(int32_t) &&
           views[2].len == outer * (Py_ssize_t)sizeof(float);
}

/* All rows, expert by expert: `order` has their numbers sorted by slot, `ends` where each slot's end. An error or NULL;
 * -1 in `failed` if Python has one. */
static const char *all_experts(Work *work, PyObject *experts, const Py_ssize_t *order, const Py_ssize_t *ends,
                               Py_ssize_t slots, int *failed)
{
    Py_ssize_t inner = 0, done = 0;
    const char *error = NULL;
    for (Py_ssize_t slot = 0; slot < slots && error == NULL && !*failed; done = ends[slot++]) {
        if (ends[slot] == done)
            continue;
        Py_buffer views[EXPERT];
        PyObject *arrays[EXPERT], *tensors = PyTuple_GetItem(experts, slot);
        if (tensors == NULL || PyTuple_Size(tensors) != EXPERT) {
            PyErr_Clear();
            return "an expert has three arrays for gate and up, and three for down";
        }
        for (int i = 0; i < EXPERT; i++)
            arrays[i] = PyTuple_GetItem(tensors, i);
        if (buffers(arrays, EXPERT, 0, views) < 0) {
            *failed = -1;
            return NULL;
        }
        Py_ssize_t wide = views[GATE_UP + 2].len / (Py_ssize_t)sizeof(float) / 2;
        if ((inner && inner != wide) || wide < 1 || !projects(views + GATE_UP, work->hidden, 2 * wide) ||
            !projects(views + DOWN, wide, work->hidden))
            error = "the sizes of x and of the experts do not belong together";
        else if (!inner) {
            inner = wide;
            Py_ssize_t most = lanes(work->hidden) > lanes(inner) ? lanes(work->hidden) : lanes(inner);
            size_t floats = (size_t)TILE * (size_t)(1 + 2 * inner + work->hidden);
            work->scales = PyMem_Malloc(floats * sizeof(float) + (size_t)(TILE * most));
            if (work->scales == NULL)
                error = "there is no memory";
            else {
                work->middle = work->scales + TILE;
                work->results = work->middle + TILE * 2 * inner;
                work->codes = (uint8_t *)(work->results + TILE * work->hidden);
            }
        }
        for (Py_ssize_t t = done; t < ends[slot] && error == NULL; t += TILE)
            one_expert(work, views, order + t, ends[slot] - t < TILE ? ends[slot] - t : TILE, inner,
                       lanes(work->hidden), lanes(inner));
        finish(views, EXPERT, NULL);
    }
    return error;
}

/* Sorts the numbers of rows by slot, stably; whether all slots are there. `ends` is all zero. */
static int sort_rows(const int64_t *slot_of, Py_ssize_t rows, Py_ssize_t slots, Py_ssize_t *order, Py_ssize_t *ends)
{
    for (Py_ssize_t t = 0; t < rows; t++) {
        if (slot_of[t] < 0 || slot_of[t] >= slots)
            return 0;
        ends[slot_of[t]]++;
    }
    for (Py_ssize_t slot = 0, end = 0; slot < slots; slot++) {
        Py_ssize_t count = ends[slot];
        ends[slot] = end; /* where its first row goes; after the next loop, where its last one went */
        end += count;
    }
    for (Py_ssize_t t = 0; t < rows; t++)
        order[ends[slot_of[t]]++] = t;
    return 1;
}

#endif

/* swiglu(x f32[T, H], slots i64[N], experts, out f32[N, H]): row i of out is expert slots[i] on row i · T / N of x. */
PyObject *swiglu(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    if (!count_is("swiglu", count, 4))
        return NULL;
    Py_buffer views[3];
    PyObject *const arrays[] = {args[0], args[1], args[3]};
    if (buffers(arrays, 3, 1, views) < 0)
        return NULL;
    const char *error = NULL;
    int failed = 0;
#if defined(__x86_64__)
    Py_ssize_t rows = views[1].len / (Py_ssize_t)sizeof(int64_t), slots = PyTuple_Size(args[2]);
    if (slots < 0)
        failed = -1;
    else if (rows > 0) {
        Py_ssize_t hidden = views[2].len / (Py_ssize_t)sizeof(float) / rows;
        Py_ssize_t tokens = hidden ? views[0].len / (Py_ssize_t)sizeof(float) / hidden : 0;
        Py_ssize_t *ends = PyMem_Calloc((size_t)(slots + rows), sizeof *ends), *order = ends + slots;
        if (ends == NULL)
            error = "there is no memory";
        else if (views[1].len != rows * (Py_ssize_t)sizeof(int64_t) || tokens < 1 || rows % tokens ||
                 views[2].len != rows * hidden * (Py_ssize_t)sizeof(float) ||
                 views[0].len != tokens * hidden * (Py_ssize_t)sizeof(float))
            error = "the sizes of x, slots and out do not belong together";
        else if (!sort_rows(views[1].buf, rows, slots, order, ends))
            error = "there is no such slot";
        else {
            Work work = {.x = views[0].buf, .out = views[2].buf, .hidden = hidden, .copies = rows / tokens};
            error = all_experts(&work, args[2], order, ends, slots, &failed);
            PyMem_Free(work.scales);
        }
        PyMem_Free(ends);
    }
#else
    error = "this processor is not supported";
#endif
    PyObject *done = finish(views, 3, failed ? NULL : error);
    if (failed) {
        Py_XDECREF(done);
        return NULL;
    }
    return done;
}
