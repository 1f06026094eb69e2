// Every version of the kernel against float64, over sizes that do not fit vectors, tiles or blocks.
#include <doctest/doctest.h>

#include <memory>
#include <random>

#include "../run.h"
#include "../versions.h"
#include "example.h"

using namespace etcli::attention;

static void run_with(Example& example, Attend attend, int64_t threads = 1) {
  const Call call = example.call();
  const Plan plan(call);
  // An array of its own of just the size, so that the sanitizer sees a step past its end.
  const std::unique_ptr<float[]> scratch(new float[static_cast<size_t>(scratch_floats(call, plan, threads))]);
  run(call, plan, attend, threads, scratch.get());
}

static void check(const Sizes& sizes, unsigned seed) {
  const Example before(sizes, seed);
  const Expected want = expected(before);
  for (const Version& version : usable_versions()) {
    CAPTURE(version.name);
    CAPTURE(sizes.tokens);
    CAPTURE(sizes.valid);
    CAPTURE(sizes.start);
    CAPTURE(sizes.heads);
    CAPTURE(sizes.kv_heads);
    CAPTURE(sizes.head_dim);
    CAPTURE(sizes.slots);
    Example after = before;
    run_with(after, version.attend);
    CHECK(difference(after.out, want.out) < 2e-5);
    CHECK(difference(after.key_cache, want.key_cache) < 2e-6);
    CHECK(difference(after.value_cache, want.value_cache) == 0.0);
  }
}

TEST_CASE("one token after any number of others") {
  for (int64_t start : {0, 1, 15, 16, 63, 127, 128, 129, 255, 300, 510, 511}) check({1, 1, start, 9, 3, 64, 512}, 1);
}

TEST_CASE("prompts, whole and padded") {
  for (int64_t valid : {1, 2, 5, 16, 17, 32}) {
    for (int64_t start : {0, 7, 120, 131}) check({32, valid, start, 6, 2, 32, 200}, 2);
  }
}

TEST_CASE("random sizes") {
  std::mt19937 random(7);
  const auto up_to = [&](int64_t n) { return std::uniform_int_distribution<int64_t>(1, n)(random); };
  for (int i = 0; i < 150; ++i) {
    Sizes s{};
    s.kv_heads = up_to(3);
    s.heads = s.kv_heads * (1 + i % 8);
    s.head_dim = up_to(70);
    s.slots = up_to(300);
    s.valid = up_to(std::min<int64_t>(20, s.slots));
    s.tokens = s.valid + up_to(4) - 1;
    s.start = up_to(s.slots - s.valid + 1) - 1;
    check(s, static_cast<unsigned>(i));
  }
}

TEST_CASE("many spans") {
  // More blocks than there may be spans, and a last span of one slot.
  check({1, 1, 5000, 2, 1, 8, 5001}, 3);
  check({1, 1, 4096, 2, 1, 8, 4097}, 3);
}

TEST_CASE("large scores do not overflow") {
  Example before({3, 3, 200, 4, 2, 16, 256}, 5);
  for (float& x : before.query) x *= 40.0f;
  for (int64_t i = 0; i < before.sizes.kv_heads * before.sizes.head_dim * before.sizes.slots; ++i) before.key_cache[static_cast<size_t>(i)] *= 8.0f;
  for (const Version& version : usable_versions()) {
    CAPTURE(version.name);
    Example after = before, reference = before;
    run_with(after, version.attend);
    run_with(reference, attend_reference);
    CHECK(difference(after.out, {reference.out.begin(), reference.out.end()}) < 2e-3);
    for (float x : after.out) CHECK(std::isfinite(x));
  }
}

TEST_CASE("what is no number stays none") {
  for (const Version& version : usable_versions()) {
    CAPTURE(version.name);
    Example example({1, 1, 40, 2, 2, 16, 64}, 6);
    example.query[3] = std::numeric_limits<float>::quiet_NaN();  // of head 0
    run_with(example, version.attend);
    for (size_t i = 0; i < 16; ++i) CHECK(std::isnan(example.out[i]));
    for (size_t i = 16; i < 32; ++i) CHECK(std::isfinite(example.out[i]));
  }
}

TEST_CASE("exp is exact to a few units") {
  // Softmax over two slots whose scores differ by x is 1 / (1 + e^x): reads the exponential of every version back.
  for (const Version& version : usable_versions()) {
    for (float x = 0.0f; x > -80.0f; x -= 0.37f) {
      Example example({1, 1, 1, 1, 1, 1, 2}, 8);
      example.rotary = {1.0f, 0.0f};
      example.query = {1.0f};
      example.key_cache = {x, 0.0f};
      example.key = {0.0f};
      example.value_cache = {1.0f, 0.0f};
      example.value = {0.0f};
      run_with(example, version.attend);
      const double want = 1.0 / (1.0 + std::exp(-static_cast<double>(x)));
      CAPTURE(version.name);
      CAPTURE(x);
      CHECK(example.out[0] == doctest::Approx(want).epsilon(1e-6));
    }
  }
}
