// Programs for the delegate without a program: blobs, compile specs, named data, tensors; and what the delegate says in the log.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>
#include <executorch/extension/tensor/tensor_ptr.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/platform/platform.h>
#include <executorch/runtime/platform/runtime.h>

#include "adapter.h"
#include "fake.h"

namespace fixture {

using executorch::runtime::Error;

// What was logged since the last clear(), each with its level's letter before it.
inline std::vector<std::string>& log() {
  static std::vector<std::string> messages;
  static const bool started = [] {
    executorch::runtime::runtime_init();
    executorch::runtime::PalImpl pal{};
    pal.emit_log_message = [](et_timestamp_t, et_pal_log_level_t level, const char*, const char*, size_t, const char* message, size_t length) {
      messages.push_back(std::string(1, static_cast<char>(level)) + " " + std::string(message, length));
    };
    pal.source_filename = __FILE__;
    return executorch::runtime::register_pal(pal);
  }();
  (void)started;
  return messages;
}

inline std::vector<std::string> errors() {
  std::vector<std::string> found;
  for (const std::string& message : log()) {
    if (message[0] == 'E' || message[0] == 'F') found.push_back(message.substr(2));
  }
  return found;
}

inline bool is_logged(const std::string& words) {
  for (const std::string& message : log()) {
    if (message.find(words) != std::string::npos) return true;
  }
  return false;
}

// A variable or function of a library that this process has, by the names that it may have.
template <class T>
T* state_of(std::initializer_list<const char*> libraries, const char* function) {
  for (const char* name : libraries) {
    void* handle = ::dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (handle == nullptr) continue;
    if (auto* found = reinterpret_cast<T* (*)()>(::dlsym(handle, function))) return found();
  }
  return nullptr;
}
// The adapter that the delegate opens.
inline Fake& adapter() {
  static Fake* fake = state_of<Fake>({"libneuronusdk_adapter.mtk.so", "libneuron_adapter_mgvi.so", "libneuron_adapter.so"}, "fake_adapter");
  return *fake;
}
// Null on a device without one that works.
inline FakeAllocator* allocator() {
  static FakeAllocator* fake = state_of<FakeAllocator>({"libneuron_buffer_allocator.so"}, "fake_allocator");
  return fake;
}

inline std::string header(uint32_t inputs, uint32_t outputs, uint32_t bytes, uint8_t version = 1) {
  std::string text(1, static_cast<char>(version));
  for (uint32_t value : {inputs, outputs, bytes}) {
    for (int shift = 0; shift < 32; shift += 8) text += static_cast<char>(value >> shift & 0xFF);
  }
  return text;
}

// A program's blob for a network with these bytes in its inputs and outputs.
inline std::string blob(const std::vector<uint32_t>& inputs, const std::vector<uint32_t>& outputs, bool shared = false) {
  const std::string network = fake_network(inputs, outputs, shared);
  return header(static_cast<uint32_t>(inputs.size()), static_cast<uint32_t>(outputs.size()), static_cast<uint32_t>(network.size())) + network;
}

// Named data of a program, and how often it was read and is held.
struct NamedData : executorch::runtime::NamedDataMap {
  std::map<std::string, std::string> entries;
  mutable std::atomic<int> reads{0};
  mutable std::atomic<int> held{0};

  executorch::runtime::Result<const executorch::runtime::TensorLayout> get_tensor_layout(std::string_view) const override {
    return Error::NotImplemented;
  }
  executorch::runtime::Result<executorch::runtime::FreeableBuffer> get_data(std::string_view key) const override {
    const auto found = entries.find(std::string(key));
    if (found == entries.end()) return Error::NotFound;
    ++reads;
    ++held;
    return executorch::runtime::FreeableBuffer(
        found->second.data(), found->second.size(), [](void* map, void*, size_t) { --static_cast<const NamedData*>(map)->held; },
        const_cast<NamedData*>(this));
  }
  Error load_data_into(std::string_view, void*, size_t) const override { return Error::NotImplemented; }
  executorch::runtime::Result<uint32_t> get_num_keys() const override { return static_cast<uint32_t>(entries.size()); }
  executorch::runtime::Result<const char*> get_key(uint32_t) const override { return Error::NotImplemented; }
};

using Specs = std::vector<std::pair<std::string, std::string>>;
const std::string kOn("\x01", 1);

// A delegate as the runtime makes one. `handle` is null where it was refused.
struct Loaded {
  Loaded(std::string program, const Specs& specs = {}, const NamedData* data = nullptr, const char* method = "forward")
      : blob(std::move(program)), processed(blob.data(), blob.size(), nullptr) {
    log();
    backend = executorch::runtime::get_backend_class("NeuropilotBackend");
    for (const auto& [key, value] : specs) {
      given.push_back({key.c_str(), {value.empty() ? nullptr : const_cast<char*>(value.data()), value.size()}});
    }
    executorch::runtime::BackendInitContext context(&memory, nullptr, method, data);
    const auto result = backend->init(context, &processed, {given.data(), given.size()});
    error = result.error();
    if (result.ok()) handle = result.get();
    has_value = result.ok();
  }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;
  ~Loaded() { backend->destroy(handle); }

  // Runs it on the tensors, inputs first.
  Error run(const std::vector<executorch::extension::TensorPtr>& tensors) {
    std::vector<executorch::runtime::EValue> values;
    for (const auto& tensor : tensors) values.emplace_back(*tensor);
    return run(values);
  }
  Error run(std::vector<executorch::runtime::EValue>& values) {
    std::vector<executorch::runtime::EValue*> args;
    for (auto& value : values) args.push_back(&value);
    executorch::runtime::BackendExecutionContext context;
    return backend->execute(context, handle, {args.data(), args.size()});
  }

  std::string blob;
  executorch::extension::MallocMemoryAllocator memory;
  executorch::runtime::FreeableBuffer processed;
  std::vector<executorch::runtime::CompileSpec> given;
  executorch::runtime::BackendInterface* backend = nullptr;
  Error error = Error::Ok;
  bool has_value = false;
  executorch::runtime::DelegateHandle* handle = nullptr;
};

// A float32 tensor of one dimension at `data`.
inline executorch::extension::TensorPtr floats(void* data, int count) {
  return executorch::extension::make_tensor_ptr({count}, data, executorch::aten::ScalarType::Float);
}

}  // namespace fixture
