// The two libraries as programs use them that were built for the vendor's: opened by name, every function by its own, everything declared here
// from what is known of the vendor's interface and not from the simulator's headers.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace vendor {

struct OperandType {
  int32_t type;
  uint32_t dimension_count;
  const uint32_t* dimensions;
  float scale;
  int32_t zero_point;
};

enum Code { kOk = 0, kOutOfMemory = 1, kIncomplete = 2, kNull = 3, kBadData = 4, kFailed = 5, kUnmappable = 6, kBadState = 7, kBadVersion = 8 };
constexpr int32_t kFloat32 = 3, kTurboBoost = 3, kHighPriority = 110;
constexpr char kExtension[] = "com.mediatek.compiled_network";

// What the allocator's `find` returns: ExecuTorch's delegate reads it as a C++ object.
struct MemoryUnit {
  void* memory;
  void* hardware_buffer;
  uint64_t usage;
  void* address;
  size_t size;
};

struct Library {
  explicit Library(const char* name) : handle(::dlopen(name, RTLD_LAZY | RTLD_LOCAL)) {
    if (handle == nullptr) throw std::runtime_error(::dlerror());
  }

  template <class Function>
  void find(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(::dlsym(handle, name));
    if (function == nullptr) throw std::runtime_error(::dlerror());
  }

  void* handle;
};

struct Adapter {
  Library library{"libneuronusdk_adapter.mtk.so"};

#define FIND(member, name) library.find(member, name)
  Adapter() {
    FIND(model_create, "NeuronModel_create");
    FIND(model_free, "NeuronModel_free");
    FIND(add_operand, "NeuronModel_addOperand");
    FIND(operand_type, "NeuronModel_getExtensionOperandType");
    FIND(operation_type, "NeuronModel_getExtensionOperationType");
    FIND(set_operand_value, "NeuronModel_setOperandValue");
    FIND(add_operation, "NeuronModel_addOperation");
    FIND(identify, "NeuronModel_identifyInputsAndOutputs");
    FIND(model_finish, "NeuronModel_finish");
    FIND(compilation_create, "NeuronCompilation_createWithOptions");
    FIND(set_preference, "NeuronCompilation_setPreference");
    FIND(set_priority, "NeuronCompilation_setPriority");
    FIND(compilation_finish, "NeuronCompilation_finish");
    FIND(compilation_free, "NeuronCompilation_free");
    FIND(input_size, "NeuronCompilation_getInputPaddedSize");
    FIND(output_size, "NeuronCompilation_getOutputPaddedSize");
    FIND(execution_create, "NeuronExecution_create");
    FIND(execution_free, "NeuronExecution_free");
    FIND(set_input, "NeuronExecution_setInput");
    FIND(set_output, "NeuronExecution_setOutput");
    FIND(set_input_from_memory, "NeuronExecution_setInputFromMemory");
    FIND(set_output_from_memory, "NeuronExecution_setOutputFromMemory");
    FIND(compute, "NeuronExecution_compute");
    FIND(memory_create, "NeuronMemory_createFromAHardwareBuffer");
    FIND(memory_free, "NeuronMemory_free");
  }
#undef FIND

  int (*model_create)(void**);
  void (*model_free)(void*);
  int (*add_operand)(void*, const OperandType*);
  int (*operand_type)(void*, const char*, uint16_t, int32_t*);
  int (*operation_type)(void*, const char*, uint16_t, int32_t*);
  int (*set_operand_value)(void*, int32_t, const void*, size_t);
  int (*add_operation)(void*, int32_t, uint32_t, const uint32_t*, uint32_t, const uint32_t*);
  int (*identify)(void*, uint32_t, const uint32_t*, uint32_t, const uint32_t*);
  int (*model_finish)(void*);
  int (*compilation_create)(void*, void**, const char*);
  int (*set_preference)(void*, int32_t);
  int (*set_priority)(void*, int32_t);
  int (*compilation_finish)(void*);
  void (*compilation_free)(void*);
  int (*input_size)(void*, int32_t, size_t*);
  int (*output_size)(void*, int32_t, size_t*);
  int (*execution_create)(void*, void**);
  void (*execution_free)(void*);
  int (*set_input)(void*, int32_t, const OperandType*, const void*, size_t);
  int (*set_output)(void*, int32_t, const OperandType*, void*, size_t);
  int (*set_input_from_memory)(void*, uint32_t, const OperandType*, const void*, size_t, size_t);
  int (*set_output_from_memory)(void*, uint32_t, const OperandType*, const void*, size_t, size_t);
  int (*compute)(void*);
  int (*memory_create)(const void*, void**);
  void (*memory_free)(void*);
};

struct BufferAllocator {
  Library library{"libneuron_buffer_allocator.so"};

  BufferAllocator() {
    library.find(create, "neuron_buffer_allocator_create");
    library.find(allocate_with, "neuron_buffer_allocate");
    library.find(remove_with, "neuron_buffer_remove");
    library.find(find_with, "neuron_buffer_find");
    library.find(clear_with, "neuron_buffer_clear");
    handle = create();
  }
  ~BufferAllocator() { clear_with(handle); }

  void* allocate(size_t size) const { return allocate_with(handle, size); }
  bool remove(void* address) const { return remove_with(handle, address); }
  const MemoryUnit* find(void* address) const { return static_cast<const MemoryUnit*>(find_with(handle, address)); }

  void* (*create)();
  void* (*allocate_with)(void*, size_t);
  bool (*remove_with)(void*, void*);
  const void* (*find_with)(void*, void*);
  void (*clear_with)(void*);
  void* handle = nullptr;
};

// Opened once: a runtime is not unloaded.
inline const Adapter& adapter() {
  static const Adapter opened;
  return opened;
}

}  // namespace vendor
