// One partition of a program on the NPU.
#pragma once

#include <memory>
#include <string>

#include <executorch/runtime/backend/interface.h>

#include "binding.h"
#include "compile_specs.h"
#include "network.h"
#include "performance.h"
#include "shared_weights.h"

namespace etcli::neuron {

// Destroyed from the last member to the first: the adapter's handles, then the weights that they use.
class Delegate {
 public:
  // Reads and restores the network in `processed`, whose bytes stay where they are as long as this. Every error has been logged.
  executorch::runtime::Error load(executorch::runtime::BackendInitContext& context, const executorch::runtime::FreeableBuffer& processed,
                                  executorch::runtime::ArrayRef<executorch::runtime::CompileSpec> specs);

  // Runs the network on the tensors `args`: inputs, then outputs. Every error has been logged, and then the network has not run.
  executorch::runtime::Error execute(executorch::runtime::Span<executorch::runtime::EValue*> args);

 private:
  executorch::runtime::Error check(executorch::runtime::Span<executorch::runtime::EValue*> args) const;
  executorch::runtime::Error bind(executorch::runtime::Span<executorch::runtime::EValue*> args);

  std::string where_;
  Options options_;
  std::shared_ptr<const SharedWeights> weights_;
  Network network_;
  Bindings bindings_;
  bool has_weights_ = false;  // the network is bound to `weights_`
  std::shared_ptr<PerformanceLock> performance_;
};

}  // namespace etcli::neuron
