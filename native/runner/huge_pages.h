// Fewer, larger pages for what every token reads. Weights that a backend has packed are ordinary memory in pages of 4 KiB; in pages of
// 2 MiB decoding spends less time on address translation (6 to 8 % in float32).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace etcli {

// A range of anonymous, writable memory of this process.
struct MemoryRegion {
  uintptr_t start = 0, end = 0;
  int64_t resident_bytes = 0;
};

// The private anonymous writable regions in the text of /proc/self/smaps, in order.
std::vector<MemoryRegion> anonymous_regions(const std::string& smaps);

// Asks the system to put memory that is in use now into huge pages, and returns how many bytes of the process are in such pages then;
// 0 where the system has none or does not tell. Never fails: a system that refuses leaves everything as it was. Blocks that are mostly
// untouched stay as they are, so that resident memory grows by an eighth at most. Call after loading.
int64_t use_huge_pages();

}  // namespace etcli
