// The kernel as one would write it down: slow, for any CPU. The other versions are tested against it and against float64.
#include "versions.h"

namespace etcli::aqlm {

void reference(const Call& call, const Item& item, float* sums) {
  const float* input = call.input + item.first_token * call.groups * kGroup;
  for (int64_t i = 0; i < item.outputs; ++i) {
    float sum = 0.0f;
    for (int64_t group = item.first_group; group < item.end_group; ++group) {
      for (int64_t book = 0; book < call.books; ++book) {
        const uint8_t code = call.codes[(group * call.outputs + item.first_output + i) * call.books + book];
        for (int64_t k = 0; k < kGroup; ++k) sum += input[group * kGroup + k] * call.codebooks[(book * kEntries + code) * kGroup + k];
      }
    }
    sums[i] = sum;
  }
}

}  // namespace etcli::aqlm
