// Memory objects: what is bound once, and what has to be bound again.
#include <doctest/doctest.h>

#include <algorithm>

#include "allocator.h"
#include "fixture.h"

using namespace etcli::neuron;
using executorch::runtime::Error;
using fixture::floats;
using fixture::Loaded;

namespace {

// `count` floats that the NPU shares, each with the value `value`.
struct Shared {
  explicit Shared(int n, float value = 0) : count(n), data(static_cast<float*>(allocate(static_cast<size_t>(n) * 4))) {
    REQUIRE(data != nullptr);
    std::fill(data, data + n, value);
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { release(data); }
  executorch::extension::TensorPtr tensor(int from = 0, int size = -1) const { return floats(data + from, size < 0 ? count - from : size); }

  int count;
  float* data;
};

using Calls = std::vector<std::string>;

// The calls of the adapter that a run makes.
Calls calls_of(Loaded& loaded, const std::vector<executorch::extension::TensorPtr>& tensors) {
  fixture::adapter().calls.clear();
  CHECK(loaded.run(tensors) == Error::Ok);
  return fixture::adapter().calls;
}

const Calls kBare{"NeuronExecution_compute()"};

}  // namespace

TEST_CASE("tensors in shared memory are bound as parts of it, once: decoding is a bare compute call") {
  fixture::adapter().reset();
  fixture::NamedData data;
  data.entries["model_0"] = std::string("\0\0\xC8\x42", 4) + std::string(60, '\0');  // 100.0 first
  Loaded loaded(fixture::blob({16, 16}, {16}, true), {{"ExtractSharedBlobKey", "model_0"}}, &data);
  const Shared a(4, 1), wide(12, 2), out(4);
  const std::vector<executorch::extension::TensorPtr> tensors{a.tensor(), wide.tensor(4, 4), out.tensor()};
  CHECK(calls_of(loaded, tensors) == Calls{"NeuronExecution_setInputFromMemory(0, 0, 16)", "NeuronExecution_setInputFromMemory(1, 16, 16)",
                                           "NeuronExecution_setInputFromMemory(2, 0, 64)", "NeuronExecution_setOutputFromMemory(0, 0, 16)",
                                           "NeuronExecution_compute()"});
  CHECK(out.data[3] == 103);
  for (int i = 0; i < 5; ++i) {
    a.data[0] = static_cast<float>(i);
    CHECK(calls_of(loaded, tensors) == kBare);
    CHECK(out.data[0] == 102 + static_cast<float>(i));
  }
}

TEST_CASE("a cache that is input and output at once is bound on both sides, once") {
  fixture::adapter().reset();
  Loaded loaded(fixture::blob({16, 16}, {16, 16}), {{"ImportForever", fixture::kOn}});
  const Shared a(4, 1), cache(4, 2), out(4);
  const std::vector<executorch::extension::TensorPtr> tensors{a.tensor(), cache.tensor(), out.tensor(), cache.tensor()};
  CHECK(calls_of(loaded, tensors) ==
        Calls{"NeuronExecution_setInputFromMemory(0, 0, 16)", "NeuronExecution_setInputFromMemory(1, 0, 16)",
              "NeuronExecution_setOutputFromMemory(0, 0, 16)", "NeuronExecution_setOutputFromMemory(1, 0, 16)",
              "NeuronExecution_setInputFromMemory(0, 0, 16)", "NeuronExecution_setInputFromMemory(1, 0, 16)",
              "NeuronExecution_setOutputFromMemory(0, 0, 16)", "NeuronExecution_setOutputFromMemory(1, 0, 16)", "NeuronExecution_compute()"});
  CHECK(calls_of(loaded, tensors) == kBare);
}

TEST_CASE("fault 23: A, B, A: memory that is bound again is what the network reads") {
  fixture::adapter().reset();
  Loaded loaded(fixture::blob({16}, {16}));
  const Shared a(4, 1), b(4, 2), out(4);
  std::vector<float> plain(4, 3.0f);
  const auto read = [&](const executorch::extension::TensorPtr& input) {
    CHECK(loaded.run({input, out.tensor()}) == Error::Ok);
    return out.data[0];
  };
  const auto raw = floats(plain.data(), 4);
  CHECK(read(a.tensor()) == 1);
  CHECK(read(raw) == 3);
  CHECK(read(a.tensor()) == 1);
  CHECK(read(b.tensor()) == 2);
  CHECK(read(a.tensor()) == 1);
  CHECK(read(raw) == 3);
  CHECK(read(b.tensor()) == 2);
}

TEST_CASE("fault 23: the same for outputs") {
  fixture::adapter().reset();
  Loaded loaded(fixture::blob({16}, {16}));
  const Shared in(4, 1), a(4), b(4);
  std::vector<float> plain(4);
  const auto written = [&](float* data) {
    std::fill(a.data, a.data + 4, 0.0f);
    std::fill(b.data, b.data + 4, 0.0f);
    std::fill(plain.begin(), plain.end(), 0.0f);
    CHECK(loaded.run({in.tensor(), floats(data, 4)}) == Error::Ok);
    CHECK(a.data[0] + b.data[0] + plain[0] == 1);
    return data[3] == 1;
  };
  for (float* data : {a.data, plain.data(), a.data, b.data, a.data, plain.data(), b.data}) CHECK(written(data));
}

TEST_CASE("fault 23: another length or place in the same buffer is another binding") {
  fixture::adapter().reset();
  Loaded loaded(fixture::blob({16}, {16}));
  const Shared a(8, 1), out(8);
  CHECK(calls_of(loaded, {a.tensor(0, 4), out.tensor(0, 4)}).size() == 3);
  CHECK(calls_of(loaded, {a.tensor(0, 2), out.tensor(0, 4)}) == Calls{"NeuronExecution_setInputFromMemory(0, 0, 8)", "NeuronExecution_compute()"});
  CHECK(calls_of(loaded, {a.tensor(2, 2), out.tensor(0, 4)}) == Calls{"NeuronExecution_setInputFromMemory(0, 8, 8)", "NeuronExecution_compute()"});
  CHECK(calls_of(loaded, {a.tensor(2, 2), out.tensor(4, 4)}) == Calls{"NeuronExecution_setOutputFromMemory(0, 16, 16)", "NeuronExecution_compute()"});
}

TEST_CASE("fault 23: a buffer at the address and with the memory object of a released one is bound again") {
  fixture::adapter().reset();
  Loaded loaded(fixture::blob({16}, {16}), {{"ImportForever", fixture::kOn}});
  const Shared out(4);
  const void* address = nullptr;
  for (int round = 0; round < 3; ++round) {
    const Shared a(4, 1);
    if (address == nullptr) address = a.data;
    REQUIRE(a.data == address);
    const Calls calls = calls_of(loaded, {a.tensor(), out.tensor()});
    CHECK(std::count(calls.begin(), calls.end(), "NeuronExecution_setInputFromMemory(0, 0, 16)") == 2);  // the hint and the binding
    CHECK(std::count(calls.begin(), calls.end(), "NeuronExecution_setOutputFromMemory(0, 0, 16)") == (round == 0 ? 2 : 0));
    CHECK(calls_of(loaded, {a.tensor(), out.tensor()}) == kBare);
  }
}

TEST_CASE("fault 24: whole buffers are hinted once for each index and side, before anything is bound") {
  fixture::adapter().reset();
  Loaded loaded(fixture::blob({16, 16}, {16}), {{"ImportForever", fixture::kOn}});
  const Shared a(8, 1), b(8, 2), out(8);
  CHECK(calls_of(loaded, {a.tensor(4, 4), b.tensor(0, 4), out.tensor(0, 4)}) ==
        Calls{"NeuronExecution_setInputFromMemory(0, 0, 32)", "NeuronExecution_setInputFromMemory(1, 0, 32)",
              "NeuronExecution_setOutputFromMemory(0, 0, 32)", "NeuronExecution_setInputFromMemory(0, 16, 16)",
              "NeuronExecution_setInputFromMemory(1, 0, 16)", "NeuronExecution_setOutputFromMemory(0, 0, 16)", "NeuronExecution_compute()"});
  CHECK(out.data[0] == 3);
  CHECK(calls_of(loaded, {a.tensor(4, 4), b.tensor(0, 4), out.tensor(0, 4)}) == kBare);
  // Another part of a hinted buffer: no hint.
  CHECK(calls_of(loaded, {a.tensor(0, 4), b.tensor(0, 4), out.tensor(0, 4)}) ==
        Calls{"NeuronExecution_setInputFromMemory(0, 0, 16)", "NeuronExecution_compute()"});
  // Swapped: each index has a buffer that is new to it.
  CHECK(calls_of(loaded, {b.tensor(0, 4), a.tensor(0, 4), out.tensor(0, 4)}) ==
        Calls{"NeuronExecution_setInputFromMemory(0, 0, 32)", "NeuronExecution_setInputFromMemory(1, 0, 32)",
              "NeuronExecution_setInputFromMemory(0, 0, 16)", "NeuronExecution_setInputFromMemory(1, 0, 16)", "NeuronExecution_compute()"});
  // And an input that becomes an output is new on that side.
  CHECK(calls_of(loaded, {b.tensor(0, 4), b.tensor(0, 4), a.tensor(0, 4)}) ==
        Calls{"NeuronExecution_setOutputFromMemory(0, 0, 32)", "NeuronExecution_setInputFromMemory(1, 0, 16)",
              "NeuronExecution_setOutputFromMemory(0, 0, 16)", "NeuronExecution_compute()"});
}

TEST_CASE("fault 24: without ImportForever nothing is hinted, and plain memory never is") {
  fixture::adapter().reset();
  const Shared a(8, 1), out(8);
  Loaded without(fixture::blob({16}, {16}));
  CHECK(calls_of(without, {a.tensor(0, 4), out.tensor(0, 4)}).size() == 3);
  Loaded with(fixture::blob({16}, {16}), {{"ImportForever", fixture::kOn}});
  std::vector<float> plain(4), plain_out(4);
  CHECK(calls_of(with, {floats(plain.data(), 4), floats(plain_out.data(), 4)}) ==
        Calls{"NeuronExecution_setInput(0, 16)", "NeuronExecution_setOutput(0, 16)", "NeuronExecution_compute()"});
}

TEST_CASE("fault 22: refused memory objects and hints end the call, and are tried again by the next") {
  Fake& fake = fixture::adapter();
  fake.reset();
  Loaded loaded(fixture::blob({16}, {16}), {{"ImportForever", fixture::kOn}});
  const Shared a(4, 1), out(4);
  const std::vector<executorch::extension::TensorPtr> tensors{a.tensor(), out.tensor()};
  // 1: the hint, 2: the binding
  for (const char* function : {"NeuronExecution_setInputFromMemory", "NeuronExecution_setOutputFromMemory"}) {
    for (int call : {1, 2}) {
      CAPTURE(function);
      CAPTURE(call);
      Loaded fresh(fixture::blob({16}, {16}), {{"ImportForever", fixture::kOn}});
      fake.reset();
      fixture::log().clear();
      fake.fails(function, call, NEURON_UNMAPPABLE);
      CHECK(fresh.run(tensors) == Error::AccessFailed);
      CHECK(fixture::is_logged(std::string(function) + " for "));
      CHECK(fixture::is_logged("NEURON_UNMAPPABLE (6)"));
      CHECK(std::count(fake.calls.begin(), fake.calls.end(), "NeuronExecution_compute()") == 0);
      // A hint that was refused is given again; one that was taken is not.
      const Calls again = calls_of(fresh, tensors);
      CHECK(std::count(again.begin(), again.end(), std::string(function) + "(0, 0, 16)") == (call == 1 ? 2 : 1));
      CHECK(out.data[0] == 1);
      CHECK(calls_of(fresh, tensors) == kBare);
    }
  }
}

TEST_CASE("fault 23: a hint that another's failure leaves behind is not taken for the binding before it") {
  Fake& fake = fixture::adapter();
  fake.reset();
  Loaded loaded(fixture::blob({16}, {16}), {{"ImportForever", fixture::kOn}});
  const Shared a(4, 1), b(4, 2), out(4), other(4);
  CHECK(loaded.run({a.tensor(), out.tensor()}) == Error::Ok);
  fake.fails("NeuronExecution_setOutputFromMemory");
  CHECK(loaded.run({b.tensor(), other.tensor()}) == Error::Internal);  // input 0 is bound to b by its hint
  CHECK(loaded.run({a.tensor(), out.tensor()}) == Error::Ok);
  CHECK(out.data[0] == 1);
}

TEST_CASE("a tensor that ends behind its buffer is refused") {
  fixture::adapter().reset();
  Loaded loaded(fixture::blob({32}, {32}));
  const Shared a(8, 1), out(8);
  fixture::log().clear();
  CHECK(loaded.run({floats(a.data + 4, 8), out.tensor()}) == Error::InvalidArgument);
  CHECK(fixture::is_logged("input 0 of 32 bytes ends behind its buffer of 32 bytes, where it begins at 16"));
}
