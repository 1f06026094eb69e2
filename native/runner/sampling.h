// Drawing the next token from the logits. The same logits, settings and seed give the same token on every machine and with every compiler:
// after two roundings that IEEE 754 fixes, all arithmetic is on whole numbers (docs/runner-protocol.md, Sampling).
#pragma once

#include <cstdint>
#include <vector>

namespace etcli {

struct Sampling {
  double temperature = 0;  // 0: greedy
  double top_p = 1;        // from 0 to 1
  uint64_t seed = 0;
};

// Output `index`, from 0, of SplitMix64 (Steele, Lea and Flood 2014) started at `seed`.
uint64_t random_bits(uint64_t seed, uint64_t index);

// What each of `count` tokens weighs: 2^40 times its probability over the best one's, rounded down; 0 for those outside of the nucleus, the
// fewest most likely tokens that have top_p of the whole together (of equal ones the lower id first). Temperature above 0; no logit is NaN.
std::vector<uint64_t> token_weights(const float* logits, int64_t count, const Sampling& sampling);

// The token that `bits` out of 64 fall on, where tokens lie side by side by rising id, each as wide as it weighs. Not all weigh 0.
int64_t token_at(const std::vector<uint64_t>& weights, uint64_t bits);

// Tokens by the settings, one after the other.
struct Sampler {
  Sampling sampling;
  uint64_t drawn = 0;

  // The next token, or -1 where a logit is not a number.
  int64_t pick(const float* logits, int64_t count);
};

}  // namespace etcli
