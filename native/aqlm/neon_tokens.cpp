// Several tokens on AArch64: tables whose entries are four or eight floats, one of each token.
#include <arm_neon.h>

#include "aqlm.h"

namespace etcli::aqlm {
namespace {

// tables[book][entry][vector]: the products of a group of Vectors * 4 tokens; lanes without a token are 0.
template <int Books, int Vectors>
inline void fill_lanes(const Call& call, const Item& item, int64_t group, float32x4_t (*tables)[Vectors]) {
  alignas(16) float turned[kGroup][Vectors * 4] = {};
  for (int64_t token = 0; token < item.tokens; ++token) {
    const float* from = call.input + ((item.first_token + token) * call.groups + group) * kGroup;
    for (int64_t k = 0; k < kGroup; ++k) turned[k][token] = from[k];
  }
  float32x4_t x[kGroup][Vectors];
  for (int64_t k = 0; k < kGroup; ++k) {
    for (int v = 0; v < Vectors; ++v) x[k][v] = vld1q_f32(turned[k] + 4 * v);
  }
  constexpr int kStrip = 4 / Vectors;  // entries side by side
  for (int64_t entry = 0; entry < Books * kEntries; entry += kStrip) {
    float32x4_t sums[kStrip][Vectors], low[kStrip], high[kStrip];
    for (int n = 0; n < kStrip; ++n) {
      low[n] = vld1q_f32(call.codebooks + (entry + n) * kGroup);
      high[n] = vld1q_f32(call.codebooks + (entry + n) * kGroup + 4);
    }
#define ETCLI_EACH for (int n = 0; n < kStrip; ++n) for (int v = 0; v < Vectors; ++v)
#define ETCLI_TERM(k, half, lane) ETCLI_EACH sums[n][v] = vfmaq_laneq_f32(sums[n][v], x[k][v], half[n], lane)
    ETCLI_EACH sums[n][v] = vmulq_laneq_f32(x[0][v], low[n], 0);
    ETCLI_TERM(1, low, 1);
    ETCLI_TERM(2, low, 2);
    ETCLI_TERM(3, low, 3);
    ETCLI_TERM(4, high, 0);
    ETCLI_TERM(5, high, 1);
    ETCLI_TERM(6, high, 2);
    ETCLI_TERM(7, high, 3);
    ETCLI_EACH tables[entry + n][v] = sums[n][v];
#undef ETCLI_TERM
#undef ETCLI_EACH
  }
}

// Adds to (or sets) the sums of each output what the tables of `Groups` groups hold for it.
template <int Books, int Vectors, int Groups>
inline void look_up_lanes(const float32x4_t (*tables)[Vectors], const uint8_t* codes, int64_t stride, int64_t outputs, bool is_first, float* sums) {
  constexpr int64_t kBytes = sizeof(float32x4_t) * Vectors, kTable = Books * kEntries * kBytes;
  constexpr int kAtOnce = 4;       // outputs, whose sums are in registers
  constexpr int64_t kAhead = 256;  // outputs to fetch ahead of use
  constexpr uint64_t kMask = 255 * kBytes;
  constexpr int kUp = Vectors == 2 ? 5 : 4;  // bits from a code to its entry's offset
  static_assert(kBytes == int64_t{1} << kUp);
  const char* base = reinterpret_cast<const char*>(tables);
  int64_t i = 0;
  for (; i + kAtOnce <= outputs; i += kAtOnce) {
    float32x4_t sum[kAtOnce][Vectors];
    float* at = sums + i * Vectors * 4;
    for (int n = 0; n < kAtOnce * Vectors; ++n) sum[n / Vectors][n % Vectors] = is_first ? vdupq_n_f32(0.0f) : vld1q_f32(at + 4 * n);
    for (int group = 0; group < Groups; ++group) {
      uint64_t word = 0;
      __builtin_memcpy(&word, codes + group * stride + i * Books, kAtOnce * Books);
      for (int n = 0; n < kAtOnce; ++n) {
        for (int book = 0; book < Books; ++book) {
          const int shift = 8 * (n * Books + book) - kUp;
          const char* entry = base + group * kTable + book * kEntries * kBytes + ((shift < 0 ? word << -shift : word >> shift) & kMask);
          for (int v = 0; v < Vectors; ++v) sum[n][v] = vaddq_f32(sum[n][v], vld1q_f32(reinterpret_cast<const float*>(entry) + 4 * v));
        }
      }
    }
    for (int n = 0; n < kAtOnce * Vectors; ++n) vst1q_f32(at + 4 * n, sum[n / Vectors][n % Vectors]);
    if (i % 32 == 0) {
      for (int group = 0; group < Groups; ++group) __builtin_prefetch(codes + group * stride + (i + kAhead) * Books);
    }
  }
  for (; i < outputs; ++i) {
    for (int v = 0; v < Vectors; ++v) {
      float* at = sums + (i * Vectors + v) * 4;
      float32x4_t sum = is_first ? vdupq_n_f32(0.0f) : vld1q_f32(at);
      for (int64_t group = 0; group < Groups; ++group) {
        for (int64_t book = 0; book < Books; ++book) sum = vaddq_f32(sum, tables[(group * Books + book) * kEntries + codes[group * stride + i * Books + book]][v]);
      }
      vst1q_f32(at, sum);
    }
  }
}

// Vectors * 4 tokens at a time through tables of 32 KiB, half of the first-level cache of the cores that matter.
template <int Books, int Vectors>
void tokens_of(const Call& call, const Item& item, float* sums) {
  constexpr int kGroups = 8 / (Books * Vectors);
  alignas(64) float32x4_t tables[kGroups * Books * kEntries][Vectors];
  const int64_t stride = call.outputs * Books;
  const uint8_t* codes = call.codes + item.first_output * Books;
  int64_t group = item.first_group;
  for (; group + kGroups <= item.end_group; group += kGroups) {
    for (int64_t n = 0; n < kGroups; ++n) fill_lanes<Books, Vectors>(call, item, group + n, tables + n * Books * kEntries);
    look_up_lanes<Books, Vectors, kGroups>(tables, codes + group * stride, stride, item.outputs, group == item.first_group, sums);
  }
  for (; group < item.end_group; ++group) {
    fill_lanes<Books, Vectors>(call, item, group, tables);
    look_up_lanes<Books, Vectors, 1>(tables, codes + group * stride, stride, item.outputs, group == item.first_group, sums);
  }
}

template <int Vectors>
void tokens(const Call& call, const Item& item, float* sums) {
  call.books == 2 ? tokens_of<2, Vectors>(call, item, sums) : tokens_of<1, Vectors>(call, item, sums);
}

}  // namespace

extern const Kernel kernels_neon_tokens[2];
const Kernel kernels_neon_tokens[2] = {{4, 12, tokens<1>}, {8, 20, tokens<2>}};

}  // namespace etcli::aqlm
