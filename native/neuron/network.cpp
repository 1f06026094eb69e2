#include "network.h"

#include <numeric>

#include "log.h"

namespace etcli::neuron {

using executorch::runtime::Error;

// Calls a function of the adapter and returns from here where it does not succeed; WHAT is what for.
#define ETCLI_NEURON_CALL(WHAT, FUNCTION, ...)                                                 \
  do {                                                                                         \
    const int code = adapter->FUNCTION(__VA_ARGS__);                                           \
    if (code != NEURON_NO_ERROR) return failed(where, #FUNCTION, code, WHAT);                  \
  } while (false)

static Error no_handle(const std::string& where, const char* function) {
  return refuse(Error::Internal, text(where, ": ", function, " succeeded without a handle"));
}

Error Network::restore(const Adapter& from, const std::string& where, const Payload& payload, bool has_shared_weights,
                       const std::string& options) {
  adapter = &from;
  Error error = make_model(where, payload, has_shared_weights);
  if (error == Error::Ok) error = compile(where, options);
  if (error == Error::Ok) error = ask_sizes(where, payload);
  return error;
}

// One operation that takes all inputs and the network, and gives all outputs. Their real types are in the network; here every tensor is a
// float32 of no known shape.
Error Network::make_model(const std::string& where, const Payload& payload, bool has_shared_weights) {
  NeuronModel* made = nullptr;
  ETCLI_NEURON_CALL("", NeuronModel_create, &made);
  if (made == nullptr) return no_handle(where, "NeuronModel_create");
  model = {made, {adapter->NeuronModel_free}};

  const NeuronOperandType tensor{NEURON_TENSOR_FLOAT32, 0, nullptr, 0.0f, 0};
  const uint32_t inputs = payload.inputs + (has_shared_weights ? 1 : 0);
  for (uint32_t i = 0; i < inputs; ++i) ETCLI_NEURON_CALL(text("input ", i), NeuronModel_addOperand, made, &tensor);
  NeuronOperandType network{0, 0, nullptr, 0.0f, 0};
  ETCLI_NEURON_CALL("", NeuronModel_getExtensionOperandType, made, kNeuronNetworkExtension, kNeuronNetworkOperandType, &network.type);
  ETCLI_NEURON_CALL("the compiled network", NeuronModel_addOperand, made, &network);
  for (uint32_t i = 0; i < payload.outputs; ++i) ETCLI_NEURON_CALL(text("output ", i), NeuronModel_addOperand, made, &tensor);
  ETCLI_NEURON_CALL(text("the compiled network of ", payload.network_bytes, " bytes"), NeuronModel_setOperandValue, made,
                    static_cast<int32_t>(inputs), payload.network, payload.network_bytes);

  int32_t operation = 0;
  ETCLI_NEURON_CALL("", NeuronModel_getExtensionOperationType, made, kNeuronNetworkExtension, kNeuronNetworkOperationType, &operation);
  std::vector<uint32_t> taken(inputs + 1), given(payload.outputs);  // the network is the last that is taken
  std::iota(taken.begin(), taken.end(), 0u);
  std::iota(given.begin(), given.end(), inputs + 1);
  ETCLI_NEURON_CALL("", NeuronModel_addOperation, made, operation, inputs + 1, taken.data(), payload.outputs, given.data());
  ETCLI_NEURON_CALL("", NeuronModel_identifyInputsAndOutputs, made, inputs, taken.data(), payload.outputs, given.data());
  ETCLI_NEURON_CALL("", NeuronModel_finish, made);
  return Error::Ok;
}

Error Network::compile(const std::string& where, const std::string& options) {
  NeuronCompilation* made = nullptr;
  ETCLI_NEURON_CALL(options.empty() ? "" : text("the options ", options), NeuronCompilation_createWithOptions, model.get(), &made, options.c_str());
  if (made == nullptr) return no_handle(where, "NeuronCompilation_createWithOptions");
  compilation = {made, {adapter->NeuronCompilation_free}};
  ETCLI_NEURON_CALL("", NeuronCompilation_setPreference, made, NEURON_PREFER_TURBO_BOOST);
  ETCLI_NEURON_CALL("", NeuronCompilation_setPriority, made, NEURON_PRIORITY_HIGH);
  ETCLI_NEURON_CALL("", NeuronCompilation_finish, made);

  NeuronExecution* run = nullptr;
  ETCLI_NEURON_CALL("", NeuronExecution_create, made, &run);
  if (run == nullptr) return no_handle(where, "NeuronExecution_create");
  execution = {run, {adapter->NeuronExecution_free}};
  return Error::Ok;
}

Error Network::ask_sizes(const std::string& where, const Payload& payload) {
  input_bytes.resize(payload.inputs);
  output_bytes.resize(payload.outputs);
  for (uint32_t i = 0; i < payload.inputs; ++i) {
    ETCLI_NEURON_CALL(text("input ", i), NeuronCompilation_getInputPaddedSize, compilation.get(), static_cast<int32_t>(i), &input_bytes[i]);
  }
  for (uint32_t i = 0; i < payload.outputs; ++i) {
    ETCLI_NEURON_CALL(text("output ", i), NeuronCompilation_getOutputPaddedSize, compilation.get(), static_cast<int32_t>(i), &output_bytes[i]);
  }
  return Error::Ok;
}

}  // namespace etcli::neuron
