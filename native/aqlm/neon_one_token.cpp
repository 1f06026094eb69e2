// One token on AArch64, whose every CPU has NEON.
//
// Table look-up instructions do not pay here: 256 entries of 4 bytes are 16 of the slow four-register ones for 16 look-ups. One load an
// entry it is, so that three loads a cycle are the limit, and what else a look-up takes has to be little. Tables hold whole numbers, 2^23 or
// more for a bound on all entries (which is a float's own precision), since there is an instruction that adds two of them at once to a sum:
// `saba`, which adds |a - b|. With b stored negated, and a raised so far that no difference is below zero, that is a + b and a constant. It
// takes 3.1 instructions a look-up, and sums are exact.
#include <arm_neon.h>

#include <cstddef>

#include "aqlm.h"

namespace etcli::aqlm {
namespace {

constexpr int kTables = 8;             // at a time: 8 KiB, those of 4 groups with two codebooks
constexpr int64_t kMostEntries = 256;  // that a whole number sums up
constexpr int64_t kSlice = 8192;       // outputs whose sums are held, in the second-level cache at worst

using Tables = int32_t[kTables][kEntries];

// Codes of four neighbouring outputs for a pair of tables: with two codebooks both are in the same word, otherwise in one each.
struct Codes {
  uint64_t u, w;
};

template <int Books>
[[gnu::always_inline]] inline Codes codes_of(const uint8_t* const* row, int pair, int64_t output) {
  if constexpr (Books == 2) {
    uint64_t both;
    __builtin_memcpy(&both, row[pair] + output * 2, sizeof both);
    asm volatile("" : "+r"(both));  // loaded here, not where it is used
    return {both, both};
  } else {
    uint32_t u, w;
    __builtin_memcpy(&u, row[2 * pair] + output, sizeof u);
    __builtin_memcpy(&w, row[2 * pair + 1] + output, sizeof w);
    asm volatile("" : "+r"(u), "+r"(w));
    return {u, w};
  }
}

// For four neighbouring outputs: entries of a pair of tables, or sums, each in the first lane of its vector.
struct Entries {
  int32x2_t first[4], second[4];
};
struct Sums {
  int32x2_t of[4];
};

// Loads the entries of output `Lane` and in between adds what was loaded before to its sum; `Start` sets the sum.
//
// The four instructions of a look-up and their order are written out, because compilers load all before they add any, or make vectors of
// single loads, and then a processor cannot hold enough of the loop at once to be loading all the time. The tables are read in a way that
// the compiler does not see: code that fills them ends with a barrier.
template <int Books, bool Start, int Lane>
[[gnu::always_inline]] inline void load_and_add(Entries& loaded, const int32_t* first, const int32_t* second, const Codes& codes, Sums& sums,
                                                const Entries& before) {
  constexpr int kShift = Lane * 8 * Books, kSecondShift = kShift + (Books == 2 ? 8 : 0);
  uint64_t i, j;
#define ETCLI_LOAD_AND_ADD(add, constraint)                                                                                                 \
  asm volatile(                                                                                                                             \
      "ubfx %x[i], %x[u], %[shift], #8\n\tldr %s[a], [%x[first], %x[i], lsl #2]\n\t" add " %[sum].2s, %[c].2s, %[d].2s\n\t"                 \
      "ubfx %x[j], %x[w], %[second_shift], #8\n\tldr %s[b], [%x[second], %x[j], lsl #2]"                                                    \
      : [a] "=&w"(loaded.first[Lane]), [b] "=&w"(loaded.second[Lane]), [sum] constraint(sums.of[Lane]), [i] "=&r"(i), [j] "=&r"(j)          \
      : [first] "r"(first), [second] "r"(second), [u] "r"(codes.u), [w] "r"(codes.w), [shift] "i"(kShift), [second_shift] "i"(kSecondShift), \
        [c] "w"(before.first[Lane]), [d] "w"(before.second[Lane]))
  if constexpr (Start) {
    ETCLI_LOAD_AND_ADD("sabd", "=&w");
  } else {
    ETCLI_LOAD_AND_ADD("saba", "+&w");
  }
#undef ETCLI_LOAD_AND_ADD
}

template <int Books, bool Start>
[[gnu::always_inline]] inline void load_and_add(Entries& loaded, const int32_t* first, const int32_t* second, const Codes& codes, Sums& sums,
                                                const Entries& before) {
  load_and_add<Books, Start, 0>(loaded, first, second, codes, sums, before);
  load_and_add<Books, Start, 1>(loaded, first, second, codes, sums, before);
  load_and_add<Books, Start, 2>(loaded, first, second, codes, sums, before);
  load_and_add<Books, Start, 3>(loaded, first, second, codes, sums, before);
}

// Adds to whole[output] what eight tables hold for it. row[n] are the codes of pair n of tables: with two codebooks both codes of
// an output are in one row, with one codebook a pair is two groups and has two rows. The rows that come next are `next` bytes further on.
template <int Books>
[[gnu::noinline]] void look_up(const Tables& tables, const uint8_t* const (&rows)[kTables / Books], int64_t next, int64_t outputs, int32_t* whole) {
  constexpr int64_t kStrip = 32;   // outputs between prefetches
  constexpr int64_t kAhead = 256;  // outputs to fetch ahead of use, of this row or else the next
  constexpr int kPairs = kTables / 2, kSecond = Books == 2 ? 0 : 1;
  const int32_t* first[kPairs];
  const int32_t* second[kPairs];
  const uint8_t* row[kTables / Books];
  for (int n = 0; n < kPairs; ++n) {
    first[n] = tables[2 * n];
    second[n] = tables[2 * n + 1];
    asm("" : "+r"(first[n]), "+r"(second[n]));  // each in a register, which a compiler would rather compute again and again
  }
  for (int n = 0; n < kTables / Books; ++n) row[n] = rows[n];
  asm volatile("" ::: "memory");  // the tables are read below in a way that compilers do not see
  int64_t i = 0;
  if (outputs >= 8) {  // codes are loaded two pairs ahead of the additions, entries one, which is why the last outputs are left
    Codes codes = codes_of<Books>(row, 0, 0), next_codes = codes_of<Books>(row, 1, 0);
    int32_t* at = whole;
    Entries a, b;
    Sums sums, last;  // apart, since an addition waits for the one before it
    for (int lane = 0; lane < 4; ++lane) b.first[lane] = b.second[lane] = vdup_n_s32(0);
    load_and_add<Books, true>(a, first[0], second[0], codes, sums, b);
    do {
      const int64_t due = (i + kAhead) * Books + (i + kAhead < outputs ? 0 : next - outputs * Books);
      for (int n = 0; n < kTables / Books; ++n) __builtin_prefetch(row[n] + due);
      const int64_t end = i + kStrip < outputs - 7 ? i + kStrip : outputs - 7;
      do {
        codes = codes_of<Books>(row, 2, i);
        load_and_add<Books, true>(b, first[1], second[1], next_codes, sums, a);
        next_codes = codes_of<Books>(row, 3, i);
        load_and_add<Books, false>(a, first[2], second[2], codes, sums, b);
        codes = codes_of<Books>(row, 0, i + 4);
        load_and_add<Books, false>(b, first[3], second[3], next_codes, sums, a);
        next_codes = codes_of<Books>(row, 1, i + 4);
        load_and_add<Books, true>(a, first[0], second[0], codes, last, b);
        for (int lane = 0; lane < 4; ++lane) sums.of[lane] = vadd_s32(sums.of[lane], last.of[lane]);
        vst1_s32(at, vadd_s32(vld1_s32(at), vzip1_s32(sums.of[0], sums.of[1])));
        vst1_s32(at + 2, vadd_s32(vld1_s32(at + 2), vzip1_s32(sums.of[2], sums.of[3])));
        asm("" : "+r"(at));  // a store that also moves its pointer on would hold up the next load until its data are there
        at += 4;
        i += 4;
      } while (i < end);
    } while (i < outputs - 7);
  }
  asm volatile("" ::: "memory");
  for (; i < outputs; ++i) {
    uint32_t sum = static_cast<uint32_t>(whole[i]);
    for (int n = 0; n < kPairs; ++n) {
      const uint8_t a = row[n * 2 / Books][i * Books], b = row[n * 2 / Books + kSecond][i * Books + Books - 1];
      sum += static_cast<uint32_t>(first[n][a]) - static_cast<uint32_t>(second[n][b]);
    }
    whole[i] = static_cast<int32_t>(sum);
  }
}

// The codebooks by dimension, and what bounds a product of an entry with a group of inputs.
template <int Books>
struct Transposed {
  alignas(64) float column[kGroup][Books * kEntries];
  float32x4_t most[2];  // in each dimension, the largest absolute value
  float norm;           // the largest of an entry

  explicit Transposed(const float* codebooks) : most{vdupq_n_f32(0.0f), vdupq_n_f32(0.0f)} {
    float32x4_t squares_most = vdupq_n_f32(0.0f);
    for (int64_t entry = 0; entry < Books * kEntries; entry += 4) {
      float32x4_t squares = vdupq_n_f32(0.0f);
      for (int64_t half = 0; half < 2; ++half) {
        const float* from = codebooks + entry * kGroup + half * 4;
        const float32x4_t r0 = vld1q_f32(from), r1 = vld1q_f32(from + kGroup), r2 = vld1q_f32(from + 2 * kGroup), r3 = vld1q_f32(from + 3 * kGroup);
        most[half] = vmaxq_f32(vmaxq_f32(most[half], vmaxq_f32(vabsq_f32(r0), vabsq_f32(r1))), vmaxq_f32(vabsq_f32(r2), vabsq_f32(r3)));
        const float64x2_t p0 = vreinterpretq_f64_f32(vtrn1q_f32(r0, r1)), p1 = vreinterpretq_f64_f32(vtrn2q_f32(r0, r1));
        const float64x2_t p2 = vreinterpretq_f64_f32(vtrn1q_f32(r2, r3)), p3 = vreinterpretq_f64_f32(vtrn2q_f32(r2, r3));
        const float32x4_t turned[4] = {vreinterpretq_f32_f64(vtrn1q_f64(p0, p2)), vreinterpretq_f32_f64(vtrn1q_f64(p1, p3)),
                                       vreinterpretq_f32_f64(vtrn2q_f64(p0, p2)), vreinterpretq_f32_f64(vtrn2q_f64(p1, p3))};
        for (int64_t k = 0; k < 4; ++k) {
          squares = vfmaq_f32(squares, turned[k], turned[k]);
          vst1q_f32(column[half * 4 + k] + entry, turned[k]);
        }
      }
      squares_most = vmaxq_f32(squares_most, squares);
    }
    norm = __builtin_sqrtf(vmaxvq_f32(squares_most));
  }

  // No product with one of these groups is larger in absolute value, but for rounding; not finite where an input is not.
  float bound(const float* x, int64_t groups) const {
    float all = 0.0f;
    for (int64_t group = 0; group < groups; ++group, x += kGroup) {
      const float32x4_t low = vld1q_f32(x), high = vld1q_f32(x + 4);
      const float by_norm = __builtin_sqrtf(vaddvq_f32(vfmaq_f32(vmulq_f32(low, low), high, high))) * norm;
      const float by_dimension = vaddvq_f32(vfmaq_f32(vmulq_f32(vabsq_f32(low), most[0]), vabsq_f32(high), most[1]));
      const float both = by_norm < by_dimension ? by_norm : by_dimension;
      all = both <= all ? all : both;  // takes what is not a number, and keeps it
      if (!(both >= 0.0f)) return both;
    }
    return all;
  }
};

// Tables of kTables / Books groups of a token, times `factor`; groups from `count` on have tables of zeros. The first table of a pair is
// raised and the second negated, so that first - second is their sum and never below zero.
template <int Books>
inline void fill(const float* x, int64_t count, float factor, int32_t raised, const Transposed<Books>& codebooks, Tables& tables) {
  constexpr int kGroups = kTables / Books;
  constexpr int kAtOnce = 4;  // groups that read the codebooks together
  for (int from = 0; from < kGroups; from += kAtOnce) {
    float32x4_t inputs[kAtOnce][2];
    for (int n = 0; n < kAtOnce; ++n) {
      const bool is_there = from + n < count;
      const float* at = x + (is_there ? from + n : 0) * kGroup;
      for (int half = 0; half < 2; ++half) inputs[n][half] = is_there ? vmulq_n_f32(vld1q_f32(at + 4 * half), factor) : vdupq_n_f32(0.0f);
    }
    for (int book = 0; book < Books; ++book) {
      for (int64_t entry = 0; entry < kEntries; entry += 4) {
        // Lanes of a register multiply as they are; without this GCC copies each of the 32 inputs over a register of its own, and has too few.
        for (int n = 0; n < kAtOnce; ++n) asm("" : "+w"(inputs[n][0]), "+w"(inputs[n][1]));
        float32x4_t sums[kAtOnce];
        const float* column = codebooks.column[0] + book * kEntries + entry;
        for (int n = 0; n < kAtOnce; ++n) sums[n] = vmulq_laneq_f32(vld1q_f32(column), inputs[n][0], 0);
#define ETCLI_TERM(k) \
  for (int n = 0; n < kAtOnce; ++n) sums[n] = vfmaq_laneq_f32(sums[n], vld1q_f32(column + (k) * Books * kEntries), inputs[n][(k) / 4], (k) % 4)
        ETCLI_TERM(1);
        ETCLI_TERM(2);
        ETCLI_TERM(3);
        ETCLI_TERM(4);
        ETCLI_TERM(5);
        ETCLI_TERM(6);
        ETCLI_TERM(7);
#undef ETCLI_TERM
        for (int n = 0; n < kAtOnce; ++n) {
          const int table = (from + n) * Books + book;
          const int32x4_t rounded = vcvtnq_s32_f32(sums[n]);
          const int32x4_t stored = table % 2 == 0 ? vaddq_s32(rounded, vdupq_n_s32(raised)) : vnegq_s32(rounded);
          vst1q_s32(tables[table] + entry, stored);
        }
      }
    }
  }
}

// Some groups of one token, at most kMostEntries look-ups an output, for at most kSlice outputs. Adds to (or sets) `sums`.
template <int Books>
void few_groups(const float* x, int64_t groups, const uint8_t* codes, int64_t stride, int64_t outputs, const Transposed<Books>& codebooks,
                bool is_first, float* sums) {
  constexpr int64_t kGroups = kTables / Books;
  Tables tables;
  alignas(64) int32_t whole[kSlice];
  __builtin_memset(whole, 0, static_cast<size_t>(outputs) * sizeof *whole);

  // An entry is at most `unit`, so that as many as there are add up to less than 2^31.
  const int64_t rounds = (groups + kGroups - 1) / kGroups;
  int32_t unit = int32_t{1} << 28;
  for (int64_t most = 1; most < rounds; most *= 2) unit /= 2;
  const int32_t raised = 2 * unit;
  // Below 1e-30 the factor would be infinite. What is not finite goes through the last product into every output.
  const float largest = codebooks.bound(x, groups) * 1.0001f;
  const float bound = largest < 1e-30f ? 1e-30f : largest;
  const float factor = static_cast<float>(unit) / bound, scale = bound / static_cast<float>(unit);

  for (int64_t group = 0; group < groups; group += kGroups) {
    fill<Books>(x + group * kGroup, groups - group, factor, raised, codebooks, tables);
    const uint8_t* rows[kGroups];
    for (int64_t n = 0; n < kGroups; ++n) rows[n] = codes + (group + n < groups ? group + n : groups - 1) * stride;
    look_up<Books>(tables, rows, kGroups * stride, outputs, whole);
  }
  const uint32_t raised_in_all = static_cast<uint32_t>(rounds) * (kTables / 2) * static_cast<uint32_t>(raised);
  for (int64_t i = 0; i < outputs; i += 4) {
    const int32x4_t sum = vsubq_s32(vld1q_s32(whole + i), vdupq_n_s32(static_cast<int32_t>(raised_in_all)));
    const float32x4_t scaled = vmulq_n_f32(vcvtq_f32_s32(sum), scale);
    vst1q_f32(sums + i, is_first ? scaled : vaddq_f32(vld1q_f32(sums + i), scaled));
  }
}

template <int Books>
void one_token_of(const Call& call, const Item& item, float* sums) {
  constexpr int64_t kMostGroups = kMostEntries / Books;
  const Transposed<Books> codebooks(call.codebooks);
  const float* x = call.input + item.first_token * call.groups * kGroup;
  const int64_t stride = call.outputs * Books;
  for (int64_t from = 0; from < item.outputs; from += kSlice) {
    const int64_t outputs = item.outputs - from < kSlice ? item.outputs - from : kSlice;
    for (int64_t group = item.first_group; group < item.end_group; group += kMostGroups) {
      const int64_t groups = item.end_group - group < kMostGroups ? item.end_group - group : kMostGroups;
      few_groups<Books>(x + group * kGroup, groups, call.codes + group * stride + (item.first_output + from) * Books, stride, outputs, codebooks,
                        group == item.first_group, sums + from);
    }
  }
}

void one_token(const Call& call, const Item& item, float* sums) { call.books == 2 ? one_token_of<2>(call, item, sums) : one_token_of<1>(call, item, sums); }

}  // namespace

extern const Kernel kernels_neon_one_token[1];
const Kernel kernels_neon_one_token[1] = {{1, 10, one_token}};

}  // namespace etcli::aqlm
