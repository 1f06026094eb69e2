#include "numbers.h"

#include <doctest/doctest.h>

using namespace etcli;

TEST_CASE("numbers are digits within a bound") {
  CHECK(parse_int("0", 10) == 0);
  CHECK(parse_int("10", 10) == 10);
  CHECK(parse_int("007", 10) == 7);
  CHECK(parse_int("9223372036854775807", INT64_MAX) == INT64_MAX);
  for (const char* wrong : {"", "11", "-1", "+1", " 1", "1 ", "1.0", "1e3", "0x1", "a", "99999999999999999999"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_int(wrong, 10).has_value());
  }
  CHECK_FALSE(parse_int("9223372036854775808", INT64_MAX).has_value());
}

TEST_CASE("products tell when they overflow") {
  CHECK(product({}) == 1);
  CHECK(product({1 << 20, 1 << 24, 4}) == int64_t{1} << 46);
  CHECK_FALSE(product({1 << 20, 1 << 24, 1 << 20}).has_value());
}
