// Random calls of the operator, and what they must come to, computed in float64.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "../attention.h"

namespace etcli::attention {

struct Sizes {
  int64_t tokens, valid, start, heads, kv_heads, head_dim, slots;
};

// Inputs and outputs of a call. Slots that no token was written to hold not-a-number, so that reading one shows.
struct Example {
  explicit Example(const Sizes& of, unsigned seed = 1) : sizes(of) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& values, int64_t count) {
      values.resize(static_cast<size_t>(count));
      for (float& value : values) value = normal(random);
    };
    const int64_t d = of.head_dim;
    fill(query, of.tokens * of.heads * d);
    fill(key, of.tokens * of.kv_heads * d);
    fill(value, of.tokens * of.kv_heads * d);
    fill(key_cache, of.kv_heads * of.slots * d);
    fill(value_cache, of.kv_heads * of.slots * d);
    rotary.resize(static_cast<size_t>(2 * of.tokens * d));
    for (int64_t t = 0; t < of.tokens; ++t) {
      for (int64_t i = 0; i < d; ++i) {
        const double half = static_cast<double>(d / 2 ? d / 2 : 1);
        const double angle = static_cast<double>(of.start + t) * std::pow(10000.0, -static_cast<double>(i % (d / 2 ? d / 2 : 1)) / half);
        rotary[static_cast<size_t>(t * d + i)] = static_cast<float>(std::cos(angle));
        rotary[static_cast<size_t>((of.tokens + t) * d + i)] = static_cast<float>(std::sin(angle));
      }
    }
    const float none = std::numeric_limits<float>::quiet_NaN();
    for (int64_t h = 0; h < of.kv_heads; ++h) {
      for (int64_t slot = of.start; slot < of.slots; ++slot) {
        for (int64_t i = 0; i < d; ++i) key_cache[key_at(h, slot, i)] = value_cache[value_at(h, slot, i)] = none;
      }
    }
    out.assign(query.size(), none);
  }

  size_t key_at(int64_t h, int64_t slot, int64_t i) const { return static_cast<size_t>((h * sizes.head_dim + i) * sizes.slots + slot); }
  size_t value_at(int64_t h, int64_t slot, int64_t i) const { return static_cast<size_t>((h * sizes.slots + slot) * sizes.head_dim + i); }

  Call call() {
    return {sizes.tokens, sizes.valid, sizes.start, sizes.heads, sizes.kv_heads, sizes.head_dim, sizes.slots,
            query.data(), key.data(), value.data(), rotary.data(), rotary.data() + sizes.tokens * sizes.head_dim,
            key_cache.data(), value_cache.data(), out.data()};
  }

  Sizes sizes;
  std::vector<float> query, key, value, key_cache, value_cache, rotary, out;
};

// Rotated head in float64, straight from the definition: x * cos + rotate_half(x) * sin.
inline std::vector<double> rotated(const Example& e, const std::vector<float>& rows, int64_t heads, int64_t token, int64_t head) {
  const int64_t d = e.sizes.head_dim, half = d / 2;
  const float* x = rows.data() + (token * heads + head) * d;
  const float* cosines = e.rotary.data() + token * d;
  const float* sines = e.rotary.data() + (e.sizes.tokens + token) * d;
  std::vector<double> turned;
  for (int64_t i = half; i < d; ++i) turned.push_back(-static_cast<double>(x[i]));
  for (int64_t i = 0; i < half; ++i) turned.push_back(x[i]);
  for (int64_t i = 0; i < d; ++i) {
    turned[static_cast<size_t>(i)] = static_cast<double>(x[i]) * cosines[i] + turned[static_cast<size_t>(i)] * sines[i];
  }
  return turned;
}

struct Expected {
  std::vector<double> out, key_cache, value_cache;
};

// What the call must leave, from its inputs as they were.
inline Expected expected(const Example& e) {
  const Sizes& s = e.sizes;
  const int64_t d = s.head_dim, group = s.heads / s.kv_heads;
  Expected want{std::vector<double>(e.out.size(), 0.0), {e.key_cache.begin(), e.key_cache.end()}, {e.value_cache.begin(), e.value_cache.end()}};
  for (int64_t t = 0; t < s.valid; ++t) {
    for (int64_t h = 0; h < s.kv_heads; ++h) {
      const std::vector<double> k = rotated(e, e.key, s.kv_heads, t, h);
      for (int64_t i = 0; i < d; ++i) {
        want.key_cache[e.key_at(h, s.start + t, i)] = k[static_cast<size_t>(i)];
        want.value_cache[e.value_at(h, s.start + t, i)] = e.value[static_cast<size_t>((t * s.kv_heads + h) * d + i)];
      }
    }
  }
  for (int64_t t = 0; t < s.valid; ++t) {
    for (int64_t head = 0; head < s.heads; ++head) {
      const int64_t h = head / group, seen = s.start + t + 1;
      const std::vector<double> q = rotated(e, e.query, s.heads, t, head);
      std::vector<double> weights;
      double total = 0.0;
      for (int64_t slot = 0; slot < seen; ++slot) {
        double score = 0.0;
        for (int64_t i = 0; i < d; ++i) score += q[static_cast<size_t>(i)] * want.key_cache[e.key_at(h, slot, i)];
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(d))));
        total += weights.back();
      }
      for (int64_t i = 0; i < d; ++i) {
        double mixed = 0.0;
        for (int64_t slot = 0; slot < seen; ++slot) mixed += weights[static_cast<size_t>(slot)] * want.value_cache[e.value_at(h, slot, i)];
        want.out[static_cast<size_t>((t * s.heads + head) * d + i)] = mixed / total;
      }
    }
  }
  return want;
}

// Largest difference, not-a-number counting as equal to itself only.
inline double difference(const std::vector<float>& have, const std::vector<double>& want) {
  double largest = 0.0;
  for (size_t i = 0; i < have.size(); ++i) {
    if (std::isnan(have[i]) && std::isnan(want[i])) continue;
    const double apart = std::abs(static_cast<double>(have[i]) - want[i]);
    if (!(apart <= largest)) largest = std::isnan(apart) ? std::numeric_limits<double>::infinity() : apart;
  }
  return largest;
}

}  // namespace etcli::attention
