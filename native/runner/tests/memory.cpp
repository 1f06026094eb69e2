#include "memory.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <new>
#include <utility>
#include <vector>

using namespace etcli;

TEST_CASE("buffers are aligned, zeroed and have room behind them") {
  for (size_t bytes : {0, 1, 63, 64, 4096, 12345}) {
    const Buffer buffer(bytes);
    CHECK(reinterpret_cast<uintptr_t>(buffer.data()) % 64 == 0);
    CHECK(buffer.bytes == bytes);
    int sum = 0;
    for (size_t i = 0; i < bytes + Buffer::kExtra; ++i) sum += buffer.data()[i];
    CHECK(sum == 0);
  }
  CHECK_THROWS_AS(Buffer(SIZE_MAX), std::bad_alloc);
}

TEST_CASE("a large buffer takes no memory before it is written to") {
  const int64_t before = resident_bytes();
  const Buffer buffer(256u << 20);
  CHECK(resident_bytes() < before + (64 << 20));
}

TEST_CASE("scratch memory is aligned, apart, and back after a reset") {
  ScratchAllocator scratch;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::pair<unsigned char*, size_t>> taken;
    for (size_t bytes : {1, 100, 0, 70000, 3, 200000, 64}) {
      for (size_t alignment : {1, 8, 64, 4096}) {
        auto* memory = static_cast<unsigned char*>(scratch.allocate(bytes, alignment));
        REQUIRE(memory != nullptr);
        CHECK(reinterpret_cast<uintptr_t>(memory) % alignment == 0);
        std::memset(memory, static_cast<int>(taken.size()), bytes);
        taken.emplace_back(memory, bytes);
      }
    }
    for (size_t i = 0; i < taken.size(); ++i) {
      const auto [memory, bytes] = taken[i];
      CHECK(std::all_of(memory, memory + bytes, [&](unsigned char c) { return c == i; }));
    }
    if (round > 0) CHECK(scratch.blocks.size() == 1);  // what the round before needed is there
    scratch.reset();
    CHECK(scratch.blocks.size() == 1);
  }
  CHECK(scratch.allocate(8, 3) == nullptr);
  CHECK(scratch.allocate(8, 0) == nullptr);
  CHECK(scratch.allocate(SIZE_MAX, 8) == nullptr);
}

TEST_CASE("a method's memory stays where it is and is all its own until the method goes") {
  MethodAllocator allocator;
  std::vector<std::pair<unsigned char*, size_t>> taken;
  for (size_t bytes : {1, 100, 0, 70000, 64}) {
    for (size_t alignment : {1, 16, 4096}) {
      auto* memory = static_cast<unsigned char*>(allocator.allocate(bytes, alignment));
      REQUIRE(memory != nullptr);
      CHECK(reinterpret_cast<uintptr_t>(memory) % alignment == 0);
      std::memset(memory, static_cast<int>(taken.size()), bytes);
      taken.emplace_back(memory, bytes);
    }
  }
  for (size_t i = 0; i < taken.size(); ++i) {
    const auto [memory, bytes] = taken[i];
    CHECK(std::all_of(memory, memory + bytes, [&](unsigned char c) { return c == i; }));
  }
  CHECK(allocator.allocate(8, 3) == nullptr);
  CHECK(allocator.allocate(8, 0) == nullptr);
  CHECK(allocator.allocate(SIZE_MAX, 8) == nullptr);
  allocator.reset();
  CHECK(allocator.blocks.empty());
}

TEST_CASE("resident memory is known, and its peak is not below it") {
  const int64_t before = resident_bytes();
  CHECK(before > 100000);
  const Buffer buffer(64u << 20);
  std::memset(buffer.data(), 1, buffer.bytes);
  CHECK(resident_bytes() >= before + (32 << 20));
  CHECK(peak_resident_bytes() >= before + (32 << 20));
}
