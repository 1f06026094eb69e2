// What stands in for Android's hardware buffers where there are none: memory of the simulated allocator. Both libraries know it.
#pragma once

#include <cstddef>
#include <cstring>

#include "neuron.h"

struct AHardwareBuffer {
  static constexpr char kMark[] = "ETCLI simulated AHardwareBuffer";
  char mark[sizeof kMark];
  unsigned char* address;
  size_t size;

  bool is_whole() const { return std::memcmp(mark, kMark, sizeof kMark) == 0; }
};
