// A buffer allocator for tests (fake.h). It is as unhelpful as one can be: a new buffer has the address and the memory object of the last one
// of its size that was removed. With FAKE_LACKS it lacks functions, with FAKE_NULL it makes no allocator.
#include <algorithm>
#include <cstdlib>
#include <memory>

#include "fake.h"

static FakeAllocator fake;

extern "C" FakeAllocator* fake_allocator() { return &fake; }

namespace {

struct Unit {
  NeuronMemory* memory;
  void* buffer;
  uint64_t usage;
  void* address;
  size_t bytes;
};

struct Buffer {
  std::unique_ptr<void, void (*)(void*)> block{nullptr, std::free};
  std::unique_ptr<NeuronMemory> memory;
  Unit unit{};
  bool live = true;
};

std::vector<std::unique_ptr<Buffer>> buffers;

}  // namespace

extern "C" {

void* neuron_buffer_allocator_create() {
  ++fake.creations;
#ifdef FAKE_NULL
  return nullptr;
#else
  return &buffers;
#endif
}

void* neuron_buffer_allocate(void* handle, size_t bytes) {
  if (handle != &buffers || fake.empty) return nullptr;
  for (auto& buffer : buffers) {
    if (buffer->live || buffer->unit.bytes != bytes || fake.misaligned) continue;
    buffer->live = true;
    fake.live.push_back(buffer->unit.address);
    return buffer->unit.address;
  }
  auto buffer = std::make_unique<Buffer>();
  buffer->block.reset(std::aligned_alloc(4096, (bytes + fake.misaligned + 4095) / 4096 * 4096));
  std::memset(buffer->block.get(), 0xA5, bytes + fake.misaligned);
  auto* address = static_cast<unsigned char*>(buffer->block.get()) + fake.misaligned;
  buffer->memory = std::make_unique<NeuronMemory>(NeuronMemory{address, bytes});
  buffer->unit = {buffer->memory.get(), buffer.get(), 0x33, address, bytes};
  fake.live.push_back(address);
  buffers.push_back(std::move(buffer));
  return address;
}

bool neuron_buffer_remove(void* handle, void* address) {
  if (handle != &buffers) return false;
  for (auto& buffer : buffers) {
    if (!buffer->live || buffer->unit.address != address) continue;
    buffer->live = false;
    fake.live.erase(std::find(fake.live.begin(), fake.live.end(), address));
    return true;
  }
  return false;
}

#ifndef FAKE_LACKS
const void* neuron_buffer_find(void* handle, void* pointer) {
  if (handle != &buffers || fake.forgets) return nullptr;
  for (auto& buffer : buffers) {
    const auto* start = static_cast<const unsigned char*>(buffer->unit.address);
    const auto* inside = static_cast<const unsigned char*>(pointer);
    if (buffer->live && inside >= start && inside < start + buffer->unit.bytes) return &buffer->unit;
  }
  return nullptr;
}
#endif

void neuron_buffer_clear(void*) {}

}  // extern "C"
