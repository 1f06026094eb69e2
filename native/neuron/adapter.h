// The NeuroPilot adapter: the library of the device that runs compiled networks.
#pragma once

#include <memory>
#include <string>

#include <executorch/runtime/core/result.h>

#include "neuron.h"

namespace etcli::neuron {

// Every function of the interface; none is null.
struct Adapter {
#define ETCLI_NEURON_MEMBER(result, name, parameters) result(*name) parameters;
  ETCLI_NEURON_FUNCTIONS(ETCLI_NEURON_MEMBER)
#undef ETCLI_NEURON_MEMBER
  std::string library;  // the name that it was opened by
};

// The adapter, opened at the first call that succeeds and there as long as the process. For several threads.
//
// NotFound where no library by any of its names can be opened; NotSupported where it lacks functions, all of which the message names.
executorch::runtime::Result<const Adapter*> adapter();

}  // namespace etcli::neuron
