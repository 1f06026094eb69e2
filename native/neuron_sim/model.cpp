// Models: the one operation that restores a compiled network, and the operands around it.
#include <algorithm>
#include <cstring>
#include <set>

#include "calls.h"
#include "exported.h"
#include "objects.h"

using namespace etcli::neuron_sim;

namespace {

// NNAPI's extension types: a number that the runtime gives the extension, and the extension's own code. The vendor's differ from device to
// device, so that nobody can count on any.
constexpr int32_t kExtension = 0x4554;
constexpr int32_t kNetworkOperandType = kExtension << 16 | kNeuronNetworkOperandType;
constexpr int32_t kNetworkOperationType = kExtension << 16 | kNeuronNetworkOperationType;
constexpr uint32_t kMaxOperands = 1 << 20;

// The model, for one call at a time, while it can be changed.
struct Open {
  explicit Open(NeuronModel* key) : model(live<NeuronModel>().get(key)), hold(model->lock) {
    if (model->finished) bad_state("the model is finished");
  }
  NeuronModel* operator->() const { return model.get(); }

  std::shared_ptr<NeuronModel> model;
  std::lock_guard<std::mutex> hold;
};

std::string list(uint32_t count, const uint32_t* items) {
  if (items == nullptr) return "null";
  std::string all;
  for (uint32_t i = 0; i < std::min<uint32_t>(count, 64); ++i) all += (i ? ", " : "") + std::to_string(items[i]);
  return "[" + all + (count > 64 ? ", ..." : "") + "]";
}

std::vector<uint32_t> operand_list(const Open& model, uint32_t count, const uint32_t* items, const char* what) {
  if (count == 0) bad_data("there are no ", what);
  refuse_null(items, what);
  if (count > kMaxOperands) bad_data(count, " ", what, " are too many");
  const std::vector<uint32_t> all(items, items + count);
  for (const uint32_t item : all) {
    if (item >= model->operands.size()) bad_data(what, ": there is no operand ", item, ", the model has ", model->operands.size());
  }
  if (std::set<uint32_t>(all.begin(), all.end()).size() != all.size()) bad_data(what, ": an operand stands there twice");
  return all;
}

int extension_type(const char* function, NeuronModel* key, const char* extension, uint16_t code, int32_t* type, uint16_t known_code, int32_t known_type) {
  const std::string arguments = text(named(key), ", ", extension == nullptr ? "null" : extension, ", code ", code);
  return answer(function, arguments, [&] {
    const Open model(key);
    refuse_null(extension, "the extension's name");
    refuse_null(type, "the place for the type");
    if (std::strcmp(extension, kNeuronNetworkExtension) != 0) bad_data("there is no extension '", extension, "'");
    if (code != known_code) bad_data("the extension has nothing of this kind with code ", code, ", but with ", known_code);
    *type = known_type;
    return text("type ", known_type);
  });
}

}  // namespace

int NeuronModel_create(NeuronModel** model) noexcept {
  return answer(__func__, "", [&] {
    refuse_null(model, "the place for the model");
    *model = nullptr;
    *model = live<NeuronModel>().add(std::make_shared<NeuronModel>());
    return named(*model);
  });
}

void NeuronModel_free(NeuronModel* key) noexcept {
  const std::string arguments = named(key);
  std::string problem;
  const std::shared_ptr<NeuronModel> model = live<NeuronModel>().take(key);
  if (model == nullptr && key != nullptr) problem = "this model does not exist: it was freed, or never made";
  if (model.use_count() > 1) problem = "the model is freed before what was made from it";
  record(__func__, arguments, "void", problem);
}

int NeuronModel_addOperand(NeuronModel* key, const NeuronOperandType* type) noexcept {
  const std::string arguments = text(named(key), type == nullptr ? text(", null") : text(", type ", type->type, ", ", type->dimensionCount, " dimensions"));
  return answer(__func__, arguments, [&] {
    const Open model(key);
    refuse_null(type, "the operand's type");
    if (type->dimensionCount > 0) refuse_null(type->dimensions, "the operand's dimensions");
    if (type->type != NEURON_TENSOR_FLOAT32 && type->type != kNetworkOperandType) {
      bad_data("operand type ", type->type, " is neither NEURON_TENSOR_FLOAT32 nor that of a compiled network");
    }
    if (model->operands.size() >= kMaxOperands) bad_data("the model has ", model->operands.size(), " operands, no more fit");
    model->operands.emplace_back();
    model->operands.back().is_network = type->type == kNetworkOperandType;
    return text("operand ", model->operands.size() - 1);
  });
}

int NeuronModel_getExtensionOperandType(NeuronModel* key, const char* extension, uint16_t code, int32_t* type) noexcept {
  return extension_type(__func__, key, extension, code, type, kNeuronNetworkOperandType, kNetworkOperandType);
}

int NeuronModel_getExtensionOperationType(NeuronModel* key, const char* extension, uint16_t code, int32_t* type) noexcept {
  return extension_type(__func__, key, extension, code, type, kNeuronNetworkOperationType, kNetworkOperationType);
}

int NeuronModel_setOperandValue(NeuronModel* key, int32_t index, const void* buffer, size_t length) noexcept {
  return answer(__func__, text(named(key), ", operand ", index, ", ", buffer, ", ", length, " bytes"), [&] {
    const Open model(key);
    if (index < 0 || static_cast<size_t>(index) >= model->operands.size()) bad_data("there is no operand ", index, ", the model has ", model->operands.size());
    NeuronModel::Operand& operand = model->operands[static_cast<size_t>(index)];
    if (!operand.is_network) bad_data("operand ", index, " is an input or output, which has no value in the model");
    refuse_null(buffer, "the value");
    if (length == 0) bad_data("the value has no bytes");
    if (operand.value.data != nullptr) bad_state("operand ", index, " has a value already");
    operand.value = {static_cast<const unsigned char*>(buffer), length};
    return std::string();
  });
}

int NeuronModel_addOperation(NeuronModel* key, int32_t type, uint32_t input_count, const uint32_t* inputs, uint32_t output_count,
                             const uint32_t* outputs) noexcept {
  const std::string arguments = text(named(key), ", type ", type, ", inputs ", list(input_count, inputs), ", outputs ", list(output_count, outputs));
  return answer(__func__, arguments, [&] {
    const Open model(key);
    if (type != kNetworkOperationType) bad_data("operation type ", type, " is not that of a compiled network");
    if (model->has_operation) bad_state("the model has its operation already");
    std::vector<uint32_t> ins = operand_list(model, input_count, inputs, "inputs of the operation");
    std::vector<uint32_t> outs = operand_list(model, output_count, outputs, "outputs of the operation");
    const uint32_t network = ins.back();
    if (!model->operands[network].is_network) bad_data("the last input of the operation is not the compiled network");
    ins.pop_back();
    for (const uint32_t input : ins) {
      if (model->operands[input].is_network) bad_data("operand ", input, " is a second compiled network");
    }
    for (const uint32_t output : outs) {
      const bool is_input = std::find(ins.begin(), ins.end(), output) != ins.end();
      if (is_input || model->operands[output].is_network) bad_data("operand ", output, " is an input and an output");
    }
    if (ins.size() + outs.size() + 1 != model->operands.size()) bad_data("the model has operands that its operation does not");
    model->operation_inputs = std::move(ins);
    model->operation_outputs = std::move(outs);
    model->network_operand = network;
    model->has_operation = true;
    return std::string();
  });
}

int NeuronModel_identifyInputsAndOutputs(NeuronModel* key, uint32_t input_count, const uint32_t* inputs, uint32_t output_count,
                                         const uint32_t* outputs) noexcept {
  const std::string arguments = text(named(key), ", inputs ", list(input_count, inputs), ", outputs ", list(output_count, outputs));
  return answer(__func__, arguments, [&] {
    const Open model(key);
    if (!model->has_operation) bad_state("the model has no operation");
    if (model->has_inputs_and_outputs) bad_state("the model's inputs and outputs are identified already");
    // A network that takes nothing has an operation whose only input is the network.
    const std::vector<uint32_t> ins = input_count == 0 ? std::vector<uint32_t>() : operand_list(model, input_count, inputs, "inputs of the model");
    const std::vector<uint32_t> outs = operand_list(model, output_count, outputs, "outputs of the model");
    if (ins != model->operation_inputs) bad_data("the model's inputs are not those of its operation without the compiled network");
    if (outs != model->operation_outputs) bad_data("the model's outputs are not those of its operation");
    model->has_inputs_and_outputs = true;
    return std::string();
  });
}

int NeuronModel_finish(NeuronModel* key) noexcept {
  return answer(__func__, named(key), [&] {
    const Open model(key);
    if (!model->has_operation) bad_state("the model has no operation");
    if (!model->has_inputs_and_outputs) bad_state("the model's inputs and outputs are not identified");
    if (model->operands[model->network_operand].value.data == nullptr) bad_state("the compiled network has no value");
    model->finished = true;
    return std::string();
  });
}
