// Weights that several compiled networks have in common: an entry of the program's named data, which the network takes as its last input.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include <executorch/runtime/core/freeable_buffer.h>
#include <executorch/runtime/core/named_data_map.h>
#include <executorch/runtime/core/result.h>

namespace etcli::neuron {

// In memory that the NPU shares, where there is any; otherwise as the program's loader gives them, which for a mapped file takes no memory.
struct SharedWeights {
  SharedWeights() = default;
  SharedWeights(const SharedWeights&) = delete;
  SharedWeights& operator=(const SharedWeights&) = delete;
  ~SharedWeights();

  const void* data = nullptr;
  size_t bytes = 0;
  void* copy = nullptr;                                       // from allocate(); `data` where it is not null
  std::optional<executorch::runtime::FreeableBuffer> source;  // the loader's, where there is no copy
};

// The weights under `key`: those that a live delegate uses already if they are the same, so that all methods and chunks of a model share
// them; they go with their last user. For several threads.
//
// InvalidProgram where the program has no such entry or an empty one, else the loader's error. `where` begins messages.
executorch::runtime::Result<std::shared_ptr<const SharedWeights>> shared_weights(const std::string& where,
                                                                                 const executorch::runtime::NamedDataMap* named_data,
                                                                                 const std::string& key);

}  // namespace etcli::neuron
