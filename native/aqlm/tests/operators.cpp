// The operators as the runtime calls them, and everything that is refused.
#include <doctest/doctest.h>

#include <cstring>

#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>

#include "../../testing/boxed.h"
#include "example.h"

using namespace etcli::aqlm;
using etcli::testing::call_operator;
using etcli::testing::Held;
using executorch::aten::ScalarType;
using executorch::aten::SizesType;
using executorch::runtime::Error;

namespace {

// An example with its arguments as the program has them.
struct Scene {
  explicit Scene(const Shape& shape, const std::vector<SizesType>& leading, unsigned seed = 1) : e(shape, seed) {
    const auto size = [](int64_t n) { return static_cast<SizesType>(n); };
    std::vector<SizesType> in = leading, out = leading;
    in.push_back(size(shape.groups * kGroup));
    out.push_back(size(shape.outputs));
    arguments.emplace_back(e.input.data(), in);
    arguments.emplace_back(e.codes.data(), std::vector{size(shape.groups), size(shape.outputs), size(shape.books)}, ScalarType::Char);
    arguments.emplace_back(e.codebooks.data(), std::vector<SizesType>{size(shape.books), 256, 1, 8});
    arguments.emplace_back(e.scales.data(), std::vector<SizesType>{size(shape.outputs), 1, 1, 1});
    if (shape.has_bias) {
      arguments.emplace_back(e.bias.data(), std::vector{size(shape.outputs)});
    } else {
      arguments.emplace_back();
    }
    arguments.emplace_back(e.out.data(), out);
  }
  Error call() { return call_with(&memory); }
  Error call_with(executorch::runtime::MemoryAllocator* allocator) {
    return call_operator(e.shape.books == 2 ? "aqlm::code2x8_lut_matmat.out" : "aqlm::code1x8_lut_matmat.out", arguments, allocator);
  }

  Example e;
  std::vector<Held> arguments;
  executorch::extension::MallocMemoryAllocator memory;
};

const Shape kShape = {3, 4, 10, 2, true};

// Refused, and nothing was touched.
void check_refused(Scene& scene) {
  const std::vector<float> before = scene.e.out;
  CHECK(scene.call() == Error::InvalidArgument);
  CHECK(std::memcmp(before.data(), scene.e.out.data(), before.size() * 4) == 0);
}

}  // namespace

TEST_CASE("one and two codebooks, with bias and without, for any leading dimensions") {
  for (const int64_t books : {1, 2}) {
    for (const bool has_bias : {false, true}) {
      for (const std::vector<SizesType>& leading : {std::vector<SizesType>{}, {1}, {6}, {2, 3}, {1, 2, 1, 3}}) {
        int64_t tokens = 1;
        for (const SizesType n : leading) tokens *= n;
        Scene scene({tokens, 5, 70, books, has_bias}, leading);
        REQUIRE(scene.call() == Error::Ok);
        CHECK(error_of(scene.e.out, expected(scene.e), tokens) < 5e-6);
      }
    }
  }
}

TEST_CASE("no tokens and no outputs are nothing to do") {
  Scene none({0, 4, 10, 2, true}, {0});
  CHECK(none.call_with(nullptr) == Error::Ok);
  Scene between({0, 4, 10, 2, false}, {2, 0});
  CHECK(between.call_with(nullptr) == Error::Ok);
  Scene thin({2, 4, 0, 2, false}, {2});
  CHECK(thin.call_with(nullptr) == Error::Ok);
  Scene bias_only({2, 0, 10, 2, true}, {2});
  REQUIRE(bias_only.call() == Error::Ok);
  CHECK(std::vector<float>(bias_only.e.out.begin(), bias_only.e.out.begin() + 10) == bias_only.e.bias);
}

TEST_CASE("arguments of another shape are refused") {
  const std::vector<std::vector<SizesType>> bad = {{},     {3},          {3, 31},      {3, 40},   {4, 10},          {3, 4, 10}, {4, 10, 1},      {4, 11, 2},      {5, 10, 2},
                                                   {4, 10, 3}, {2, 256, 8}, {1, 256, 1, 8}, {2, 255, 1, 8}, {2, 256, 2, 8}, {2, 256, 1, 4}, {10},       {10, 1},      {11},
                                                   {9, 1, 1, 1}, {10, 1, 1, 2}, {2, 10},    {3, 9},    {1, 3, 10},       {0},        {0, 10},         {1, 1, 1, 10}};
  for (size_t index = 0; index < 6; ++index) {
    for (const auto& sizes : bad) {
      CAPTURE(index);
      CAPTURE(sizes.size());
      Scene scene(kShape, {3});
      std::vector<float> memory(6000);
      if (sizes == scene.arguments[index].sizes) continue;
      scene.arguments[index] = Held(memory.data(), sizes, index == 1 ? ScalarType::Char : ScalarType::Float);
      check_refused(scene);
    }
  }
}

TEST_CASE("arguments of another type are refused") {
  for (size_t index = 0; index < 6; ++index) {
    for (const ScalarType type : {ScalarType::Float, ScalarType::Char, ScalarType::Byte, ScalarType::Half, ScalarType::Double, ScalarType::Long}) {
      if (type == (index == 1 ? ScalarType::Char : ScalarType::Float)) continue;
      CAPTURE(index);
      Scene scene(kShape, {3});
      std::vector<double> memory(6000);
      scene.arguments[index] = Held(memory.data(), scene.arguments[index].sizes, type);
      check_refused(scene);
    }
  }
}

TEST_CASE("transposed memory is refused") {
  for (const size_t index : {0, 1, 2, 5}) {
    Scene scene(kShape, {3});
    Held& held = scene.arguments[index];
    const size_t rank = held.sizes.size();
    std::swap(held.order[0], held.order[rank - 1]);
    executorch::aten::StridesType step = 1;
    for (size_t i = rank; i-- > 0;) {
      held.strides[held.order[i]] = step;
      step *= held.sizes[held.order[i]];
    }
    check_refused(scene);
  }
}

TEST_CASE("arguments that are missing, or are no tensors, are refused") {
  Scene few(kShape, {3});
  few.arguments.pop_back();
  check_refused(few);
  for (size_t index = 0; index < 6; ++index) {
    Scene number(kShape, {3});
    number.arguments[index].value = executorch::runtime::EValue(int64_t{3});
    check_refused(number);
    if (index == 4) continue;
    Scene none(kShape, {3});
    none.arguments[index] = Held();
    check_refused(none);
    Scene nowhere(kShape, {3});
    nowhere.arguments[index] = Held(nullptr, nowhere.arguments[index].sizes, index == 1 ? ScalarType::Char : ScalarType::Float);
    check_refused(nowhere);
  }
}

TEST_CASE("an output that overlaps an input is refused") {
  Scene scene({3, 4, 32, 2, true}, {3});
  scene.arguments[5] = Held(scene.e.input.data(), {3, 32});
  check_refused(scene);
  for (const size_t index : {2, 3, 4}) {
    Scene other(kShape, {3});
    std::vector<float> memory(6000);
    other.arguments[index] = Held(memory.data(), other.arguments[index].sizes);
    other.arguments[5] = Held(memory.data() + (index == 2 ? 4000 : 9), {3, 10});
    check_refused(other);
  }
}

TEST_CASE("memory that is not to be had fails the call with its own error") {
  const std::vector<float> untouched(30, 7.0f);
  Scene none(kShape, {3});
  none.e.out = untouched;
  none.arguments[5] = Held(none.e.out.data(), {3, 10});
  CHECK(none.call_with(nullptr) == Error::MemoryAllocationFailed);
  uint8_t few[64];
  executorch::runtime::MemoryAllocator small(sizeof few, few);
  CHECK(none.call_with(&small) == Error::MemoryAllocationFailed);
  CHECK(none.e.out == untouched);
}

TEST_CASE("an output that may vary takes the shape of the input") {
  Scene scene({2, 4, 10, 2, false}, {2});
  std::vector<float> room(100, -1.0f);
  Held out(room.data(), {8, 10});
  out.impl = std::make_unique<executorch::aten::TensorImpl>(ScalarType::Float, ssize_t{2}, out.sizes.data(), static_cast<void*>(room.data()), out.order.data(),
                                                            out.strides.data(), executorch::aten::TensorShapeDynamism::DYNAMIC_BOUND);
  out.value = executorch::runtime::EValue(executorch::aten::Tensor(out.impl.get()));
  scene.arguments[5] = std::move(out);
  REQUIRE(scene.call() == Error::Ok);
  CHECK(scene.arguments[5].value.toTensor().size(0) == 2);
  scene.e.out.assign(room.begin(), room.begin() + 20);
  CHECK(error_of(scene.e.out, expected(scene.e), 2) < 5e-6);
  CHECK(room[20] == -1.0f);
}
