// `etcli::ring_attention.out` and `etcli::last_row.out` as ExecuTorch calls them: arguments checked, then the kernel.
//
// Nothing that a program can hand over is undefined behaviour: a wrong shape, type or position fails the call with InvalidArgument and a
// message in the runtime's log, before anything is written.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <vector>

#include <executorch/runtime/core/exec_aten/util/tensor_util.h>
#include <executorch/runtime/kernel/kernel_includes.h>
#include <executorch/runtime/kernel/operator_registry.h>
#include <executorch/runtime/kernel/thread_parallel_interface.h>

#include "run.h"
#include "versions.h"

namespace etcli::attention {

namespace {

using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::Kernel;
using executorch::runtime::KernelRuntimeContext;
using executorch::runtime::Span;

struct Shape {
  int64_t sizes[4];
  int rank;
};

// Whether the tensor is contiguous, of this type and of this shape; if not, says so in the log.
bool is_as_wanted(const char* op, const char* name, const Tensor& tensor, ScalarType dtype, const Shape& wanted) {
  if (tensor.scalar_type() != dtype) {
    ET_LOG(Error, "%s: %s has scalar type %d, not %d", op, name, static_cast<int>(tensor.scalar_type()), static_cast<int>(dtype));
    return false;
  }
  bool fits = tensor.dim() == wanted.rank;
  for (int i = 0; fits && i < wanted.rank; ++i) fits = tensor.size(i) == wanted.sizes[i];
  if (!fits) {
    char text[2][128];
    for (int which = 0; which < 2; ++which) {
      const int rank = which ? wanted.rank : static_cast<int>(tensor.dim());
      size_t length = 0;
      text[which][0] = '\0';
      for (int i = 0; i < rank && length < sizeof text[which] - 24; ++i) {
        const int64_t size = which ? wanted.sizes[i] : static_cast<int64_t>(tensor.size(i));
        length += static_cast<size_t>(std::snprintf(text[which] + length, sizeof text[which] - length, i ? ", %" PRId64 : "%" PRId64, size));
      }
    }
    ET_LOG(Error, "%s: %s is [%s], not [%s]", op, name, text[0], text[1]);
    return false;
  }
  if (!executorch::runtime::tensor_is_contiguous(tensor)) {
    ET_LOG(Error, "%s: %s is not contiguous", op, name);
    return false;
  }
  return true;
}

bool overlap(const Tensor& a, const Tensor& b) {
  const auto start = [](const Tensor& t) { return reinterpret_cast<uintptr_t>(t.const_data_ptr()); };
  return start(a) < start(b) + b.nbytes() && start(b) < start(a) + a.nbytes();
}

// Working memory: from the runtime where it has some to give, else kept by the calling thread, as large as its largest call.
float* working_memory(KernelRuntimeContext& context, int64_t floats) {
  const auto given = context.allocate_temp(static_cast<size_t>(floats) * sizeof(float), alignof(float));
  if (given.ok()) return static_cast<float*>(given.get());
  static thread_local std::vector<float> kept;
  if (kept.size() < static_cast<size_t>(floats)) kept.resize(static_cast<size_t>(floats));
  return kept.data();
}

// The new cache holds what the old one did: it is the same memory, or becomes a copy.
void carry_over(const Tensor& cache, Tensor& fresh) {
  if (fresh.const_data_ptr() != cache.const_data_ptr()) std::memcpy(fresh.mutable_data_ptr(), cache.const_data_ptr(), cache.nbytes());
}

bool attend(KernelRuntimeContext& context, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& key_cache,
            const Tensor& value_cache, const Tensor& rotary, const Tensor& pos, Tensor& out, Tensor& new_key_cache, Tensor& new_value_cache) {
  const char* op = "etcli::ring_attention";
  if (query.dim() != 3 || key.dim() != 3 || key_cache.dim() != 4) {
    ET_LOG(Error, "%s: query and key have %zd and %zd dimensions, not 3, or key_cache has %zd, not 4", op, static_cast<ssize_t>(query.dim()),
           static_cast<ssize_t>(key.dim()), static_cast<ssize_t>(key_cache.dim()));
    return false;
  }
  Call call{};
  call.tokens = query.size(1);
  call.kv_heads = key_cache.size(1);
  call.slots = key_cache.size(2);
  call.head_dim = key_cache.size(3);
  if (call.tokens < 1 || call.kv_heads < 1 || call.slots < 1 || call.head_dim < 1 || query.size(2) < 1 ||
      query.size(2) % (call.head_dim * call.kv_heads) != 0) {
    ET_LOG(Error, "%s: a query of %" PRId64 " x %" PRId64 " for %" PRId64 " KV heads of dimension %" PRId64 " in %" PRId64 " slots", op,
           call.tokens, static_cast<int64_t>(query.size(2)), call.kv_heads, call.head_dim, call.slots);
    return false;
  }
  call.heads = query.size(2) / call.head_dim;
  const Shape queries{{1, call.tokens, call.heads * call.head_dim}, 3}, rows{{1, call.tokens, call.kv_heads * call.head_dim}, 3};
  const Shape caches{{1, call.kv_heads, call.slots, call.head_dim}, 4};
  const bool fit = is_as_wanted(op, "query", query, ScalarType::Float, queries) && is_as_wanted(op, "key", key, ScalarType::Float, rows) &&
                   is_as_wanted(op, "value", value, ScalarType::Float, rows) &&
                   is_as_wanted(op, "key_cache", key_cache, ScalarType::Float, caches) &&
                   is_as_wanted(op, "value_cache", value_cache, ScalarType::Float, caches) &&
                   is_as_wanted(op, "rotary", rotary, ScalarType::Float, {{1, 2, call.tokens, call.head_dim}, 4}) &&
                   is_as_wanted(op, "pos", pos, ScalarType::Long, {{2}, 1}) && is_as_wanted(op, "out", out, ScalarType::Float, queries) &&
                   is_as_wanted(op, "new_key_cache", new_key_cache, ScalarType::Float, caches) &&
                   is_as_wanted(op, "new_value_cache", new_value_cache, ScalarType::Float, caches);
  if (!fit) return false;

  call.start = pos.const_data_ptr<int64_t>()[0];
  call.valid = pos.const_data_ptr<int64_t>()[1];
  if (call.start < 0 || call.valid < 1 || call.valid > call.tokens) {
    ET_LOG(Error, "%s: %" PRId64 " tokens from position %" PRId64 " in a call of %" PRId64, op, call.valid, call.start, call.tokens);
    return false;
  }
  // Going round would overwrite tokens that others of the same call still see.
  if (call.start > call.slots - call.valid) {
    ET_LOG(Error, "%s: the cache is full: %" PRId64 " tokens from position %" PRId64 " in %" PRId64 " slots", op, call.valid, call.start, call.slots);
    return false;
  }
  const Tensor* const inputs[] = {&query, &key, &value, &key_cache, &value_cache, &rotary, &pos};
  Tensor* const outputs[] = {&out, &new_key_cache, &new_value_cache};
  for (const Tensor* output : outputs) {
    for (const Tensor* input : inputs) {
      const bool in_place = ((output == &new_key_cache && input == &key_cache) || (output == &new_value_cache && input == &value_cache)) &&
                            output->const_data_ptr() == input->const_data_ptr();
      if (!in_place && overlap(*output, *input)) {
        ET_LOG(Error, "%s: an output overlaps an input that is not its own cache as a whole", op);
        return false;
      }
    }
  }
  if (overlap(out, new_key_cache) || overlap(out, new_value_cache) || overlap(new_key_cache, new_value_cache)) {
    ET_LOG(Error, "%s: two outputs overlap", op);
    return false;
  }

  call.query = query.const_data_ptr<float>();
  call.key = key.const_data_ptr<float>();
  call.value = value.const_data_ptr<float>();
  call.cosines = rotary.const_data_ptr<float>();
  call.sines = call.cosines + call.tokens * call.head_dim;
  call.key_cache = new_key_cache.mutable_data_ptr<float>();
  call.value_cache = new_value_cache.mutable_data_ptr<float>();
  call.out = out.mutable_data_ptr<float>();

  carry_over(key_cache, new_key_cache);
  carry_over(value_cache, new_value_cache);
  const Plan plan(call);
  const int64_t threads = plan.is_large ? std::max<int64_t>(1, executorch::extension::get_thread_count()) : 1;
  run(call, plan, best_version().attend, threads, working_memory(context, scratch_floats(call, plan, threads)));
  return true;
}

bool copy_last_row(const Tensor& x, const Tensor& pos, Tensor& out) {
  const char* op = "etcli::last_row";
  if (x.dim() != 3) {
    ET_LOG(Error, "%s: x has %zd dimensions, not 3", op, static_cast<ssize_t>(x.dim()));
    return false;
  }
  const int64_t tokens = x.size(1), width = x.size(2);
  if (!is_as_wanted(op, "x", x, ScalarType::Float, {{1, tokens, width}, 3}) || !is_as_wanted(op, "pos", pos, ScalarType::Long, {{2}, 1}) ||
      !is_as_wanted(op, "out", out, ScalarType::Float, {{1, 1, width}, 3})) {
    return false;
  }
  const int64_t valid = pos.const_data_ptr<int64_t>()[1];
  if (valid < 1 || valid > tokens) {
    ET_LOG(Error, "%s: %" PRId64 " valid rows of %" PRId64, op, valid, tokens);
    return false;
  }
  std::memmove(out.mutable_data_ptr<float>(), x.const_data_ptr<float>() + (valid - 1) * width, static_cast<size_t>(width) * sizeof(float));
  return true;
}

bool are_tensors(Span<EValue*> arguments, size_t count) {
  if (arguments.size() < count) return false;
  return std::all_of(arguments.begin(), arguments.begin() + count, [](const EValue* value) { return value->isTensor(); });
}

void boxed_ring_attention(KernelRuntimeContext& context, Span<EValue*> arguments) {
  const auto tensor = [&](size_t i) -> Tensor& { return arguments[i]->toTensor(); };
  const bool done = are_tensors(arguments, 10) && attend(context, tensor(0), tensor(1), tensor(2), tensor(3), tensor(4), tensor(5), tensor(6),
                                                         tensor(7), tensor(8), tensor(9));
  if (!done) context.fail(Error::InvalidArgument);
}

void boxed_last_row(KernelRuntimeContext& context, Span<EValue*> arguments) {
  const bool done = are_tensors(arguments, 3) && copy_last_row(arguments[0]->toTensor(), arguments[1]->toTensor(), arguments[2]->toTensor());
  if (!done) context.fail(Error::InvalidArgument);
}

// A constant table: what a binary registers can then be read from its file (EXECUTORCH_LIBRARY knows one output tensor only).
const Kernel kernels[] = {
    Kernel("etcli::ring_attention.out", boxed_ring_attention),
    Kernel("etcli::last_row.out", boxed_last_row),
};

[[maybe_unused]] const Error registered = executorch::runtime::register_kernels({kernels, 2});

}  // namespace

}  // namespace etcli::attention
