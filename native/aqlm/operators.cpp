// `aqlm::code1x8_lut_matmat.out` and `aqlm::code2x8_lut_matmat.out` as ExecuTorch calls them: arguments checked, then the kernel.
//
// Nothing that a program can hand over is undefined behaviour: a wrong shape, type or memory fails the call with InvalidArgument and a
// message in the runtime's log, before anything is written. Any code is good, since a codebook has an entry for each.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <optional>

#include <executorch/runtime/core/exec_aten/util/tensor_util.h>
#include <executorch/runtime/kernel/kernel_includes.h>
#include <executorch/runtime/kernel/operator_registry.h>

#include "run.h"
#include "threads.h"

namespace etcli::aqlm {

namespace {

using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::Kernel;
using executorch::runtime::KernelRuntimeContext;
using executorch::runtime::Span;

// Sizes as text, for messages.
struct Sizes {
  template <class Size>
  Sizes(const Size* sizes, int64_t rank) {
    size_t length = 0;
    for (int64_t i = 0; i < rank && length < sizeof text - 24; ++i) {
      length += static_cast<size_t>(std::snprintf(text + length, sizeof text - length, i ? ", %" PRId64 : "%" PRId64, static_cast<int64_t>(sizes[i])));
    }
  }
  char text[384] = "";
};

// Whether the tensor is of this type and contiguous, with memory behind it; if not, says so in the log.
bool is_readable(const char* op, const char* name, const Tensor& tensor, ScalarType dtype) {
  if (tensor.scalar_type() != dtype) {
    ET_LOG(Error, "%s: %s has scalar type %d, not %d", op, name, static_cast<int>(tensor.scalar_type()), static_cast<int>(dtype));
    return false;
  }
  if (tensor.numel() == 0) return true;
  if (!executorch::runtime::tensor_is_contiguous(tensor)) {
    ET_LOG(Error, "%s: %s is not contiguous", op, name);
    return false;
  }
  if (tensor.const_data_ptr() == nullptr) {
    ET_LOG(Error, "%s: %s has no memory", op, name);
    return false;
  }
  return true;
}

// The same, and of this shape.
template <int Rank>
bool is_as_wanted(const char* op, const char* name, const Tensor& tensor, ScalarType dtype, const int64_t (&wanted)[Rank]) {
  bool fits = tensor.dim() == Rank;
  for (int i = 0; fits && i < Rank; ++i) fits = tensor.size(i) == wanted[i];
  if (!fits) {
    ET_LOG(Error, "%s: %s is [%s], not [%s]", op, name, Sizes(tensor.sizes().data(), tensor.dim()).text, Sizes(wanted, Rank).text);
    return false;
  }
  return is_readable(op, name, tensor, dtype);
}

bool overlap(const Tensor& a, const Tensor& b) {
  const auto start = [](const Tensor& t) { return reinterpret_cast<uintptr_t>(t.const_data_ptr()); };
  return start(a) < start(b) + b.nbytes() && start(b) < start(a) + a.nbytes();
}

Error multiply(KernelRuntimeContext& context, const char* op, int64_t books, const Tensor& input, const Tensor& codes, const Tensor& codebooks,
               const Tensor& scales, const std::optional<Tensor>& bias, Tensor& out) {
  if (input.dim() < 1 || input.size(input.dim() - 1) % kGroup != 0) {
    ET_LOG(Error, "%s: input is [%s], whose last dimension is not a multiple of %" PRId64, op, Sizes(input.sizes().data(), input.dim()).text, kGroup);
    return Error::InvalidArgument;
  }
  if (codes.dim() != 3) {
    ET_LOG(Error, "%s: codes is [%s], not [groups, outputs, codebooks]", op, Sizes(codes.sizes().data(), codes.dim()).text);
    return Error::InvalidArgument;
  }
  Call call{};
  const int64_t width = input.size(input.dim() - 1);
  call.groups = width / kGroup;
  call.outputs = codes.size(1);
  call.books = books;
  const bool fit = is_readable(op, "input", input, ScalarType::Float) &&
                   is_as_wanted(op, "codes", codes, ScalarType::Char, {call.groups, call.outputs, books}) &&
                   is_as_wanted(op, "codebooks", codebooks, ScalarType::Float, {books, kEntries, int64_t{1}, kGroup}) &&
                   is_as_wanted(op, "scales", scales, ScalarType::Float, {call.outputs, int64_t{1}, int64_t{1}, int64_t{1}}) &&
                   (!bias.has_value() || is_as_wanted(op, "bias", *bias, ScalarType::Float, {call.outputs}));
  if (!fit) return Error::InvalidArgument;

  executorch::aten::SizesType wanted[executorch::runtime::kTensorDimensionLimit];
  std::copy_n(input.sizes().data(), input.dim(), wanted);
  wanted[input.dim() - 1] = static_cast<executorch::aten::SizesType>(call.outputs);
  // Outputs of a program with shapes that vary take theirs here; others have it already, or are refused.
  if (out.dim() != input.dim() || executorch::runtime::resize_tensor(out, {wanted, static_cast<size_t>(input.dim())}) != Error::Ok) {
    ET_LOG(Error, "%s: out is [%s], not [%s]", op, Sizes(out.sizes().data(), out.dim()).text, Sizes(wanted, input.dim()).text);
    return Error::InvalidArgument;
  }
  if (!is_readable(op, "out", out, ScalarType::Float)) return Error::InvalidArgument;
  if (out.numel() == 0) return Error::Ok;
  if (overlap(out, input) || overlap(out, codes) || overlap(out, codebooks) || overlap(out, scales) || (bias.has_value() && overlap(out, *bias))) {
    ET_LOG(Error, "%s: out overlaps an input", op);
    return Error::InvalidArgument;
  }

  call.tokens = out.numel() / call.outputs;
  call.input = input.const_data_ptr<float>();
  call.codes = reinterpret_cast<const uint8_t*>(codes.const_data_ptr<int8_t>());  // stored as signed; an index is the same bits
  call.codebooks = codebooks.const_data_ptr<float>();
  call.scales = scales.const_data_ptr<float>();
  call.bias = bias.has_value() ? bias->const_data_ptr<float>() : nullptr;
  call.out = out.mutable_data_ptr<float>();
  const Plan plan(call, best_version());
  const int64_t threads = plan.is_large ? thread_count() : 1;
  void* scratch = nullptr;
  if (const size_t bytes = scratch_bytes(plan, threads); bytes > 0) {
    const auto given = context.allocate_temp(bytes, kAlignment);
    if (!given.ok()) {
      ET_LOG(Error, "%s: no %zu bytes of temporary memory to be had", op, bytes);
      return Error::MemoryAllocationFailed;
    }
    scratch = given.get();
  }
  run(call, plan, threads, scratch, in_parallel);
  return Error::Ok;
}

template <int Books>
void boxed(KernelRuntimeContext& context, Span<EValue*> arguments) {
  constexpr const char* op = Books == 2 ? "aqlm::code2x8_lut_matmat" : "aqlm::code1x8_lut_matmat";
  bool fit = arguments.size() >= 6;
  for (size_t i = 0; fit && i < 6; ++i) fit = arguments[i]->isTensor() || (i == 4 && arguments[i]->isNone());
  if (!fit) {
    ET_LOG(Error, "%s: arguments are not four tensors, a tensor or none, and a tensor", op);
    context.fail(Error::InvalidArgument);
    return;
  }
  const auto tensor = [&](size_t i) -> Tensor& { return arguments[i]->toTensor(); };
  const auto bias = arguments[4]->isNone() ? std::nullopt : std::optional<Tensor>(tensor(4));
  const Error error = multiply(context, op, Books, tensor(0), tensor(1), tensor(2), tensor(3), bias, tensor(5));
  if (error != Error::Ok) context.fail(error);
}

// A constant table: what a binary registers can then be read from its file.
const Kernel kernels[] = {
    Kernel("aqlm::code1x8_lut_matmat.out", boxed<1>),
    Kernel("aqlm::code2x8_lut_matmat.out", boxed<2>),
};

[[maybe_unused]] const Error registered = executorch::runtime::register_kernels({kernels, 2});

}  // namespace

}  // namespace etcli::aqlm
