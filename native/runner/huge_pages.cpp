#include "huge_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>

#include "memory.h"

#ifndef MADV_HUGEPAGE
#define MADV_HUGEPAGE 14
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1; older kernels answer EINVAL
#endif

namespace etcli {

namespace {

// The whole of a file of /proc, whose size is known only by reading it; empty where it cannot be read.
std::string read_proc(const char* path) {
  std::string content;
  FILE* file = std::fopen(path, "r");
  if (file == nullptr) return content;
  char part[4096];
  for (size_t got = 0; (got = std::fread(part, 1, sizeof part, file)) > 0;) content.append(part, got);
  std::fclose(file);
  return content;
}

// Whether at least 7 of 8 pages of the block are there: others, such as stacks and lazily used caches, would only grow.
bool is_mostly_resident(uintptr_t block, size_t bytes, size_t page, std::vector<unsigned char>& pages) {
  pages.resize(bytes / page);
  if (::mincore(reinterpret_cast<void*>(block), bytes, pages.data()) != 0) return false;
  const auto resident = std::count_if(pages.begin(), pages.end(), [](unsigned char flags) { return (flags & 1) != 0; });
  return static_cast<size_t>(resident) >= pages.size() / 8 * 7;
}

}  // namespace

std::vector<MemoryRegion> anonymous_regions(const std::string& smaps) {
  std::vector<MemoryRegion> regions;
  bool is_ours = false;  // the region that the lines now speak of
  for (size_t at = 0; at < smaps.size();) {
    const size_t end = std::min(smaps.find('\n', at), smaps.size());
    const std::string line = smaps.substr(at, end - at);
    at = end + 1;
    MemoryRegion region;
    char permissions[5] = "";
    uint64_t inode = 1;
    int64_t kilobytes = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %4s %*x %*s %" SCNu64, &region.start, &region.end, permissions, &inode) == 4) {
      is_ours = inode == 0 && std::string(permissions) == "rw-p";
      if (is_ours) regions.push_back(region);
    } else if (is_ours && std::sscanf(line.c_str(), "Rss: %" SCNd64 " kB", &kilobytes) == 1) {
      regions.back().resident_bytes = kilobytes * 1024;
    }
  }
  return regions;
}

int64_t use_huge_pages() {
  const long page_size = ::sysconf(_SC_PAGESIZE);
  if (page_size <= 0) return 0;
  const size_t page = static_cast<size_t>(page_size);
  const size_t huge = page / 8 * page;  // what one page of the page table maps: 2 MiB with pages of 4 KiB, 32 MiB with 16 KiB
  constexpr int64_t kSparse = 64;       // a region with less than this share in use is reserved address space: too long to look through
  constexpr int kMostRefusals = 16;     // one after another: then memory is too fragmented for it to be worth while
  int refusals = 0;
  std::vector<unsigned char> pages;
  for (const MemoryRegion& region : anonymous_regions(read_proc("/proc/self/smaps"))) {
    const uintptr_t first = (region.start + huge - 1) / huge * huge, last = region.end / huge * huge;
    if (first >= last || region.resident_bytes < static_cast<int64_t>(region.end - region.start) / kSparse) continue;
    for (uintptr_t block = first; block < last && refusals < kMostRefusals; block += huge) {
      if (!is_mostly_resident(block, huge, page, pages)) continue;
      // For the kernel's own daemon, which collapses by and by where MADV_COLLAPSE is not known.
      ::madvise(reinterpret_cast<void*>(block), huge, MADV_HUGEPAGE);
      if (::madvise(reinterpret_cast<void*>(block), huge, MADV_COLLAPSE) == 0) {
        refusals = 0;
      } else {
        refusals = errno == EINVAL || errno == ENOMEM ? kMostRefusals : refusals + 1;
      }
    }
  }
  return huge_page_bytes();
}

}  // namespace etcli
