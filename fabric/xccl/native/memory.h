/* Memory that two processes share: words that order it, fields that publish, and copies for a reader on another core.
 *
 * C11 atomics, so that the compiler emits what the processor needs (mov and lock xadd on x86; ldar, stlr and ldaddal on
 * ARM).
 */
#ifndef XCCL_MEMORY_H
#define XCCL_MEMORY_H

#include <stdatomic.h>
#include <stddef.h>
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
static inline uint64_t seal(uint64_t published, uint64_t first, uint64_t second)
{
    return published * 0x9E3779B97F4A7C15u + first * 0xC2B2AE3D27D4EB4Fu + second * 0x165667B19E3779F9u;
}

/* Wait until the word is at least `least`, for a moment; the word as last seen. */
static inline uint64_t await_word(word *at, uint64_t least)
{
    uint64_t seen = atomic_load_explicit(at, memory_order_acquire);
    for (int i = 0; i < SPINS && seen < least; i++) {
        pause_briefly();
        seen = atomic_load_explicit(at, memory_order_acquire);
    }
    return seen;
}

/* A field, as field.py tells: payload and seal, then the publishing word. */
static inline void publish_field(word *field, uint64_t published, uint64_t first, uint64_t second)
{
    atomic_store_explicit(field + 1, first, memory_order_relaxed);
    atomic_store_explicit(field + 2, second, memory_order_relaxed);
    atomic_store_explicit(field + 3, seal(published, first, second), memory_order_relaxed);
    atomic_store_explicit(field, published, memory_order_release);
}

/* Whether the field's payload is there and matches its seal; its publishing word was loaded before. */
static inline int read_field(word *field, uint64_t published, uint64_t *first, uint64_t *second)
{
    *first = atomic_load_explicit(field + 1, memory_order_relaxed);
    *second = atomic_load_explicit(field + 2, memory_order_relaxed);
    return atomic_load_explicit(field + 3, memory_order_relaxed) == seal(published, *first, *second);
}

/* Copy what another core will read: past the own cache, which spares both cores the fight for its lines. */
static inline void copy_out(char *to, const char *from, size_t length)
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

/* Copy what another core has written; what is larger than caches goes past them. */
static inline void copy_in(char *to, const char *from, size_t length)
{
    if (length < LARGE_BYTES)
        memcpy(to, from, length);
    else
        copy_out(to, from, length);
}

#endif
