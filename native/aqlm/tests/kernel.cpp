// Every version against float64, over sizes that do not fit vectors, blocks or spans.
#include <doctest/doctest.h>

#include "example.h"

using namespace etcli::aqlm;

static void run_with(Example& example, const Version& version, int64_t threads = 1) {
  const Call call = example.call();
  const Plan plan(call, version);
  const Scratch scratch(scratch_bytes(plan, threads));
  run(call, plan, threads, scratch.memory.get(), nullptr);
}

static void check(const Example& before) {
  const std::vector<double> want = expected(before);
  for (const Version& version : usable_versions()) {
    CAPTURE(version.name);
    CAPTURE(before.shape.tokens);
    CAPTURE(before.shape.groups);
    CAPTURE(before.shape.outputs);
    CAPTURE(before.shape.books);
    CAPTURE(before.shape.has_bias);
    Example after = before;
    run_with(after, version);
    CHECK(error_of(after.out, want, before.shape.tokens) < 5e-6);
  }
}

static void check(const Shape& shape, unsigned seed) { check(Example(shape, seed)); }

TEST_CASE("any number of tokens") {
  for (int64_t tokens = 1; tokens <= 37; ++tokens) check({tokens, 9, 70, tokens % 2 + 1, tokens % 3 == 0}, 1);
  check({150, 9, 70, 2, true}, 1);
}

TEST_CASE("any number of groups") {
  for (int64_t groups = 1; groups <= 20; ++groups) {
    for (int64_t tokens : {1, 3, 8, 16}) check({tokens, groups, 33, 2, false}, 2);
    check({1, groups, 65, 1, true}, 2);
  }
}

TEST_CASE("any number of outputs") {
  for (int64_t outputs = 1; outputs <= 140; ++outputs) {
    for (int64_t books : {1, 2}) check({1, 13, outputs, books, true}, 3);
    for (int64_t tokens : {2, 7, 16}) check({tokens, 5, outputs, 2, false}, 3);
  }
}

TEST_CASE("several spans, several blocks") {
  check({1, 131, 200, 2, true}, 4);
  check({1, 1000, 67, 1, false}, 4);
  check({3, 200, 90, 2, true}, 4);
  check({17, 140, 90, 2, true}, 4);
  check({1, 70, 2049, 2, false}, 4);
  check({1, 9, 8193, 2, true}, 4);
  check({5, 3, 17000, 1, true}, 4);
  check({40, 65, 8200, 2, false}, 4);
}

TEST_CASE("random sizes") {
  std::mt19937 random(7);
  const auto up_to = [&](int64_t n) { return std::uniform_int_distribution<int64_t>(1, n)(random); };
  for (int i = 0; i < 60; ++i) check({up_to(40), up_to(100), up_to(300), up_to(2), i % 2 == 0}, static_cast<unsigned>(i));
}

TEST_CASE("no tokens, no outputs, no groups") {
  check({0, 4, 10, 2, true}, 5);
  check({3, 4, 0, 2, false}, 5);
  check({3, 0, 20, 2, true}, 5);
  check({3, 0, 20, 1, false}, 5);
}

TEST_CASE("inputs far larger than their neighbours leave those exact enough") {
  for (const float size : {10.0f, 100.0f, 1000.0f, 1e6f}) {
    for (const int64_t tokens : {1, 16}) {
      CAPTURE(size);
      Example one({tokens, 128, 300, 2, false}, 8);
      for (int64_t t = 0; t < tokens; ++t) one.input[static_cast<size_t>(t * 1024 + 37)] *= size;
      check(one);
      Example some({tokens, 128, 300, 2, false}, 9);
      for (size_t i = 5; i < some.input.size(); i += 101) some.input[i] *= size;
      check(some);
      Example books({tokens, 128, 300, 2, false}, 10);  // one codebook is much larger than the other
      for (size_t i = 0; i < 2048; ++i) books.codebooks[i] *= size;
      check(books);
    }
  }
}

TEST_CASE("large, small and no inputs") {
  for (const float size : {1e30f, 1e-30f, 0.0f}) {
    CAPTURE(size);
    Example example({2, 20, 77, 2, false}, 11);
    for (float& x : example.input) x *= size;
    check(example);
  }
}

TEST_CASE("what is no number, or too large for one, is not hidden") {
  for (const Version& version : usable_versions()) {
    for (const int64_t tokens : {1, 2, 16}) {
      for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        CAPTURE(version.name);
        CAPTURE(tokens);
        Example example({tokens, 20, 77, 2, false}, 12);
        example.input[33] = bad;
        run_with(example, version);
        for (size_t i = 0; i < 77; ++i) CHECK_FALSE(std::isfinite(example.out[i]));
        for (size_t i = 77; i < example.out.size(); ++i) CHECK(std::isfinite(example.out[i]));
      }
    }
  }
}

TEST_CASE("working memory is bounded") {
  for (const Version& version : usable_versions()) {
    for (const int64_t threads : {1, 4, 8}) {
      for (const int64_t tokens : {1, 7, 16, 100, 4096, 1000000}) {
        for (const int64_t groups : {1, 72, 512, 1792}) {
          for (const int64_t outputs : {1, 576, 4096, 14336, 128256}) {
            const Call call{tokens, groups, outputs, 2, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
            const Plan plan(call, version);
            CHECK(scratch_bytes(plan, threads) <= std::max<size_t>(size_t{2} << 20, static_cast<size_t>(threads) << 19));
          }
        }
      }
    }
  }
}
