// One call from beginning to end: cut into items, their sums put together, scale and bias.
#pragma once

#include <cstddef>

#include "versions.h"

namespace etcli::aqlm {

// How a call is cut up. It depends on the call's sizes and the version alone, and every sum is taken in a fixed order, so that the result
// has the same bits whatever the number of threads.
//
// Tokens and outputs are cut into cells. With many cells a thread does one from beginning to end; with few, each cell's groups are shared
// out in spans whose sums are kept until all are there.
struct Plan {
  Plan(const Call& call, const Version& version);

  struct Tokens {
    const Kernel* kernel;
    int64_t first, count;
  };
  // Cuts of the tokens: whole calls of the widest kernel, then what is left.
  Tokens tokens_at(int64_t cut) const;

  const Kernel* widest;
  const Kernel* last;      // for the tokens that are left
  int64_t whole, cuts;     // cuts for `widest`; all of them
  int64_t left_from, tokens;
  int64_t block, blocks;   // outputs of a cell, cells side by side
  int64_t span, spans;     // groups of an item, items of a cell
  int64_t sums;            // floats of an item's sums
  bool is_large;           // worth more than one thread
  int64_t items() const { return cuts * blocks * spans; }
};

constexpr size_t kAlignment = 64;

// Bytes of working memory that `run` needs, to be aligned to kAlignment: at most 2 MiB or half a MiB a thread, whichever is more, for any
// number of tokens, groups and outputs. 0 where there is nothing to compute.
size_t scratch_bytes(const Plan& plan, int64_t threads);

// Calls work(context, 0) to work(context, threads - 1), as far as it can at the same time, and returns when all have returned.
using Parallel = void (*)(int64_t threads, void (*work)(void* context, int64_t thread), void* context);

// Writes out. `scratch` holds scratch_bytes of the same arguments. `parallel` is called once, or not at all for a small call or one thread.
void run(const Call& call, const Plan& plan, int64_t threads, void* scratch, Parallel parallel);

}  // namespace etcli::aqlm
