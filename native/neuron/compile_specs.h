// Compile specs: what the exporter asks of the delegate.
#pragma once

#include <string>

#include <executorch/runtime/backend/interface.h>

namespace etcli::neuron {

struct Options {
  bool import_forever = false;   // ImportForever: memory objects stay mapped into the NPU's address space
  bool high_addr = false;        // HighAddr
  std::string shared_weights;    // ExtractSharedBlobKey: what the program's named data has them under; empty without any

  // What the network is compiled with on the device.
  std::string runtime_text() const;
};

// InvalidProgram where a spec has no value that means anything, or is there twice. Specs that only the compiler reads are passed over; one
// that nobody knows is remarked upon once a process. `where` begins messages.
executorch::runtime::Result<Options> read_compile_specs(const std::string& where,
                                                        executorch::runtime::ArrayRef<executorch::runtime::CompileSpec> specs);

}  // namespace etcli::neuron
