// Shared weights: read once, kept once, let go with their last user. Run with and without an allocator on the device.
#include "shared_weights.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "fixture.h"

using executorch::runtime::Error;
using fixture::floats;
using fixture::Loaded;
using fixture::NamedData;

static std::string floats_of(float value, int count = 16) {
  std::string bytes(static_cast<size_t>(count) * 4, '\0');
  for (int i = 0; i < count; ++i) std::memcpy(bytes.data() + i * 4, &value, 4);
  return bytes;
}

static size_t live_buffers() { return fixture::allocator() != nullptr ? fixture::allocator()->live.size() : 0; }

// What a network with one input of zeros and shared weights computes: the first of the weights.
static float first_weight(Loaded& loaded) {
  std::vector<float> in(4), out(4);
  REQUIRE(loaded.run({floats(in.data(), 4), floats(out.data(), 4)}) == Error::Ok);
  return out[0];
}

static const std::string kBlob = fixture::blob({16}, {16}, true);
static const fixture::Specs kSpecs = {{"ExtractSharedBlobKey", "model_0"}};

TEST_CASE("weights are the last input, behind those of the header") {
  fixture::adapter().reset();
  NamedData data;
  data.entries["model_0"] = floats_of(7);
  Loaded loaded(kBlob, kSpecs, &data);
  REQUIRE(loaded.error == Error::Ok);
  CHECK(first_weight(loaded) == 7);
  const bool has_allocator = live_buffers() > 0;
  const std::string call = has_allocator ? "NeuronExecution_setInputFromMemory(1, 0, 64)" : "NeuronExecution_setInput(1, 64)";
  const auto& calls = fixture::adapter().calls;
  CHECK(std::count(calls.begin(), calls.end(), call) == 1);
  CHECK(first_weight(loaded) == 7);
  CHECK(std::count(calls.begin(), calls.end(), call) == 1);  // bound once, by an address too
  CHECK(data.held == (has_allocator ? 0 : 1));  // copied and given back, or kept
}

TEST_CASE("fault 22: weights whose binding is refused are bound by the next call") {
  Fake& fake = fixture::adapter();
  fake.reset();
  NamedData data;
  data.entries["model_0"] = floats_of(7);
  Loaded loaded(kBlob, kSpecs, &data);
  const bool has_allocator = live_buffers() > 0;
  std::vector<float> in(4), out(4);
  fixture::log().clear();
  fake.reset();
  fake.fails(has_allocator ? "NeuronExecution_setInputFromMemory" : "NeuronExecution_setInput", has_allocator ? 1 : 2, NEURON_BAD_DATA);
  CHECK(loaded.run({floats(in.data(), 4), floats(out.data(), 4)}) == Error::InvalidArgument);
  CHECK(fixture::is_logged("for input 1 "));
  CHECK(first_weight(loaded) == 7);
}

TEST_CASE("methods of a program share them, and they go with the last") {
  NamedData data;
  data.entries["model_0"] = floats_of(7);
  auto prompt = std::make_unique<Loaded>(kBlob, kSpecs, &data, "128t512c_0");
  const size_t copies = live_buffers();
  auto generation = std::make_unique<Loaded>(kBlob, kSpecs, &data, "1t512c_0");
  CHECK(live_buffers() == copies);
  CHECK(data.held == (copies > 0 ? 0 : 1));
  prompt.reset();
  CHECK(live_buffers() == copies);
  CHECK(first_weight(*generation) == 7);
  generation.reset();
  CHECK(live_buffers() == 0);
  CHECK(data.held == 0);
  Loaded again(kBlob, kSpecs, &data);
  CHECK(first_weight(again) == 7);
}

TEST_CASE("other weights under the same key are other weights") {
  NamedData one, other, same;
  one.entries["model_0"] = floats_of(7);
  other.entries["model_0"] = floats_of(8);
  same.entries["model_0"] = floats_of(7);
  Loaded first(kBlob, kSpecs, &one), second(kBlob, kSpecs, &other), third(kBlob, kSpecs, &same);
  CHECK(first_weight(first) == 7);
  CHECK(first_weight(second) == 8);
  CHECK(first_weight(third) == 7);
  if (live_buffers() > 0) CHECK(live_buffers() == 2);
}

TEST_CASE("a program that lacks them, or has empty ones, is refused by their key") {
  NamedData data;
  data.entries["model_1"] = floats_of(7);
  data.entries["empty"] = "";
  fixture::log().clear();
  const Loaded absent(kBlob, kSpecs, &data);
  CHECK(absent.error == Error::InvalidProgram);
  CHECK(fixture::is_logged("the shared weights 'model_0' are not in the program's named data"));
  const Loaded empty(kBlob, {{"ExtractSharedBlobKey", "empty"}}, &data);
  CHECK(empty.error == Error::InvalidProgram);
  CHECK(fixture::is_logged("the shared weights 'empty' are empty"));
  const Loaded none(kBlob, kSpecs, nullptr);
  CHECK(none.error == Error::InvalidProgram);
  CHECK(fixture::is_logged("the program has no named data"));
  CHECK(data.held == 0);
}

TEST_CASE("without memory left for a copy they are used where they are") {
  if (fixture::allocator() == nullptr) return;
  NamedData data;
  data.entries["model_0"] = floats_of(7);
  fixture::allocator()->empty = true;
  {
    Loaded loaded(kBlob, kSpecs, &data), other(kBlob, kSpecs, &data);
    fixture::allocator()->empty = false;
    CHECK(data.held == 1);
    CHECK(first_weight(loaded) == 7);
    CHECK(first_weight(other) == 7);
  }
  CHECK(data.held == 0);
}

TEST_CASE("threads that load and let go at once share one") {
  NamedData data;
  data.entries["model_0"] = floats_of(7, 1024);
  for (const bool is_held : {true, false}) {
    auto held = etcli::neuron::shared_weights("here", &data, "model_0");
    REQUIRE(held.ok());
    const void* address = held.get()->data;
    if (!is_held) held.get().reset();
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 100; ++i) {
          const auto weights = etcli::neuron::shared_weights("here", &data, "model_0");
          if (!weights.ok() || std::memcmp(weights.get()->data, data.entries["model_0"].data(), 4096) != 0) ++wrong;
          if (is_held && weights.get()->data != address) ++wrong;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
  }
  CHECK(data.held == 0);
  CHECK(live_buffers() == 0);
}
