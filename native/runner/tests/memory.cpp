#include "memory.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <initializer_list>
#include <new>

using namespace etcli;

TEST_CASE("buffers are aligned, zeroed and have room behind them") {
  for (size_t bytes : {0, 1, 63, 64, 4096, 12345}) {
    const Buffer buffer(bytes);
    CHECK(reinterpret_cast<uintptr_t>(buffer.memory.get()) % 64 == 0);
    CHECK(buffer.bytes == bytes);
    int sum = 0;
    for (size_t i = 0; i < bytes + Buffer::kExtra; ++i) sum += buffer.memory.get()[i];
    CHECK(sum == 0);
  }
  CHECK_THROWS_AS(Buffer(SIZE_MAX), std::bad_alloc);
}

TEST_CASE("resident memory is known, and its peak is not below it") {
  const int64_t before = resident_bytes();
  CHECK(before > 100000);
  const Buffer buffer(64u << 20);
  CHECK(resident_bytes() >= before + (32 << 20));
  CHECK(peak_resident_bytes() >= before + (32 << 20));
}
