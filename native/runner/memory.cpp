#include "memory.h"

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace etcli {

// native/neuron/allocator.h, in programs that it is linked into; null in others.
namespace neuron {
[[gnu::weak]] void* allocate(size_t bytes);
[[gnu::weak]] bool release(void* memory);
}  // namespace neuron

// `value` rounded up to a multiple of `alignment`, a power of two.
static uintptr_t aligned(uintptr_t value, size_t alignment) { return (value + alignment - 1) & ~(uintptr_t{alignment} - 1); }

Buffer::Buffer(size_t size) : bytes(size) {
  // calloc: large blocks come zeroed from the system, page by page as they are written to.
  if (size > SIZE_MAX - kExtra - kAlignment) throw std::bad_alloc();
  if (size > 0 && neuron::allocate != nullptr) {
    memory = {neuron::allocate(size + kExtra), Free(true)};
    start = static_cast<unsigned char*>(memory.get());
    if (start != nullptr && reinterpret_cast<uintptr_t>(start) % kAlignment == 0) return;
  }
  memory = {nullptr, Free(false)};
  memory.reset(std::calloc(size + kExtra + kAlignment, 1));
  if (memory == nullptr) throw std::bad_alloc();
  start = reinterpret_cast<unsigned char*>(aligned(reinterpret_cast<uintptr_t>(memory.get()), kAlignment));
}

void Buffer::Free::operator()(void* pointer) const {
  if (is_shared) {
    neuron::release(pointer);
  } else {
    std::free(pointer);
  }
}

void* ScratchAllocator::allocate(size_t size, size_t alignment) {
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) return nullptr;
  if (!blocks.empty()) {
    const Block& block = blocks.back();
    const uintptr_t base = reinterpret_cast<uintptr_t>(block.memory.get());
    const size_t from = aligned(base + used, alignment) - base;
    if (from <= block.bytes && size <= block.bytes - from) {
      used = from + size;
      return static_cast<unsigned char*>(block.memory.get()) + from;
    }
  }
  if (size > SIZE_MAX / 2 - alignment) return nullptr;
  const size_t bytes = size + alignment;
  Block block{decltype(Block::memory)(std::malloc(bytes)), bytes};
  if (block.memory == nullptr) return nullptr;
  blocks.push_back(std::move(block));
  const uintptr_t base = reinterpret_cast<uintptr_t>(blocks.back().memory.get());
  const size_t from = aligned(base, alignment) - base;
  used = from + size;
  return static_cast<unsigned char*>(blocks.back().memory.get()) + from;
}

void ScratchAllocator::reset() {
  used = 0;
  if (blocks.size() < 2) return;
  size_t bytes = 0;
  for (const Block& block : blocks) bytes += block.bytes;
  blocks.clear();
  Block block{decltype(Block::memory)(std::malloc(bytes)), bytes};
  if (block.memory != nullptr) blocks.push_back(std::move(block));
}

void ScratchAllocator::Free::operator()(void* pointer) const { std::free(pointer); }

void* MethodAllocator::allocate(size_t size, size_t alignment) {
  if (alignment == 0 || (alignment & (alignment - 1)) != 0 || size > SIZE_MAX / 2 - alignment) return nullptr;
  std::unique_ptr<void, ScratchAllocator::Free> block(std::malloc(size + alignment));
  if (block == nullptr) return nullptr;
  blocks.push_back(std::move(block));
  return reinterpret_cast<void*>(aligned(reinterpret_cast<uintptr_t>(blocks.back().get()), alignment));
}

// A line "VmRSS:   1234 kB" of one of the kernel's files on this process.
static int64_t line_bytes(const char* path, const char* key) {
  FILE* file = std::fopen(path, "r");
  if (file == nullptr) return 0;
  int64_t bytes = 0;
  char line[256];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    long long kilobytes = 0;
    if (std::strncmp(line, key, std::strlen(key)) == 0 && std::sscanf(line + std::strlen(key), ": %lld kB", &kilobytes) == 1) {
      bytes = static_cast<int64_t>(kilobytes) * 1024;
    }
  }
  std::fclose(file);
  return bytes;
}

int64_t resident_bytes() { return line_bytes("/proc/self/status", "VmRSS"); }

int64_t huge_page_bytes() { return line_bytes("/proc/self/smaps_rollup", "AnonHugePages"); }

int64_t peak_resident_bytes() {
  // Not getrusage first: ru_maxrss outlives exec, so it can be the peak of the process that started this one.
  const int64_t peak = line_bytes("/proc/self/status", "VmHWM");
  if (peak > 0) return peak;
  struct rusage usage {};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<int64_t>(usage.ru_maxrss) * 1024 : 0;
}

}  // namespace etcli
