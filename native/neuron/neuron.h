// The C interface of the NeuroPilot adapter, as far as a compiled network needs it. The declarations are our own, made from what ExecuTorch's
// MediaTek backend calls and from the values in public copies of the SDK's NeuronAdapter.h; the SDK is not needed to build this.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct AHardwareBuffer;
struct NeuronModel;
struct NeuronCompilation;
struct NeuronExecution;
struct NeuronMemory;

struct NeuronOperandType {
  int32_t type;
  uint32_t dimensionCount;
  const uint32_t* dimensions;
  float scale;
  int32_t zeroPoint;
};

enum NeuronResultCode : int {
  NEURON_NO_ERROR = 0,
  NEURON_OUT_OF_MEMORY = 1,
  NEURON_INCOMPLETE = 2,
  NEURON_UNEXPECTED_NULL = 3,
  NEURON_BAD_DATA = 4,
  NEURON_OP_FAILED = 5,
  NEURON_UNMAPPABLE = 6,
  NEURON_BAD_STATE = 7,
  NEURON_BAD_VERSION = 8,
};

}  // extern "C"

constexpr int32_t NEURON_TENSOR_FLOAT32 = 3;
constexpr int32_t NEURON_PREFER_TURBO_BOOST = 3;
constexpr int32_t NEURON_PRIORITY_HIGH = 110;

// A compiled network is restored as one operation of this extension, with the network as an operand.
constexpr char kNeuronNetworkExtension[] = "com.mediatek.compiled_network";
constexpr uint16_t kNeuronNetworkOperandType = 0x0100;
constexpr uint16_t kNeuronNetworkOperationType = 0x0000;

// F(result, name, parameters) for every function. Those without a result cannot fail.
#define ETCLI_NEURON_FUNCTIONS(F)                                                                                                 \
  F(int, NeuronModel_create, (NeuronModel**))                                                                                     \
  F(void, NeuronModel_free, (NeuronModel*))                                                                                       \
  F(int, NeuronModel_addOperand, (NeuronModel*, const NeuronOperandType*))                                                        \
  F(int, NeuronModel_getExtensionOperandType, (NeuronModel*, const char*, uint16_t, int32_t*))                                    \
  F(int, NeuronModel_getExtensionOperationType, (NeuronModel*, const char*, uint16_t, int32_t*))                                  \
  F(int, NeuronModel_setOperandValue, (NeuronModel*, int32_t, const void*, size_t))                                               \
  F(int, NeuronModel_addOperation, (NeuronModel*, int32_t, uint32_t, const uint32_t*, uint32_t, const uint32_t*))                 \
  F(int, NeuronModel_identifyInputsAndOutputs, (NeuronModel*, uint32_t, const uint32_t*, uint32_t, const uint32_t*))              \
  F(int, NeuronModel_finish, (NeuronModel*))                                                                                      \
  F(int, NeuronCompilation_createWithOptions, (NeuronModel*, NeuronCompilation**, const char*))                                   \
  F(int, NeuronCompilation_setPreference, (NeuronCompilation*, int32_t))                                                          \
  F(int, NeuronCompilation_setPriority, (NeuronCompilation*, int32_t))                                                            \
  F(int, NeuronCompilation_finish, (NeuronCompilation*))                                                                          \
  F(void, NeuronCompilation_free, (NeuronCompilation*))                                                                           \
  F(int, NeuronCompilation_getInputPaddedSize, (NeuronCompilation*, int32_t, size_t*))                                            \
  F(int, NeuronCompilation_getOutputPaddedSize, (NeuronCompilation*, int32_t, size_t*))                                           \
  F(int, NeuronExecution_create, (NeuronCompilation*, NeuronExecution**))                                                         \
  F(void, NeuronExecution_free, (NeuronExecution*))                                                                               \
  F(int, NeuronExecution_setInput, (NeuronExecution*, int32_t, const NeuronOperandType*, const void*, size_t))                    \
  F(int, NeuronExecution_setOutput, (NeuronExecution*, int32_t, const NeuronOperandType*, void*, size_t))                         \
  F(int, NeuronExecution_setInputFromMemory, (NeuronExecution*, uint32_t, const NeuronOperandType*, const NeuronMemory*, size_t, size_t))  \
  F(int, NeuronExecution_setOutputFromMemory, (NeuronExecution*, uint32_t, const NeuronOperandType*, const NeuronMemory*, size_t, size_t)) \
  F(int, NeuronExecution_compute, (NeuronExecution*))                                                                             \
  F(int, NeuronMemory_createFromAHardwareBuffer, (const AHardwareBuffer*, NeuronMemory**))                                        \
  F(void, NeuronMemory_free, (NeuronMemory*))
