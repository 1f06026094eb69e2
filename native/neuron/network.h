// A compiled network on the NPU, restored from its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <executorch/runtime/core/error.h>

#include "adapter.h"
#include "payload.h"

namespace etcli::neuron {

// A handle of the adapter's with the function that frees it.
template <class T>
struct Freed {
  void (*free)(T*);
  void operator()(T* handle) const { free(handle); }
};
template <class T>
using Handle = std::unique_ptr<T, Freed<T>>;

// Empty until restored. What was made is freed in the opposite order, wherever restoring ended.
struct Network {
  // Restores the network of `payload`, whose bytes stay where they are as long as this. With `has_shared_weights` it takes one more input
  // than its header tells of. `options` are the adapter's. `where` begins messages.
  executorch::runtime::Error restore(const Adapter& from, const std::string& where, const Payload& payload, bool has_shared_weights,
                                     const std::string& options);

  const Adapter* adapter = nullptr;
  Handle<NeuronModel> model{nullptr, {nullptr}};
  Handle<NeuronCompilation> compilation{nullptr, {nullptr}};
  Handle<NeuronExecution> execution{nullptr, {nullptr}};
  // Of every input and output in the header, with the padding that the NPU may want.
  std::vector<size_t> input_bytes, output_bytes;

 private:
  executorch::runtime::Error make_model(const std::string& where, const Payload& payload, bool has_shared_weights);
  executorch::runtime::Error compile(const std::string& where, const std::string& options);
  executorch::runtime::Error ask_sizes(const std::string& where, const Payload& payload);
};

}  // namespace etcli::neuron
