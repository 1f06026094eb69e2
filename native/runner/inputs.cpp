#include "inputs.h"

#include <executorch/runtime/core/exec_aten/exec_aten.h>

#include <algorithm>
#include <cmath>
#include <cstring>

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

void fill_rotary(float* rotary, const float* table, int64_t head_dim, int64_t tokens, int64_t seen, int64_t padding) {
  float* cos = rotary;
  float* sin = rotary + tokens * head_dim;
  std::fill(cos, cos + padding * head_dim, 0.0f);
  std::fill(sin, sin + padding * head_dim, 0.0f);
  for (int64_t i = padding; i < tokens; ++i) {
    const float* position = table + (seen + i - padding) * 2 * head_dim;
    std::copy(position, position + head_dim, cos + i * head_dim);
    std::copy(position + head_dim, position + 2 * head_dim, sin + i * head_dim);
  }
}

void clear_left_padding(float* cache, int64_t heads, int64_t length, int64_t head_dim, int64_t tokens, int64_t padding) {
  for (int64_t head = 0; head < heads; ++head) {
    float* first = cache + (head * length + length - tokens) * head_dim;
    std::fill(first, first + padding * head_dim, 0.0f);
  }
}

int64_t argmax(const float* values, int64_t count) {
  int64_t best = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (std::isnan(values[i])) return -1;
    if (values[i] > values[best]) best = i;
  }
  return best;
}

void copy_row(float* out, const unsigned char* row, bool is_half, int64_t count) {
  if (!is_half) {
    std::memcpy(out, row, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    executorch::aten::Half value;
    std::memcpy(&value, row + i * 2, 2);
    out[i] = static_cast<float>(value);
  }
}

}  // namespace etcli
