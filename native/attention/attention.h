// Attention over ring caches: one call as plain pointers and sizes, and how its work is cut up.
#pragma once

#include <cstddef>
#include <cstdint>

namespace etcli::attention {

// One call, already checked: everything is in bounds, heads is a multiple of kv_heads, start + valid <= slots.
struct Call {
  int64_t tokens;    // T, rows of query, key, value, rotary and out
  int64_t valid;     // m, the first rows; the others are padding
  int64_t start;     // position of row 0, hence also its slot, and the number of tokens in the caches
  int64_t heads, kv_heads, head_dim;
  int64_t slots;     // C
  const float* query;   // [tokens][heads][head_dim], before rotary embedding
  const float* key;     // [tokens][kv_heads][head_dim], before rotary embedding
  const float* value;   // [tokens][kv_heads][head_dim]
  const float* cosines; // [tokens][head_dim]
  const float* sines;   // [tokens][head_dim]
  float* key_cache;     // [kv_heads][head_dim][slots], rotated keys
  float* value_cache;   // [kv_heads][slots][head_dim]
  float* out;           // [tokens][heads][head_dim]

  // All three are inlined whatever the options, for the reason in rotate.h.
  [[gnu::always_inline]] int64_t group() const { return heads / kv_heads; }
  // Queries that share a KV head: number y is head y % group() of token y / group(), so neighbours see nearly the same keys.
  [[gnu::always_inline]] int64_t queries() const { return valid * group(); }
  // Slots that query y of a KV head sees: all that were there and the new ones up to its own.
  [[gnu::always_inline]] int64_t visible(int64_t y) const { return start + y / group() + 1; }
};

constexpr int64_t kMaxQueries = 16;  // of a work item
constexpr int64_t kBlock = 128;      // keys whose scores are held at a time

// One work item: some neighbouring queries of a KV head against a span of its slots. The caches hold the new rows already.
struct Item {
  int64_t kv_head;
  int64_t first_query, queries;  // 1 to kMaxQueries
  int64_t first_slot, end_slot;
};

// What an item comes to, for each of its queries: softmax over the span, not yet divided by its sum, so that spans can be put together.
// A query that sees nothing of the span has a sum of 0.
struct Partial {
  float* maximum;   // [queries] largest score
  float* sum;       // [queries] of exp(score - maximum)
  float* weighted;  // [queries][head_dim] values times exp(score - maximum), summed
};

// Computes an item; `rotated` is room for kMaxQueries * head_dim floats. Reads seen slots only, never past the end of anything.
using Attend = void (*)(const Call& call, const Item& item, const Partial& result, float* rotated);

}  // namespace etcli::attention
