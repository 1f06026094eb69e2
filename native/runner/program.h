// Programs (.pte files) and their methods: loaded once, described, checked, executed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <executorch/extension/data_loader/mmap_data_loader.h>
#include <executorch/runtime/core/exec_aten/exec_aten.h>
#include <executorch/runtime/core/hierarchical_allocator.h>
#include <executorch/runtime/executor/memory_manager.h>
#include <executorch/runtime/executor/method.h>
#include <executorch/runtime/executor/program.h>

#include "memory.h"

namespace etcli {

// What a method says about one input or output.
struct TensorFacts {
  bool is_tensor = false;  // otherwise a number, a flag, a list...: only `kind` is set
  std::string kind;        // "tensor", "int", ...
  executorch::aten::ScalarType dtype = executorch::aten::ScalarType::Undefined;
  std::vector<int64_t> sizes;
  std::vector<uint8_t> dim_order;
  bool planned = false;  // the method has memory of its own for it
  size_t bytes = 0;
};

std::string dtype_name(executorch::aten::ScalarType dtype);        // "float32"
std::string shape_text(const std::vector<int64_t>& sizes);         // "[1, 32, 576]"
bool is_contiguous(const std::vector<uint8_t>& dim_order);         // 0, 1, 2, ...

// A memory-mapped program. Its methods share it, so weights exist once.
struct Program {
  // Throws Failure "runner.file" where it cannot be opened, "runner.load" where it is no whole program.
  explicit Program(const std::string& path);

  std::vector<std::string> method_names() const;

  // Throws Failure "runner.method" with the names that exist, or with the backend that this binary lacks.
  executorch::runtime::MethodMeta meta(const std::string& method) const;

  std::string path;
  std::unique_ptr<executorch::extension::MmapDataLoader> loader;
  std::unique_ptr<executorch::runtime::Program> program;
};

std::vector<TensorFacts> input_facts(const executorch::runtime::MethodMeta& meta);
std::vector<TensorFacts> output_facts(const executorch::runtime::MethodMeta& meta);

// A method ready to run, with the memory that it plans. Not movable: the runtime keeps pointers into it.
struct Method {
  // `scratch` is what its kernels compute in: of one method at a time, so all of a process can share it. It outlives the method.
  // Throws Failure "runner.method" or "runner.load".
  Method(std::shared_ptr<const Program> program, const std::string& name, ScratchAllocator& scratch);
  Method(const Method&) = delete;
  Method& operator=(const Method&) = delete;

  std::string where() const;  // "FILE, method NAME"

  // Gives input `index` a value. An unplanned input keeps pointing to `data`, a planned one copies it. Throws Failure "runner.tensor".
  void set_input(size_t index, void* data);
  // Gives an input that is no tensor the value that it was exported with, the only one the program takes. Throws "runner.tensor".
  void keep_input(size_t index);
  // Lets unplanned output `index` be written to `bytes` bytes at `data`. Throws Failure "runner.tensor".
  void set_output(size_t index, void* data, size_t bytes);
  // Throws Failure "runner.execute".
  void execute();

  std::shared_ptr<const Program> program;
  std::string name;
  std::vector<TensorFacts> inputs, outputs;
  std::vector<Buffer> planned;
  std::vector<executorch::runtime::Span<uint8_t>> planned_spans;
  std::unique_ptr<executorch::runtime::HierarchicalAllocator> planned_allocator;
  MethodAllocator method_allocator;
  std::unique_ptr<executorch::runtime::MemoryManager> manager;
  std::optional<executorch::runtime::Method> method;
};

}  // namespace etcli
