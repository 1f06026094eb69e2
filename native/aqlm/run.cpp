#include "run.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <thread>

namespace etcli::aqlm {

namespace {

constexpr int64_t kItems = 16;                    // enough to keep some cores of different speed busy
constexpr int64_t kMinSpan = 32;                  // groups; below that an item's beginning and end take a share of its time
constexpr int64_t kMaxBlock = 8192;               // outputs of a cell, times lanes still in a second-level cache
constexpr int64_t kMaxKept = int64_t{1} << 19;    // floats of sums that wait for others: 2 MiB
constexpr int64_t kWorthThreads = int64_t{1} << 16;  // look-ups; below that waking a thread takes longer than the work
constexpr int64_t kFinished = 2048;               // outputs that are finished at a time

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

struct Cell {
  Plan::Tokens tokens;
  int64_t first_output, outputs;
};

Cell cell_at(const Call& call, const Plan& plan, int64_t cell) {
  const int64_t first = cell % plan.blocks * plan.block;
  return {plan.tokens_at(cell / plan.blocks), first, std::min(plan.block, call.outputs - first)};
}

void accumulate(const Call& call, const Plan& plan, const Cell& cell, int64_t span, float* sums) {
  const int64_t first_group = span * plan.span;
  const Item item{cell.tokens.first, cell.tokens.count, first_group, std::min(first_group + plan.span, call.groups), cell.first_output, cell.outputs};
  cell.tokens.kernel->accumulate(call, item, sums);
}

// Outputs `begin` to `end` of a cell from its spans' sums, which are plan.sums apart.
void finish(const Call& call, const Plan& plan, const Cell& cell, int64_t begin, int64_t end, const float* sums) {
  const int64_t lanes = cell.tokens.kernel->lanes;
  constexpr int64_t kTile = 16;
  float tile[kTile * kMaxLanes];
  for (int64_t first = begin; first < end; first += kTile) {
    const int64_t count = std::min(kTile, end - first), at = cell.first_output + first;
    const float* from = sums + first * lanes;
    std::copy_n(from, count * lanes, tile);
    for (int64_t span = 1; span < plan.spans; ++span) {
      for (int64_t i = 0; i < count * lanes; ++i) tile[i] += from[span * plan.sums + i];
    }
    float* out = call.out + cell.tokens.first * call.outputs + at;
    for (int64_t token = 0; token < cell.tokens.count; ++token, out += call.outputs) {
      for (int64_t i = 0; i < count; ++i) out[i] = tile[i * lanes + token] * call.scales[at + i];
      if (call.bias == nullptr) continue;
      for (int64_t i = 0; i < count; ++i) out[i] += call.bias[at + i];
    }
  }
}

// Runs one call. Tickets are handed out in order, since the cores of a phone differ in speed; who runs which is left to chance.
struct Runner {
  const Call& call;
  const Plan& plan;
  float* sums;
  int64_t chunks;  // of a cell, to be finished at a time
  std::atomic<int64_t> next{0}, done{0};

  int64_t cells() const { return plan.cuts * plan.blocks; }

  // Many cells: each from beginning to end.
  void take_cells(int64_t thread) {
    float* const own = sums + thread * plan.sums;
    for (int64_t ticket; (ticket = next.fetch_add(1, std::memory_order_relaxed)) < cells();) {
      const Cell cell = cell_at(call, plan, ticket);
      accumulate(call, plan, cell, 0, own);
      finish(call, plan, cell, 0, cell.outputs, own);
    }
  }

  // Few cells: first all spans, then, once they are there, all chunks. Who waits has found that others are at work on what it waits for.
  void take_spans() {
    const int64_t items = plan.items(), total = items + cells() * chunks;
    for (int64_t ticket; (ticket = next.fetch_add(1, std::memory_order_relaxed)) < total;) {
      if (ticket < items) {
        accumulate(call, plan, cell_at(call, plan, ticket / plan.spans), ticket % plan.spans, sums + ticket * plan.sums);
        done.fetch_add(1, std::memory_order_release);
        continue;
      }
      for (int spins = 0; done.load(std::memory_order_acquire) < items; ++spins) {
        if (spins > 100) std::this_thread::yield();
      }
      const int64_t index = (ticket - items) / chunks, begin = (ticket - items) % chunks * kFinished;
      const Cell cell = cell_at(call, plan, index);
      finish(call, plan, cell, begin, std::min(begin + kFinished, cell.outputs), sums + index * plan.spans * plan.sums);
    }
  }

  void take(int64_t thread) { plan.spans == 1 ? take_cells(thread) : take_spans(); }
};

}  // namespace

Plan::Plan(const Call& call, const Version& version) : tokens(call.tokens) {
  widest = &version.kernels.back();
  whole = tokens / widest->lanes;
  left_from = whole * widest->lanes;
  const int64_t left = tokens - left_from;
  last = widest;
  for (const Kernel& kernel : version.kernels) {
    if (ceil_div(left, kernel.lanes) * kernel.price < ceil_div(left, last->lanes) * last->price) last = &kernel;
  }
  cuts = whole + ceil_div(left, last->lanes);
  blocks = std::max<int64_t>(1, ceil_div(call.outputs, kMaxBlock));
  block = std::max(kOutputsPadded, round_up(ceil_div(call.outputs, blocks), kOutputsPadded));
  blocks = ceil_div(call.outputs, block);
  sums = block * (whole > 0 ? widest->lanes : last->lanes);
  const int64_t cells = cuts * blocks;
  spans = 1;
  if (cells > 0 && call.groups > 0) {
    spans = std::max<int64_t>(1, std::min({ceil_div(kItems, cells), kMaxKept / (cells * sums), call.groups / kMinSpan}));
  }
  span = std::max<int64_t>(1, ceil_div(call.groups, spans));
  spans = std::max<int64_t>(1, ceil_div(call.groups, span));
  is_large = call.tokens * call.groups * call.outputs * call.books >= kWorthThreads;
}

Plan::Tokens Plan::tokens_at(int64_t cut) const {
  const Kernel* kernel = cut < whole ? widest : last;
  const int64_t first = cut < whole ? cut * widest->lanes : left_from + (cut - whole) * last->lanes;
  return {kernel, first, std::min(kernel->lanes, tokens - first)};
}

size_t scratch_bytes(const Plan& plan, int64_t threads) {
  if (plan.items() == 0) return 0;
  if (!plan.is_large) threads = 1;
  const int64_t kept = plan.spans == 1 ? std::min(threads, plan.items()) : plan.items();
  return static_cast<size_t>(kept * plan.sums) * sizeof(float);
}

void run(const Call& call, const Plan& plan, int64_t threads, void* scratch, Parallel parallel) {
  if (plan.items() == 0) return;
  if (call.groups == 0) {  // sums of nothing
    for (int64_t i = 0; i < call.tokens * call.outputs; ++i) call.out[i] = call.bias == nullptr ? 0.0f : call.bias[i % call.outputs];
    return;
  }
  Runner runner{call, plan, static_cast<float*>(scratch), ceil_div(plan.block, kFinished)};
  if (!plan.is_large) threads = 1;
  threads = std::min(threads, plan.items());
  if (threads > 1) {
    parallel(threads, [](void* context, int64_t thread) { static_cast<Runner*>(context)->take(thread); }, &runner);
  }
  runner.take(0);  // all that is left if there are no threads to be had
}

}  // namespace etcli::aqlm
