// Numbers that the runner computes itself around the chunks' calls.
#pragma once

#include <cstddef>
#include <cstdint>

namespace etcli {

// Added to a score that must not count: finite, so that a row with nothing open stays a number.
constexpr float kClosed = -100.0f;

// Fills `mask` [tokens, cache + tokens]: 0 where a row may look, kClosed elsewhere. Columns 0..cache-1 are cache slots, right-aligned:
// the last min(cache, seen) are open; the others are the tokens of this call, causal. Rows of left padding are closed, its columns too.
void fill_mask(float* mask, int64_t tokens, int64_t cache, int64_t seen, int64_t padding);

// Fills `rotary` [2, rows, head_dim], cos plane then sin plane, from `table` [positions, 2, head_dim]: `tokens` rows from `first_row` on
// have the positions from `seen` on; the others, which are padding, are zero, so that nothing stale reaches the keys.
void fill_rotary(float* rotary, const float* table, int64_t head_dim, int64_t rows, int64_t first_row, int64_t tokens, int64_t seen);

// Zeroes the rows that the padding of a left-padded call of `tokens` rows has left in `cache` [heads, length, head_dim].
void clear_left_padding(float* cache, int64_t heads, int64_t length, int64_t head_dim, int64_t tokens, int64_t padding);

// The lowest index of the largest of `count` values, or -1 where one of them is not a number.
int64_t argmax(const float* values, int64_t count);

}  // namespace etcli
