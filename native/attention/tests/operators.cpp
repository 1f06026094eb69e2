// The operators as the runtime calls them: outputs in place and not, and everything that is refused.
#include <doctest/doctest.h>

#include <cstring>
#include <memory>

#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>

#include "../../testing/boxed.h"
#include "example.h"

using namespace etcli::attention;
using etcli::testing::call_operator;
using etcli::testing::Held;
using executorch::aten::ScalarType;
using executorch::runtime::Error;

namespace {

// An example with its arguments as the program has them. `in_place`: each new cache is the memory of its input.
struct Scene {
  Scene(const Sizes& sizes, bool in_place, unsigned seed = 1) : e(sizes, seed), new_keys(e.key_cache.size(), -7.0f), new_values(new_keys) {
    pos = {sizes.start, sizes.valid};
    const auto size = [](int64_t n) { return static_cast<executorch::aten::SizesType>(n); };
    const int32_t t = size(sizes.tokens), q = size(sizes.heads * sizes.head_dim), k = size(sizes.kv_heads * sizes.head_dim), d = size(sizes.head_dim);
    const std::vector<executorch::aten::SizesType> cache = {1, size(sizes.kv_heads), size(sizes.slots), d};
    arguments.emplace_back(e.query.data(), std::vector{1, t, q});
    arguments.emplace_back(e.key.data(), std::vector{1, t, k});
    arguments.emplace_back(e.value.data(), std::vector{1, t, k});
    arguments.emplace_back(e.key_cache.data(), cache);
    arguments.emplace_back(e.value_cache.data(), cache);
    arguments.emplace_back(e.rotary.data(), std::vector{1, 2, t, d});
    arguments.emplace_back(pos.data(), std::vector{2}, ScalarType::Long);
    arguments.emplace_back(e.out.data(), std::vector{1, t, q});
    arguments.emplace_back(in_place ? e.key_cache.data() : new_keys.data(), cache);
    arguments.emplace_back(in_place ? e.value_cache.data() : new_values.data(), cache);
  }
  Error call(executorch::runtime::MemoryAllocator* memory = nullptr) { return call_operator("etcli::ring_attention.out", arguments, memory); }

  Example e;
  std::vector<float> new_keys, new_values;
  std::vector<int64_t> pos;
  std::vector<Held> arguments;
};

const Sizes kSizes = {4, 3, 20, 6, 2, 12, 37};

// Refused, and nothing was touched.
void check_refused(Scene& scene) {
  const Example before = scene.e;
  CHECK(scene.call() == Error::InvalidArgument);
  CHECK(std::memcmp(before.out.data(), scene.e.out.data(), before.out.size() * 4) == 0);
  CHECK(std::memcmp(before.key_cache.data(), scene.e.key_cache.data(), before.key_cache.size() * 4) == 0);
  CHECK(std::memcmp(before.value_cache.data(), scene.e.value_cache.data(), before.value_cache.size() * 4) == 0);
}

}  // namespace

TEST_CASE("caches in place get the new rows only") {
  Scene scene(kSizes, true);
  const Expected want = expected(scene.e);
  executorch::extension::MallocMemoryAllocator memory;
  REQUIRE(scene.call(&memory) == Error::Ok);
  CHECK(difference(scene.e.out, want.out) < 2e-5);
  CHECK(difference(scene.e.key_cache, want.key_cache) < 2e-6);
  CHECK(difference(scene.e.value_cache, want.value_cache) == 0.0);
  for (size_t i = 3 * 6 * 12; i < scene.e.out.size(); ++i) CHECK(scene.e.out[i] == 0.0f);
}

TEST_CASE("caches elsewhere get a copy, and the old ones stay") {
  Scene scene(kSizes, false);
  const Example before = scene.e;
  const Expected want = expected(scene.e);
  REQUIRE(scene.call() == Error::Ok);  // without an allocator too
  CHECK(difference(scene.e.out, want.out) < 2e-5);
  CHECK(difference(scene.new_keys, want.key_cache) < 2e-6);
  CHECK(difference(scene.new_values, want.value_cache) == 0.0);
  CHECK(std::memcmp(before.key_cache.data(), scene.e.key_cache.data(), before.key_cache.size() * 4) == 0);
  CHECK(std::memcmp(before.value_cache.data(), scene.e.value_cache.data(), before.value_cache.size() * 4) == 0);
}

TEST_CASE("token after token is the whole prompt at once") {
  const Sizes whole = {9, 9, 0, 4, 2, 8, 9};
  Scene once(whole, true, 3);
  const Example inputs = once.e;
  REQUIRE(once.call() == Error::Ok);
  Example steps = inputs;
  for (int64_t t = 0; t < 9; ++t) {
    Scene step({1, 1, t, 4, 2, 8, 9}, true);
    std::copy_n(inputs.query.data() + t * 32, 32, step.e.query.data());
    std::copy_n(inputs.key.data() + t * 16, 16, step.e.key.data());
    std::copy_n(inputs.value.data() + t * 16, 16, step.e.value.data());
    std::copy(steps.key_cache.begin(), steps.key_cache.end(), step.e.key_cache.begin());
    std::copy(steps.value_cache.begin(), steps.value_cache.end(), step.e.value_cache.begin());
    std::copy_n(inputs.rotary.data() + t * 8, 8, step.e.rotary.data());
    std::copy_n(inputs.rotary.data() + (9 + t) * 8, 8, step.e.rotary.data() + 8);
    REQUIRE(step.call() == Error::Ok);
    steps.key_cache = step.e.key_cache;
    steps.value_cache = step.e.value_cache;
    for (int64_t i = 0; i < 32; ++i) {
      CHECK(step.e.out[static_cast<size_t>(i)] == doctest::Approx(once.e.out[static_cast<size_t>(t * 32 + i)]).epsilon(1e-5));
    }
  }
  CHECK(steps.key_cache == once.e.key_cache);
  CHECK(steps.value_cache == once.e.value_cache);
}

TEST_CASE("the last free slot is used, and no one after it") {
  Scene full({2, 2, 3, 2, 1, 6, 5}, true);
  const Expected want = expected(full.e);
  REQUIRE(full.call() == Error::Ok);
  CHECK(difference(full.e.out, want.out) < 2e-5);
  for (const int64_t start : {int64_t{4}, int64_t{5}, int64_t{1000}, INT64_MAX}) {
    Scene over({2, 2, 3, 2, 1, 6, 5}, true);
    over.pos[0] = start;
    check_refused(over);
  }
}

TEST_CASE("positions that cannot be are refused") {
  const int64_t bad[][2] = {{-1, 1}, {INT64_MIN, 1}, {0, 0}, {0, -1}, {0, 5}, {0, INT64_MAX}, {0, INT64_MIN}, {INT64_MAX, 4}};
  for (const auto& pos : bad) {
    CAPTURE(pos[0]);
    CAPTURE(pos[1]);
    Scene scene(kSizes, true);
    scene.pos = {pos[0], pos[1]};
    check_refused(scene);
  }
}

TEST_CASE("arguments of another shape or type are refused") {
  const std::vector<std::vector<executorch::aten::SizesType>> bad_sizes = {
      {1, 3, 72}, {1, 4, 70}, {2, 4, 36}, {4, 72}, {1, 2, 37, 11}, {1, 2, 36, 12}, {1, 3, 4, 12}, {1, 2, 4, 1, 12}, {3}, {1}, {0}, {1, 0, 37, 12}, {1, 2, 37, 0}, {}};
  for (size_t index = 0; index < 10; ++index) {
    for (const auto& sizes : bad_sizes) {
      CAPTURE(index);
      CAPTURE(sizes.size());
      Scene scene(kSizes, true);
      std::vector<float> memory(4000);
      const bool long_type = index == 6;
      scene.arguments[index] = Held(memory.data(), sizes, long_type ? ScalarType::Long : ScalarType::Float);
      check_refused(scene);
    }
    Scene scene(kSizes, true);
    std::vector<double> memory(4000);
    scene.arguments[index] = Held(memory.data(), scene.arguments[index].sizes, ScalarType::Double);
    check_refused(scene);
  }
}

TEST_CASE("transposed memory is refused") {
  Scene scene(kSizes, true);
  Held& key = scene.arguments[1];
  key.order = {0, 2, 1};
  key.strides = {96, 1, 4};
  check_refused(scene);
}

TEST_CASE("too few arguments, and none that are tensors, are refused") {
  Scene scene(kSizes, true);
  scene.arguments.pop_back();
  check_refused(scene);
  Scene other(kSizes, true);
  other.arguments[6].value = executorch::runtime::EValue(int64_t{3});
  check_refused(other);
}

TEST_CASE("outputs that overlap what they must not are refused") {
  Scene shifted(kSizes, true);
  std::vector<float> memory(shifted.e.key_cache.size() + 1);
  shifted.arguments[3] = Held(memory.data(), shifted.arguments[3].sizes);
  shifted.arguments[8] = Held(memory.data() + 1, shifted.arguments[8].sizes);
  check_refused(shifted);
  Scene swapped(kSizes, true);
  std::swap(swapped.arguments[8], swapped.arguments[9]);
  check_refused(swapped);
  Scene same(kSizes, false);
  same.arguments[9] = Held(same.new_keys.data(), same.arguments[9].sizes);
  check_refused(same);
  Scene query(kSizes, true);
  query.arguments[7] = Held(query.e.query.data(), query.arguments[7].sizes);
  check_refused(query);
}

TEST_CASE("last_row gives row m - 1, and refuses others") {
  std::vector<float> x(12), out(4, -1.0f);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  std::vector<int64_t> pos = {7, 2};
  std::vector<Held> arguments;
  arguments.emplace_back(x.data(), std::vector{1, 3, 4});
  arguments.emplace_back(pos.data(), std::vector{2}, ScalarType::Long);
  arguments.emplace_back(out.data(), std::vector{1, 1, 4});
  REQUIRE(call_operator("etcli::last_row.out", arguments) == Error::Ok);
  CHECK(out == std::vector<float>{4, 5, 6, 7});
  for (const int64_t valid : {int64_t{0}, int64_t{-1}, int64_t{4}, INT64_MAX, INT64_MIN}) {
    pos[1] = valid;
    CHECK(call_operator("etcli::last_row.out", arguments) == Error::InvalidArgument);
  }
  pos[1] = 3;
  arguments[2] = Held(out.data(), {1, 1, 3});
  CHECK(call_operator("etcli::last_row.out", arguments) == Error::InvalidArgument);
  arguments[2] = Held(out.data(), {1, 1, 4}, ScalarType::Int);
  CHECK(call_operator("etcli::last_row.out", arguments) == Error::InvalidArgument);
  CHECK(out == std::vector<float>{4, 5, 6, 7});
}
