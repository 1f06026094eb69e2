// Whole numbers from text, and products that cannot overflow.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace etcli {

// Decimal digits only (no sign, blank or leading plus), at most `most`.
inline std::optional<int64_t> parse_int(std::string_view digits, int64_t most) {
  if (digits.empty()) return std::nullopt;
  int64_t value = 0;
  for (char c : digits) {
    if (c < '0' || c > '9') return std::nullopt;
    if (value > (most - (c - '0')) / 10) return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

// The product of sizes, or nothing when it does not fit in 63 bits.
inline std::optional<int64_t> product(const std::vector<int64_t>& sizes) {
  int64_t value = 1;
  for (int64_t size : sizes) {
    if (__builtin_mul_overflow(value, size, &value)) return std::nullopt;
  }
  return value;
}

}  // namespace etcli
