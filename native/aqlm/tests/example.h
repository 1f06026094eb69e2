// Random calls, and what they must come to, computed in float64 from the dense matrix.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "../run.h"

namespace etcli::aqlm {

struct Shape {
  int64_t tokens, groups, outputs, books;
  bool has_bias;
};

// Inputs and output of a call. Arrays are of just the size, so that the sanitizer sees a step past their ends.
struct Example {
  explicit Example(const Shape& of, unsigned seed = 1) : shape(of) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& values, int64_t count, float size) {
      values.resize(static_cast<size_t>(count));
      for (float& value : values) value = size * normal(random);
      values.shrink_to_fit();
    };
    fill(input, of.tokens * of.groups * kGroup, 1.0f);
    fill(codebooks, of.books * kEntries * kGroup, 0.05f);
    fill(scales, of.outputs, 1.0f);
    if (of.has_bias) fill(bias, of.outputs, 1.0f);
    codes.resize(static_cast<size_t>(of.groups * of.outputs * of.books));
    for (uint8_t& code : codes) code = static_cast<uint8_t>(random());
    out.assign(static_cast<size_t>(of.tokens * of.outputs), std::numeric_limits<float>::quiet_NaN());
  }

  Call call() {
    return {shape.tokens, shape.groups, shape.outputs, shape.books, input.data(), codes.data(), codebooks.data(), scales.data(),
            shape.has_bias ? bias.data() : nullptr, out.data()};
  }

  Shape shape;
  std::vector<float> input, codebooks, scales, bias, out;
  std::vector<uint8_t> codes;
};

// Row `output` of the dense matrix times the input, with bias.
inline std::vector<double> expected(const Example& e) {
  const Shape& s = e.shape;
  std::vector<double> want(e.out.size()), row(static_cast<size_t>(s.groups * kGroup));
  for (int64_t o = 0; o < s.outputs; ++o) {
    for (int64_t g = 0; g < s.groups; ++g) {
      for (int64_t k = 0; k < kGroup; ++k) {
        double weight = 0.0;
        for (int64_t m = 0; m < s.books; ++m) {
          const int64_t code = e.codes[static_cast<size_t>((g * s.outputs + o) * s.books + m)];
          weight += e.codebooks[static_cast<size_t>((m * kEntries + code) * kGroup + k)];
        }
        row[static_cast<size_t>(g * kGroup + k)] = weight * e.scales[static_cast<size_t>(o)];
      }
    }
    for (int64_t t = 0; t < s.tokens; ++t) {
      double sum = s.has_bias ? e.bias[static_cast<size_t>(o)] : 0.0;
      for (size_t i = 0; i < row.size(); ++i) sum += row[i] * e.input[static_cast<size_t>(t) * row.size() + i];
      want[static_cast<size_t>(t * s.outputs + o)] = sum;
    }
  }
  return want;
}

// The larger of the error's norm by the norm and its largest by the largest, over each token by itself; infinite for what is no number.
inline double error_of(const std::vector<float>& have, const std::vector<double>& want, int64_t tokens) {
  if (want.empty()) return 0.0;
  const size_t outputs = want.size() / static_cast<size_t>(tokens);
  double worst = 0.0;
  for (size_t first = 0; first < want.size(); first += outputs) {
    double squares = 0.0, all = 0.0, largest = 0.0, top = 0.0;
    for (size_t i = first; i < first + outputs; ++i) {
      const double apart = std::abs(static_cast<double>(have[i]) - want[i]);
      if (!std::isfinite(apart)) return std::numeric_limits<double>::infinity();
      squares += apart * apart;
      all += want[i] * want[i];
      largest = std::max(largest, apart);
      top = std::max(top, std::abs(want[i]));
    }
    if (largest > 0.0) worst = std::max({worst, std::sqrt(squares / all), largest / top});
  }
  return worst;
}

// Working memory of just the size that a call needs.
struct Scratch {
  explicit Scratch(size_t bytes) : memory(bytes > 0 ? static_cast<char*>(::operator new(bytes, std::align_val_t{kAlignment})) : nullptr) {
    std::fill_n(memory.get(), bytes, '\xff');  // numbers that are none
  }
  struct Free {
    void operator()(char* p) const { ::operator delete(p, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<char, Free> memory;
};

}  // namespace etcli::aqlm
