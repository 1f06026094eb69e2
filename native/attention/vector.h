// Vectors of floats of the width that this source is compiled for: arithmetic is the compiler's vector extension, the rest a few
// intrinsics. Included by the versions of the kernel only, which is why nothing here may have a name that two of them share (rotate.h).
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace etcli::attention {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16, kStrip = 4;  // vectors at a time: 4 queries need 4 * kStrip + kStrip + 1 registers
#elif defined(__AVX2__) && defined(__FMA__)
constexpr int kLanes = 8, kStrip = 3;
#elif defined(__aarch64__)
constexpr int kLanes = 4, kStrip = 4;
#else
constexpr int kLanes = 4, kStrip = 2;
#endif

typedef float Floats __attribute__((vector_size(kLanes * 4)));
typedef uint32_t Bits __attribute__((vector_size(kLanes * 4)));
typedef float Unaligned __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));

inline Floats load(const float* p) { return *reinterpret_cast<const Unaligned*>(p); }

// x, in a register from here on. Without this GCC reads memory again at each use, and the kernels are limited by how much they read.
inline Floats in_register(Floats x) {
#if defined(__x86_64__)
  asm("" : "+v"(x));
#elif defined(__aarch64__)
  asm("" : "+w"(x));
#endif
  return x;
}

inline void store(float* p, Floats x) { *reinterpret_cast<Unaligned*>(p) = x; }

inline Floats splat(float x) {
#if defined(__AVX512F__)
  return _mm512_set1_ps(x);
#elif defined(__AVX2__) && defined(__FMA__)
  return _mm256_set1_ps(x);
#elif defined(__x86_64__)
  return _mm_set1_ps(x);
#elif defined(__aarch64__)
  return vdupq_n_f32(x);
#else
  return Floats{} + x;  // the compiler must keep the addition, for -0
#endif
}

// The first n < kLanes floats at p, then zeros; nothing behind them is read or written.
inline Floats load_first(const float* p, int64_t n) {
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p);
#elif defined(__AVX2__) && defined(__FMA__)
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_maskload_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane));
#else
  Floats x = {};
  for (int64_t i = 0; i < n; ++i) x[i] = p[i];
  return x;
#endif
}

inline void store_first(float* p, Floats x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) p[i] = x[i];
}

// a * b + c
inline Floats multiply_add(Floats a, Floats b, Floats c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__) && defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
  return vfmaq_f32(c, a, b);
#else
  return a * b + c;
#endif
}

// The larger one; b where either is no number (on AArch64 no number).
inline Floats larger(Floats a, Floats b) {
#if defined(__AVX512F__)
  return _mm512_max_ps(a, b);
#elif defined(__AVX2__) && defined(__FMA__)
  return _mm256_max_ps(a, b);
#elif defined(__x86_64__)
  return _mm_max_ps(a, b);
#elif defined(__aarch64__)
  return vmaxq_f32(a, b);
#else
  for (int i = 0; i < kLanes; ++i) b[i] = a[i] > b[i] ? a[i] : b[i];
  return b;
#endif
}

inline float sum_of(Floats x) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps(x);
#elif defined(__aarch64__)
  return vaddvq_f32(x);
#else
  float halves[kLanes];
  store(halves, x);
  for (int n = kLanes / 2; n > 0; n /= 2) {
    for (int i = 0; i < n; ++i) halves[i] += halves[i + n];
  }
  return halves[0];
#endif
}

inline float maximum_of(Floats x) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps(x);
#elif defined(__aarch64__)
  return vmaxvq_f32(x);
#else
  float best = x[0];
  for (int i = 1; i < kLanes; ++i) best = x[i] > best ? x[i] : best;
  return best;
#endif
}

// e to the x for x <= 0, to about 2 units in the last place; below -87 it is that of -87 (1.6e-38), not a number gives not a number.
// Range reduction and polynomial are those of Cephes' expf (S. Moshier).
inline Floats exp_of(Floats x) {
  x = larger(splat(-87.0f), x);
  // Adding 1.5 * 2^23 rounds to a whole number and leaves it in the low bits.
  const Floats shifted = x * 1.44269504f + 12582912.0f;
  const Floats n = shifted - 12582912.0f;
  Floats r = multiply_add(n, splat(-0.693359375f), x);
  r = multiply_add(n, splat(2.12194440e-4f), r);
  Floats p = multiply_add(splat(1.9875691500e-4f), r, splat(1.3981999507e-3f));
  p = multiply_add(p, r, splat(8.3334519073e-3f));
  p = multiply_add(p, r, splat(4.1665795894e-2f));
  p = multiply_add(p, r, splat(1.6666665459e-1f));
  p = multiply_add(p, r, splat(5.0000001201e-1f));
  p = multiply_add(p * r, r, r + 1.0f);
  const Bits power = ((Bits)shifted + 127u) << 23;  // 2^n; what else was in the bits leaves at the top
  return p * (Floats)power;
}

}  // namespace
}  // namespace etcli::attention
