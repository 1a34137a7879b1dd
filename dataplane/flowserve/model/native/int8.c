/* Projections of bytes: what NumPy has no fast product for. int8.py says what is computed; this does the same, bit for
 * bit, with the processor's instruction for sums of four products of bytes (AVX-512 VNNI). `supported` tells whether
 * it has it; where it does not, or there is no compiler, int8.py goes its own way.
 *
 * A weight lies as [blocks of COLUMNS outputs][groups of 4 inputs][COLUMNS][4], so that one vector holds 4 inputs of
 * each of 16 outputs: a token's 4 bytes, repeated, times it adds to 16 sums at once, and no sum is split over lanes. The
 * instruction takes unsigned bytes on one side, so activations lie 128 higher, and 128 times the sum of a weight's row
 * is taken off at the end. What is added to fill groups and blocks is zero in weights.
 */
#include "int8.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { AT_ONCE = 8, BUFFERS = 6 };

#if defined(__x86_64__)

VNNI float quantise_row(const float *x, Py_ssize_t inner, uint8_t *codes, Py_ssize_t padded)
{
    __m512 most = _mm512_setzero_ps();
    for (Py_ssize_t k = 0; k < inner; k += 16) {
        __mmask16 some = inner - k >= 16 ? 0xFFFF : (__mmask16)((1u << (inner - k)) - 1);
        most = _mm512_max_ps(most, _mm512_abs_ps(_mm512_maskz_loadu_ps(some, x + k)));
    }
    float scale = _mm512_reduce_max_ps(most) * (float)(1.0 / 127) + 1e-30f;
    __m512 divisor = _mm512_set1_ps(scale);
    for (Py_ssize_t k = 0; k < padded; k += 16) {
        Py_ssize_t left = inner - k;
        __mmask16 some = left >= 16 ? 0xFFFF : left <= 0 ? 0 : (__mmask16)((1u << left) - 1);
        __m512i whole = _mm512_cvtps_epi32(_mm512_div_ps(_mm512_maskz_loadu_ps(some, x + k), divisor));
        whole = _mm512_add_epi32(whole, _mm512_set1_epi32(128));
        _mm_storeu_si128((__m128i *)(codes + k), _mm512_cvtepi32_epi8(whole));
    }
    return scale;
}

/* One block of the weight times `count` tokens, a constant wherever this is inlined. */
VNNI static inline __attribute__((always_inline)) void block(const uint8_t *codes, const float *scales, const int count,
                                                             const int8_t *weight, const int32_t *sums,
                                                             const float *steps, Py_ssize_t columns,
                                                             Py_ssize_t padded, float *out, Py_ssize_t stride)
{
    __m512i low[AT_ONCE], high[AT_ONCE];
    for (int t = 0; t < count; t++)
        low[t] = high[t] = _mm512_setzero_si512();
    for (Py_ssize_t k = 0; k < padded; k += 4, weight += 4 * COLUMNS) {
        __m512i first = _mm512_loadu_si512(weight), second = _mm512_loadu_si512(weight + 64);
        for (int t = 0; t < count; t++) {
            int32_t four;
            memcpy(&four, codes + t * padded + k, sizeof four);
            low[t] = _mm512_dpbusd_epi32(low[t], _mm512_set1_epi32(four), first);
            high[t] = _mm512_dpbusd_epi32(high[t], _mm512_set1_epi32(four), second);
        }
    }
    for (int half = 0; half < COLUMNS / 16; half++) {
        Py_ssize_t left = columns - 16 * half;
        __mmask16 some = left >= 16 ? 0xFFFF : left <= 0 ? 0 : (__mmask16)((1u << left) - 1);
        __m512i excess = _mm512_slli_epi32(_mm512_maskz_loadu_epi32(some, sums + 16 * half), 7);
        __m512 step = _mm512_maskz_loadu_ps(some, steps + 16 * half);
        for (int t = 0; t < count; t++) {
            __m512 sum = _mm512_cvtepi32_ps(_mm512_sub_epi32(half ? high[t] : low[t], excess));
            sum = _mm512_mul_ps(_mm512_mul_ps(sum, step), _mm512_set1_ps(scales[t]));
            _mm512_mask_storeu_ps(out + t * stride + 16 * half, some, sum);
        }
    }
}

VNNI void multiply(const uint8_t *codes, const float *scales, Py_ssize_t rows, const int8_t *weight,
                          const int32_t *sums, const float *steps, Py_ssize_t outer, Py_ssize_t padded, float *out,
                          Py_ssize_t stride)
{
    for (Py_ssize_t n = 0; n < outer; n += COLUMNS, weight += COLUMNS * padded) {
        Py_ssize_t t = 0;
        for (; rows - t >= 8; t += 8)
            block(codes + t * padded, scales + t, 8, weight, sums + n, steps + n, outer - n, padded,
                  out + t * stride + n, stride);
        for (; rows - t >= 2; t += 2)
            block(codes + t * padded, scales + t, 2, weight, sums + n, steps + n, outer - n, padded,
                  out + t * stride + n, stride);
        for (; t < rows; t++)
            block(codes + t * padded, scales + t, 1, weight, sums + n, steps + n, outer - n, padded,
                  out + t * stride + n, stride);
    }
}

#endif

PyObject *supported(PyObject *self, PyObject *none)
{
    (void)self, (void)none;
#if defined(__x86_64__)
    __builtin_cpu_init();
    return PyBool_FromLong(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni"));
#else
    return PyBool_FromLong(0);
#endif
}

PyObject *quantise(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    Py_buffer views[3];
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "quantise takes x, codes, scales");
        return NULL;
    }
    if (buffers(args, 3, 2, views) < 0)
        return NULL;
    Py_ssize_t rows = views[2].len / (Py_ssize_t)sizeof(float);
    const char *error = NULL;
#if defined(__x86_64__)
    if (rows > 0) {
        Py_ssize_t inner = views[0].len / (Py_ssize_t)sizeof(float) / rows, padded = views[1].len / rows;
        if (inner * rows * (Py_ssize_t)sizeof(float) != views[0].len || padded * rows != views[1].len ||
            padded % LANES || padded < inner)
            error = "the sizes of x, codes and scales do not belong together";
        else
            for (Py_ssize_t t = 0; t < rows; t++)
                ((float *)views[2].buf)[t] = quantise_row((const float *)views[0].buf + t * inner, inner,
                                                          (uint8_t *)views[1].buf + t * padded, padded);
    }
#else
    error = "this processor is not supported";
#endif
    return finish(views, 3, error);
}

PyObject *product(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    Py_buffer views[BUFFERS];
    if (count != BUFFERS) {
        PyErr_SetString(PyExc_TypeError, "product takes codes, scales, weight, sums, steps, out");
        return NULL;
    }
    if (buffers(args, BUFFERS, 1, views) < 0)
        return NULL;
    Py_ssize_t rows = views[1].len / (Py_ssize_t)sizeof(float), outer = views[4].len / (Py_ssize_t)sizeof(float);
    const char *error = NULL;
#if defined(__x86_64__)
    if (rows > 0 && outer > 0) {
        Py_ssize_t blocks = (outer + COLUMNS - 1) / COLUMNS, padded = views[0].len / rows;
        Py_ssize_t stride = views[5].len / (Py_ssize_t)sizeof(float) / rows;
        if (padded % LANES || padded * rows != views[0].len || padded * blocks * COLUMNS != views[2].len ||
            outer * (Py_ssize_t)sizeof(int32_t) != views[3].len || stride < outer ||
            stride * rows * (Py_ssize_t)sizeof(float) != views[5].len)
            error = "the sizes of codes, scales, weight, sums, steps and out do not belong together";
        else
            multiply(views[0].buf, views[1].buf, rows, views[2].buf, views[3].buf, views[4].buf, outer, padded,
                     views[5].buf, stride);
    }
#else
    error = "this processor is not supported";
#endif
    return finish(views, BUFFERS, error);
}
