// For x86-64 with AVX-512 VBMI, which looks 64 bytes up at a time in 128 bytes of registers: one token.
//
// Tables are rounded to whole numbers of 23 bits under a scale of their own for every 8 groups, and cut into limbs of 7, 8 and 8 bits, each
// a table of bytes that fits registers. Limbs are summed up over the 8 groups in 16 bits each; then they are put together, scaled and added
// up as floats. The rounding is 2^-23 of the largest product in 8 groups: an error like that of adding as floats. Where that fails (sizes
// near the ends of what floats can be, or what is no number) the 8 groups are added as floats.
#if defined(__GNUC__) && !defined(__clang__)
// GCC warns about its own intrinsics, whose unused lanes start undefined (bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include "aqlm.h"

namespace etcli::aqlm {
namespace {

constexpr int64_t kBlocked = 8;   // groups that share a scale
constexpr int64_t kLimbs = 3;
constexpr int64_t kStep = 64;     // outputs at a time
constexpr int64_t kTile = 2048;   // outputs whose 16-bit sums are held at a time: a page of codes
constexpr int64_t kRowsAhead = 4;   // to be fetched, all of them
constexpr int64_t kPagesAhead = 20;  // rows, to have their pages' addresses translated
constexpr int32_t kOffset = 1 << 22;  // added to the rounded numbers, so that limbs are never negative

// Tables hold entry 64 * b + 4 * i + j at place 64 * b + 16 * j + i: limbs of four vectors are then put together by shifts.
constexpr int64_t place_of(int64_t entry) { return (entry & ~int64_t{63}) | ((entry & 3) << 4) | ((entry & 63) >> 2); }

struct Work {
  alignas(64) float transposed[2 * kEntries / 16][kGroup][16];  // of the codebooks: [place / 16][k][place % 16]
  alignas(64) float tables[kBlocked][2 * kEntries];             // by place
  alignas(64) uint8_t limbs[kBlocked][kLimbs][2 * kEntries];    // by entry
  alignas(64) uint16_t sums[kTile / kStep][kLimbs][2][32];      // see look_up
};

[[gnu::always_inline]] inline __m512 two_rows(const float* low, const float* high) {
  return _mm512_castpd_ps(_mm512_insertf64x4(_mm512_castps_pd(_mm512_castps256_ps512(_mm256_loadu_ps(low))), _mm256_castps_pd(_mm256_loadu_ps(high)), 1));
}

// Whether all entries are finite.
inline bool transpose_codebooks(const float* codebooks, int64_t entries, Work& work) {
  __m512 zeros = _mm512_setzero_ps();
  for (int64_t vector = 0; vector < entries / 16; ++vector) {
    const float* const first = codebooks + ((vector & ~int64_t{3}) * 16 + (vector & 3)) * kGroup;
    const auto row = [&](int64_t i) { return first + 4 * i * kGroup; };
    __m512 v[8], t[8], s[8];
    for (int64_t n = 0; n < 4; ++n) {
      v[n] = two_rows(row(n), row(n + 4));
      v[n + 4] = two_rows(row(n + 8), row(n + 12));
    }
    for (int64_t n = 0; n < 8; ++n) zeros = _mm512_fmadd_ps(v[n], _mm512_setzero_ps(), zeros);
    for (int64_t n = 0; n < 8; n += 2) {
      t[n] = _mm512_unpacklo_ps(v[n], v[n + 1]);
      t[n + 1] = _mm512_unpackhi_ps(v[n], v[n + 1]);
    }
    const auto low = [](__m512 a, __m512 b) { return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b))); };
    const auto high = [](__m512 a, __m512 b) { return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b))); };
    for (int64_t n = 0; n < 8; n += 4) {
      s[n] = low(t[n], t[n + 2]);
      s[n + 1] = high(t[n], t[n + 2]);
      s[n + 2] = low(t[n + 1], t[n + 3]);
      s[n + 3] = high(t[n + 1], t[n + 3]);
    }
    for (int64_t k = 0; k < 4; ++k) {
      _mm512_store_ps(work.transposed[vector][k], _mm512_shuffle_f32x4(s[k], s[k + 4], 0x88));
      _mm512_store_ps(work.transposed[vector][k + 4], _mm512_shuffle_f32x4(s[k], s[k + 4], 0xDD));
    }
  }
  return _mm512_cmp_ps_mask(zeros, _mm512_setzero_ps(), _CMP_EQ_OQ) == 0xFFFF;
}

// The tables of kBlocked groups, and the largest absolute value in them.
inline float fill_tables(const float* x, int64_t entries, Work& work) {
  constexpr int64_t kStrip = 4;  // sums side by side, since each addition waits for the one before it
  __m512 largest[kStrip] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps()};
  for (int64_t n = 0; n < kBlocked; ++n) {
    __m512 factors[kGroup];
    for (int64_t k = 0; k < kGroup; ++k) factors[k] = _mm512_set1_ps(x[n * kGroup + k]);
    for (int64_t first = 0; first < entries / 16; first += kStrip) {
      __m512 sums[kStrip];
      for (int64_t v = 0; v < kStrip; ++v) sums[v] = _mm512_mul_ps(factors[0], _mm512_load_ps(work.transposed[first + v][0]));
      for (int64_t k = 1; k < kGroup; ++k) {
        for (int64_t v = 0; v < kStrip; ++v) sums[v] = _mm512_fmadd_ps(factors[k], _mm512_load_ps(work.transposed[first + v][k]), sums[v]);
      }
      for (int64_t v = 0; v < kStrip; ++v) {
        largest[v] = _mm512_max_ps(largest[v], _mm512_abs_ps(sums[v]));
        _mm512_store_ps(work.tables[n] + (first + v) * 16, sums[v]);
      }
    }
  }
  return _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(largest[0], largest[1]), _mm512_max_ps(largest[2], largest[3])));
}

// Bits of `a` where the mask has ones, of `b` elsewhere.
[[gnu::always_inline]] inline __m512i choose(int32_t mask, __m512i a, __m512i b) { return _mm512_ternarylogic_epi32(_mm512_set1_epi32(mask), a, b, 0xCA); }

// Four vectors' lowest bytes, next lowest, next and highest: that of vector j at place i becomes byte 4 * i + j.
[[gnu::always_inline]] inline __m512i put_together(__m512i a, __m512i b, __m512i c, __m512i d) {
  return choose(0xFFFF, choose(0xFF, a, b), choose(0xFF0000, c, d));
}

// Rounds the tables to multiples of 1 / `factor` and cuts them into limbs.
inline void cut_into_limbs(float factor, int64_t entries, int64_t groups, Work& work) {
  // Adding 1.5 * 2^23 rounds to a whole number and leaves it, with kOffset, in the low 23 bits.
  const __m512 shift = _mm512_set1_ps(12582912.0f), by = _mm512_set1_ps(factor);
  for (int64_t n = 0; n < groups; ++n) {
    for (int64_t entry = 0; entry < entries; entry += kStep) {
      __m512i w[4];
      for (int64_t j = 0; j < 4; ++j) w[j] = _mm512_castps_si512(_mm512_fmadd_ps(_mm512_load_ps(work.tables[n] + entry + 16 * j), by, shift));
      const auto store = [&](int64_t limb, __m512i bytes) { _mm512_store_si512(work.limbs[n][limb] + entry, bytes); };
      const __m512i lowest = put_together(w[0], _mm512_slli_epi32(w[1], 8), _mm512_slli_epi32(w[2], 16), _mm512_slli_epi32(w[3], 24));
      store(0, _mm512_and_si512(lowest, _mm512_set1_epi8(0x7F)));
      store(1, put_together(_mm512_srli_epi32(w[0], 7), _mm512_slli_epi32(w[1], 1), _mm512_slli_epi32(w[2], 9), _mm512_slli_epi32(w[3], 17)));
      store(2, put_together(_mm512_srli_epi32(w[0], 15), _mm512_srli_epi32(w[1], 7), _mm512_slli_epi32(w[2], 1), _mm512_slli_epi32(w[3], 9)));
    }
  }
}

// 64 bytes from a table of 256 in four registers; `is_high` has the codes' highest bits.
[[gnu::always_inline]] inline __m512i find(const __m512i* table, __m512i codes, __mmask64 is_high) {
  const __m512i low = _mm512_permutex2var_epi8(table[0], codes, table[1]), high = _mm512_permutex2var_epi8(table[2], codes, table[3]);
  return _mm512_mask_blend_epi8(is_high, low, high);
}

// Codes of some outputs of a row, as vectors of one book each.
template <int Books>
[[gnu::always_inline]] inline void split(__m512i first, __m512i second, __m512i* books) {
  if (Books == 1) {
    books[0] = first;
    return;
  }
  alignas(64) static constexpr uint8_t kEven[64] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,  32,  34,  36,  38,  40,  42,
                                                    44, 46, 48, 50, 52, 54, 56, 58, 60, 62, 64, 66, 68, 70, 72, 74,  76,  78,  80,  82,  84,  86,
                                                    88, 90, 92, 94, 96, 98, 100, 102, 104, 106, 108, 110, 112, 114, 116, 118, 120, 122, 124, 126};
  const __m512i even = _mm512_load_si512(kEven);
  books[0] = _mm512_permutex2var_epi8(first, even, second);
  books[1] = _mm512_permutex2var_epi8(first, _mm512_or_si512(even, _mm512_set1_epi8(1)), second);
}

// The sums of 16-bit words and of their high bytes, as look_up keeps them, to floats: out[r][i] += of output 4 * i + r.
template <int Books>
[[gnu::always_inline]] inline void add_up(const __m512i (&words)[kLimbs], const __m512i (&highs)[kLimbs], int64_t groups, __m512 scale, bool is_first, float* out) {
  // The limbs' weights, negative since 2^15 is no 16-bit number and -2^15 is; so is what comes out.
  constexpr int32_t kWeights[kLimbs] = {-1, -(1 << 7), -(1 << 15)};
  const __m512i offset = _mm512_set1_epi32(static_cast<int32_t>(groups * Books * kOffset));
  for (int64_t odd = 0; odd < 2; ++odd) {
    __m512i sums[kLimbs];
    for (int64_t limb = 0; limb < kLimbs; ++limb) {
      sums[limb] = odd ? highs[limb] : _mm512_sub_epi16(words[limb], _mm512_slli_epi16(highs[limb], 8));
    }
    for (int64_t upper = 0; upper < 2; ++upper) {
      __m512i whole = offset;
      for (int64_t limb = 0; limb < kLimbs; ++limb) {
        const int32_t weight = upper ? kWeights[limb] * (1 << 16) : kWeights[limb] & 0xFFFF;  // of one word of two
        whole = _mm512_dpwssd_epi32(whole, sums[limb], _mm512_set1_epi32(weight));
      }
      float* const to = out + (odd + 2 * upper) * 16;
      const __m512 floats = _mm512_cvtepi32_ps(whole);
      _mm512_storeu_ps(to, is_first ? _mm512_mul_ps(floats, scale) : _mm512_fmadd_ps(floats, scale, _mm512_loadu_ps(to)));
    }
  }
}

// Adds what the limbs of one group hold for `outputs` outputs to the sums: of each limb the sum of 16-bit words of two neighbours'
// bytes, whatever runs over, and that of the higher bytes alone; what is missing to the first, modulo 2^16, is the sum of the lower bytes.
template <int Books, bool IsFirst, bool IsLast>
inline void look_up(const uint8_t (&limbs)[kLimbs][2 * kEntries], const uint8_t* codes, const uint8_t* ahead, int64_t outputs, int64_t groups,
                    __m512 scale, bool is_first_block, Work& work, float* out) {
  __m512i tables[kLimbs][Books][4];
  for (int64_t limb = 0; limb < kLimbs; ++limb) {
    for (int64_t book = 0; book < Books; ++book) {
      for (int64_t part = 0; part < 4; ++part) tables[limb][book][part] = _mm512_load_si512(limbs[limb] + book * kEntries + part * 64);
    }
  }
  for (int64_t i = 0; i < outputs; i += kStep) {
    __m512i from[2], books[2];
    if (i + kStep <= outputs) {
      from[0] = _mm512_loadu_si512(codes + i * Books);
      if (Books == 2) from[1] = _mm512_loadu_si512(codes + i * Books + 64);
    } else {
      const int64_t left = (outputs - i) * Books;
      const auto mask = [](int64_t n) { return n >= 64 ? ~__mmask64{0} : n <= 0 ? __mmask64{0} : (__mmask64{1} << n) - 1; };
      from[0] = _mm512_maskz_loadu_epi8(mask(left), codes + i * Books);
      if (Books == 2) from[1] = _mm512_maskz_loadu_epi8(mask(left - 64), codes + i * Books + 64);
    }
    split<Books>(from[0], from[1], books);
    for (int64_t line = 0; line < Books; ++line) _mm_prefetch(reinterpret_cast<const char*>(ahead + i * Books + line * 64), _MM_HINT_T0);
    __mmask64 is_high[Books];
    for (int64_t book = 0; book < Books; ++book) is_high[book] = _mm512_movepi8_mask(books[book]);
    uint16_t(&kept)[kLimbs][2][32] = work.sums[i / kStep];
    __m512i words[kLimbs], highs[kLimbs];
    for (int64_t limb = 0; limb < kLimbs; ++limb) {
      words[limb] = find(tables[limb][0], books[0], is_high[0]);
      if (Books == 1) {
        highs[limb] = _mm512_srli_epi16(words[limb], 8);
      } else {
        const __m512i second = find(tables[limb][Books - 1], books[1], is_high[Books - 1]);
        if (limb == 0) {  // two numbers of 7 bits are one of 8
          words[limb] = _mm512_add_epi8(words[limb], second);
          highs[limb] = _mm512_srli_epi16(words[limb], 8);
        } else {
          highs[limb] = _mm512_add_epi16(_mm512_srli_epi16(words[limb], 8), _mm512_srli_epi16(second, 8));
          words[limb] = _mm512_add_epi16(words[limb], second);
        }
      }
      if (!IsFirst) {
        words[limb] = _mm512_add_epi16(words[limb], _mm512_load_si512(kept[limb][0]));
        highs[limb] = _mm512_add_epi16(highs[limb], _mm512_load_si512(kept[limb][1]));
      }
      if (!IsLast) {
        _mm512_store_si512(kept[limb][0], words[limb]);
        _mm512_store_si512(kept[limb][1], highs[limb]);
      }
    }
    if (IsLast) add_up<Books>(words, highs, groups, scale, is_first_block, out + i);
  }
}

// Adds what the tables of some groups hold, as floats one by one, in the order of add_up.
template <int Books>
[[gnu::noinline]] void add_as_floats(const Work& work, const uint8_t* codes, int64_t stride, int64_t outputs, int64_t groups, bool is_first_block, float* out) {
  for (int64_t i = 0; i < outputs; ++i) {
    float sum = 0.0f;
    for (int64_t n = 0; n < groups; ++n) {
      for (int64_t book = 0; book < Books; ++book) sum += work.tables[n][place_of(book * kEntries + codes[n * stride + i * Books + book])];
    }
    float& to = out[place_of(i)];
    to = is_first_block ? sum : to + sum;
  }
}

template <int Books>
void one_token_of(const Call& call, const Item& item, float* out) {
  Work work;
  constexpr int64_t entries = Books * kEntries;
  const bool are_finite = transpose_codebooks(call.codebooks, entries, work);
  const int64_t stride = call.outputs * Books;
  for (int64_t group = item.first_group; group < item.end_group; group += kBlocked) {
    const int64_t groups = item.end_group - group < kBlocked ? item.end_group - group : kBlocked;
    alignas(64) float x[kBlocked * kGroup] = {};
    __builtin_memcpy(x, call.input + (item.first_token * call.groups + group) * kGroup, static_cast<size_t>(groups * kGroup) * sizeof(float));
    __m512 zeros = _mm512_setzero_ps();
    for (int64_t n = 0; n < kBlocked * kGroup; n += 16) zeros = _mm512_fmadd_ps(_mm512_load_ps(x + n), _mm512_setzero_ps(), zeros);
    const float largest = fill_tables(x, entries, work);
    const uint8_t* codes = call.codes + group * stride + item.first_output * Books;
    const bool is_first_block = group == item.first_group;
    const bool are_numbers = are_finite && _mm512_cmp_ps_mask(zeros, _mm512_setzero_ps(), _CMP_EQ_OQ) == 0xFFFF;
    if (!are_numbers || !(largest == 0.0f || (largest > 1e-30f && largest < 1e30f))) {
      add_as_floats<Books>(work, codes, stride, item.outputs, groups, is_first_block, out);
      continue;
    }
    constexpr float kLimit = static_cast<float>(kOffset - 2);
    const __m512 scale = _mm512_set1_ps(-largest / kLimit);  // see add_up
    cut_into_limbs(largest == 0.0f ? 0.0f : kLimit / largest, entries, groups, work);
    for (int64_t tile = 0; tile < item.outputs; tile += kTile) {
      const int64_t outputs = item.outputs - tile < kTile ? item.outputs - tile : kTile;
      for (int64_t n = 0; n < groups; ++n) {
        const uint8_t* row = codes + n * stride + tile * Books;
        // What comes kRowsAhead rows later: of this tile, of the next, or of the next groups' first.
        const uint8_t* ahead = row + kRowsAhead * stride;
        if (n + kRowsAhead >= groups && tile + kTile < item.outputs) ahead += kTile * Books - groups * stride;
        if (n + kRowsAhead >= groups && tile + kTile >= item.outputs) ahead -= tile * Books;
        _mm_prefetch(reinterpret_cast<const char*>(row + kPagesAhead * stride), _MM_HINT_T0);
        const bool is_first = n == 0, is_last = n == groups - 1;
        const auto go = [&](auto function) { function(work.limbs[n], row, ahead, outputs, groups, scale, is_first_block, work, out + tile); };
        if (is_first && is_last) {
          go(look_up<Books, true, true>);
        } else if (is_first) {
          go(look_up<Books, true, false>);
        } else if (is_last) {
          go(look_up<Books, false, true>);
        } else {
          go(look_up<Books, false, false>);
        }
      }
    }
  }
  // Into the order of the outputs.
  for (int64_t i = 0; i < item.outputs; i += kStep) {
    alignas(64) float mixed[kStep];
    __builtin_memcpy(mixed, out + i, sizeof mixed);
    const __m512 a = _mm512_load_ps(mixed), b = _mm512_load_ps(mixed + 16), c = _mm512_load_ps(mixed + 32), d = _mm512_load_ps(mixed + 48);
    const __m512 ab_low = _mm512_unpacklo_ps(a, b), ab_high = _mm512_unpackhi_ps(a, b), cd_low = _mm512_unpacklo_ps(c, d), cd_high = _mm512_unpackhi_ps(c, d);
    const auto low = [](__m512 u, __m512 v) { return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(u), _mm512_castps_pd(v))); };
    const auto high = [](__m512 u, __m512 v) { return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(u), _mm512_castps_pd(v))); };
    const __m512 rows[4] = {low(ab_low, cd_low), high(ab_low, cd_low), low(ab_high, cd_high), high(ab_high, cd_high)};
    for (int64_t r = 0; r < 4; ++r) {
      // Part p of row r holds outputs 16 * p + 4 * r and the three that follow.
      _mm_storeu_ps(out + i + 4 * r, _mm512_castps512_ps128(rows[r]));
      _mm_storeu_ps(out + i + 16 + 4 * r, _mm512_extractf32x4_ps(rows[r], 1));
      _mm_storeu_ps(out + i + 32 + 4 * r, _mm512_extractf32x4_ps(rows[r], 2));
      _mm_storeu_ps(out + i + 48 + 4 * r, _mm512_extractf32x4_ps(rows[r], 3));
    }
  }
}

void one_token(const Call& call, const Item& item, float* sums) {
  call.books == 2 ? one_token_of<2>(call, item, sums) : one_token_of<1>(call, item, sums);
}

}  // namespace

extern const Kernel kernels_avx512vbmi[1];
const Kernel kernels_avx512vbmi[1] = {{1, 2, one_token}};

}  // namespace etcli::aqlm
