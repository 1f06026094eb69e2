#include "huge_pages.h"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>

#include "memory.h"

using namespace etcli;

TEST_CASE("private anonymous writable regions are read with what is resident") {
  const std::vector<MemoryRegion> regions = anonymous_regions(
      "00400000-00452000 rw-p 00000000 08:02 173521      /usr/bin/x\n"
      "Rss:                 328 kB\n"
      "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \n"
      "Size:               4096 kB\n"
      "Rss:                1024 kB\n"
      "Pss:                1024 kB\n"
      "7f0000400000-7f0000500000 ---p 00000000 00:00 0 \n"
      "Rss:                   4 kB\n"
      "7f0000500000-7f0000600000 rw-s 00000000 00:00 0 \n"
      "Rss:                   4 kB\n"
      "7f0000600000-7f0000700000 rw-p 00000000 00:00 0                          [anon:scudo:primary]\n"
      "Rss:                   8 kB\n"
      "VmFlags: rd wr mr mw me ac sd");
  REQUIRE(regions.size() == 2);
  CHECK(regions[0].start == 0x7f0000000000);
  CHECK(regions[0].end == 0x7f0000400000);
  CHECK(regions[0].resident_bytes == 1 << 20);
  CHECK(regions[1].resident_bytes == 8192);
  CHECK(anonymous_regions("").empty());
  CHECK(anonymous_regions("Rss: 8 kB\nnonsense\n").empty());
}

TEST_CASE("memory keeps its content, whatever the system grants, and untouched memory stays untouched") {
  constexpr size_t size = 32u << 20;
  const Buffer used(size);
  for (size_t i = 0; i < size; ++i) used.data()[i] = static_cast<unsigned char>(i * 7 + i / 4096);
  const Buffer untouched(256u << 20);
  const int64_t before = resident_bytes();
  const int64_t huge = use_huge_pages();
  CHECK(huge >= 0);
  CHECK(resident_bytes() < before + (64 << 20));
  bool is_same = true;
  for (size_t i = 0; i < size; ++i) is_same = is_same && used.data()[i] == static_cast<unsigned char>(i * 7 + i / 4096);
  CHECK(is_same);

  // Where the system collapses one block when asked directly, it has to have collapsed most of this buffer.
  void* probe = ::mmap(nullptr, 4u << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(probe != MAP_FAILED);
  std::fill_n(static_cast<unsigned char*>(probe), 4u << 20, static_cast<unsigned char>(1));
  const uintptr_t block = (reinterpret_cast<uintptr_t>(probe) + (2u << 20) - 1) & ~((uintptr_t{2} << 20) - 1);
  if (::madvise(reinterpret_cast<void*>(block), 2u << 20, 25) == 0 && huge_page_bytes() > 0) CHECK(huge >= (24 << 20));
  ::munmap(probe, 4u << 20);
}
