// print_samples LOGITS TEMPERATURE TOP_P SEED COUNT: what the tokens of a file of float32 logits weigh, as a line of ID:WEIGHT for those
// that weigh something, and a line of COUNT tokens drawn one after the other.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include "sampling.h"

int main(int argc, char** argv) {
  std::FILE* file = argc == 6 ? std::fopen(argv[1], "rb") : nullptr;
  if (file == nullptr) return 2;
  std::vector<float> logits;
  for (float value = 0; std::fread(&value, sizeof value, 1, file) == 1;) logits.push_back(value);
  std::fclose(file);
  const int64_t count = static_cast<int64_t>(logits.size());
  etcli::Sampler sampler;
  sampler.sampling = {std::atof(argv[2]), std::atof(argv[3]), std::strtoull(argv[4], nullptr, 10)};
  const std::vector<uint64_t> weights = etcli::token_weights(logits.data(), count, sampler.sampling);
  for (size_t id = 0; id < weights.size(); ++id) {
    if (weights[id] > 0) std::printf("%zu:%" PRIu64 " ", id, weights[id]);
  }
  std::printf("\n");
  for (int64_t left = std::atoll(argv[5]); left > 0; --left) std::printf("%" PRId64 " ", sampler.pick(logits.data(), count));
  std::printf("\n");
}
