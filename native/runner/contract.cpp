#include "contract.h"

#include "failure.h"
#include "numbers.h"

namespace etcli {

namespace {

struct Kind {
  const char* name;
  const Contract& (*contract)();
};

constexpr Kind kKinds[] = {{"shift", shift_contract}, {"ring", ring_contract}};

int64_t element_bytes(executorch::aten::ScalarType dtype) { return dtype == executorch::aten::ScalarType::Long ? 8 : 4; }

void check_tensor(const std::string& label, const TensorFacts& found, const TensorNeed& need, std::vector<std::string>& problems) {
  if (!found.is_tensor) {
    problems.push_back(text(label, " is of kind ", found.kind, ", not a tensor"));
  } else if (found.dtype != need.dtype || found.sizes != need.sizes) {
    problems.push_back(text(label, " is ", dtype_name(found.dtype), " ", shape_text(found.sizes), ", the configuration needs ",
                            dtype_name(need.dtype), " ", shape_text(need.sizes)));
  } else if (!is_contiguous(found.dim_order)) {
    problems.push_back(text(label, " is not laid out in row-major order"));
  } else if (found.planned) {
    problems.push_back(text(label, " has planned memory; export with inputs and outputs left out of memory planning"));
  }
}

void check_side(const std::string& where, const char* side, const std::vector<TensorFacts>& found, const std::vector<TensorNeed>& needs,
                std::vector<std::string>& problems) {
  for (size_t i = 0; i < needs.size(); ++i) check_tensor(text(where, ": ", side, " ", i, " (", needs[i].role, ")"), found[i], needs[i], problems);
}

}  // namespace

size_t TensorNeed::bytes() const {
  std::vector<int64_t> factors = sizes;
  factors.push_back(element_bytes(dtype));
  const auto size = product(factors);
  if (!size) throw config_failure(text("a tensor of ", shape_text(sizes), " (", role, ") is too large"));
  return static_cast<size_t>(*size);
}

std::vector<std::string> contract_names() {
  std::vector<std::string> all;
  for (const Kind& kind : kKinds) all.emplace_back(kind.name);
  return all;
}

const Contract& contract_of(const std::string& name) {
  for (const Kind& kind : kKinds) {
    if (name == kind.name) return kind.contract();
  }
  throw config_failure(text("no cache of kind '", name, "'"));
}

void add_caches(std::vector<TensorNeed>& tensors, const Config& config, int64_t layers) {
  for (const char* what : {"key", "value"}) {
    for (int64_t i = 0; i < layers; ++i) {
      tensors.push_back({text(what, " cache ", i), executorch::aten::ScalarType::Float,
                         {1, config.num_kv_heads, config.cache_length, config.head_dim}});
    }
  }
}

void check_tensors(const std::string& where, const std::vector<TensorFacts>& inputs, const std::vector<TensorFacts>& outputs,
                   const Signature& needs, std::vector<std::string>& problems) {
  const size_t layers = (needs.inputs.size() - kFirstCacheInput) / 2;
  auto count = [&](const char* side, size_t found, size_t needed) {
    if (found != needed) problems.push_back(text(where, ": ", found, " ", side, ", ", layers, " layers need ", needed));
    return found == needed;
  };
  const bool has_inputs = count("inputs", inputs.size(), needs.inputs.size());
  const bool has_outputs = count("outputs", outputs.size(), needs.outputs.size());
  if (!has_inputs || !has_outputs) return;
  check_side(where, "input", inputs, needs.inputs, problems);
  check_side(where, "output", outputs, needs.outputs, problems);
}

}  // namespace etcli
