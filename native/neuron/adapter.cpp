#include "adapter.h"

#include <mutex>

#include "library.h"
#include "log.h"

namespace etcli::neuron {

using executorch::runtime::Error;
using executorch::runtime::Result;

// The SDK's own, then those of devices' system images.
static const std::vector<const char*> kNames = {"libneuronusdk_adapter.mtk.so", "libneuron_adapter_mgvi.so", "libneuron_adapter.so"};

Result<const Adapter*> adapter() {
  static std::mutex lock;
  static Adapter opened{};
  const std::lock_guard<std::mutex> hold(lock);
  if (!opened.library.empty()) return &opened;

  std::string why;
  const Library library = open_library(kNames, &why);
  if (!library) {
    return refuse(Error::NotFound, text("the NeuroPilot adapter cannot be opened: this device lacks it, or LD_LIBRARY_PATH does not lead to it (",
                                        why, ")"));
  }
  std::vector<std::string> missing;
  Adapter found{};
#define ETCLI_NEURON_FIND(result, name, parameters) \
  found.name = reinterpret_cast<decltype(found.name)>(find_function(library, #name, missing));
  ETCLI_NEURON_FUNCTIONS(ETCLI_NEURON_FIND)
#undef ETCLI_NEURON_FIND
  if (!missing.empty()) {
    return refuse(Error::NotSupported, text("the NeuroPilot adapter ", library.name, " lacks ", missing.size(),
                                            missing.size() == 1 ? " function: " : " functions: ", joined(missing),
                                            "; it is too old, or no NeuroPilot adapter"));
  }
  found.library = library.name;
  opened = found;
  log_info(text("NeuroPilot adapter: ", opened.library));
  return &opened;
}

}  // namespace etcli::neuron
