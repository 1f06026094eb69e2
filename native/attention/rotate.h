// Rotary embedding, for every version of the kernel.
#pragma once

#include <cstdint>

namespace etcli::attention {
// A name of its own in each source that includes this: versions are compiled for different instruction sets, and the linker, which keeps
// one copy of what bears one name, must never give a plain CPU the copy that was compiled for a better one.
namespace {

// Rotary embedding of one head in the rotate-half convention, times `scale`: y = (x * cos + rotate_half(x) * sin) * scale.
inline void rotate(const float* x, const float* cosines, const float* sines, int64_t dim, float scale, float* y) {
  const int64_t half = dim / 2, rest = dim - half;
  for (int64_t i = 0; i < rest; ++i) y[i] = (x[i] * cosines[i] - x[i + half] * sines[i]) * scale;
  for (int64_t i = rest; i < dim; ++i) y[i] = (x[i] * cosines[i] + x[i - rest] * sines[i]) * scale;
}

}  // namespace
}  // namespace etcli::attention
