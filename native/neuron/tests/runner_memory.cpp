// The runner's buffers in a program with the delegate.
#include "memory.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "allocator.h"
#include "fixture.h"

// The delegate is in the program by its registration; nothing else of it is named here.
static const bool has_delegate = executorch::runtime::get_backend_class("NeuropilotBackend") != nullptr;

TEST_CASE("a buffer is memory that the NPU shares where the device has an allocator, and is given back") {
  REQUIRE(has_delegate);
  FakeAllocator* fake = fixture::allocator();
  for (size_t bytes : {1, 64, 5000}) {
    {
      etcli::Buffer buffer(bytes);
      CHECK(buffer.bytes == bytes);
      CHECK(reinterpret_cast<uintptr_t>(buffer.data()) % 64 == 0);
      CHECK(std::all_of(buffer.data(), buffer.data() + bytes + etcli::Buffer::kExtra, [](unsigned char c) { return c == 0; }));
      std::memset(buffer.data(), 0x55, bytes);
      CHECK(etcli::neuron::find_buffer(buffer.data()).has_value() == (fake != nullptr));
      if (fake != nullptr) {
        CHECK(fake->live == std::vector<void*>{buffer.data()});
        CHECK(etcli::neuron::find_buffer(buffer.data())->bytes == bytes + etcli::Buffer::kExtra);
      }
      etcli::Buffer moved = std::move(buffer);
      buffer = etcli::Buffer(bytes);
      CHECK(moved.data()[0] == 0x55);
    }
    if (fake != nullptr) CHECK(fake->live.empty());
  }
  const etcli::Buffer nothing(0);
  CHECK(nothing.data() != nullptr);
  CHECK(!etcli::neuron::find_buffer(nothing.data()));
}

TEST_CASE("a buffer is plain memory where the allocator has none, or none that is aligned") {
  FakeAllocator* fake = fixture::allocator();
  if (fake == nullptr) return;
  // Of a new size each time, which the allocator has nothing of that was used before.
  auto is_plain = [&, bytes = size_t{777}]() mutable {
    const etcli::Buffer buffer(++bytes);
    CHECK(reinterpret_cast<uintptr_t>(buffer.data()) % 64 == 0);
    std::memset(buffer.data(), 0x55, bytes + etcli::Buffer::kExtra);
    return !etcli::neuron::find_buffer(buffer.data()) && fake->live.empty();
  };
  fake->empty = true;
  CHECK(is_plain());
  fake->empty = false;
  fake->misaligned = 8;
  CHECK(is_plain());
  fake->misaligned = 0;
  CHECK(!is_plain());
  CHECK(fake->live.empty());
}
