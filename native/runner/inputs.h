// What each call feeds to every chunk besides the caches: hidden rows, mask and rotary rows (contract "shift").
#pragma once

#include <cstddef>
#include <cstdint>

namespace etcli {

// Added to a score that must not count: finite, so that a row with nothing open stays a number.
constexpr float kClosed = -100.0f;

// Fills `mask` [tokens, cache + tokens]: 0 where a row may look, kClosed elsewhere. Columns 0..cache-1 are cache slots, right-aligned:
// the last min(cache, seen) are open; the others are the tokens of this call, causal. Rows of left padding are closed, its columns too.
void fill_mask(float* mask, int64_t tokens, int64_t cache, int64_t seen, int64_t padding);

// Fills `rotary` [2, tokens, head_dim], cos plane then sin plane, from `table` [positions, 2, head_dim]. The first row that is not
// padding has position `seen`; rows of padding are zero, so that nothing stale reaches the keys.
void fill_rotary(float* rotary, const float* table, int64_t head_dim, int64_t tokens, int64_t seen, int64_t padding);

// Zeroes the rows that the padding of a left-padded call of `tokens` rows has left in `cache` [heads, length, head_dim].
void clear_left_padding(float* cache, int64_t heads, int64_t length, int64_t head_dim, int64_t tokens, int64_t padding);

// The lowest index of the largest of `count` values, or -1 where one of them is not a number.
int64_t argmax(const float* values, int64_t count);

// Copies `count` float32 or float16 numbers, which need not be aligned, to `out`.
void copy_row(float* out, const unsigned char* row, bool is_half, int64_t count);

}  // namespace etcli
