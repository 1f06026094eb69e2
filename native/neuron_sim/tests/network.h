// Restores compiled networks through the vendor's interface, call by call as ExecuTorch's delegate does.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "vendor.h"

// The files that tests/support/simulated_networks.py writes.
inline std::string network_path(const std::string& name) {
  const char* folder = std::getenv("ETCLI_SIMULATED_NETWORKS");
  if (folder == nullptr) throw std::runtime_error("ETCLI_SIMULATED_NETWORKS has to name the folder that simulated_networks.py wrote");
  return std::string(folder) + "/" + name;
}

inline std::vector<char> file_bytes(const std::string& name) {
  std::ifstream file(network_path(name), std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + network_path(name));
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::vector<float> file_floats(const std::string& name) {
  const std::vector<char> bytes = file_bytes(name);
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), bytes.size());
  return floats;
}

// A delegate's data begins behind a header of 13 bytes, at no alignment.
struct Unaligned {
  static constexpr size_t kHeader = 13;
  explicit Unaligned(const std::vector<char>& bytes) : memory(kHeader + bytes.size()) {
    if (!bytes.empty()) std::memcpy(memory.data() + kHeader, bytes.data(), bytes.size());
  }
  const char* data() const { return memory.data() + kHeader; }
  size_t size() const { return memory.size() - kHeader; }
  std::vector<char> memory;
};

// A model and what is made of it, freed in the right order. Steps can be taken one by one, or all with restore().
struct Restored {
  explicit Restored(const std::vector<char>& bytes) : blob(bytes) {}
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;
  ~Restored() {
    if (execution != nullptr) a.execution_free(execution);
    if (compilation != nullptr) a.compilation_free(compilation);
    if (model != nullptr) a.model_free(model);
  }

  // A finished model with this many inputs (shared weights among them) and outputs.
  int make_model(uint32_t inputs, uint32_t outputs) {
    const vendor::OperandType tensor{vendor::kFloat32, 0, nullptr, 0.0f, 0};
    int code = a.model_create(&model);
    std::vector<uint32_t> ins, outs;
    for (uint32_t i = 0; i < inputs; ++i) {
      code |= a.add_operand(model, &tensor);
      ins.push_back(i);
    }
    vendor::OperandType network{0, 0, nullptr, 0.0f, 0};
    code |= a.operand_type(model, vendor::kExtension, 0x0100, &network.type);
    code |= a.add_operand(model, &network);
    ins.push_back(inputs);
    for (uint32_t o = 0; o < outputs; ++o) {
      code |= a.add_operand(model, &tensor);
      outs.push_back(inputs + 1 + o);
    }
    code |= a.set_operand_value(model, static_cast<int32_t>(inputs), blob.data(), blob.size());
    int32_t operation = 0;
    code |= a.operation_type(model, vendor::kExtension, 0x0000, &operation);
    code |= a.add_operation(model, operation, inputs + 1, ins.data(), outputs, outs.data());
    code |= a.identify(model, inputs, ins.data(), outputs, outs.data());
    code |= a.model_finish(model);
    return code;
  }

  int compile(const char* options = "") {
    if (const int code = a.compilation_create(model, &compilation, options)) return code;
    int code = a.set_preference(compilation, vendor::kTurboBoost);
    code |= a.set_priority(compilation, vendor::kHighPriority);
    return code != 0 ? code : a.compilation_finish(compilation);
  }

  int restore(uint32_t inputs = 2, uint32_t outputs = 2, const char* options = "") {
    if (const int code = make_model(inputs, outputs)) return code;
    if (const int code = compile(options)) return code;
    return a.execution_create(compilation, &execution);
  }

  const vendor::Adapter& a = vendor::adapter();
  Unaligned blob;
  void* model = nullptr;
  void* compilation = nullptr;
  void* execution = nullptr;
};

// The example's inputs and outputs for a number of tokens.
struct Example {
  explicit Example(int tokens)
      : n(std::to_string(tokens)),
        x(file_floats("input_" + n + "_0.bin")),
        cache(file_floats("input_" + n + "_1.bin")),
        expected_cache(file_floats("output_" + n + "_0.bin")),
        expected_y(file_floats("output_" + n + "_1.bin")),
        new_cache(expected_cache.size()),
        y(expected_y.size()) {}

  // Binds memory of this object; the cache in place where asked for.
  int bind(Restored& network, bool in_place = false) {
    const vendor::Adapter& a = network.a;
    int code = a.set_input(network.execution, 0, nullptr, x.data(), bytes(x));
    code |= a.set_input(network.execution, 1, nullptr, cache.data(), bytes(cache));
    code |= a.set_output(network.execution, 0, nullptr, in_place ? cache.data() : new_cache.data(), bytes(new_cache));
    code |= a.set_output(network.execution, 1, nullptr, y.data(), bytes(y));
    return code;
  }

  static size_t bytes(const std::vector<float>& floats) { return floats.size() * sizeof(float); }

  // The results are about 64 at most; sums may be made in another order than PyTorch's.
  static bool close(const std::vector<float>& found, const std::vector<float>& expected) {
    if (found.size() != expected.size()) return false;
    for (size_t i = 0; i < found.size(); ++i) {
      const float difference = found[i] - expected[i];
      if (!(difference <= 64e-6f && difference >= -64e-6f)) return false;
    }
    return true;
  }

  std::string n;
  std::vector<float> x, cache, expected_cache, expected_y, new_cache, y;
};
