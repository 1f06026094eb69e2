// The buffer allocator, and inputs and outputs in its memory.
#include <doctest/doctest.h>

#include <algorithm>

#include "network.h"

namespace {

struct Buffers : vendor::BufferAllocator {
  // A buffer with these floats in it.
  float* with(const std::vector<float>& floats, size_t more = 0) const {
    auto* buffer = static_cast<float*>(allocate(Example::bytes(floats) + more));
    REQUIRE(buffer != nullptr);
    std::copy(floats.begin(), floats.end(), buffer);
    return buffer;
  }
};

}  // namespace

TEST_CASE("buffers are zero, aligned, and found by every address in them") {
  const Buffers buffers;
  REQUIRE(buffers.handle != nullptr);
  for (const size_t size : {size_t{1}, size_t{64}, size_t{4096}, size_t{1000003}}) {
    auto* const buffer = static_cast<unsigned char*>(buffers.allocate(size));
    REQUIRE(buffer != nullptr);
    CHECK(reinterpret_cast<uintptr_t>(buffer) % 64 == 0);
    CHECK(std::all_of(buffer, buffer + size, [](unsigned char c) { return c == 0; }));
    std::memset(buffer, 7, size);
    const vendor::MemoryUnit* const unit = buffers.find(buffer);
    REQUIRE(unit != nullptr);
    CHECK(unit->address == buffer);
    CHECK(unit->size == size);
    CHECK(unit->memory != nullptr);
    CHECK(unit->hardware_buffer != nullptr);
    CHECK(unit->usage == (0x3 | 0x30));
    CHECK(buffers.find(buffer + size / 2) == unit);
    CHECK(buffers.find(buffer + size - 1) == unit);
    CHECK(buffers.find(buffer + size) != unit);
    CHECK(buffers.find(buffer - 1) != unit);
  }
}

TEST_CASE("memory of others is not found; removing tolerates what is not there") {
  const Buffers buffers, others;
  int stranger = 0;
  void* const buffer = buffers.allocate(100);
  CHECK(buffers.find(&stranger) == nullptr);
  CHECK(buffers.find(nullptr) == nullptr);
  CHECK(others.find(buffer) == nullptr);
  CHECK_FALSE(buffers.remove(&stranger));
  CHECK_FALSE(buffers.remove(static_cast<char*>(buffer) + 1));
  CHECK_FALSE(others.remove(buffer));
  CHECK(buffers.remove(buffer));
  CHECK_FALSE(buffers.remove(buffer));
  CHECK(buffers.find(buffer) == nullptr);
  CHECK_FALSE(buffers.remove(nullptr));
  void* const another = buffers.allocate(100);
  buffers.clear_with(buffers.handle);
  CHECK(buffers.find(another) == nullptr);
  buffers.clear_with(buffers.handle);
}

TEST_CASE("sizes and allocators that cannot be") {
  const Buffers buffers;
  CHECK(buffers.allocate(0) == nullptr);
  CHECK(buffers.allocate(size_t{UINT32_MAX} + 1) == nullptr);
  int stranger = 0;
  CHECK(buffers.allocate_with(nullptr, 8) == nullptr);
  CHECK(buffers.allocate_with(&stranger, 8) == nullptr);
  CHECK(buffers.find_with(&stranger, &stranger) == nullptr);
  CHECK_FALSE(buffers.remove_with(nullptr, &stranger));
  buffers.clear_with(nullptr);
}

TEST_CASE("inputs and outputs in memory objects, whole or from an offset, the cache in place") {
  const Buffers buffers;
  Restored network(file_bytes("slim_2.bin"));
  Example example(2);
  const vendor::Adapter& a = network.a;
  REQUIRE(network.restore(3, 2, "--apusys-config \"{ \\\"import_forever\\\": true }\"") == vendor::kOk);
  float* const x = buffers.with(example.x, 64);
  float* const cache = buffers.with(example.cache);
  float* const y = static_cast<float*>(buffers.allocate(8 + 24));
  const std::vector<char> weights = file_bytes("shared.bin");
  void* const shared = buffers.allocate(weights.size());
  std::memcpy(shared, weights.data(), weights.size());

  auto memory = [&](void* address) { return buffers.find(address)->memory; };
  auto size = [&](void* address) { return buffers.find(address)->size; };
  CHECK(a.set_input_from_memory(network.execution, 0, nullptr, memory(x), 0, size(x)) == vendor::kOk);  // as a whole
  CHECK(a.set_input_from_memory(network.execution, 1, nullptr, memory(cache), 0, 96) == vendor::kOk);
  CHECK(a.set_input_from_memory(network.execution, 2, nullptr, memory(shared), 0, weights.size()) == vendor::kOk);
  CHECK(a.set_output_from_memory(network.execution, 0, nullptr, memory(cache), 0, 96) == vendor::kOk);
  CHECK(a.set_output_from_memory(network.execution, 1, nullptr, memory(y), 8, 24) == vendor::kOk);
  REQUIRE(a.compute(network.execution) == vendor::kOk);
  CHECK(std::vector<float>(cache, cache + 24) == example.expected_cache);
  CHECK(Example::close(std::vector<float>(y + 2, y + 8), example.expected_y));

  CHECK(a.set_input_from_memory(network.execution, 0, nullptr, nullptr, 0, 32) == vendor::kNull);
  CHECK(a.set_input_from_memory(network.execution, 0, nullptr, x, 0, 32) == vendor::kBadData);  // an address, no memory object
  CHECK(a.set_input_from_memory(network.execution, 9, nullptr, memory(x), 0, 32) == vendor::kBadData);
  CHECK(a.set_input_from_memory(network.execution, UINT32_MAX, nullptr, memory(x), 0, 32) == vendor::kBadData);
  CHECK(a.set_input_from_memory(network.execution, 1, nullptr, memory(cache), 4, 96) == vendor::kBadData);        // past the end
  CHECK(a.set_input_from_memory(network.execution, 1, nullptr, memory(cache), SIZE_MAX, 96) == vendor::kBadData);
  CHECK(a.set_input_from_memory(network.execution, 1, nullptr, memory(cache), 0, SIZE_MAX) == vendor::kBadData);
  CHECK(a.set_input_from_memory(network.execution, 1, nullptr, memory(cache), 0, 92) == vendor::kBadData);        // too little
  CHECK(a.set_output_from_memory(network.execution, 1, nullptr, memory(y), 6, 24) == vendor::kBadData);           // not aligned
  CHECK(a.set_input_from_memory(network.execution, 2, nullptr, memory(shared), 0, weights.size() - 16) == vendor::kBadData);
}

TEST_CASE("memory that is freed while an execution has it is not read") {
  const Buffers buffers;
  Restored network(file_bytes("network_2.bin"));
  Example example(2);
  REQUIRE(network.restore() == vendor::kOk);
  REQUIRE(example.bind(network) == vendor::kOk);
  float* const x = buffers.with(example.x);
  void* const memory = buffers.find(x)->memory;
  REQUIRE(network.a.set_input_from_memory(network.execution, 0, nullptr, memory, 0, 32) == vendor::kOk);
  REQUIRE(network.a.compute(network.execution) == vendor::kOk);
  REQUIRE(buffers.remove(x));
  CHECK(network.a.compute(network.execution) == vendor::kBadState);
  CHECK(network.a.set_input_from_memory(network.execution, 0, nullptr, memory, 0, 32) == vendor::kBadData);
  REQUIRE(network.a.set_input(network.execution, 0, nullptr, example.x.data(), 32) == vendor::kOk);
  CHECK(network.a.compute(network.execution) == vendor::kOk);
}

TEST_CASE("shared weights are needed as long as the network runs") {
  const Buffers buffers;
  Restored network(file_bytes("slim_1.bin"));
  Example example(1);
  REQUIRE(network.restore(3) == vendor::kOk);
  REQUIRE(example.bind(network) == vendor::kOk);
  const std::vector<char> weights = file_bytes("shared.bin");
  void* const shared = buffers.allocate(weights.size() + 100);  // allocators may give more
  std::memcpy(shared, weights.data(), weights.size());
  REQUIRE(network.a.set_input_from_memory(network.execution, 2, nullptr, buffers.find(shared)->memory, 0, weights.size() + 100) == vendor::kOk);
  CHECK(network.a.compute(network.execution) == vendor::kOk);
  buffers.remove(shared);
  CHECK(network.a.compute(network.execution) == vendor::kBadState);
}

TEST_CASE("what is no simulated hardware buffer gives no memory") {
  const Buffers buffers;
  const vendor::MemoryUnit* const unit = buffers.find(buffers.allocate(64));
  void* memory = nullptr;
  CHECK(vendor::adapter().memory_create(unit->hardware_buffer, nullptr) == vendor::kNull);
  CHECK(vendor::adapter().memory_create(unit->hardware_buffer, &memory) == vendor::kOk);
  CHECK(memory != unit->memory);
  vendor::adapter().memory_free(memory);
}
