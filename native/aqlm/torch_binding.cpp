// `aqlm::code2x8_lut_matmat` and `aqlm::code1x8_lut_matmat` as PyTorch calls them on the CPU: arguments checked, then the kernel, on
// PyTorch's own threads.
//
// Schemas are defined here only where nobody has done so, as etcli's Python module does, so that either can come first.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <torch/library.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "run.h"
#include "versions.h"

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

std::string_view name_of(at::ScalarType dtype) { return c10::getDtypeNames(dtype).first; }

void expect(const char* name, const Tensor& tensor, at::ScalarType dtype, at::IntArrayRef shape) {
  TORCH_CHECK_VALUE(tensor.sizes() == shape, name, " has shape ", tensor.sizes(), ", not ", shape);
  TORCH_CHECK_VALUE(tensor.scalar_type() == dtype, name, " is torch.", name_of(tensor.scalar_type()), ", not torch.", name_of(dtype));
  TORCH_CHECK_VALUE(tensor.device().is_cpu(), name, " is on ", tensor.device(), ", not on the CPU");
  // A weight that is a view would be copied in every call.
  TORCH_CHECK_VALUE(tensor.is_contiguous(), name, " is not contiguous");
}

template <int64_t books>
std::vector<int64_t> checked(const Tensor& input, const Tensor& codes, const Tensor& codebooks, const Tensor& scales, const OptionalTensor& bias) {
  TORCH_CHECK_VALUE(codes.dim() == 3 && codes.size(2) == books, "codes has shape ", codes.sizes(), ", not [in / 8, out, ", books, "]");
  const int64_t groups = codes.size(0), outputs = codes.size(1), width = groups * etcli::aqlm::kGroup;
  expect("codes", codes, at::kChar, {groups, outputs, books});
  expect("codebooks", codebooks, at::kFloat, {books, etcli::aqlm::kEntries, 1, etcli::aqlm::kGroup});
  expect("scales", scales, at::kFloat, {outputs, 1, 1, 1});
  if (bias) expect("bias", *bias, at::kFloat, {outputs});
  TORCH_CHECK_VALUE(input.dim() >= 1 && input.size(-1) == width, "input has shape ", input.sizes(), ", not [..., ", width, "]");
  TORCH_CHECK_VALUE(input.scalar_type() == at::kFloat, "input is torch.", name_of(input.scalar_type()), ", not torch.float32");
  std::vector<int64_t> shape = input.sizes().vec();
  shape.back() = outputs;
  return shape;
}

void in_parallel(int64_t threads, void (*work)(void* context, int64_t thread), void* context) {
  at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t thread = begin; thread < end; ++thread) work(context, thread);
  });
}

// Everything is checked, and `out` is contiguous.
void compute(const Tensor& input, const Tensor& codes, const Tensor& codebooks, const Tensor& scales, const OptionalTensor& bias, const Tensor& out) {
  if (out.numel() == 0) return;
  const Tensor rows = input.contiguous();
  etcli::aqlm::Call call{};
  call.groups = codes.size(0);
  call.outputs = codes.size(1);
  call.books = codes.size(2);
  call.tokens = out.numel() / call.outputs;
  call.input = rows.const_data_ptr<float>();
  call.codes = static_cast<const uint8_t*>(codes.const_data_ptr());
  call.codebooks = codebooks.const_data_ptr<float>();
  call.scales = scales.const_data_ptr<float>();
  call.bias = bias ? bias->const_data_ptr<float>() : nullptr;
  call.out = out.mutable_data_ptr<float>();

  const etcli::aqlm::Plan plan(call, etcli::aqlm::best_version());
  const int64_t threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  const size_t bytes = etcli::aqlm::scratch_bytes(plan, threads);
  const at::DataPtr scratch = c10::GetCPUAllocator()->allocate(bytes);
  TORCH_INTERNAL_ASSERT(reinterpret_cast<uintptr_t>(scratch.get()) % etcli::aqlm::kAlignment == 0);
  etcli::aqlm::run(call, plan, threads, scratch.get(), in_parallel);
}

template <int64_t books>
Tensor lut_matmat(const Tensor& input, const Tensor& codes, const Tensor& codebooks, const Tensor& scales, const OptionalTensor& bias) {
  const std::vector<int64_t> shape = checked<books>(input, codes, codebooks, scales, bias);
  const Tensor out = at::empty(shape, input.options().memory_format(at::MemoryFormat::Contiguous));
  compute(input, codes, codebooks, scales, bias, out);
  return out;
}

template <int64_t books>
Tensor& lut_matmat_out(const Tensor& input, const Tensor& codes, const Tensor& codebooks, const Tensor& scales, const OptionalTensor& bias, Tensor& out) {
  const std::vector<int64_t> shape = checked<books>(input, codes, codebooks, scales, bias);
  expect("out", out, at::kFloat, shape);
  // What is computed may be read again: the input could be the output's own memory.
  const bool apart = !out.is_alias_of(input) && !out.is_alias_of(codebooks) && !out.is_alias_of(scales) && !(bias && out.is_alias_of(*bias));
  if (apart) {
    compute(input, codes, codebooks, scales, bias, out);
  } else {
    out.copy_(lut_matmat<books>(input, codes, codebooks, scales, bias));
  }
  return out;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(aqlm, library) {
  for (const char* name : {"aqlm::code1x8_lut_matmat", "aqlm::code2x8_lut_matmat"}) {
    const std::string inputs = "(Tensor input, Tensor codes, Tensor codebooks, Tensor scales, Tensor? bias=None";
    auto& dispatcher = c10::Dispatcher::singleton();
    if (!dispatcher.findSchema({name, ""})) library.def((name + inputs + ") -> Tensor").c_str());
    if (!dispatcher.findSchema({name, "out"})) library.def((name + (".out" + inputs) + ", *, Tensor(a!) out) -> Tensor(a!)").c_str());
  }
}

TORCH_LIBRARY_IMPL(aqlm, CPU, library) {
  library.impl("code1x8_lut_matmat", lut_matmat<1>);
  library.impl("code1x8_lut_matmat.out", lut_matmat_out<1>);
  library.impl("code2x8_lut_matmat", lut_matmat<2>);
  library.impl("code2x8_lut_matmat.out", lut_matmat_out<2>);
}
