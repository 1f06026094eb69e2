// libneuronusdk_adapter.mtk.so: the vendor's functions by their names, each handed on to libetcli_neuron_sim.so beside it.
//
// A library of its own, so that the process may hold an ExecuTorch of any release: what this library needs would be linked to the symbols that
// the process shows first, and upstream's delegate shows an ExecuTorch. The other library is opened so that it sees its own first. Where the
// process has the same shared runtime already, as our runner has, both get that one.
#include <dlfcn.h>

#include <cstdio>
#include <string>
#include <type_traits>

#include "exported.h"

namespace {

struct Functions {
#define ETCLI_NEURON_MEMBER(result, name, parameters) result(*name) parameters;
  ETCLI_NEURON_FUNCTIONS(ETCLI_NEURON_MEMBER)
#undef ETCLI_NEURON_MEMBER
};

// Where this library is, with the last slash; empty where that is not known.
std::string folder() {
  Dl_info here{};
  if (::dladdr(reinterpret_cast<const void*>(&NeuronModel_create), &here) == 0 || here.dli_fname == nullptr) return "";
  const std::string path = here.dli_fname;
  return path.substr(0, path.rfind('/') + 1);
}

int flags() {
  int all = RTLD_NOW | RTLD_LOCAL;
#ifdef RTLD_DEEPBIND
  // AddressSanitizer ends a process that does this.
  if (::dlsym(RTLD_DEFAULT, "__asan_init") == nullptr) all |= RTLD_DEEPBIND;
#endif
  return all;
}

const Functions* opened() {
  const std::string path = folder() + "libetcli_neuron_sim.so";
  void* const library = ::dlopen(path.c_str(), flags());
  if (library == nullptr) {
    std::fprintf(stderr, "simulated NPU: cannot open %s: %s\n", path.c_str(), ::dlerror());
    return nullptr;
  }
  auto* const functions = new Functions;
#define ETCLI_NEURON_FIND(result, name, parameters)                                             \
  functions->name = reinterpret_cast<decltype(functions->name)>(::dlsym(library, #name));       \
  if (functions->name == nullptr) {                                                             \
    std::fprintf(stderr, "simulated NPU: %s has no %s\n", path.c_str(), #name);                 \
    return nullptr;                                                                             \
  }
  ETCLI_NEURON_FUNCTIONS(ETCLI_NEURON_FIND)
#undef ETCLI_NEURON_FIND
  return functions;
}

const Functions* functions_or_null() {
  static const Functions* const functions = opened();
  return functions;
}

// What the other library returns; without it, that nothing can be done.
template <class Result, class... Parameters, class... Arguments>
Result hand_on(Result (*Functions::*function)(Parameters...), Arguments... arguments) {
  const Functions* const functions = functions_or_null();
  if (functions != nullptr) return (functions->*function)(arguments...);
  if constexpr (!std::is_void_v<Result>) return NEURON_BAD_STATE;
}

}  // namespace

using M = NeuronModel;
using C = NeuronCompilation;
using E = NeuronExecution;
using F = Functions;
using Type = NeuronOperandType;

int NeuronModel_create(M** model) noexcept { return hand_on(&F::NeuronModel_create, model); }
void NeuronModel_free(M* model) noexcept { hand_on(&F::NeuronModel_free, model); }
int NeuronModel_addOperand(M* model, const Type* type) noexcept { return hand_on(&F::NeuronModel_addOperand, model, type); }
int NeuronModel_getExtensionOperandType(M* model, const char* extension, uint16_t code, int32_t* type) noexcept {
  return hand_on(&F::NeuronModel_getExtensionOperandType, model, extension, code, type);
}
int NeuronModel_getExtensionOperationType(M* model, const char* extension, uint16_t code, int32_t* type) noexcept {
  return hand_on(&F::NeuronModel_getExtensionOperationType, model, extension, code, type);
}
int NeuronModel_setOperandValue(M* model, int32_t index, const void* buffer, size_t length) noexcept {
  return hand_on(&F::NeuronModel_setOperandValue, model, index, buffer, length);
}
int NeuronModel_addOperation(M* model, int32_t type, uint32_t input_count, const uint32_t* inputs, uint32_t output_count, const uint32_t* outputs) noexcept {
  return hand_on(&F::NeuronModel_addOperation, model, type, input_count, inputs, output_count, outputs);
}
int NeuronModel_identifyInputsAndOutputs(M* model, uint32_t input_count, const uint32_t* inputs, uint32_t output_count, const uint32_t* outputs) noexcept {
  return hand_on(&F::NeuronModel_identifyInputsAndOutputs, model, input_count, inputs, output_count, outputs);
}
int NeuronModel_finish(M* model) noexcept { return hand_on(&F::NeuronModel_finish, model); }
int NeuronCompilation_createWithOptions(M* model, C** compilation, const char* options) noexcept {
  return hand_on(&F::NeuronCompilation_createWithOptions, model, compilation, options);
}
int NeuronCompilation_setPreference(C* compilation, int32_t preference) noexcept { return hand_on(&F::NeuronCompilation_setPreference, compilation, preference); }
int NeuronCompilation_setPriority(C* compilation, int32_t priority) noexcept { return hand_on(&F::NeuronCompilation_setPriority, compilation, priority); }
int NeuronCompilation_finish(C* compilation) noexcept { return hand_on(&F::NeuronCompilation_finish, compilation); }
void NeuronCompilation_free(C* compilation) noexcept { hand_on(&F::NeuronCompilation_free, compilation); }
int NeuronCompilation_getInputPaddedSize(C* compilation, int32_t index, size_t* size) noexcept {
  return hand_on(&F::NeuronCompilation_getInputPaddedSize, compilation, index, size);
}
int NeuronCompilation_getOutputPaddedSize(C* compilation, int32_t index, size_t* size) noexcept {
  return hand_on(&F::NeuronCompilation_getOutputPaddedSize, compilation, index, size);
}
int NeuronExecution_create(C* compilation, E** execution) noexcept { return hand_on(&F::NeuronExecution_create, compilation, execution); }
void NeuronExecution_free(E* execution) noexcept { hand_on(&F::NeuronExecution_free, execution); }
int NeuronExecution_setInput(E* execution, int32_t index, const Type* type, const void* buffer, size_t length) noexcept {
  return hand_on(&F::NeuronExecution_setInput, execution, index, type, buffer, length);
}
int NeuronExecution_setOutput(E* execution, int32_t index, const Type* type, void* buffer, size_t length) noexcept {
  return hand_on(&F::NeuronExecution_setOutput, execution, index, type, buffer, length);
}
int NeuronExecution_setInputFromMemory(E* execution, uint32_t index, const Type* type, const NeuronMemory* memory, size_t offset, size_t length) noexcept {
  return hand_on(&F::NeuronExecution_setInputFromMemory, execution, index, type, memory, offset, length);
}
int NeuronExecution_setOutputFromMemory(E* execution, uint32_t index, const Type* type, const NeuronMemory* memory, size_t offset, size_t length) noexcept {
  return hand_on(&F::NeuronExecution_setOutputFromMemory, execution, index, type, memory, offset, length);
}
int NeuronExecution_compute(E* execution) noexcept { return hand_on(&F::NeuronExecution_compute, execution); }
int NeuronMemory_createFromAHardwareBuffer(const AHardwareBuffer* buffer, NeuronMemory** memory) noexcept {
  return hand_on(&F::NeuronMemory_createFromAHardwareBuffer, buffer, memory);
}
void NeuronMemory_free(NeuronMemory* memory) noexcept { hand_on(&F::NeuronMemory_free, memory); }
