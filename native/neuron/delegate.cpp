#include "delegate.h"

#include <executorch/runtime/core/exec_aten/util/dim_order_util.h>
#include <executorch/runtime/core/exec_aten/util/scalar_type_util.h>

#include "log.h"
#include "payload.h"

namespace etcli::neuron {

using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::runtime::ArrayRef;
using executorch::runtime::BackendInitContext;
using executorch::runtime::CompileSpec;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::FreeableBuffer;
using executorch::runtime::Span;

namespace {

// Types whose elements are plain numbers in memory; of others the NPU could make nothing.
bool is_plain(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Bool:
    case ScalarType::Byte:
    case ScalarType::Char:
    case ScalarType::Short:
    case ScalarType::UInt16:
    case ScalarType::Int:
    case ScalarType::UInt32:
    case ScalarType::Long:
    case ScalarType::Half:
    case ScalarType::Float: return true;
    default: return false;
  }
}

std::string describe(const Tensor& tensor) {
  std::string sizes;
  for (const auto size : tensor.sizes()) sizes += text(sizes.empty() ? "" : ", ", size);
  return text(executorch::runtime::toString(tensor.scalar_type()), " [", sizes, "], ", tensor.nbytes(), " bytes");
}

}  // namespace

Error Delegate::load(BackendInitContext& context, const FreeableBuffer& processed, ArrayRef<CompileSpec> specs) {
  where_ = context.get_method_name() != nullptr ? text("method '", context.get_method_name(), "' on the NPU") : "a network on the NPU";
  // What is wrong with the program comes before what is wrong with the device, and costs nothing.
  const auto payload = read_payload(where_, processed.data(), processed.size());
  if (!payload.ok()) return payload.error();
  auto options = read_compile_specs(where_, specs);
  if (!options.ok()) return options.error();
  options_ = std::move(options.get());

  const auto opened = adapter();
  if (!opened.ok()) return opened.error();
  const bool has_shared_weights = !options_.shared_weights.empty();
  if (has_shared_weights) {
    auto weights = shared_weights(where_, context.get_named_data_map(), options_.shared_weights);
    if (!weights.ok()) return weights.error();
    weights_ = std::move(weights.get());
  }
  const Error error = network_.restore(*opened.get(), where_, payload.get(), has_shared_weights, options_.runtime_text());
  if (error != Error::Ok) return error;
  bindings_.start(network_, payload->inputs + (has_shared_weights ? 1 : 0), payload->outputs);
  performance_ = performance_lock();
  return Error::Ok;
}

Error Delegate::execute(Span<EValue*> args) {
  Error error = check(args);
  if (error == Error::Ok) error = bind(args);
  if (error != Error::Ok) return error;
  const int code = network_.adapter->NeuronExecution_compute(network_.execution.get());
  return code == NEURON_NO_ERROR ? Error::Ok : failed(where_, "NeuronExecution_compute", code);
}

Error Delegate::check(Span<EValue*> args) const {
  const size_t inputs = network_.input_bytes.size(), outputs = network_.output_bytes.size();
  if (args.size() != inputs + outputs) {
    return refuse(Error::InvalidProgram, text(where_, ": its header tells of ", inputs, " inputs and ", outputs,
                                              " outputs, the program calls it with ", args.size(), " tensors; it is damaged"));
  }
  for (size_t i = 0; i < args.size(); ++i) {
    const bool is_input = i < inputs;
    const size_t index = is_input ? i : i - inputs;
    const auto name = [&] { return text(where_, ": ", is_input ? "input " : "output ", index); };
    if (args[i] == nullptr || !args[i]->isTensor()) return refuse(Error::InvalidType, text(name(), " is not a tensor"));
    const Tensor& tensor = args[i]->toTensor();
    if (!is_plain(tensor.scalar_type())) {
      return refuse(Error::InvalidType, text(name(), " is of type ", executorch::runtime::toString(tensor.scalar_type()), ", which NPUs do not have"));
    }
    if (!executorch::runtime::is_contiguous_dim_order(tensor.dim_order().data(), static_cast<size_t>(tensor.dim()))) {
      return refuse(Error::InvalidArgument, text(name(), " (", describe(tensor), ") is not laid out in row-major order"));
    }
    const size_t padded = is_input ? network_.input_bytes[index] : network_.output_bytes[index];
    if (tensor.nbytes() > padded) {
      return refuse(Error::InvalidArgument, text(name(), " is ", describe(tensor), ", the compiled network has room for ", padded));
    }
    if (tensor.nbytes() > 0 && tensor.const_data_ptr() == nullptr) {
      return refuse(Error::InvalidState, text(name(), " (", describe(tensor), ") has no memory; give it some before the method is executed"));
    }
  }
  return Error::Ok;
}

// In the order of ExecuTorch's own MediaTek backend: hints, inputs, shared weights, outputs.
Error Delegate::bind(Span<EValue*> args) {
  const auto inputs = static_cast<uint32_t>(network_.input_bytes.size()), outputs = static_cast<uint32_t>(network_.output_bytes.size());
  Error error = Error::Ok;
  if (options_.import_forever) {
    for (uint32_t i = 0; i < inputs && error == Error::Ok; ++i) {
      error = bindings_.hint(where_, Side::input, i, args[i]->toTensor().const_data_ptr());
    }
    for (uint32_t i = 0; i < outputs && error == Error::Ok; ++i) {
      error = bindings_.hint(where_, Side::output, i, args[inputs + i]->toTensor().const_data_ptr());
    }
  }
  for (uint32_t i = 0; i < inputs && error == Error::Ok; ++i) {
    const Tensor& tensor = args[i]->toTensor();
    error = bindings_.bind(where_, Side::input, i, tensor.mutable_data_ptr(), tensor.nbytes());
  }
  // Once: they stay where they are, by an address too, and a network may take long to read them.
  if (weights_ != nullptr && !has_weights_ && error == Error::Ok) {
    error = bindings_.bind(where_, Side::input, inputs, const_cast<void*>(weights_->data), weights_->bytes);
    has_weights_ = error == Error::Ok;
  }
  for (uint32_t i = 0; i < outputs && error == Error::Ok; ++i) {
    const Tensor& tensor = args[inputs + i]->toTensor();
    error = bindings_.bind(where_, Side::output, i, tensor.mutable_data_ptr(), tensor.nbytes());
  }
  return error;
}

}  // namespace etcli::neuron
