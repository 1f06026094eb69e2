// Memory for tensors, and what the process uses of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <executorch/runtime/core/memory_allocator.h>

namespace etcli {

// Zeroed memory, aligned for vector instructions, with room behind it: XNNPACK's kernels may read up to XNN_EXTRA_BYTES past the end of
// an input (16 on CPUs, 128 on some accelerators). Large ones take no memory before they are written to. Throws std::bad_alloc.
//
// In a program with the delegate for MediaTek's NPU, on a device with its buffer allocator, it is memory that the NPU shares: tensors in it
// are not copied on their way there.
struct Buffer {
  static constexpr size_t kAlignment = 64;
  static constexpr size_t kExtra = 128;

  Buffer() = default;
  explicit Buffer(size_t bytes);

  unsigned char* data() const { return start; }
  float* floats() const { return reinterpret_cast<float*>(start); }

  struct Free {
    Free() : is_shared(false) {}
    explicit Free(bool shared) : is_shared(shared) {}
    void operator()(void* pointer) const;
    bool is_shared;  // with the NPU
  };
  std::unique_ptr<void, Free> memory;
  unsigned char* start = nullptr;  // in `memory`
  size_t bytes = 0;
};

// Memory that kernels ask for while they run (ExecuTorch's temporary allocator): each kernel's is taken back when it ends. It stays with
// the process for the next one, because a system that has to map and zero the same pages for every layer of every call costs more than
// they do. Not for several threads at once, as the runtime has it.
struct ScratchAllocator : executorch::runtime::MemoryAllocator {
  ScratchAllocator() : MemoryAllocator(0, nullptr) {}

  // Null where the system has no more, as the interface wants.
  void* allocate(size_t size, size_t alignment = kDefaultAlignment) override;
  void reset() override;

  struct Free {
    void operator()(void* pointer) const;
  };
  struct Block {
    std::unique_ptr<void, Free> memory;
    size_t bytes = 0;
  };
  std::vector<Block> blocks;  // the last is the one in use; reset() leaves one that would have held them all
  size_t used = 0;            // of the last block
};

// Memory that a method takes when it is loaded and has until it goes (ExecuTorch's method allocator). ExecuTorch has one for malloc, whose header
// its own installation leaves out.
struct MethodAllocator : executorch::runtime::MemoryAllocator {
  MethodAllocator() : MemoryAllocator(0, nullptr) {}

  // Null where the system has no more, as the interface wants.
  void* allocate(size_t size, size_t alignment = kDefaultAlignment) override;
  void reset() override { blocks.clear(); }

  std::vector<std::unique_ptr<void, ScratchAllocator::Free>> blocks;
};

// Bytes resident now, and at most so far. 0 where the system does not say.
int64_t resident_bytes();
int64_t peak_resident_bytes();
// Of the resident bytes, those in huge pages that no file backs. 0 where the system does not say.
int64_t huge_page_bytes();

}  // namespace etcli
