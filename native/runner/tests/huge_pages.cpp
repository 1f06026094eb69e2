#include "huge_pages.h"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "memory.h"

using namespace etcli;

namespace {

// Whether this system makes a huge page of memory that asks for it.
bool has_huge_pages() {
  const size_t size = 2 * huge_page_size();
  void* probe = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(probe != MAP_FAILED);
  ::madvise(probe, size, MADV_HUGEPAGE);
  const int64_t before = huge_page_bytes();
  std::fill_n(static_cast<unsigned char*>(probe), size, static_cast<unsigned char>(1));
  const bool got = huge_page_bytes() > before;
  ::munmap(probe, size);
  return got;
}

}  // namespace

TEST_CASE("large memory of operator new comes in huge pages once they are wanted") {
  use_huge_pages();
  const size_t size = 8 * huge_page_size() + 12345;
  const int64_t before = huge_page_bytes();
  const std::string large(size, 'x');  // as XNNPACK's cache of packed weights holds them
  CHECK(reinterpret_cast<uintptr_t>(large.data()) % huge_page_size() == 0);
  CHECK(std::all_of(large.begin(), large.end(), [](char c) { return c == 'x'; }));
  const int64_t taken = huge_page_bytes() - before;
  CHECK(taken <= static_cast<int64_t>(size));
  if (has_huge_pages()) CHECK(taken >= static_cast<int64_t>(6 * huge_page_size()));
}

TEST_CASE("memory of every size and form comes and goes") {
  use_huge_pages();
  for (size_t size : {size_t{0}, size_t{1}, size_t{4096}, huge_page_size() - 1, huge_page_size(), huge_page_size() + 1}) {
    CAPTURE(size);
    std::vector<char> vector(size, 'a');
    const std::unique_ptr<char[]> array(new char[size]);
    std::fill_n(array.get(), size, 'b');
    CHECK(std::all_of(vector.begin(), vector.end(), [](char c) { return c == 'a'; }));
  }
}

TEST_CASE("memory that there is not is an exception") {
  use_huge_pages();
  CHECK_THROWS_AS(static_cast<void>(::operator new(SIZE_MAX / 2)), std::bad_alloc);
}
