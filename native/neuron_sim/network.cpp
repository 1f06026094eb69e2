#include "network.h"

#include <cstring>

#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/platform/runtime.h>

#include "refusal.h"

namespace etcli::neuron_sim {

using executorch::runtime::Error;
using executorch::runtime::MethodMeta;
using executorch::runtime::Program;
using executorch::runtime::Result;
using executorch::runtime::Tag;
using executorch::runtime::TensorInfo;

namespace {

constexpr char kMethod[] = "forward";

std::string error_name(Error error) { return text("ExecuTorch's error ", executorch::runtime::to_string(error)); }

void check_tensor(Result<Tag> tag, Result<TensorInfo> info, const TensorSpec& expected, const char* what, size_t index) {
  if (!tag.ok() || tag.get() != Tag::Tensor || !info.ok()) bad_data("the program's ", what, " ", index, " is no tensor");
  TensorSpec found;
  found.dtype = info->scalar_type();
  found.shape.assign(info->sizes().begin(), info->sizes().end());
  if (found.dtype != expected.dtype || found.shape != expected.shape) {
    bad_data("the program's ", what, " ", index, " is ", tensor_text(found), ", the header says ", tensor_text(expected));
  }
  for (size_t i = 0; i < info->dim_order().size(); ++i) {
    if (info->dim_order()[i] != i) bad_data("the program's ", what, " ", index, " is not contiguous");
  }
  if (info->is_memory_planned()) bad_data("the program's ", what, " ", index, " has memory of its own");
}

void check_program(const Program& program, const NetworkFile& file) {
  const Result<MethodMeta> meta = program.method_meta(kMethod);
  if (!meta.ok()) bad_data("the program has no method '", kMethod, "'");
  if (meta->num_inputs() != file.inputs.size() || meta->num_outputs() != file.outputs.size()) {
    bad_data("the program has ", meta->num_inputs(), " inputs and ", meta->num_outputs(), " outputs, the header says ", file.inputs.size(), " and ",
             file.outputs.size());
  }
  for (size_t i = 0; i < file.inputs.size(); ++i) check_tensor(meta->input_tag(i), meta->input_tensor_meta(i), file.inputs[i], "input", i);
  for (size_t i = 0; i < file.outputs.size(); ++i) check_tensor(meta->output_tag(i), meta->output_tensor_meta(i), file.outputs[i], "output", i);
  if (meta->num_backends() != 0) bad_data("the program has a delegate in it, which no compiled network has");
}

struct Region {
  const unsigned char* begin;
  const unsigned char* end;
};

Region region(const void* data, size_t bytes) {
  const auto* begin = static_cast<const unsigned char*>(data);
  return {begin, begin + bytes};
}

bool overlap(const Region& a, const Region& b) { return a.begin < b.end && b.begin < a.end; }

}  // namespace

Network::Network(Bytes file_bytes)
    : file(read_network(file_bytes)), program_bytes(file.program.size), loader(program_bytes.data.get(), file.program.size) {
  // Copied, since a delegate's data begins at any address and a program may not.
  std::memcpy(program_bytes.data.get(), file.program.data, file.program.size);
  executorch::runtime::runtime_init();
  Result<Program> loaded = Program::load(&loader, Program::Verification::InternalConsistency);
  if (!loaded.ok()) bad_data("the program in it is not whole: ", error_name(loaded.error()));
  program.emplace(std::move(loaded.get()));
  check_program(*program, file);
  if (!file.shared) constants = std::make_shared<const Constants>(file, std::map<std::string, Bytes>());
}

Instance::Instance(std::shared_ptr<const Network> from, std::shared_ptr<const Constants> values)
    : network(std::move(from)), constants(std::move(values)), aside(network->file.outputs.size()) {
  const Result<MethodMeta> meta = network->program->method_meta(kMethod);
  if (!meta.ok()) bad_data("the program has no method '", kMethod, "'");
  for (size_t i = 0; i < meta->num_memory_planned_buffers(); ++i) {
    const Result<int64_t> size = meta->memory_planned_buffer_size(i);
    if (!size.ok() || size.get() < 0) bad_data("the program says no size for its memory ", i);
    planned.emplace_back(static_cast<size_t>(size.get()));
  }
  for (const Memory& memory : planned) spans.emplace_back(memory.data.get(), memory.bytes);
  planned_allocator = std::make_unique<executorch::runtime::HierarchicalAllocator>(
      executorch::runtime::Span<executorch::runtime::Span<uint8_t>>(spans.data(), spans.size()));
  manager = std::make_unique<executorch::runtime::MemoryManager>(&method_allocator, planned_allocator.get(), &temporary_allocator);
  auto loaded = network->program->load_method(kMethod, manager.get(), nullptr, constants.get());
  if (!loaded.ok()) {
    const char* why = "";
    if (loaded.error() == Error::OperatorMissing) why = ": it has an operator that the CPU kernels lack, ExecuTorch's log names it";
    if (loaded.error() == Error::NotFound) why = ": it has a constant that the header lacks";
    bad_data("the program in it cannot be loaded: ", error_name(loaded.error()), why);
  }
  method.emplace(std::move(loaded.get()));
}

void Instance::run(const std::vector<void*>& inputs, const std::vector<void*>& outputs) {
  const NetworkFile& file = network->file;
  std::vector<void*> places = outputs;
  for (size_t o = 0; o < outputs.size(); ++o) {
    const Region output = region(outputs[o], file.outputs[o].bytes);
    for (size_t other = 0; other < o; ++other) {
      if (overlap(output, region(outputs[other], file.outputs[other].bytes))) bad_data("outputs ", other, " and ", o, " overlap");
    }
    bool in_place = false;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Region input = region(inputs[i], file.inputs[i].bytes);
      if (!overlap(output, input)) continue;
      if (output.begin != input.begin) bad_data("output ", o, " overlaps input ", i, " in part");
      in_place = true;
    }
    if (!in_place) continue;
    if (!aside[o]) aside[o].emplace(file.outputs[o].bytes);
    places[o] = aside[o]->data.get();
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorSpec& spec = file.inputs[i];
    std::vector<executorch::aten::SizesType> sizes(spec.shape.begin(), spec.shape.end());
    std::vector<executorch::aten::DimOrderType> order(sizes.size());
    std::vector<executorch::aten::StridesType> strides(sizes.size());
    executorch::aten::StridesType stride = 1;
    for (size_t d = sizes.size(); d-- > 0; stride *= sizes[d]) {
      order[d] = static_cast<executorch::aten::DimOrderType>(d);
      strides[d] = stride;
    }
    executorch::aten::TensorImpl tensor(spec.dtype, static_cast<ssize_t>(sizes.size()), sizes.data(), inputs[i], order.data(), strides.data());
    const Error error = method->set_input(executorch::runtime::EValue(executorch::aten::Tensor(&tensor)), i);
    if (error != Error::Ok) throw Refusal(NEURON_OP_FAILED, text("the program did not take input ", i, ": ", error_name(error)));
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    const Error error = method->set_output_data_ptr(places[o], file.outputs[o].bytes, o);
    if (error != Error::Ok) throw Refusal(NEURON_OP_FAILED, text("the program did not take output ", o, ": ", error_name(error)));
  }
  const Error error = method->execute();
  if (error != Error::Ok) throw Refusal(NEURON_OP_FAILED, text("the program failed: ", error_name(error)));
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (places[o] != outputs[o]) std::memcpy(outputs[o], places[o], file.outputs[o].bytes);
  }
}

}  // namespace etcli::neuron_sim
