// The allocator's memory.
#include <doctest/doctest.h>

#include <algorithm>

#include "allocator.h"
#include "fixture.h"

using namespace etcli::neuron;

TEST_CASE("memory is zeroed even when it was used before, and known by every address in it") {
  FakeAllocator& fake = *fixture::allocator();
  for (int round = 0; round < 3; ++round) {
    auto* memory = static_cast<unsigned char*>(allocate(1000));
    REQUIRE(memory != nullptr);
    CHECK(fake.live == std::vector<void*>{memory});
    CHECK(std::all_of(memory, memory + 1000, [](unsigned char c) { return c == 0; }));
    std::fill(memory, memory + 1000, static_cast<unsigned char>(0x55));
    const auto buffer = find_buffer(memory);
    REQUIRE(buffer);
    CHECK(buffer->address == memory);
    CHECK(buffer->bytes == 1000);
    CHECK(buffer->memory != nullptr);
    CHECK(is_live(buffer->id));
    CHECK(find_buffer(memory + 999) == buffer);
    CHECK(!find_buffer(memory + 1000));
    CHECK(!find_buffer(memory - 1));
    const uint64_t before = releases();
    CHECK(release(memory));
    CHECK(releases() == before + 1);
    CHECK(!is_live(buffer->id));
    CHECK(!find_buffer(memory));
    CHECK(!release(memory));
    CHECK(fake.live.empty());
  }
  CHECK(fake.creations == 1);
}

TEST_CASE("a buffer at the address of an earlier one is another buffer") {
  void* first = allocate(500);
  const auto before = find_buffer(first);
  release(first);
  void* second = allocate(500);
  REQUIRE(second == first);
  CHECK(find_buffer(second)->memory == before->memory);
  CHECK(find_buffer(second)->id != before->id);
  CHECK(!is_live(before->id));
  release(second);
}

TEST_CASE("what one buffer cannot hold, and nothing, are refused") {
  CHECK(allocate(0) == nullptr);
  CHECK(allocate(size_t{1} << 32) == nullptr);
  CHECK(allocate(SIZE_MAX) == nullptr);
  int local = 0;
  CHECK(!release(&local));
  CHECK(!release(nullptr));
  CHECK(!find_buffer(&local));
  CHECK(!find_buffer(nullptr));
}

TEST_CASE("an allocator with no memory left, or that loses what it allocates, is done without") {
  FakeAllocator& fake = *fixture::allocator();
  fake.empty = true;
  CHECK(allocate(100) == nullptr);
  fake.empty = false;
  fake.forgets = true;
  CHECK(allocate(100) == nullptr);
  fake.forgets = false;
  CHECK(fake.live.empty());
  CHECK(fixture::errors().empty());
}
