// The kernel as one would write it down: slow, for any CPU. The other versions are tested against it and against float64.
#include <cmath>

#include "attention.h"
#include "rotate.h"
#include "versions.h"

namespace etcli::attention {

void attend_reference(const Call& call, const Item& item, const Partial& result, float* rotated) {
  const int64_t dim = call.head_dim, slots = call.slots;
  const float* keys = call.key_cache + item.kv_head * dim * slots;
  const float* values = call.value_cache + item.kv_head * slots * dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  for (int64_t i = 0; i < item.queries; ++i) {
    const int64_t y = item.first_query + i, token = y / call.group(), head = item.kv_head * call.group() + y % call.group();
    rotate(call.query + (token * call.heads + head) * dim, call.cosines + token * dim, call.sines + token * dim, dim, scale, rotated);
    float maximum = -INFINITY, sum = 0.0f;
    float* weighted = result.weighted + i * dim;
    for (int64_t d = 0; d < dim; ++d) weighted[d] = 0.0f;
    const int64_t end = call.visible(y) < item.end_slot ? call.visible(y) : item.end_slot;
    for (int64_t slot = item.first_slot; slot < end; ++slot) {
      float score = 0.0f;
      for (int64_t d = 0; d < dim; ++d) score += rotated[d] * keys[d * slots + slot];
      if (!(score <= maximum)) {  // larger, or no number
        const float less = std::exp(maximum - score);
        sum *= less;
        for (int64_t d = 0; d < dim; ++d) weighted[d] *= less;
        maximum = score;
      }
      const float weight = std::exp(score - maximum);
      sum += weight;
      for (int64_t d = 0; d < dim; ++d) weighted[d] += weight * values[slot * dim + d];
    }
    result.maximum[i] = maximum;
    result.sum[i] = sum;
  }
}

}  // namespace etcli::attention
