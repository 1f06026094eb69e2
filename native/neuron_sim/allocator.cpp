// libneuron_buffer_allocator.so: buffers that the NPU can be given without a copy, here plain memory of the process.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "calls.h"
#include "hardware_buffer.h"

namespace {

using namespace etcli::neuron_sim;

constexpr size_t kPage = 4096;  // where the vendor's buffers begin

// The two functions of the adapter that objects of the vendor's class MemoryUnit call. The adapter is opened when the first buffer is made,
// not when this library is loaded: upstream's delegate loads it before main.
struct Adapter {
  int (*create)(const AHardwareBuffer*, NeuronMemory**);
  void (*free)(NeuronMemory*);
};

// Throws Refusal.
const Adapter& adapter() {
  static const Adapter* const found = [] {
    const char* const name = "libneuronusdk_adapter.mtk.so";
    void* const library = ::dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) bad_state("cannot open ", name, ": ", ::dlerror());
    const auto create = reinterpret_cast<decltype(Adapter::create)>(::dlsym(library, "NeuronMemory_createFromAHardwareBuffer"));
    const auto free = reinterpret_cast<decltype(Adapter::free)>(::dlsym(library, "NeuronMemory_free"));
    if (create == nullptr || free == nullptr) bad_state(name, " has no memory objects");
    return new Adapter{create, free};
  }();
  return *found;
}

// Laid out as ExecuTorch's backends/mediatek/runtime/include/NeuronBufferAllocator.h declares its class MemoryUnit, which callers read
// directly: two owning pointers, the buffer's usage, its address and its size.
struct MemoryUnit {
  NeuronMemory* memory;
  AHardwareBuffer* buffer;
  uint64_t usage;
  void* address;
  size_t size;
};
static_assert(sizeof(MemoryUnit) == 40 && offsetof(MemoryUnit, usage) == 16 && offsetof(MemoryUnit, address) == 24 && offsetof(MemoryUnit, size) == 32);

constexpr uint64_t kCpuReadsAndWritesOften = 0x3 | 0x30;  // AHARDWAREBUFFER_USAGE_CPU_READ_OFTEN | ..._CPU_WRITE_OFTEN

struct Freed {
  void operator()(MemoryUnit* unit) const {
    if (unit->memory != nullptr) adapter().free(unit->memory);
    if (unit->buffer != nullptr) {
      std::free(unit->buffer->address);
      std::memset(static_cast<void*>(unit->buffer), 0, sizeof *unit->buffer);
    }
    delete unit->buffer;
    delete unit;
  }
};
using Unit = std::unique_ptr<MemoryUnit, Freed>;

// Throws Refusal and std::bad_alloc.
Unit make_unit(size_t size) {
  if (size == 0) bad_data("a buffer of no bytes");
  if (size > UINT32_MAX) bad_data("a buffer of ", size, " bytes: the width of a hardware buffer has 32 bits");
  const Adapter& functions = adapter();
  Unit unit(new MemoryUnit{nullptr, nullptr, kCpuReadsAndWritesOften, nullptr, size});
  unit->buffer = new AHardwareBuffer{};
  const size_t whole = (size + kPage - 1) / kPage * kPage;
  unit->buffer->address = static_cast<unsigned char*>(std::aligned_alloc(kPage, whole));
  if (unit->buffer->address == nullptr) throw std::bad_alloc();
  std::memset(unit->buffer->address, 0, whole);
  std::memcpy(unit->buffer->mark, AHardwareBuffer::kMark, sizeof unit->buffer->mark);
  unit->buffer->size = size;
  unit->address = unit->buffer->address;
  if (const int code = functions.create(unit->buffer, &unit->memory); code != NEURON_NO_ERROR) {
    throw Refusal(code, "the adapter made no memory object");
  }
  return unit;
}

struct Allocator {
  std::map<const unsigned char*, Unit> units;  // by address
};

// All that were made, which stay: the interface has no function to free one.
struct Allocators {
  std::mutex lock;
  std::set<Allocator*> all;
};

Allocators& allocators() {
  static auto* const made = new Allocators;
  return *made;
}

// With the lock held. Throws Refusal.
Allocator& checked(void* handle) {
  refuse_null(handle, "the allocator");
  const auto found = allocators().all.find(static_cast<Allocator*>(handle));
  if (found == allocators().all.end()) bad_data("this allocator does not exist");
  return **found;
}

}  // namespace

#define ETCLI_EXPORTED extern "C" __attribute__((visibility("default")))

ETCLI_EXPORTED void* neuron_buffer_allocator_create() noexcept {
  void* handle = nullptr;
  answer(__func__, "", [&] {
    const std::lock_guard<std::mutex> hold(allocators().lock);
    handle = *allocators().all.insert(new Allocator).first;
    return text(handle);
  });
  return handle;
}

ETCLI_EXPORTED void* neuron_buffer_allocate(void* handle, size_t size) noexcept {
  void* address = nullptr;
  answer(__func__, text(handle, ", ", size, " bytes"), [&] {
    const std::lock_guard<std::mutex> hold(allocators().lock);
    Allocator& allocator = checked(handle);
    Unit unit = make_unit(size);
    void* const at = unit->address;
    allocator.units.emplace(static_cast<const unsigned char*>(at), std::move(unit));
    address = at;
    return text(address);
  });
  return address;
}

// Removing what is not there is no fault: owners of one buffer each remove it.
ETCLI_EXPORTED bool neuron_buffer_remove(void* handle, void* address) noexcept {
  bool was_there = false;
  answer(__func__, text(handle, ", ", address), [&] {
    const std::lock_guard<std::mutex> hold(allocators().lock);
    was_there = checked(handle).units.erase(static_cast<const unsigned char*>(address)) == 1;
    return std::string(was_there ? "removed" : "not there");
  });
  return was_there;
}

ETCLI_EXPORTED const void* neuron_buffer_find(void* handle, void* address) noexcept {
  const void* unit = nullptr;
  answer(__func__, text(handle, ", ", address), [&] {
    const std::lock_guard<std::mutex> hold(allocators().lock);
    const Allocator& allocator = checked(handle);
    const auto* const at = static_cast<const unsigned char*>(address);
    auto next = allocator.units.upper_bound(at);
    if (next != allocator.units.begin()) {
      const auto& [base, candidate] = *--next;
      if (at < base + candidate->size) unit = candidate.get();
    }
    return std::string(unit == nullptr ? "not there" : "found");
  });
  return unit;
}

ETCLI_EXPORTED void neuron_buffer_clear(void* handle) noexcept {
  std::string problem;
  try {
    const std::lock_guard<std::mutex> hold(allocators().lock);
    checked(handle).units.clear();
  } catch (const std::exception& error) {
    problem = error.what();
  }
  record("neuron_buffer_clear", text(handle), "void", problem);
}
