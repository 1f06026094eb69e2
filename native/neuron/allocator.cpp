#include "allocator.h"

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>

#include "library.h"
#include "log.h"

namespace etcli::neuron {

namespace {

// What neuron_buffer_find returns a pointer to: ExecuTorch's MemoryUnit (backends/mediatek/runtime/include/NeuronBufferAllocator.h). Its
// layout is the interface: it is a class with two owning pointers of one word each, and no virtual functions.
struct MemoryUnit {
  const NeuronMemory* memory;
  const AHardwareBuffer* buffer;
  uint64_t usage;
  const void* address;
  size_t bytes;
};

constexpr size_t kMaxBytes = UINT32_MAX;  // the width of an AHardwareBuffer has 32 bits

struct Functions {
  void* (*create)();
  void* (*allocate)(void*, size_t);
  bool (*remove)(void*, void*);
  const void* (*find)(void*, void*);
};

// The one pool of this process: memory is found only through the handle that it was allocated by.
struct Pool {
  Functions library{};
  void* handle = nullptr;  // null: there is no allocator
  std::mutex lock;
  std::map<uintptr_t, SharedBuffer> buffers;  // live ones from allocate(), by address
  std::map<uint64_t, uintptr_t> addresses;    // by id
  uint64_t last_id = 0;
  std::atomic<uint64_t> released{0};

  Pool() {
    const std::string why_not = open();
    if (!why_not.empty()) log_info(text(why_not, ": tensors go to the NPU through plain memory"));
  }

  // Why there is no allocator, which is nothing wrong; empty when there is.
  std::string open() {
    const Library opened = open_library({"libneuron_buffer_allocator.so"});
    if (!opened) return "there is no libneuron_buffer_allocator.so";
    std::vector<std::string> missing;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(find_function(opened, name, missing));
    };
    find(library.create, "neuron_buffer_allocator_create");
    find(library.allocate, "neuron_buffer_allocate");
    find(library.remove, "neuron_buffer_remove");
    find(library.find, "neuron_buffer_find");
    if (!missing.empty()) return text(opened.name, " lacks ", joined(missing));
    handle = library.create();
    return handle == nullptr ? text(opened.name, " makes no allocator") : "";
  }

  std::optional<SharedBuffer> ask(const void* pointer) const {
    const auto* unit = static_cast<const MemoryUnit*>(library.find(handle, const_cast<void*>(pointer)));
    if (unit == nullptr || unit->memory == nullptr || unit->address == nullptr) return std::nullopt;
    const auto* start = static_cast<const unsigned char*>(unit->address);
    const auto* inside = static_cast<const unsigned char*>(pointer);
    if (inside < start || static_cast<size_t>(inside - start) >= unit->bytes) return std::nullopt;
    return SharedBuffer{0, unit->memory, start, unit->bytes};
  }
};

// Never destroyed: buffers may be released, and delegates destroyed, by other static objects.
Pool& pool() {
  static Pool& only = *new Pool;
  return only;
}

}  // namespace

void* allocate(size_t bytes) {
  Pool& from = pool();
  if (from.handle == nullptr || bytes == 0 || bytes > kMaxBytes) return nullptr;
  const std::lock_guard<std::mutex> hold(from.lock);
  void* memory = from.library.allocate(from.handle, bytes);
  if (memory == nullptr) return nullptr;
  auto buffer = from.ask(memory);
  if (!buffer || buffer->address != memory || buffer->bytes < bytes) {
    log_info("libneuron_buffer_allocator.so does not know what it allocated: plain memory is used instead");
    from.library.remove(from.handle, memory);
    return nullptr;
  }
  std::memset(memory, 0, bytes);
  buffer->id = ++from.last_id;
  from.buffers[reinterpret_cast<uintptr_t>(memory)] = *buffer;
  from.addresses[buffer->id] = reinterpret_cast<uintptr_t>(memory);
  return memory;
}

bool release(void* memory) {
  Pool& from = pool();
  const std::lock_guard<std::mutex> hold(from.lock);
  const auto found = from.buffers.find(reinterpret_cast<uintptr_t>(memory));
  if (found == from.buffers.end()) return false;
  from.addresses.erase(found->second.id);
  from.buffers.erase(found);
  ++from.released;
  if (!from.library.remove(from.handle, memory)) log_info("libneuron_buffer_allocator.so does not know a buffer that is to be released");
  return true;
}

std::optional<SharedBuffer> find_buffer(const void* pointer) {
  Pool& from = pool();
  if (from.handle == nullptr || pointer == nullptr) return std::nullopt;
  const std::lock_guard<std::mutex> hold(from.lock);
  auto after = from.buffers.upper_bound(reinterpret_cast<uintptr_t>(pointer));
  if (after != from.buffers.begin()) {
    const SharedBuffer& buffer = std::prev(after)->second;
    if (reinterpret_cast<uintptr_t>(pointer) - reinterpret_cast<uintptr_t>(buffer.address) < buffer.bytes) return buffer;
  }
  return from.ask(pointer);  // allocated by someone else in this process, if the library has one pool for all
}

bool is_live(uint64_t id) {
  Pool& from = pool();
  const std::lock_guard<std::mutex> hold(from.lock);
  return from.addresses.count(id) != 0;
}

uint64_t releases() { return pool().released; }

}  // namespace etcli::neuron
