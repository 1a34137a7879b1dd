/* Small work on rows of float32, for which NumPy takes several calls that each cost more than the work: a decode step
 * has few rows and hundreds of calls. functional.py and moe.py say what is computed.
 */
#include "extension.h"

#include <math.h>

enum { PARTS = 16 };

/* Sum of squares in PARTS sums, which the compiler keeps in vector registers; the same for a row wherever it lies. */
static float power(const float *x, Py_ssize_t count)
{
    float sums[PARTS] = {0};
    Py_ssize_t k = 0;
    for (; k + PARTS <= count; k += PARTS)
        for (int i = 0; i < PARTS; i++)
            sums[i] += x[k + i] * x[k + i];
    for (int i = 0; k + i < count; i++)
        sums[i] += x[k + i] * x[k + i];
    for (int half = PARTS / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            sums[i] += sums[i + half];
    return sums[0];
}

PyObject *norm(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    Py_buffer x, more[2]; /* weight, out */
    if (!count_is("norm", count, 4))
        return NULL;
    float eps = (float)PyFloat_AsDouble(args[2]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &x, PyBUF_STRIDES) < 0)
        return NULL;
    PyObject *const contiguous[] = {args[1], args[3]};
    if (buffers(contiguous, 2, 1, more) < 0) {
        PyBuffer_Release(&x);
        return NULL;
    }
    const char *error = NULL;
    if (x.ndim != 2 || x.itemsize != sizeof(float) || more[1].len != x.len ||
        more[0].len != x.shape[1] * (Py_ssize_t)sizeof(float) || (x.len && x.strides[1] != sizeof(float)))
        error = "the shapes of x, weight and out do not belong together";
    else
        for (Py_ssize_t t = 0; t < x.shape[0]; t++) {
            Py_ssize_t width = x.shape[1];
            const float *row = (const float *)((const char *)x.buf + t * x.strides[0]), *weight = more[0].buf;
            float *out = (float *)more[1].buf + t * width;
            float scale = sqrtf(power(row, width) * (1.0f / (float)width) + eps);
            for (Py_ssize_t k = 0; k < width; k++)
                out[k] = row[k] / scale * weight[k];
        }
    PyBuffer_Release(&x);
    return finish(more, 2, error);
}

/* Where the `most` highest of `count` scores are, best first; `from` takes part in their numbers. */
static void best(const float *scores, Py_ssize_t count, Py_ssize_t from, Py_ssize_t most, Py_ssize_t *held,
                 int32_t *where, float *high)
{
    for (Py_ssize_t k = 0; k < count; k++) {
        Py_ssize_t at = *held;
        if (at == most && !(scores[k] > high[most - 1]))
            continue;
        if (at < most)
            ++*held;
        else
            at--;
        for (; at > 0 && scores[k] > high[at - 1]; at--) {
            high[at] = high[at - 1];
            where[at] = where[at - 1];
        }
        high[at] = scores[k];
        where[at] = (int32_t)(from + k);
    }
}

/* What a group is worth: its best score, or the sum of its two best. */
static float worth(const float *scores, Py_ssize_t size, int pairs)
{
    float first = scores[0], second = -INFINITY;
    for (Py_ssize_t k = 1; k < size; k++)
        if (scores[k] > first) {
            second = first;
            first = scores[k];
        } else if (scores[k] > second)
            second = scores[k];
    return pairs ? first + second : first;
}

static void route_row(const float *scores, Py_ssize_t size, Py_ssize_t groups, Py_ssize_t kept_groups, int pairs,
                      Py_ssize_t kept, int32_t *experts, int32_t *chosen, float *worths, float *high)
{
    Py_ssize_t held = 0, held_groups = 0;
    for (Py_ssize_t g = 0; g < groups; g++)
        worths[g] = worth(scores + g * size, size, pairs);
    best(worths, groups, 0, kept_groups, &held_groups, chosen, high);
    for (Py_ssize_t g = 0; g < kept_groups; g++)
        best(scores + chosen[g] * size, size, chosen[g] * size, kept, &held, experts, high);
}

enum { AFFINITY, SCORES, EXPERTS, GATES, ROUTED };

PyObject *route(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    Py_buffer views[ROUTED];
    if (!count_is("route", count, 7))
        return NULL;
    Py_ssize_t groups = PyLong_AsSsize_t(args[2]), kept_groups = PyLong_AsSsize_t(args[3]);
    int pairs = PyObject_IsTrue(args[4]);
    PyObject *const arrays[] = {args[0], args[1], args[5], args[6]};
    if (PyErr_Occurred() || buffers(arrays, ROUTED, 2, views) < 0)
        return NULL;
    const char *error = NULL;
    Py_ssize_t tokens = views[AFFINITY].ndim == 2 ? views[AFFINITY].shape[0] : -1;
    Py_ssize_t number = tokens < 0 ? 0 : views[AFFINITY].shape[1];
    Py_ssize_t kept = views[EXPERTS].ndim == 2 ? views[EXPERTS].shape[1] : 0;
    float *work = NULL;
    if (groups < 1 || kept_groups < 1 || kept_groups > groups || number < groups || number % groups || kept < 1 ||
        kept > kept_groups * (number / groups) || views[SCORES].len != views[AFFINITY].len ||
        views[EXPERTS].len != tokens * kept * (Py_ssize_t)sizeof(int32_t) || views[GATES].len != views[EXPERTS].len ||
        views[AFFINITY].len != tokens * number * (Py_ssize_t)sizeof(float) || views[EXPERTS].shape[0] != tokens)
        error = "the shapes of affinity, scores, experts and gates do not belong together";
    else if ((work = PyMem_Malloc((size_t)(3 * groups + kept) * sizeof(float))) == NULL)
        error = "there is no memory";
    else {
        float *worths = work, *high = work + groups; /* `high` serves groups, then experts */
        int32_t *chosen = (int32_t *)(work + 2 * groups + kept);
        for (Py_ssize_t t = 0; t < tokens; t++) {
            const float *affinity = (const float *)views[AFFINITY].buf + t * number;
            int32_t *experts = (int32_t *)views[EXPERTS].buf + t * kept;
            route_row((const float *)views[SCORES].buf + t * number, number / groups, groups, kept_groups, pairs,
                      kept, experts, chosen, worths, high);
            for (Py_ssize_t k = 0; k < kept; k++)
                ((float *)views[GATES].buf)[t * kept + k] = affinity[experts[k]];
        }
    }
    PyMem_Free(work);
    return finish(views, ROUTED, error);
}
