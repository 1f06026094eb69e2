#include "inputs.h"

#include <algorithm>

namespace etcli {

void fill_mask(float* mask, int64_t tokens, int64_t cache, int64_t seen, int64_t padding) {
  const int64_t columns = cache + tokens;
  std::fill(mask, mask + tokens * columns, kClosed);
  for (int64_t i = padding; i < tokens; ++i) {
    float* row = mask + i * columns;
    std::fill(row + cache - std::min(cache, seen), row + cache, 0.0f);
    std::fill(row + cache + padding, row + cache + i + 1, 0.0f);
  }
}

void fill_rotary(float* rotary, const float* table, int64_t head_dim, int64_t rows, int64_t first_row, int64_t tokens, int64_t seen) {
  for (int plane = 0; plane < 2; ++plane) {
    float* out = rotary + plane * rows * head_dim;
    const float* position = table + (2 * seen + plane) * head_dim;
    out = std::fill_n(out, first_row * head_dim, 0.0f);
    for (int64_t i = 0; i < tokens; ++i, position += 2 * head_dim) out = std::copy(position, position + head_dim, out);
    std::fill_n(out, (rows - first_row - tokens) * head_dim, 0.0f);
  }
}

void clear_left_padding(float* cache, int64_t heads, int64_t length, int64_t head_dim, int64_t tokens, int64_t padding) {
  for (int64_t head = 0; head < heads; ++head) {
    float* first = cache + (head * length + length - tokens) * head_dim;
    std::fill(first, first + padding * head_dim, 0.0f);
  }
}

int64_t argmax(const float* values, int64_t count) {
  // A large vocabulary is scanned for every token, so the largest value is sought in lanes that the compiler makes vectors of.
  constexpr int64_t kLanes = 16;
  float most[kLanes];
  int is_wrong[kLanes] = {};
  std::fill_n(most, kLanes, values[0]);
  for (int64_t i = 0; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const float value = values[i + lane];
      is_wrong[lane] |= value != value;
      most[lane] = value > most[lane] ? value : most[lane];
    }
  }
  for (int64_t i = count - count % kLanes; i < count; ++i) {
    is_wrong[0] |= values[i] != values[i];
    most[0] = std::max(most[0], values[i]);
  }
  if (std::any_of(is_wrong, is_wrong + kLanes, [](int flag) { return flag != 0; })) return -1;
  return std::find(values, values + count, *std::max_element(most, most + kLanes)) - values;
}

}  // namespace etcli
