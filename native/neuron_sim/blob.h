// The files of the simulated NPU, as etcli/export/simulated_sdk/_blob.py describes and writes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <executorch/runtime/core/exec_aten/exec_aten.h>

namespace etcli::neuron_sim {

// Somebody else's memory, at any alignment.
struct Bytes {
  const unsigned char* data = nullptr;
  size_t size = 0;
};

struct TensorSpec {
  executorch::aten::ScalarType dtype = executorch::aten::ScalarType::Undefined;
  std::vector<int32_t> shape;
  size_t elements = 0;
  size_t bytes = 0;
};

struct ConstantSpec {
  std::string name;
  TensorSpec tensor;  // as the program has it
  executorch::aten::ScalarType stored = executorch::aten::ScalarType::Undefined;
  size_t stored_bytes = 0;
  std::string sha256;           // of the stored bytes
  std::optional<Bytes> data;    // none: in the shared weights, by their SHA-256. Not compared with the SHA-256 yet
  Bytes scales, zero_points;    // float32 and int32, empty where there are none
  std::optional<size_t> axis;
};

struct NetworkFile {
  std::string platform;
  std::vector<TensorSpec> inputs, outputs;  // without the shared weights
  Bytes program;
  std::vector<ConstantSpec> constants;
  bool shared = false;
};

size_t element_bytes(executorch::aten::ScalarType dtype);
const char* dtype_name(executorch::aten::ScalarType dtype);
std::string tensor_text(const TensorSpec& tensor);  // "float32[1, 2, 3]"

// Both refer to the file's memory. They throw Refusal NEURON_BAD_DATA for damaged files; for the hashes of weights, see check_sha256.
NetworkFile read_network(Bytes file);
std::map<std::string, Bytes> read_shared_weights(Bytes file);

// Throws Refusal NEURON_BAD_DATA where the bytes are not those that were written.
void check_sha256(Bytes bytes, const std::string& expected, const std::string& what);

}  // namespace etcli::neuron_sim
