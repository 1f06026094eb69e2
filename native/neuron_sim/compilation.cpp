// Compilations: where the network's file is read and restored.
#include <atomic>

#include "calls.h"
#include "exported.h"
#include "objects.h"

using namespace etcli::neuron_sim;

namespace {

// The compilation, for one call at a time, while it can be changed.
struct Open {
  explicit Open(NeuronCompilation* key) : compilation(live<NeuronCompilation>().get(key)), hold(compilation->lock) {
    if (compilation->network != nullptr) bad_state("the compilation is finished");
  }
  NeuronCompilation* operator->() const { return compilation.get(); }

  std::shared_ptr<NeuronCompilation> compilation;
  std::lock_guard<std::mutex> hold;
};

void say_once_what_this_is() {
  static std::atomic<bool> is_said{false};
  if (!is_said.exchange(true)) say("there is no NPU: networks run on the CPU, times say nothing about any device");
}

int padded_size(const char* function, NeuronCompilation* key, int32_t index, size_t* size, bool is_input) {
  return answer(function, text(named(key), ", index ", index), [&] {
    const std::shared_ptr<NeuronCompilation> compilation = live<NeuronCompilation>().get(key);
    const std::lock_guard<std::mutex> hold(compilation->lock);
    refuse_null(size, "the place for the size");
    if (compilation->network == nullptr) bad_state("the compilation is not finished");
    const NetworkFile& file = compilation->network->file;
    const std::vector<TensorSpec>& tensors = is_input ? file.inputs : file.outputs;
    if (is_input && file.shared && index >= 0 && static_cast<size_t>(index) == tensors.size()) {
      bad_data("index ", index, " is for the shared weights, whose size the network does not say");
    }
    if (index < 0 || static_cast<size_t>(index) >= tensors.size()) bad_data("there is no index ", index, ", there are ", tensors.size());
    *size = tensors[static_cast<size_t>(index)].bytes;
    return text(*size, " bytes");
  });
}

}  // namespace

int NeuronCompilation_createWithOptions(NeuronModel* model_key, NeuronCompilation** compilation, const char* options) noexcept {
  return answer(__func__, text(named(model_key), ", options ", options == nullptr ? "null" : options), [&] {
    refuse_null(compilation, "the place for the compilation");
    *compilation = nullptr;
    const std::shared_ptr<NeuronModel> model = live<NeuronModel>().get(model_key);
    refuse_null(options, "the options");
    const std::lock_guard<std::mutex> hold(model->lock);
    if (!model->finished) bad_state("the model is not finished");
    auto made = std::make_shared<NeuronCompilation>();
    made->options = read_options(options);
    made->model = model;
    *compilation = live<NeuronCompilation>().add(std::move(made));
    return named(*compilation);
  });
}

int NeuronCompilation_setPreference(NeuronCompilation* key, int32_t preference) noexcept {
  return answer(__func__, text(named(key), ", ", preference), [&] {
    const Open compilation(key);
    // Low power, fast single answer, sustained speed, turbo boost.
    if (preference < 0 || preference > NEURON_PREFER_TURBO_BOOST) bad_data("there is no preference ", preference);
    return std::string();
  });
}

int NeuronCompilation_setPriority(NeuronCompilation* key, int32_t priority) noexcept {
  return answer(__func__, text(named(key), ", ", priority), [&] {
    const Open compilation(key);
    constexpr int32_t kLow = 90, kMedium = 100;
    if (priority != kLow && priority != kMedium && priority != NEURON_PRIORITY_HIGH) bad_data("there is no priority ", priority);
    return std::string();
  });
}

int NeuronCompilation_finish(NeuronCompilation* key) noexcept {
  return answer(__func__, named(key), [&] {
    const Open compilation(key);
    say_once_what_this_is();
    const NeuronModel& model = *compilation->model;  // finished, so that nothing changes it
    auto network = std::make_shared<const Network>(model.operands[model.network_operand].value);
    const size_t inputs = model.operation_inputs.size(), outputs = model.operation_outputs.size();
    if (inputs != network->input_count() || outputs != network->file.outputs.size()) {
      bad_data("the model has ", inputs, " inputs and ", outputs, " outputs, the compiled network ", network->file.inputs.size(),
               network->file.shared ? " and shared weights, and " : " and ", network->file.outputs.size());
    }
    compilation->network = std::move(network);
    return text("platform ", compilation->network->file.platform);
  });
}

void NeuronCompilation_free(NeuronCompilation* key) noexcept {
  const std::string arguments = named(key);
  std::string problem;
  const std::shared_ptr<NeuronCompilation> compilation = live<NeuronCompilation>().take(key);
  if (compilation == nullptr && key != nullptr) problem = "this compilation does not exist: it was freed, or never made";
  if (compilation.use_count() > 1) problem = "the compilation is freed before what was made from it";
  record(__func__, arguments, "void", problem);
}

int NeuronCompilation_getInputPaddedSize(NeuronCompilation* key, int32_t index, size_t* size) noexcept {
  return padded_size(__func__, key, index, size, true);
}

int NeuronCompilation_getOutputPaddedSize(NeuronCompilation* key, int32_t index, size_t* size) noexcept {
  return padded_size(__func__, key, index, size, false);
}
