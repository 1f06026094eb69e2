// Memory for tensors, and what the process uses of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace etcli {

// Zeroed memory, aligned for vector instructions, with room behind it: XNNPACK's kernels may read up to XNN_EXTRA_BYTES past the end of
// an input (16 on CPUs, 128 on some accelerators). Throws std::bad_alloc.
struct Buffer {
  static constexpr size_t kAlignment = 64;
  static constexpr size_t kExtra = 128;

  Buffer() = default;
  explicit Buffer(size_t bytes);

  float* floats() const { return reinterpret_cast<float*>(memory.get()); }

  struct Free {
    void operator()(unsigned char* pointer) const;
  };
  std::unique_ptr<unsigned char, Free> memory;
  size_t bytes = 0;
};

// Bytes resident now, and at most so far. 0 where the system does not say.
int64_t resident_bytes();
int64_t peak_resident_bytes();

}  // namespace etcli
