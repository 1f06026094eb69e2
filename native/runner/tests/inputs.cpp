#include "inputs.h"

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

using namespace etcli;

// Rows of a mask as text: '.' open, 'x' closed.
static std::vector<std::string> drawn(int64_t tokens, int64_t cache, int64_t seen, int64_t padding) {
  std::vector<float> mask(static_cast<size_t>(tokens * (cache + tokens)), 7.0f);
  fill_mask(mask.data(), tokens, cache, seen, padding);
  std::vector<std::string> rows;
  for (int64_t i = 0; i < tokens; ++i) {
    std::string& row = rows.emplace_back();
    for (int64_t j = 0; j < cache + tokens; ++j) {
      const float value = mask[static_cast<size_t>(i * (cache + tokens) + j)];
      REQUIRE((value == 0.0f || value == -100.0f));
      row += value == 0.0f ? '.' : 'x';
    }
  }
  return rows;
}

TEST_CASE("a first call without padding sees itself, causally") {
  CHECK(drawn(3, 4, 0, 0) == std::vector<std::string>{"xxxx.xx", "xxxx..x", "xxxx..."});
}

TEST_CASE("the newest cache rows are at the right") {
  CHECK(drawn(2, 4, 3, 0) == std::vector<std::string>{"x....x", "x....."});
  CHECK(drawn(1, 4, 0, 0) == std::vector<std::string>{"xxxx."});
  CHECK(drawn(1, 4, 4, 0) == std::vector<std::string>{"....."});
  CHECK(drawn(1, 4, 9, 0) == std::vector<std::string>{"....."});
}

TEST_CASE("padding neither sees nor is seen") {
  CHECK(drawn(4, 4, 0, 2) == std::vector<std::string>{"xxxxxxxx", "xxxxxxxx", "xxxxxx.x", "xxxxxx.."});
  CHECK(drawn(4, 4, 0, 3) == std::vector<std::string>{"xxxxxxxx", "xxxxxxxx", "xxxxxxxx", "xxxxxxx."});
}

TEST_CASE("rotary rows are those of the positions, padding is zero") {
  // table[position][plane][d] = 100 * position + 10 * plane + d
  const int64_t dim = 2;
  std::vector<float> table;
  for (int position = 0; position < 6; ++position) {
    for (int plane = 0; plane < 2; ++plane) {
      for (int d = 0; d < dim; ++d) table.push_back(static_cast<float>(100 * position + 10 * plane + d));
    }
  }
  std::vector<float> rotary(12, 7.0f);
  fill_rotary(rotary.data(), table.data(), dim, 3, 0, 3, 3);
  CHECK(rotary == std::vector<float>{300, 301, 400, 401, 500, 501, 310, 311, 410, 411, 510, 511});
  fill_rotary(rotary.data(), table.data(), dim, 3, 2, 1, 0);
  CHECK(rotary == std::vector<float>{0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 10, 11});
  fill_rotary(rotary.data(), table.data(), dim, 3, 0, 2, 4);
  CHECK(rotary == std::vector<float>{400, 401, 500, 501, 0, 0, 410, 411, 510, 511, 0, 0});
  fill_rotary(rotary.data(), table.data(), dim, 3, 1, 1, 5);
  CHECK(rotary == std::vector<float>{0, 0, 500, 501, 0, 0, 0, 0, 510, 511, 0, 0});
}

TEST_CASE("only the rows of padding are cleared, in every head") {
  // 2 heads, 4 rows, head size 2; a call of 3 rows, 2 of them padding: rows 1 and 2.
  std::vector<float> cache(16, 1.0f);
  clear_left_padding(cache.data(), 2, 4, 2, 3, 2);
  CHECK(cache == std::vector<float>{1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1});
  std::vector<float> whole(8, 1.0f);
  clear_left_padding(whole.data(), 1, 4, 2, 4, 3);
  CHECK(whole == std::vector<float>{0, 0, 0, 0, 0, 0, 1, 1});
}

TEST_CASE("argmax takes the lowest index and tells of NaN") {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  const float values[] = {-3, 2, 5, 5, 1};
  CHECK(argmax(values, 5) == 2);
  CHECK(argmax(values, 1) == 0);
  const float low[] = {-infinity, -infinity};
  CHECK(argmax(low, 2) == 0);
  const float first[] = {nan, 1}, last[] = {1, nan};
  CHECK(argmax(first, 2) == -1);
  CHECK(argmax(last, 2) == -1);
}

TEST_CASE("argmax finds its value at every place of every length") {
  for (size_t count = 1; count <= 67; ++count) {
    for (size_t at = 0; at < count; ++at) {
      std::vector<float> values(count, -2.0f);
      values[at] = -1.0f;
      REQUIRE(argmax(values.data(), static_cast<int64_t>(count)) == static_cast<int64_t>(at));
      values.back() = -1.0f;  // an equal one behind it
      REQUIRE(argmax(values.data(), static_cast<int64_t>(count)) == static_cast<int64_t>(at));
      values[at] = std::numeric_limits<float>::quiet_NaN();
      REQUIRE(argmax(values.data(), static_cast<int64_t>(count)) == -1);
    }
  }
}
