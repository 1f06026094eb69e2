#include "program.h"

#include <executorch/extension/tensor/tensor_ptr_maker.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/exec_aten/util/scalar_type_util.h>

#include "failure.h"
#include "files.h"
#include "runtime.h"

namespace etcli {

using executorch::aten::ScalarType;
using executorch::runtime::Error;
using executorch::runtime::MethodMeta;
using executorch::runtime::Result;
using executorch::runtime::Tag;
using executorch::runtime::TensorInfo;

std::string dtype_name(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Byte: return "uint8";
    case ScalarType::Char: return "int8";
    case ScalarType::Short: return "int16";
    case ScalarType::Int: return "int32";
    case ScalarType::Long: return "int64";
    case ScalarType::UInt16: return "uint16";
    case ScalarType::UInt32: return "uint32";
    case ScalarType::UInt64: return "uint64";
    case ScalarType::Half: return "float16";
    case ScalarType::BFloat16: return "bfloat16";
    case ScalarType::Float: return "float32";
    case ScalarType::Double: return "float64";
    case ScalarType::Bool: return "bool";
    default: return text("scalar type ", static_cast<int>(dtype));
  }
}

std::string shape_text(const std::vector<int64_t>& sizes) {
  std::string out = "[";
  for (size_t i = 0; i < sizes.size(); ++i) out += text(i ? ", " : "", sizes[i]);
  return out + "]";
}

bool is_contiguous(const std::vector<uint8_t>& dim_order) {
  for (size_t i = 0; i < dim_order.size(); ++i) {
    if (dim_order[i] != i) return false;
  }
  return true;
}

static std::string tag_name(Tag tag) {
  switch (tag) {
    case Tag::None: return "none";
    case Tag::Int: return "int";
    case Tag::Double: return "float";
    case Tag::Bool: return "bool";
    case Tag::String: return "string";
    case Tag::Tensor: return "tensor";
    default: return "list";
  }
}

// The description is asked for only where it exists: asking for that of a number is an error in the runtime's log.
template <class Describe>
static TensorFacts facts(Result<Tag> tag, const Describe& describe) {
  TensorFacts facts;
  facts.kind = tag.ok() ? tag_name(tag.get()) : "unknown";
  if (!tag.ok() || tag.get() != Tag::Tensor) return facts;
  const Result<TensorInfo> info = describe();
  if (!info.ok()) return facts;
  facts.is_tensor = true;
  facts.dtype = info->scalar_type();
  facts.sizes.assign(info->sizes().begin(), info->sizes().end());
  facts.dim_order.assign(info->dim_order().begin(), info->dim_order().end());
  facts.planned = info->is_memory_planned();
  facts.bytes = info->nbytes();
  return facts;
}

std::vector<TensorFacts> input_facts(const MethodMeta& meta) {
  std::vector<TensorFacts> all;
  for (size_t i = 0; i < meta.num_inputs(); ++i) all.push_back(facts(meta.input_tag(i), [&] { return meta.input_tensor_meta(i); }));
  return all;
}

std::vector<TensorFacts> output_facts(const MethodMeta& meta) {
  std::vector<TensorFacts> all;
  for (size_t i = 0; i < meta.num_outputs(); ++i) all.push_back(facts(meta.output_tag(i), [&] { return meta.output_tensor_meta(i); }));
  return all;
}

Program::Program(const std::string& file) : path(file) {
  // Opened by our own code first, for the system's words on what is wrong; the loader keeps the file open from then on.
  const size_t size = MappedFile(path).size;
  auto mapped = executorch::extension::MmapDataLoader::from(path.c_str(), executorch::extension::MmapDataLoader::MlockConfig::NoMlock);
  if (!mapped.ok()) throw file_failure(text("cannot map ", path, ": ", explain(mapped.error())));
  loader = std::make_unique<executorch::extension::MmapDataLoader>(std::move(mapped.get()));
  auto loaded = executorch::runtime::Program::load(loader.get(), executorch::runtime::Program::Verification::InternalConsistency);
  if (!loaded.ok()) {
    throw load_failure(text(path, " (", size, " bytes) is not a whole ExecuTorch program: ", explain(loaded.error())));
  }
  program = std::make_unique<executorch::runtime::Program>(std::move(loaded.get()));
}

std::vector<std::string> Program::method_names() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < program->num_methods(); ++i) {
    const auto name = program->get_method_name(i);
    if (name.ok()) names.emplace_back(name.get());
  }
  return names;
}

MethodMeta Program::meta(const std::string& method) const {
  const auto meta = program->method_meta(method.c_str());
  if (!meta.ok()) {
    std::string names;
    for (const std::string& name : method_names()) names += (names.empty() ? "'" : ", '") + name + "'";
    last_errors();
    throw method_failure(text(path, " has no method '", method, "', it has ", names.empty() ? "none" : names));
  }
  for (size_t i = 0; i < meta->num_backends(); ++i) {
    const auto backend = meta->get_backend_name(i);
    if (backend.ok() && executorch::runtime::get_backend_class(backend.get()) == nullptr) {
      throw method_failure(text(path, ", method '", method, "', needs the backend ", backend.get(), ", which this program was built without"));
    }
  }
  return meta.get();
}

Method::Method(std::shared_ptr<const Program> from, const std::string& method_name, ScratchAllocator& scratch)
    : program(std::move(from)), name(method_name) {
  const MethodMeta meta = program->meta(name);
  inputs = input_facts(meta);
  outputs = output_facts(meta);
  for (size_t i = 0; i < meta.num_memory_planned_buffers(); ++i) {
    const auto size = meta.memory_planned_buffer_size(i);
    if (!size.ok() || size.get() < 0) throw load_failure(text(where(), ": no size for planned buffer ", i));
    planned.emplace_back(static_cast<size_t>(size.get()));
    planned_spans.emplace_back(planned.back().data(), planned.back().bytes);
  }
  const executorch::runtime::Span<executorch::runtime::Span<uint8_t>> spans(planned_spans.data(), planned_spans.size());
  planned_allocator = std::make_unique<executorch::runtime::HierarchicalAllocator>(spans);
  manager = std::make_unique<executorch::runtime::MemoryManager>(&method_allocator, planned_allocator.get(), &scratch);
  auto loaded = program->program->load_method(name.c_str(), manager.get());
  if (!loaded.ok()) {
    const char* remedy =
        loaded.error() == Error::OperatorMissing
            ? "; this runner was built without an operator that the program needs: build it again, with the operator's library in build.custom_ops"
            : "";
    const std::string message = text("cannot load ", where(), ": ", explain(loaded.error()), remedy);
    const bool is_memory = loaded.error() == Error::MemoryAllocationFailed || loaded.error() == Error::DelegateMemoryAllocationFailed;
    throw is_memory ? memory_failure(message) : load_failure(message);
  }
  method.emplace(std::move(loaded.get()));
}

std::string Method::where() const { return text(program->path, ", method '", name, "'"); }

void Method::set_input(size_t index, void* data) {
  const TensorFacts& facts = inputs.at(index);
  std::vector<executorch::aten::SizesType> sizes(facts.sizes.begin(), facts.sizes.end());
  const auto tensor = executorch::extension::from_blob(data, std::move(sizes), facts.dtype);
  const Error error = method->set_input(executorch::runtime::EValue(*tensor), index);
  if (error != Error::Ok) throw tensor_failure(text(where(), ": input ", index, " was refused: ", explain(error)));
}

void Method::keep_input(size_t index) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  // Its replacement, MethodMeta, tells kinds but not values.
  const executorch::runtime::EValue value = method->get_input(index);
#pragma GCC diagnostic pop
  const Error error = method->set_input(value, index);
  if (error != Error::Ok) throw tensor_failure(text(where(), ": input ", index, " (", inputs.at(index).kind, ") cannot be given: ", explain(error)));
}

void Method::set_output(size_t index, void* data, size_t bytes) {
  const Error error = method->set_output_data_ptr(data, bytes, index);
  if (error != Error::Ok) throw tensor_failure(text(where(), ": memory for output ", index, " was refused: ", explain(error)));
}

void Method::execute() {
  const Error error = method->execute();
  if (error == Error::Ok) return;
  throw execute_failure(text(where(), " failed: ", explain(error)));
}

}  // namespace etcli
