// A product with a matrix in AQLM form: one call as plain pointers and sizes, and the work that a kernel does of it.
//
//   out[t][o] = scales[o] * sum over g, m of dot(input[t][8g to 8g + 7], codebooks[m][codes[g][o][m]]) + bias[o]
//
// All kernels do it by look-up: the products of a group of 8 inputs with all 256 entries of a codebook are a table, made once for all
// outputs, and an output adds up one number of each table.
//
// No header here but threads.h knows ExecuTorch, so that the kernels serve PyTorch too.
#pragma once

#include <cstdint>

namespace etcli::aqlm {

constexpr int64_t kGroup = 8;      // inputs that share a code
constexpr int64_t kEntries = 256;  // of a codebook

// One call, already checked: all sizes are 0 or more, and every array is as large as they say.
struct Call {
  int64_t tokens, groups, outputs;
  int64_t books;           // codebooks: 1 or 2
  const float* input;      // [tokens][groups][kGroup]
  const uint8_t* codes;    // [groups][outputs][books]
  const float* codebooks;  // [books][kEntries][kGroup]
  const float* scales;     // [outputs]
  const float* bias;       // [outputs], or null
  float* out;              // [tokens][outputs]
};

// Work for one call of a kernel: some tokens, no more than its lanes, through some groups, for some outputs. None is empty.
struct Item {
  int64_t first_token, tokens;
  int64_t first_group, end_group;
  int64_t first_output, outputs;
};

// A kernel leaves room in `sums` for a multiple of so many outputs, whatever the item's number, and may write there what it likes.
constexpr int64_t kOutputsPadded = 64;

// Writes sums[output][lane]: what the item's groups add to each of its outputs, before scale and bias; lane n is token n of the item, and
// lanes without a token hold anything. `sums` is aligned to 64 bytes. Reads nothing outside the call's arrays.
using Accumulate = void (*)(const Call& call, const Item& item, float* sums);

// A kernel that serves `lanes` tokens at a time. `price` is what one of its calls takes, in any unit that the kernels of a version share:
// the tokens of a call are dealt out so that the prices add up to little.
struct Kernel {
  int64_t lanes;  // 1 to kMaxLanes
  int64_t price;
  Accumulate accumulate;
};

constexpr int64_t kMaxLanes = 16;

}  // namespace etcli::aqlm
