#include "run.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include <executorch/runtime/kernel/thread_parallel_interface.h>

#include "rotate.h"

#if !defined(ET_USE_THREADPOOL)
#error "without ET_USE_THREADPOOL parallel_for is a serial loop"
#endif

namespace etcli::attention {

namespace {

constexpr int64_t kMaxSpans = 32;
constexpr int64_t kWorthThreads = 1 << 16;  // products; below that waking a thread takes longer than the work

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Calls work(item, thread) once for each item, on up to `threads` threads. Each takes the next item when it is done with one, since the
// cores of a phone differ in speed.
template <class Work>
void for_each(int64_t items, int64_t threads, const Work& work) {
  threads = std::min(threads, items);
  if (threads <= 1) {
    for (int64_t item = 0; item < items; ++item) work(item, 0);
    return;
  }
  std::atomic<int64_t> next{0};
  const auto take = [&](int64_t thread) {
    for (int64_t item; (item = next.fetch_add(1, std::memory_order_relaxed)) < items;) work(item, thread);
  };
  executorch::extension::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t thread = begin; thread < end; ++thread) take(thread);
  });
  take(0);  // all that is left if the pool could not be used
}

// New rows of one KV head. Keys are stored by dimension, so kMaxQueries tokens are rotated first and then written side by side.
void write_rows(const Call& call, int64_t kv_head, float* rotated) {
  const int64_t dim = call.head_dim, slots = call.slots;
  float* keys = call.key_cache + kv_head * dim * slots + call.start;
  float* values = call.value_cache + (kv_head * slots + call.start) * dim;
  for (int64_t first = 0; first < call.valid; first += kMaxQueries) {
    const int64_t count = std::min(kMaxQueries, call.valid - first);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t token = first + i, row = (token * call.kv_heads + kv_head) * dim;
      rotate(call.key + row, call.cosines + token * dim, call.sines + token * dim, dim, 1.0f, rotated + i * dim);
      std::memcpy(values + token * dim, call.value + row, static_cast<size_t>(dim) * sizeof(float));
    }
    for (int64_t d = 0; d < dim; ++d) {
      for (int64_t i = 0; i < count; ++i) keys[d * slots + first + i] = rotated[i * dim + d];
    }
  }
}

struct Parts {
  Partial at(int64_t row) const { return {maximum + row, sum + row, weighted + row * dim}; }
  float *maximum, *sum, *weighted;
  int64_t dim;
};

Parts parts_in(float* memory, int64_t rows, int64_t dim) { return {memory, memory + rows, memory + 2 * rows, dim}; }

// One query's output: its partial results, `stride` rows apart, put together.
void finish(const Call& call, int64_t kv_head, int64_t y, const Parts& parts, int64_t row, int64_t spans, int64_t stride) {
  const int64_t dim = call.head_dim, head = kv_head * call.group() + y % call.group();
  float* out = call.out + ((y / call.group()) * call.heads + head) * dim;
  float maximum = parts.maximum[row], total = 0.0f;
  for (int64_t s = 1; s < spans; ++s) maximum = std::max(maximum, parts.maximum[row + s * stride]);
  std::fill_n(out, dim, 0.0f);
  for (int64_t s = 0; s < spans; ++s) {
    const int64_t at = row + s * stride;
    if (parts.sum[at] == 0.0f) continue;  // sees nothing of this span
    const float share = std::exp(parts.maximum[at] - maximum);
    total += share * parts.sum[at];
    for (int64_t d = 0; d < dim; ++d) out[d] += share * parts.weighted[at * dim + d];
  }
  for (int64_t d = 0; d < dim; ++d) out[d] /= total;
}

}  // namespace

Plan::Plan(const Call& call) {
  const int64_t seen = call.start + call.valid;
  query_groups = ceil_div(call.queries(), kMaxQueries);
  // Many queries are work enough for any number of threads; few are not, so their slots are shared out.
  const int64_t blocks = ceil_div(seen, kBlock);
  span = query_groups > 1 ? seen : ceil_div(blocks, kMaxSpans) * kBlock;
  spans = ceil_div(seen, span);
  items_per_head = query_groups * spans;
  is_large = call.valid * call.heads * call.head_dim * seen >= kWorthThreads;
}

int64_t scratch_floats(const Call& call, const Plan& plan, int64_t threads) {
  const int64_t rotated = kMaxQueries * call.head_dim;
  const int64_t rows = plan.spans > 1 ? call.kv_heads * plan.spans * kMaxQueries : threads * kMaxQueries;
  return threads * rotated + rows * (call.head_dim + 2);
}

void run(const Call& call, const Plan& plan, Attend attend, int64_t threads, float* scratch) {
  const int64_t dim = call.head_dim;
  float* const rotated = scratch;
  const auto rotated_of = [&](int64_t thread) { return rotated + thread * kMaxQueries * dim; };
  float* const rest = rotated_of(threads);
  if (!plan.is_large) threads = 1;

  for_each(call.kv_heads, call.valid > 1 ? threads : 1, [&](int64_t kv_head, int64_t thread) { write_rows(call, kv_head, rotated_of(thread)); });

  const int64_t items = call.kv_heads * plan.items_per_head;
  const auto item_at = [&](int64_t index) {
    const int64_t within = index % plan.items_per_head, first_query = within / plan.spans * kMaxQueries, first_slot = within % plan.spans * plan.span;
    return Item{index / plan.items_per_head, first_query, std::min(kMaxQueries, call.queries() - first_query), first_slot,
                std::min(first_slot + plan.span, call.start + call.valid)};
  };
  if (plan.spans == 1) {
    const int64_t rows = threads * kMaxQueries;
    const Parts parts = parts_in(rest, rows, dim);
    for_each(items, threads, [&](int64_t index, int64_t thread) {
      const Item item = item_at(index);
      const int64_t row = thread * kMaxQueries;
      attend(call, item, parts.at(row), rotated_of(thread));
      for (int64_t i = 0; i < item.queries; ++i) finish(call, item.kv_head, item.first_query + i, parts, row + i, 1, 0);
    });
  } else {  // one group of queries a KV head
    const Parts parts = parts_in(rest, items * kMaxQueries, dim);
    for_each(items, threads, [&](int64_t index, int64_t thread) { attend(call, item_at(index), parts.at(index * kMaxQueries), rotated_of(thread)); });
    for (int64_t kv_head = 0; kv_head < call.kv_heads; ++kv_head) {
      for (int64_t y = 0; y < call.queries(); ++y) {
        finish(call, kv_head, y, parts, kv_head * plan.spans * kMaxQueries + y, plan.spans, kMaxQueries);
      }
    }
  }
  const int64_t row = call.heads * dim;
  std::fill_n(call.out + call.valid * row, (call.tokens - call.valid) * row, 0.0f);
}

}  // namespace etcli::attention
