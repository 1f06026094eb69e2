// Calls an operator the way the runtime does: found by name in the registry, arguments as tagged values.
#pragma once

#include <memory>
#include <vector>

#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/kernel/kernel_runtime_context.h>
#include <executorch/runtime/kernel/operator_registry.h>
#include <executorch/runtime/platform/runtime.h>

namespace etcli::testing {

// A tensor over memory that is someone else's, or none.
struct Held {
  Held() = default;
  Held(void* data, std::vector<executorch::aten::SizesType> of, executorch::aten::ScalarType dtype = executorch::aten::ScalarType::Float)
      : sizes(std::move(of)), order(sizes.size()), strides(sizes.size()) {
    executorch::aten::StridesType step = 1;
    for (size_t i = sizes.size(); i-- > 0;) {
      order[i] = static_cast<executorch::aten::DimOrderType>(i);
      strides[i] = step;
      step *= sizes[i];
    }
    impl = std::make_unique<executorch::aten::TensorImpl>(dtype, static_cast<ssize_t>(sizes.size()), sizes.data(), data, order.data(), strides.data());
    value = executorch::runtime::EValue(executorch::aten::Tensor(impl.get()));
  }
  std::vector<executorch::aten::SizesType> sizes;
  std::vector<executorch::aten::DimOrderType> order;
  std::vector<executorch::aten::StridesType> strides;
  std::unique_ptr<executorch::aten::TensorImpl> impl;
  executorch::runtime::EValue value;
};

inline executorch::runtime::Error call_operator(const char* name, std::vector<Held>& arguments, executorch::runtime::MemoryAllocator* memory = nullptr) {
  executorch::runtime::runtime_init();
  const auto function = executorch::runtime::get_op_function_from_registry(name);
  if (!function.ok()) return function.error();
  std::vector<executorch::runtime::EValue*> values;
  for (Held& argument : arguments) values.push_back(&argument.value);
  executorch::runtime::KernelRuntimeContext context(nullptr, memory);
  function.get()(context, {values.data(), values.size()});
  return context.failure_state();
}

}  // namespace etcli::testing
