/* weighted_sum: what combine does with results that lie in the memories of their ranks. */
#include "extension.h"
#include <string.h>

enum { TILE = 128 }; /* floats whose sums stay close by while all rows are gone through */

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
PyObject *weighted_sum(PyObject *self, PyObject *const *args, Py_ssize_t count)
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
