/* Projections of bytes, for what is made of several of them. int8.c says how weights and activations lie. */
#ifndef FLOWSERVE_MODEL_INT8_H
#define FLOWSERVE_MODEL_INT8_H

#include "extension.h"

enum { LANES = 16, COLUMNS = 32 };

#if defined(__x86_64__)
#define VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))

/* One token's f32[inner] to bytes[padded], 128 higher; its scale. */
VNNI float quantise_row(const float *x, Py_ssize_t inner, uint8_t *codes, Py_ssize_t padded);

/* All tokens times the weight: a block is fetched once and stays in the cache for all of them. */
VNNI void multiply(const uint8_t *codes, const float *scales, Py_ssize_t rows, const int8_t *weight,
                   const int32_t *sums, const float *steps, Py_ssize_t outer, Py_ssize_t padded, float *out,
                   Py_ssize_t stride);
#endif

#endif
