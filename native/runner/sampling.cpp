#include "sampling.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "inputs.h"

namespace etcli {

namespace {

__extension__ typedef unsigned __int128 Wide;

constexpr int kPoint = 62;  // fixed-point numbers below are of this many fractional bits
constexpr int kWeight = 40;
constexpr int kTable = 6;  // bits of an exponent that are looked up
constexpr uint64_t kOne = uint64_t{1} << kPoint;

constexpr uint64_t times(uint64_t a, uint64_t b) { return static_cast<uint64_t>((Wide{a} * b) >> kPoint); }

// ln 2, of 62 fractional bits.
constexpr uint64_t kLn2 = 0x2C5C85FDF473DE6A;

// 2^-x for x in [0, 1): the series of e^(-x ln 2), whose `terms` leave less than (x ln 2)^(terms + 1) / (terms + 1)!.
constexpr uint64_t small_power(uint64_t x, uint64_t terms) {
  const uint64_t z = times(x, kLn2);
  uint64_t sum = kOne;
  for (uint64_t k = terms; k > 0; --k) sum = kOne - times(z / k, sum);
  return sum;
}

// 2^(-i / 64).
constexpr std::array<uint64_t, 1 << kTable> make_powers() {
  std::array<uint64_t, 1 << kTable> powers{};
  for (uint64_t i = 0; i < powers.size(); ++i) powers[i] = small_power(i << (kPoint - kTable), 20);
  return powers;
}
constexpr std::array<uint64_t, 1 << kTable> kPowers = make_powers();

// 2^(-x / 2^32), of kWeight fractional bits, for x below 64 * 2^32.
uint64_t weight_of(uint64_t x) {
  const int whole = static_cast<int>(x >> 32);
  const uint64_t fraction = (x & 0xFFFFFFFF) << (kPoint - 32);
  const uint64_t rest = fraction & ((uint64_t{1} << (kPoint - kTable)) - 1);
  return times(kPowers[fraction >> (kPoint - kTable)], small_power(rest, 5)) >> (kPoint - kWeight) >> whole;
}

struct Candidate {
  uint64_t weight;
  int64_t id;
  // For a heap with the likeliest on top, of equal ones the lowest id.
  bool operator<(const Candidate& other) const { return weight != other.weight ? weight < other.weight : id > other.id; }
};

void keep_nucleus(std::vector<uint64_t>& weights, double top_p) {
  uint64_t total = 0;
  std::vector<Candidate> heap;
  for (size_t id = 0; id < weights.size(); ++id) {
    total += weights[id];
    if (weights[id] > 0) heap.push_back({weights[id], static_cast<int64_t>(id)});
  }
  std::make_heap(heap.begin(), heap.end());
  const uint64_t enough = std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(top_p * static_cast<double>(total))));
  Candidate last{};
  for (uint64_t kept = 0; kept < enough && !heap.empty(); kept += last.weight) {
    std::pop_heap(heap.begin(), heap.end());
    last = heap.back();
    heap.pop_back();
  }
  for (const Candidate& left : heap) weights[static_cast<size_t>(left.id)] = 0;
}

}  // namespace

uint64_t random_bits(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

std::vector<uint64_t> token_weights(const float* logits, int64_t count, const Sampling& sampling) {
  std::vector<uint64_t> weights(static_cast<size_t>(count), 0);
  const double best = *std::max_element(logits, logits + count);
  // Rounded here, and once for each token below: a difference of two floats and a product, none of which a compiler may fuse.
  const double scale = 1.4426950408889634 / sampling.temperature * 4294967296.0;  // 1 / ln 2, in units of 2^-32
  for (int64_t id = 0; id < count; ++id) {
    const double below = best - static_cast<double>(logits[id]);
    const double x = below == 0 ? 0 : below * scale;
    if (x < (kWeight + 1) * 4294967296.0) weights[static_cast<size_t>(id)] = weight_of(static_cast<uint64_t>(x));
  }
  if (sampling.top_p < 1) keep_nucleus(weights, sampling.top_p);
  return weights;
}

int64_t token_at(const std::vector<uint64_t>& weights, uint64_t bits) {
  uint64_t total = 0;
  for (uint64_t weight : weights) total += weight;
  uint64_t place = static_cast<uint64_t>((Wide{bits} * total) >> 64);
  size_t id = 0;
  while (place >= weights[id]) place -= weights[id++];
  return static_cast<int64_t>(id);
}

int64_t Sampler::pick(const float* logits, int64_t count) {
  const int64_t best = argmax(logits, count);
  if (sampling.temperature == 0 || best < 0 || !std::isfinite(logits[best])) return best;
  return token_at(token_weights(logits, count, sampling), random_bits(sampling.seed, drawn++));
}

}  // namespace etcli
