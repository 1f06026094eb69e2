// A NeuroPilot adapter for tests (fake.h). FAKE_NAME is the library that it is built as; with FAKE_LACKS it lacks three functions. In programs
// that cannot reach it, the environment's FAKE_FAIL names the function that fails.
#include <cstdlib>
#include <sstream>

#include "fake.h"

static Fake started() {
  Fake fake;
  fake.library = FAKE_NAME;
  if (const char* function = std::getenv("FAKE_FAIL")) fake.fails(function);
  return fake;
}

static Fake fake = started();

extern "C" Fake* fake_adapter() { return &fake; }

struct NeuronModel {
  std::string network;
};
struct NeuronCompilation {
  NeuronModel* model;
};
struct Bound {
  unsigned char* address = nullptr;
  size_t bytes = 0;
};
struct NeuronExecution {
  NeuronModel* model;
  std::map<uint32_t, Bound> inputs, outputs;
};

template <class... Parts>
static int called(const char* function, const Parts&... parts) {
  std::ostringstream line;
  line << function << "(";
  const char* separator = "";
  ((line << separator << parts, separator = ", "), ...);
  fake.calls.push_back(line.str() + ")");
  if (fake.fail != function || --fake.fail_call != 0) return NEURON_NO_ERROR;
  return fake.fail_code;
}

static bool has_handle(const char* function) { return fake.no_handle != function; }

static uint32_t word(const std::string& network, size_t index) {
  uint32_t value = 0;
  if (network.size() >= (index + 1) * 4) std::memcpy(&value, network.data() + index * 4, 4);
  return value;
}

extern "C" {

int NeuronModel_create(NeuronModel** model) {
  if (const int code = called("NeuronModel_create")) return code;
  *model = has_handle("NeuronModel_create") ? new NeuronModel : nullptr;
  fake.models += *model != nullptr;
  return NEURON_NO_ERROR;
}
void NeuronModel_free(NeuronModel* model) {
  called("NeuronModel_free");
  --fake.models;
  delete model;
}
int NeuronModel_addOperand(NeuronModel*, const NeuronOperandType* type) {
  return called("NeuronModel_addOperand", type->type, type->dimensionCount);
}
int NeuronModel_getExtensionOperandType(NeuronModel*, const char* extension, uint16_t code, int32_t* type) {
  *type = 0x70000100;
  return called("NeuronModel_getExtensionOperandType", extension, code);
}
int NeuronModel_getExtensionOperationType(NeuronModel*, const char* extension, uint16_t code, int32_t* type) {
  *type = 0x70000000;
  return called("NeuronModel_getExtensionOperationType", extension, code);
}
int NeuronModel_setOperandValue(NeuronModel* model, int32_t index, const void* value, size_t bytes) {
  fake.network = value;
  model->network.assign(static_cast<const char*>(value), bytes);
  return called("NeuronModel_setOperandValue", index, bytes);
}
int NeuronModel_addOperation(NeuronModel*, int32_t type, uint32_t inputs, const uint32_t* taken, uint32_t outputs, const uint32_t* given) {
  fake.taken.assign(taken, taken + inputs);
  fake.given.assign(given, given + outputs);
  return called("NeuronModel_addOperation", type, inputs, outputs);
}
int NeuronModel_identifyInputsAndOutputs(NeuronModel*, uint32_t inputs, const uint32_t* in, uint32_t outputs, const uint32_t* out) {
  fake.inputs.assign(in, in + inputs);
  fake.outputs.assign(out, out + outputs);
  return called("NeuronModel_identifyInputsAndOutputs", inputs, outputs);
}
int NeuronModel_finish(NeuronModel*) { return called("NeuronModel_finish"); }

int NeuronCompilation_createWithOptions(NeuronModel* model, NeuronCompilation** compilation, const char* options) {
  if (const int code = called("NeuronCompilation_createWithOptions", options)) return code;
  *compilation = has_handle("NeuronCompilation_createWithOptions") ? new NeuronCompilation{model} : nullptr;
  fake.compilations += *compilation != nullptr;
  return NEURON_NO_ERROR;
}
int NeuronCompilation_setPreference(NeuronCompilation*, int32_t preference) { return called("NeuronCompilation_setPreference", preference); }
#ifndef FAKE_LACKS
int NeuronCompilation_setPriority(NeuronCompilation*, int32_t priority) { return called("NeuronCompilation_setPriority", priority); }
#endif
int NeuronCompilation_finish(NeuronCompilation*) { return called("NeuronCompilation_finish"); }
void NeuronCompilation_free(NeuronCompilation* compilation) {
  called("NeuronCompilation_free");
  --fake.compilations;
  delete compilation;
}
int NeuronCompilation_getInputPaddedSize(NeuronCompilation* compilation, int32_t index, size_t* bytes) {
  *bytes = word(compilation->model->network, 2 + static_cast<size_t>(index)) + fake.extra_padding;
  return called("NeuronCompilation_getInputPaddedSize", index);
}
int NeuronCompilation_getOutputPaddedSize(NeuronCompilation* compilation, int32_t index, size_t* bytes) {
  const std::string& network = compilation->model->network;
  *bytes = word(network, 2 + word(network, 0) + static_cast<size_t>(index)) + fake.extra_padding;
  return called("NeuronCompilation_getOutputPaddedSize", index);
}

int NeuronExecution_create(NeuronCompilation* compilation, NeuronExecution** execution) {
  if (const int code = called("NeuronExecution_create")) return code;
  *execution = has_handle("NeuronExecution_create") ? new NeuronExecution{compilation->model, {}, {}} : nullptr;
  fake.executions += *execution != nullptr;
  return NEURON_NO_ERROR;
}
void NeuronExecution_free(NeuronExecution* execution) {
  called("NeuronExecution_free");
  --fake.executions;
  delete execution;
}
int NeuronExecution_setInput(NeuronExecution* execution, int32_t index, const NeuronOperandType* type, const void* data, size_t bytes) {
  if (const int code = called("NeuronExecution_setInput", index, bytes)) return code;
  execution->inputs[static_cast<uint32_t>(index)] = {static_cast<unsigned char*>(const_cast<void*>(data)), bytes};
  return type == nullptr ? NEURON_NO_ERROR : NEURON_BAD_DATA;
}
#ifndef FAKE_LACKS
int NeuronExecution_setOutput(NeuronExecution* execution, int32_t index, const NeuronOperandType* type, void* data, size_t bytes) {
  if (const int code = called("NeuronExecution_setOutput", index, bytes)) return code;
  execution->outputs[static_cast<uint32_t>(index)] = {static_cast<unsigned char*>(data), bytes};
  return type == nullptr ? NEURON_NO_ERROR : NEURON_BAD_DATA;
}
#endif
int NeuronExecution_setInputFromMemory(NeuronExecution* execution, uint32_t index, const NeuronOperandType* type, const NeuronMemory* memory,
                                       size_t offset, size_t bytes) {
  if (const int code = called("NeuronExecution_setInputFromMemory", index, offset, bytes)) return code;
  execution->inputs[index] = {memory->address + offset, bytes};
  return type == nullptr && offset + bytes <= memory->bytes ? NEURON_NO_ERROR : NEURON_BAD_DATA;
}
int NeuronExecution_setOutputFromMemory(NeuronExecution* execution, uint32_t index, const NeuronOperandType* type, const NeuronMemory* memory,
                                        size_t offset, size_t bytes) {
  if (const int code = called("NeuronExecution_setOutputFromMemory", index, offset, bytes)) return code;
  execution->outputs[index] = {memory->address + offset, bytes};
  return type == nullptr && offset + bytes <= memory->bytes ? NEURON_NO_ERROR : NEURON_BAD_DATA;
}
int NeuronExecution_compute(NeuronExecution* execution) {
  if (const int code = called("NeuronExecution_compute")) return code;
  const std::string& network = execution->model->network;
  const uint32_t inputs = word(network, 0), outputs = word(network, 1);
  const auto at = [](const Bound& bound, size_t index) {
    float value = 0;
    if (bound.bytes >= 4) std::memcpy(&value, bound.address + index % (bound.bytes / 4) * 4, 4);
    return value;
  };
  std::vector<std::vector<float>> results(outputs);
  for (uint32_t o = 0; o < outputs; ++o) {
    const auto bound = execution->outputs.find(o);
    if (bound == execution->outputs.end()) return NEURON_BAD_STATE;
    for (size_t j = 0; j < bound->second.bytes / 4; ++j) {
      float sum = static_cast<float>(o);
      for (uint32_t i = 0; i < inputs; ++i) {
        if (execution->inputs.count(i) == 0) return NEURON_BAD_STATE;
        sum += at(execution->inputs[i], j);
      }
      if (word(network, 2 + inputs + outputs) != 0) {
        if (execution->inputs.count(inputs) == 0) return NEURON_BAD_STATE;
        sum += at(execution->inputs[inputs], 0);
      }
      results[o].push_back(sum);
    }
  }
  for (uint32_t o = 0; o < outputs; ++o) std::memcpy(execution->outputs[o].address, results[o].data(), results[o].size() * 4);
  return NEURON_NO_ERROR;
}

#ifndef FAKE_LACKS
int NeuronMemory_createFromAHardwareBuffer(const AHardwareBuffer*, NeuronMemory**) { return called("NeuronMemory_createFromAHardwareBuffer"); }
#endif
void NeuronMemory_free(NeuronMemory*) { called("NeuronMemory_free"); }

}  // extern "C"
