#include "blob.h"

#include <cstring>
#include <set>

#include "json_reader.h"
#include "refusal.h"
#include "sha256.h"

namespace etcli::neuron_sim {

using executorch::aten::ScalarType;

namespace {

constexpr size_t kMagicBytes = 8;
constexpr size_t kHeadBytes = kMagicBytes + 2 * sizeof(uint32_t);
constexpr uint32_t kVersion = 1;
constexpr size_t kMaxRank = 16;  // ExecuTorch's kTensorDimensionLimit

struct Dtype {
  const char* name;
  ScalarType type;
  size_t bytes;
};
constexpr Dtype kDtypes[] = {
    {"bool", ScalarType::Bool, 1},    {"uint8", ScalarType::Byte, 1},    {"int8", ScalarType::Char, 1},         {"int16", ScalarType::Short, 2},
    {"float16", ScalarType::Half, 2}, {"bfloat16", ScalarType::BFloat16, 2}, {"int32", ScalarType::Int, 4}, {"float32", ScalarType::Float, 4},
    {"int64", ScalarType::Long, 8},   {"float64", ScalarType::Double, 8},
};

const Json& member(const Json& object, const char* name, Json::Kind kind, const char* what) {
  const Json* found = object.find(name);
  if (found == nullptr) bad_data("the header has no \"", name, "\" of ", what);
  if (found->kind != kind) bad_data("the header's \"", name, "\" of ", what, " is of another kind than it has to be");
  return *found;
}

size_t size_member(const Json& object, const char* name, const char* what) {
  const int64_t value = member(object, name, Json::Kind::kInteger, what).integer;
  if (value < 0) bad_data("the header's \"", name, "\" of ", what, " is negative");
  return static_cast<size_t>(value);
}

Bytes place(Bytes file, const Json& part, const char* what) {
  const size_t offset = size_member(part, "offset", what), size = size_member(part, "size", what);
  if (offset > file.size || size > file.size - offset) {
    bad_data(what, ": ", size, " bytes at ", offset, " are not inside the file, which has ", file.size, " bytes");
  }
  return {file.data + offset, size};
}

Bytes checked_part(Bytes file, const Json& part, const char* what) {
  const Bytes bytes = place(file, part, what);
  check_sha256(bytes, member(part, "sha256", Json::Kind::kString, what).string, what);
  return bytes;
}

// The part that a member holds, which may be null; empty then.
Bytes part_or_null(Bytes file, const Json& object, const char* name) {
  const Json* found = object.find(name);
  if (found == nullptr) bad_data("the header has no \"", name, "\" of a constant");
  return found->kind == Json::Kind::kNull ? Bytes{} : checked_part(file, *found, name);
}

ScalarType dtype_of(const Json& object, const char* what) {
  const std::string& name = member(object, "dtype", Json::Kind::kString, what).string;
  for (const Dtype& dtype : kDtypes) {
    if (name == dtype.name) return dtype.type;
  }
  bad_data(what, ": there is no dtype '", name, "'");
}

TensorSpec read_tensor(const Json& json, const char* what) {
  TensorSpec tensor;
  tensor.dtype = dtype_of(json, what);
  const Json& shape = member(json, "shape", Json::Kind::kArray, what);
  if (shape.items.size() > kMaxRank) bad_data(what, " has ", shape.items.size(), " dimensions, ", kMaxRank, " is the most");
  tensor.elements = 1;
  for (const Json& size : shape.items) {
    if (size.kind != Json::Kind::kInteger || size.integer < 0 || size.integer > INT32_MAX) bad_data(what, " has a size that is no size");
    tensor.shape.push_back(static_cast<int32_t>(size.integer));
    if (__builtin_mul_overflow(tensor.elements, static_cast<size_t>(size.integer), &tensor.elements)) bad_data(what, " is larger than any memory");
  }
  if (tensor.elements > INT32_MAX) bad_data(what, " has ", tensor.elements, " elements, more than ExecuTorch can count");
  tensor.bytes = tensor.elements * element_bytes(tensor.dtype);
  return tensor;
}

std::vector<TensorSpec> read_tensors(const Json& header, const char* name) {
  std::vector<TensorSpec> tensors;
  for (const Json& item : member(header, name, Json::Kind::kArray, "the network").items) tensors.push_back(read_tensor(item, name));
  return tensors;
}

ConstantSpec read_constant(Bytes file, const Json& json, bool shared) {
  ConstantSpec constant;
  constant.name = member(json, "name", Json::Kind::kString, "a constant").string;
  const std::string words = "constant '" + constant.name + "'";
  const char* const what = words.c_str();
  constant.tensor = read_tensor(json, what);
  constant.sha256 = member(json, "sha256", Json::Kind::kString, what).string;
  const Json& stored = member(json, "stored", Json::Kind::kObject, what);
  constant.stored = dtype_of(stored, what);
  constant.stored_bytes = constant.tensor.elements * element_bytes(constant.stored);
  size_t size = 0;
  if (shared) {
    if (member(stored, "key", Json::Kind::kString, what).string != constant.sha256) bad_data(what, " has two different hashes");
    size = size_member(stored, "size", what);
  } else {
    constant.data = place(file, stored, what);
    size = constant.data->size;
  }
  if (size != constant.stored_bytes) bad_data(what, " has ", size, " bytes, its shape wants ", constant.stored_bytes);

  constant.scales = part_or_null(file, stored, "scales");
  constant.zero_points = part_or_null(file, stored, "zero_points");
  const Json* axis = stored.find("axis");
  if (axis != nullptr && axis->kind == Json::Kind::kInteger) {
    if (axis->integer < 0 || static_cast<size_t>(axis->integer) >= constant.tensor.shape.size()) bad_data(what, " has no axis ", axis->integer);
    constant.axis = static_cast<size_t>(axis->integer);
  } else if (axis == nullptr || axis->kind != Json::Kind::kNull) {
    bad_data(what, " has an axis that is none");
  }
  if (constant.scales.data == nullptr) {
    if (constant.stored != constant.tensor.dtype || constant.zero_points.data != nullptr) {
      bad_data(what, " is ", dtype_name(constant.tensor.dtype), ", stored as ", dtype_name(constant.stored), " without scales");
    }
    return constant;
  }
  const bool is_quantised = constant.stored == ScalarType::Byte || constant.stored == ScalarType::Char || constant.stored == ScalarType::Short ||
                            constant.stored == ScalarType::Int;
  if (constant.tensor.dtype != ScalarType::Float || !is_quantised) {
    bad_data(what, " has scales, and is ", dtype_name(constant.tensor.dtype), ", stored as ", dtype_name(constant.stored));
  }
  const size_t wanted = 4 * (constant.axis ? static_cast<size_t>(constant.tensor.shape[*constant.axis]) : size_t{1});
  if (constant.scales.size != wanted || (constant.zero_points.data != nullptr && constant.zero_points.size != wanted)) {
    bad_data(what, " has ", constant.scales.size, " bytes of scales and ", constant.zero_points.size, " of zero points, its shape wants ", wanted);
  }
  return constant;
}

uint32_t little_endian(const unsigned char* bytes) {
  return uint32_t{bytes[0]} | uint32_t{bytes[1]} << 8 | uint32_t{bytes[2]} << 16 | uint32_t{bytes[3]} << 24;
}

Json read_header(Bytes file, const char* magic, const char* what) {
  if (file.size < kHeadBytes) bad_data(file.size, " bytes are no ", what);
  if (std::memcmp(file.data, magic, kMagicBytes) != 0) bad_data("the first bytes are not those of a ", what);
  const uint32_t version = little_endian(file.data + kMagicBytes);
  if (version != kVersion) throw Refusal(NEURON_BAD_VERSION, text("a ", what, " of version ", version, ", only ", kVersion, " is known"));
  const uint32_t size = little_endian(file.data + kMagicBytes + sizeof(uint32_t));
  if (size > file.size - kHeadBytes) bad_data("the header of a ", what, " has ", size, " bytes, the whole file ", file.size);
  Json header = read_json({reinterpret_cast<const char*>(file.data) + kHeadBytes, size});
  if (!member(header, "simulated", Json::Kind::kBoolean, what).boolean) bad_data("the header does not say that it is simulated");
  return header;
}

}  // namespace

size_t element_bytes(ScalarType type) {
  for (const Dtype& dtype : kDtypes) {
    if (dtype.type == type) return dtype.bytes;
  }
  return 0;
}

const char* dtype_name(ScalarType type) {
  for (const Dtype& dtype : kDtypes) {
    if (dtype.type == type) return dtype.name;
  }
  return "another dtype";
}

std::string tensor_text(const TensorSpec& tensor) {
  std::string sizes;
  for (const int32_t size : tensor.shape) sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  return text(dtype_name(tensor.dtype), "[", sizes, "]");
}

void check_sha256(Bytes bytes, const std::string& expected, const std::string& what) {
  if (sha256(bytes.data, bytes.size) != expected) bad_data(what, ": its ", bytes.size, " bytes do not have the SHA-256 that the header says");
}

NetworkFile read_network(Bytes file) {
  const char* const what = "simulated compiled network";
  const Json header = read_header(file, "ETCLINPU", what);
  NetworkFile network;
  network.platform = member(header, "platform", Json::Kind::kString, what).string;
  network.inputs = read_tensors(header, "inputs");
  network.outputs = read_tensors(header, "outputs");
  network.program = checked_part(file, member(header, "program", Json::Kind::kObject, what), "the program");
  network.shared = member(header, "shared", Json::Kind::kBoolean, what).boolean;
  std::set<std::string> names;
  for (const Json& item : member(header, "constants", Json::Kind::kArray, what).items) {
    network.constants.push_back(read_constant(file, item, network.shared));
    if (!names.insert(network.constants.back().name).second) bad_data("two constants are called '", network.constants.back().name, "'");
  }
  return network;
}

std::map<std::string, Bytes> read_shared_weights(Bytes file) {
  const char* const what = "file of simulated shared weights";
  const Json header = read_header(file, "ETCLISHR", what);
  std::map<std::string, Bytes> weights;
  for (const auto& [key, part] : member(header, "weights", Json::Kind::kObject, what).members) weights[key] = place(file, part, "shared weights");
  return weights;
}

}  // namespace etcli::neuron_sim
