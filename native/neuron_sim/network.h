// A compiled network, restored: its program and how it is run.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <executorch/extension/data_loader/buffer_data_loader.h>
#include <executorch/extension/memory_allocator/malloc_memory_allocator.h>
#include <executorch/runtime/core/hierarchical_allocator.h>
#include <executorch/runtime/executor/memory_manager.h>
#include <executorch/runtime/executor/method.h>
#include <executorch/runtime/executor/program.h>

#include "blob.h"
#include "constants.h"

namespace etcli::neuron_sim {

// The program in a network's file, checked against what the header says of it. For several threads.
struct Network {
  // Refers to the file's memory for constants that it holds, which therefore has to stay. Throws Refusal.
  explicit Network(Bytes file_bytes);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  size_t input_count() const { return file.inputs.size() + (file.shared ? 1 : 0); }

  NetworkFile file;
  Memory program_bytes;
  executorch::extension::BufferDataLoader loader;
  std::optional<executorch::runtime::Program> program;
  std::shared_ptr<const Constants> constants;  // null while the shared weights are not known
};

// The network with memory of its own. For one thread at a time.
struct Instance {
  // Throws Refusal.
  Instance(std::shared_ptr<const Network> network, std::shared_ptr<const Constants> constants);
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  // One pointer for each input and output, to as many bytes as they have. An output may be where an input is; then it is written when
  // nothing reads the input any more. Throws Refusal.
  void run(const std::vector<void*>& inputs, const std::vector<void*>& outputs);

  std::shared_ptr<const Network> network;
  std::shared_ptr<const Constants> constants;
  std::vector<Memory> planned;
  std::vector<executorch::runtime::Span<uint8_t>> spans;
  std::vector<std::optional<Memory>> aside;  // for outputs that cannot be written in place
  std::unique_ptr<executorch::runtime::HierarchicalAllocator> planned_allocator;
  executorch::extension::MallocMemoryAllocator method_allocator, temporary_allocator;
  std::unique_ptr<executorch::runtime::MemoryManager> manager;
  std::optional<executorch::runtime::Method> method;
};

}  // namespace etcli::neuron_sim
