#include "huge_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace etcli {

namespace {

std::atomic<bool> wants_huge_pages{false};

// Memory that free() takes back, or null.
void* allocate(size_t size) {
  if (!wants_huge_pages.load(std::memory_order_relaxed) || size < huge_page_size()) return std::malloc(size == 0 ? 1 : size);
  void* memory = nullptr;
  if (::posix_memalign(&memory, huge_page_size(), size) != 0) return nullptr;
  // Whole pages only: the rest of the last one would be memory that nobody uses. A refusal changes nothing.
  ::madvise(memory, size / huge_page_size() * huge_page_size(), MADV_HUGEPAGE);
  return memory;
}

}  // namespace

void use_huge_pages() { wants_huge_pages.store(true, std::memory_order_relaxed); }

size_t huge_page_size() {
  // A page of the table above holds an entry of 8 bytes for each page.
  static const size_t size = [] {
    const long page = ::sysconf(_SC_PAGESIZE);
    return page > 0 ? static_cast<size_t>(page) / 8 * static_cast<size_t>(page) : size_t{2} << 20;
  }();
  return size;
}

}  // namespace etcli

// Replaces the C++ library's own for the program and its shared libraries, as the standard allows; so does the pair below. Array and
// non-throwing forms end here too.
void* operator new(size_t size) {
  while (true) {
    if (void* memory = etcli::allocate(size)) return memory;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
