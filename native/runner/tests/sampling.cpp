#include "sampling.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace etcli;

TEST_CASE("the generator is SplitMix64") {
  // the published sequence for this seed
  const uint64_t expected[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u, 4593380528125082431u, 16408922859458223821u};
  for (uint64_t i = 0; i < 5; ++i) CHECK(random_bits(1234567, i) == expected[i]);
}

TEST_CASE("weights are 2^40 times a probability over the best one's") {
  std::vector<float> logits;
  for (int i = 0; i <= 4000; ++i) logits.push_back(3.0f - 0.01f * static_cast<float>(i));
  for (double temperature : {0.01, 0.3, 1.0, 7.5, 1000.0}) {
    const auto weights = token_weights(logits.data(), static_cast<int64_t>(logits.size()), {temperature, 1, 0});
    CHECK(weights[0] == uint64_t{1} << 40);
    for (size_t i = 0; i < logits.size(); ++i) {
      const double exact = std::exp((static_cast<double>(logits[i]) - static_cast<double>(logits[0])) / temperature) * std::ldexp(1.0, 40);
      // an exponent is cut to 2^-32, and the weight to a whole number
      CHECK(std::abs(static_cast<double>(weights[i]) - exact) <= exact * 2.4e-10 + 1);
    }
  }
}

TEST_CASE("the nucleus is the fewest likeliest tokens that have top_p together, of equal ones the lower ids") {
  const float logits[] = {0, std::log(2.0f), 0, std::log(4.0f), 0};  // 1, 2, 1, 4, 1 of 9
  const auto kept = [&](double top_p) {
    std::vector<int> ids;
    const auto weights = token_weights(logits, 5, {1, top_p, 0});
    for (size_t id = 0; id < 5; ++id) {
      if (weights[id] > 0) ids.push_back(static_cast<int>(id));
    }
    return ids;
  };
  CHECK(kept(1e-9) == std::vector<int>{3});
  CHECK(kept(0.44) == std::vector<int>{3});
  CHECK(kept(0.45) == std::vector<int>{1, 3});
  CHECK(kept(0.66) == std::vector<int>{1, 3});
  CHECK(kept(0.67) == std::vector<int>{0, 1, 3});
  CHECK(kept(0.8) == std::vector<int>{0, 1, 2, 3});
  CHECK(kept(1) == std::vector<int>{0, 1, 2, 3, 4});
}

TEST_CASE("a token is as wide as it weighs") {
  const std::vector<uint64_t> weights = {0, 1, 0, 2, 1, 0};
  const uint64_t quarter = uint64_t{1} << 62;
  CHECK(token_at(weights, 0) == 1);
  CHECK(token_at(weights, quarter - 1) == 1);
  CHECK(token_at(weights, quarter) == 3);
  CHECK(token_at(weights, 3 * quarter - 1) == 3);
  CHECK(token_at(weights, 3 * quarter) == 4);
  CHECK(token_at(weights, ~uint64_t{0}) == 4);
}

TEST_CASE("odd logits") {
  const float infinity = std::numeric_limits<float>::infinity();
  const float closed[] = {-infinity, 1, -infinity};
  const float open[] = {1, infinity, 3};
  const float wrong[] = {1, std::nanf(""), 3};
  for (double temperature : {0.0, 1e-300, 1.0, 1e300}) {
    Sampler sampler{{temperature, 0.9, 5}};
    for (int i = 0; i < 20; ++i) {
      CHECK(sampler.pick(closed, 3) == 1);
      CHECK(sampler.pick(open, 3) == 1);
      CHECK(sampler.pick(wrong, 3) == -1);
    }
  }
  const float equal[] = {2, 2};
  Sampler greedy;
  CHECK(greedy.pick(equal, 2) == 0);
  CHECK(greedy.drawn == 0);
}
