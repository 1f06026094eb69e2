// Executions: inputs and outputs bound by address, and run as often as wanted.
#include "calls.h"
#include "exported.h"
#include "objects.h"

using namespace etcli::neuron_sim;

namespace {

// The execution, alone: two threads that use one at the same time are at fault, also when neither of them changes it.
struct Alone {
  explicit Alone(NeuronExecution* key) : execution(live<NeuronExecution>().get(key)), hold(execution->lock, std::try_to_lock) {
    if (!hold.owns_lock()) bad_state("another thread uses the execution");
  }
  NeuronExecution* operator->() const { return execution.get(); }
  const Network& network() const { return *execution->compilation->network; }

  std::shared_ptr<NeuronExecution> execution;
  std::unique_lock<std::mutex> hold;
};

struct Place {
  const char* what;  // "input" or "output"
  int64_t index;
  bool is_input;
};

void check_index(const Alone& execution, const Place& place, const NeuronOperandType* type) {
  const size_t count = place.is_input ? execution->inputs.size() : execution->outputs.size();
  if (place.index < 0 || static_cast<size_t>(place.index) >= count) bad_data("there is no ", place.what, " ", place.index, ", there are ", count);
  if (type != nullptr) bad_data("an operand type is given, and shapes of a compiled network do not change");
}

// Null for the shared weights.
const TensorSpec* tensor_at(const Alone& execution, const Place& place) {
  const NetworkFile& file = execution.network().file;
  const std::vector<TensorSpec>& tensors = place.is_input ? file.inputs : file.outputs;
  return static_cast<size_t>(place.index) < tensors.size() ? &tensors[static_cast<size_t>(place.index)] : nullptr;
}

void check_alignment(const TensorSpec& tensor, const void* address, const Place& place) {
  const size_t alignment = element_bytes(tensor.dtype);
  if (reinterpret_cast<uintptr_t>(address) % alignment != 0) bad_data(place.what, " ", place.index, " at ", address, " is not aligned to its elements of ", alignment, " bytes");
}

void bind(const Alone& execution, const Place& place, NeuronExecution::Binding binding, size_t length) {
  if (const TensorSpec* tensor = tensor_at(execution, place)) {
    check_alignment(*tensor, binding.address, place);
  } else {
    const auto weights = read_shared_weights({static_cast<const unsigned char*>(binding.address), length});
    auto constants = std::make_shared<const Constants>(execution.network().file, weights);
    execution->instance = std::make_unique<Instance>(execution->compilation->network, std::move(constants));
  }
  binding.is_set = true;
  (place.is_input ? execution->inputs : execution->outputs)[static_cast<size_t>(place.index)] = std::move(binding);
}

int bind_address(const char* function, NeuronExecution* key, const Place& place, const NeuronOperandType* type, void* buffer, size_t length) {
  return answer(function, text(named(key), ", ", place.what, " ", place.index, ", ", buffer, ", ", length, " bytes"), [&] {
    const Alone execution(key);
    check_index(execution, place, type);
    refuse_null(buffer, "the buffer");
    const TensorSpec* tensor = tensor_at(execution, place);
    if (tensor != nullptr && length != tensor->bytes) bad_data(place.what, " ", place.index, " has ", tensor->bytes, " bytes (", tensor_text(*tensor), "), not ", length);
    bind(execution, place, {false, buffer, false, {}}, length);
    return std::string();
  });
}

int bind_memory(const char* function, NeuronExecution* key, const Place& place, const NeuronOperandType* type, const NeuronMemory* memory_key,
                size_t offset, size_t length) {
  const std::string arguments = text(named(key), ", ", place.what, " ", place.index, ", ", named(memory_key), ", offset ", offset, ", ", length, " bytes");
  return answer(function, arguments, [&] {
    const Alone execution(key);
    check_index(execution, place, type);
    const std::shared_ptr<NeuronMemory> memory = live<NeuronMemory>().get(memory_key);
    if (offset > memory->size || length > memory->size - offset) {
      bad_data(length, " bytes at offset ", offset, " are not inside the memory, which has ", memory->size);
    }
    // Whole buffers are bound to be imported, so more than the tensor needs is right.
    const TensorSpec* tensor = tensor_at(execution, place);
    if (tensor != nullptr && length < tensor->bytes) bad_data(place.what, " ", place.index, " has ", tensor->bytes, " bytes (", tensor_text(*tensor), "), not ", length);
    bind(execution, place, {false, memory->address + offset, true, memory}, length);
    return std::string();
  });
}

void* bound_address(const NeuronExecution::Binding& binding, const char* what, size_t index) {
  if (!binding.is_set) bad_data(what, " ", index, " is not set");
  if (binding.from_memory && binding.memory.expired()) bad_state("the memory of ", what, " ", index, " was freed");
  return binding.address;
}

}  // namespace

int NeuronExecution_create(NeuronCompilation* compilation_key, NeuronExecution** execution) noexcept {
  return answer(__func__, named(compilation_key), [&] {
    refuse_null(execution, "the place for the execution");
    *execution = nullptr;
    const std::shared_ptr<NeuronCompilation> compilation = live<NeuronCompilation>().get(compilation_key);
    const std::lock_guard<std::mutex> hold(compilation->lock);
    const std::shared_ptr<const Network> network = compilation->network;
    if (network == nullptr) bad_state("the compilation is not finished");
    auto made = std::make_shared<NeuronExecution>();
    made->compilation = compilation;
    made->inputs.resize(network->input_count());
    made->outputs.resize(network->file.outputs.size());
    if (!network->file.shared) made->instance = std::make_unique<Instance>(network, network->constants);
    *execution = live<NeuronExecution>().add(std::move(made));
    return named(*execution);
  });
}

void NeuronExecution_free(NeuronExecution* key) noexcept {
  const std::string arguments = named(key);
  std::string problem;
  const std::shared_ptr<NeuronExecution> execution = live<NeuronExecution>().take(key);
  if (execution == nullptr && key != nullptr) problem = "this execution does not exist: it was freed, or never made";
  if (execution.use_count() > 1) problem = "the execution is freed while another thread uses it";
  record(__func__, arguments, "void", problem);
}

int NeuronExecution_setInput(NeuronExecution* key, int32_t index, const NeuronOperandType* type, const void* buffer, size_t length) noexcept {
  return bind_address(__func__, key, {"input", index, true}, type, const_cast<void*>(buffer), length);
}

int NeuronExecution_setOutput(NeuronExecution* key, int32_t index, const NeuronOperandType* type, void* buffer, size_t length) noexcept {
  return bind_address(__func__, key, {"output", index, false}, type, buffer, length);
}

int NeuronExecution_setInputFromMemory(NeuronExecution* key, uint32_t index, const NeuronOperandType* type, const NeuronMemory* memory, size_t offset,
                                       size_t length) noexcept {
  return bind_memory(__func__, key, {"input", index, true}, type, memory, offset, length);
}

int NeuronExecution_setOutputFromMemory(NeuronExecution* key, uint32_t index, const NeuronOperandType* type, const NeuronMemory* memory, size_t offset,
                                        size_t length) noexcept {
  return bind_memory(__func__, key, {"output", index, false}, type, memory, offset, length);
}

int NeuronExecution_compute(NeuronExecution* key) noexcept {
  return answer(__func__, named(key), [&] {
    const Alone execution(key);
    std::vector<void*> inputs, outputs;
    for (size_t i = 0; i < execution->inputs.size(); ++i) inputs.push_back(bound_address(execution->inputs[i], "input", i));
    for (size_t o = 0; o < execution->outputs.size(); ++o) outputs.push_back(bound_address(execution->outputs[o], "output", o));
    if (execution.network().file.shared) inputs.pop_back();
    execution->instance->run(inputs, outputs);
    return std::string();
  });
}
