// What memory the inputs and outputs of an execution are bound to: bound again only when it is other memory than before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <executorch/runtime/core/error.h>

#include "allocator.h"
#include "network.h"

namespace etcli::neuron {

enum class Side { input, output };

class Bindings {
 public:
  // For an execution of `network`, which outlives this, with so many inputs (shared weights too) and outputs.
  void start(const Network& network, size_t inputs, size_t outputs);

  // Tells the NPU of the whole buffer that `data` leads into, once for each index, so that it can map it for good. Does nothing for memory
  // that it does not share.
  executorch::runtime::Error hint(const std::string& where, Side side, uint32_t index, const void* data);

  // Binds `bytes` bytes at `data`: as a part of a memory object where the allocator knows it, otherwise by its address.
  executorch::runtime::Error bind(const std::string& where, Side side, uint32_t index, void* data, size_t bytes);

 private:
  // A part of a buffer, which is what an index is bound to.
  struct Part {
    SharedBuffer buffer;
    size_t offset, bytes;
    bool operator==(const Part& other) const { return buffer == other.buffer && offset == other.offset && bytes == other.bytes; }
  };
  using Hint = std::tuple<Side, uint32_t, uint64_t, const NeuronMemory*, const unsigned char*, size_t>;

  std::optional<Part>& bound(Side side, uint32_t index) { return (side == Side::input ? inputs_ : outputs_)[index]; }
  executorch::runtime::Error bind_part(const std::string& where, Side side, uint32_t index, const Part& part);
  void forget_released();

  const Network* network_ = nullptr;
  // Empty for an index that was never bound, or is bound by an address: addresses are bound anew each time, since nobody tells when what is
  // behind one becomes something else.
  std::vector<std::optional<Part>> inputs_, outputs_;
  std::set<Hint> hints_;
  uint64_t releases_ = 0;
};

}  // namespace etcli::neuron
