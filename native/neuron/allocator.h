// Memory that CPU and NPU share, from the device's libneuron_buffer_allocator.so. Everything here works without that library too, as if it
// never had any memory left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "neuron.h"

namespace etcli::neuron {

// `bytes` zeroed bytes, or null: where there is no library, no memory left, or more asked for than one buffer can have (4 GiB).
void* allocate(size_t bytes);

// Gives back what allocate() returned. False where it did not return that.
bool release(void* memory);

// A buffer of the allocator's. Addresses and memory objects of released buffers come back with new ones, `id` does not; it is 0 for a
// buffer that did not come from allocate(), of which nobody tells when it is released.
struct SharedBuffer {
  uint64_t id = 0;
  const NeuronMemory* memory = nullptr;
  const unsigned char* address = nullptr;
  size_t bytes = 0;

  bool operator==(const SharedBuffer& other) const {
    return id == other.id && memory == other.memory && address == other.address && bytes == other.bytes;
  }
};

// The buffer that `pointer` leads into, if it is one of the allocator's.
std::optional<SharedBuffer> find_buffer(const void* pointer);

// Whether the buffer from allocate() with this id is not released yet.
bool is_live(uint64_t id);

// How many buffers have been released so far.
uint64_t releases();

}  // namespace etcli::neuron
