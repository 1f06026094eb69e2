#include "split.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

using namespace etcli;

// "2/4 8" : a call of 4 rows with 2 of padding, then a full one of 8.
static std::string drawn(int64_t length, const std::vector<int64_t>& shapes) {
  std::string out;
  for (const Call& call : split_prompt(length, shapes)) {
    if (!out.empty()) out += " ";
    if (call.padding) out += std::to_string(call.padding) + "/";
    out += std::to_string(call.tokens);
  }
  return out;
}

TEST_CASE("one shape: the remainder first, then full calls") {
  CHECK(drawn(1, {32}) == "31/32");
  CHECK(drawn(32, {32}) == "32");
  CHECK(drawn(33, {32}) == "31/32 32");
  CHECK(drawn(37, {32}) == "27/32 32");
  CHECK(drawn(96, {32}) == "32 32 32");
}

TEST_CASE("a short rest takes one-token calls, a longer one is padded") {
  CHECK(drawn(6, {32, 1}) == "1 1 1 1 1 1");
  CHECK(drawn(7, {32, 1}) == "25/32");
  CHECK(drawn(37, {32, 1}) == "1 1 1 1 1 32");
}

TEST_CASE("several shapes: least rows and calls together") {
  CHECK(drawn(200, {128, 32}) == "24/32 32 32 128");
  CHECK(drawn(128, {128, 32}) == "128");
  CHECK(drawn(5, {8, 4}) == "3/8");
  CHECK(drawn(12, {8, 4}) == "4 8");
  CHECK(drawn(6, {5, 3}) == "3 3");
}

TEST_CASE("without padding: full calls, and calls of one token for the rest") {
  for (const std::vector<int64_t>& shapes : std::vector<std::vector<int64_t>>{{32, 1}, {12, 8, 3, 1}, {1}}) {
    for (int64_t length = 1; length <= 100; ++length) {
      int64_t rows = 0;
      for (const Call& call : split_prompt(length, shapes, /*may_pad=*/false)) {
        REQUIRE(call.padding == 0);
        rows += call.tokens;
      }
      REQUIRE(rows == length);
    }
  }
  CHECK(split_prompt(39, {32, 1}, false).size() == 8);  // padded, it would be two calls
}

TEST_CASE("every length is covered, only the first call is padded, no cheaper split exists") {
  for (const std::vector<int64_t>& shapes : std::vector<std::vector<int64_t>>{{4}, {8, 4}, {7, 5, 3}, {64, 32, 8}, {9, 2}, {32, 1}}) {
    // exactly[n]: the least cost of calls whose rows add up to n, built up one call at a time.
    constexpr int64_t never = 1 << 30;
    std::vector<int64_t> exactly(400, never);
    exactly[0] = 0;
    for (size_t sum = 1; sum < exactly.size(); ++sum) {
      for (int64_t size : shapes) {
        if (sum >= static_cast<size_t>(size)) {
          exactly[sum] = std::min(exactly[sum], exactly[sum - static_cast<size_t>(size)] + size + call_rows);
        }
      }
    }
    for (int64_t length = 1; length <= 300; ++length) {
      const std::vector<Call> calls = split_prompt(length, shapes);
      int64_t rows = 0;
      for (size_t i = 0; i < calls.size(); ++i) {
        rows += calls[i].tokens;
        if (i > 0) REQUIRE(calls[i].padding == 0);
        if (i > 0) REQUIRE(calls[i].tokens >= calls[i - 1].tokens);
      }
      REQUIRE(calls[0].padding < calls[0].tokens);
      REQUIRE(rows - calls[0].padding == length);
      const int64_t cheapest = *std::min_element(exactly.begin() + length, exactly.end());
      REQUIRE(rows + call_rows * static_cast<int64_t>(calls.size()) == cheapest);
    }
  }
}
