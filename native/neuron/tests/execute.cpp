// Running a network on tensors in plain memory, and what is refused. Run with and without an allocator on the device.
#include <doctest/doctest.h>

#include <numeric>

#include "fixture.h"

using executorch::aten::ScalarType;
using executorch::extension::make_tensor_ptr;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using fixture::floats;
using fixture::Loaded;

TEST_CASE("inputs and outputs go to their indices, and the network is run") {
  Fake& fake = fixture::adapter();
  fake.reset();
  Loaded loaded(fixture::blob({16, 8}, {16, 8}));
  REQUIRE(loaded.error == Error::Ok);
  std::vector<float> a{1, 2, 3, 4}, b{10, 20}, c(4), d(2);
  fake.calls.clear();
  REQUIRE(loaded.run({floats(a.data(), 4), floats(b.data(), 2), floats(c.data(), 4), floats(d.data(), 2)}) == Error::Ok);
  CHECK(c == std::vector<float>{11, 22, 13, 24});
  CHECK(d == std::vector<float>{12, 23});
  CHECK(fake.calls == std::vector<std::string>{"NeuronExecution_setInput(0, 16)", "NeuronExecution_setInput(1, 8)",
                                               "NeuronExecution_setOutput(0, 16)", "NeuronExecution_setOutput(1, 8)",
                                               "NeuronExecution_compute()"});
}

TEST_CASE("the header's counts are held against the tensors of a call") {
  Fake& fake = fixture::adapter();
  fake.reset();
  Loaded loaded(fixture::blob({16, 16}, {16}));
  std::vector<float> a(4);
  const auto tensor = floats(a.data(), 4);
  fake.calls.clear();
  for (size_t count : {0, 1, 2, 4}) {
    fixture::log().clear();
    CHECK(loaded.run(std::vector<executorch::extension::TensorPtr>(count, tensor)) == Error::InvalidProgram);
    CHECK(fixture::is_logged("its header tells of 2 inputs and 1 outputs, the program calls it with " + std::to_string(count) + " tensors"));
  }
  CHECK(fake.calls.empty());
}

TEST_CASE("tensors that the network cannot take are refused before any is bound") {
  Fake& fake = fixture::adapter();
  fake.reset();
  Loaded loaded(fixture::blob({16}, {16}));
  std::vector<float> a(64), b(64);
  const auto good = floats(a.data(), 4), out = floats(b.data(), 4);
  fake.calls.clear();
  fixture::log().clear();

  CHECK(loaded.run({floats(a.data(), 5), out}) == Error::InvalidArgument);
  CHECK(fixture::is_logged("input 0 is Float [5], 20 bytes, the compiled network has room for 16"));
  CHECK(loaded.run({good, floats(b.data(), 5)}) == Error::InvalidArgument);
  CHECK(fixture::is_logged("output 0 is Float [5], 20 bytes, the compiled network has room for 16"));
  CHECK(loaded.run({make_tensor_ptr({2}, a.data(), ScalarType::Double), out}) == Error::InvalidType);
  CHECK(fixture::is_logged("input 0 is of type Double"));
  CHECK(loaded.run({floats(nullptr, 4), out}) == Error::InvalidState);
  CHECK(loaded.run({good, floats(nullptr, 4)}) == Error::InvalidState);
  CHECK(fixture::is_logged("output 0 (Float [4], 16 bytes) has no memory"));
  std::vector<EValue> number{EValue(int64_t{1}), EValue(*out)};
  CHECK(loaded.run(number) == Error::InvalidType);
  CHECK(fixture::is_logged("input 0 is not a tensor"));
  const auto turned = make_tensor_ptr({1, 2, 2, 1}, a.data(), {0, 2, 3, 1}, {4, 1, 2, 2}, ScalarType::Float);
  CHECK(loaded.run({turned, out}) == Error::InvalidArgument);
  CHECK(loaded.run({good, turned}) == Error::InvalidArgument);
  CHECK(fixture::is_logged("is not laid out in row-major order"));
  CHECK(fake.calls.empty());

  CHECK(loaded.run({good, out}) == Error::Ok);
}

TEST_CASE("tensors may be smaller than what the NPU pads them to") {
  Fake& fake = fixture::adapter();
  fake.reset();
  fake.extra_padding = 48;
  Loaded loaded(fixture::blob({16}, {16}));
  std::vector<float> a{1, 2, 3, 4}, b(4);
  CHECK(loaded.run({floats(a.data(), 4), floats(b.data(), 4)}) == Error::Ok);
  CHECK(b == a);
}

TEST_CASE("fault 22: a refused binding ends the call, and the next call binds again") {
  Fake& fake = fixture::adapter();
  fake.reset();
  Loaded loaded(fixture::blob({16, 16}, {16, 16}));
  std::vector<float> a{1, 2, 3, 4}, b{5, 6, 7, 8}, c(4), d(4);
  const std::vector<executorch::extension::TensorPtr> tensors{floats(a.data(), 4), floats(b.data(), 4), floats(c.data(), 4), floats(d.data(), 4)};
  const auto refused = [&](const char* function, int call, const char* what) {
    CAPTURE(function);
    CAPTURE(call);
    fake.reset();
    fixture::log().clear();
    fake.fails(function, call, NEURON_BAD_DATA);
    std::fill(c.begin(), c.end(), -1.0f);
    CHECK(loaded.run(tensors) == Error::InvalidArgument);
    CHECK(fixture::errors() == std::vector<std::string>{"method 'forward' on the NPU: " + std::string(function) + " for " + what +
                                                        " of 16 bytes failed with NEURON_BAD_DATA (4)"});
    for (const std::string& made : fake.calls) CHECK(made != "NeuronExecution_compute()");
    CHECK(c == std::vector<float>(4, -1.0f));
    CHECK(loaded.run(tensors) == Error::Ok);
    CHECK(c == std::vector<float>{6, 8, 10, 12});
  };
  refused("NeuronExecution_setInput", 1, "input 0");
  refused("NeuronExecution_setInput", 2, "input 1");
  refused("NeuronExecution_setOutput", 1, "output 0");
  refused("NeuronExecution_setOutput", 2, "output 1");
}

TEST_CASE("a network that fails is an error of the call") {
  Fake& fake = fixture::adapter();
  fake.reset();
  Loaded loaded(fixture::blob({16}, {16}), {}, nullptr, "4t32c_0");
  std::vector<float> a(4), b(4);
  const std::vector<executorch::extension::TensorPtr> tensors{floats(a.data(), 4), floats(b.data(), 4)};
  fixture::log().clear();
  fake.fails("NeuronExecution_compute", 1, NEURON_OP_FAILED);
  CHECK(loaded.run(tensors) == Error::Internal);
  CHECK(fixture::errors() == std::vector<std::string>{"method '4t32c_0' on the NPU: NeuronExecution_compute failed with NEURON_OP_FAILED (5)"});
  CHECK(loaded.run(tensors) == Error::Ok);
}

TEST_CASE("a message of any length is whole") {
  Fake& fake = fixture::adapter();
  fake.reset();
  const std::string method(700, 'm');
  Loaded loaded(fixture::blob({16}, {16}), {}, nullptr, method.c_str());
  fixture::log().clear();
  CHECK(loaded.run(std::vector<executorch::extension::TensorPtr>{}) == Error::InvalidProgram);
  CHECK(fixture::is_logged(method + "' on the NPU: its header tells"));
  CHECK(fixture::is_logged("with 0 tensors; it is damaged"));
}
