#include "constants.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "refusal.h"
#include "sha256.h"

namespace etcli::neuron_sim {

using executorch::aten::ScalarType;
using executorch::runtime::Error;
using executorch::runtime::FreeableBuffer;
using executorch::runtime::Result;
using executorch::runtime::TensorLayout;

Memory::Memory(size_t size) : bytes(size) {
  if (size > SIZE_MAX - kExtra - kAlignment) throw std::bad_alloc();
  const size_t whole = (size + kExtra + kAlignment - 1) / kAlignment * kAlignment;
  data.reset(static_cast<unsigned char*>(std::aligned_alloc(kAlignment, whole)));
  if (data == nullptr) throw std::bad_alloc();
  std::memset(data.get(), 0, whole);
}

void Memory::Free::operator()(unsigned char* pointer) const { std::free(pointer); }

namespace {

// Item `index` of an array at any alignment.
template <class T>
T item(const unsigned char* data, size_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return value;
}

// (stored - zero point) * scale, in float32 as PyTorch's dequantize operators compute it.
template <class T>
void dequantise(const ConstantSpec& constant, const unsigned char* stored, float* out) {
  const std::vector<int32_t>& shape = constant.tensor.shape;
  const size_t channels = constant.axis ? static_cast<size_t>(shape[*constant.axis]) : 1;
  size_t inner = 1;  // items that follow one another with one scale
  for (size_t i = constant.axis ? *constant.axis + 1 : 0; i < shape.size(); ++i) inner *= static_cast<size_t>(shape[i]);
  if (channels == 0 || inner == 0) return;
  const size_t rows = constant.tensor.elements / inner;
  for (size_t row = 0; row < rows; ++row) {
    const float scale = item<float>(constant.scales.data, row % channels);
    const float zero_point = constant.zero_points.data == nullptr ? 0.0f : static_cast<float>(item<int32_t>(constant.zero_points.data, row % channels));
    for (size_t i = row * inner; i < (row + 1) * inner; ++i) out[i] = (static_cast<float>(item<T>(stored, i)) - zero_point) * scale;
  }
}

std::shared_ptr<const Memory> restored(const ConstantSpec& constant, Bytes stored) {
  check_sha256(stored, constant.sha256, text("constant '", constant.name, "'"));
  auto values = std::make_shared<Memory>(constant.tensor.bytes);
  if (constant.scales.data == nullptr) {
    if (stored.size > 0) std::memcpy(values->data.get(), stored.data, stored.size);
    return values;
  }
  float* const out = reinterpret_cast<float*>(values->data.get());
  switch (constant.stored) {
    case ScalarType::Byte: dequantise<uint8_t>(constant, stored.data, out); break;
    case ScalarType::Char: dequantise<int8_t>(constant, stored.data, out); break;
    case ScalarType::Short: dequantise<int16_t>(constant, stored.data, out); break;
    default: dequantise<int32_t>(constant, stored.data, out); break;
  }
  return values;
}

// Networks of one chunk (its prompt and its generation method) have the same weights: the values are made by the first, and live as long as
// anybody has them.
std::shared_ptr<const Memory> values_of(const ConstantSpec& constant, Bytes stored) {
  static auto& lock = *new std::mutex;
  static auto& all = *new std::map<std::string, std::weak_ptr<const Memory>>;
  std::string key = text(constant.sha256, " ", constant.stored_bytes, " ", static_cast<int>(constant.stored));
  if (constant.scales.data != nullptr) {
    key += text(" ", tensor_text(constant.tensor), " ", constant.axis ? static_cast<int>(*constant.axis) : -1, " ",
                sha256(constant.scales.data, constant.scales.size), " ", sha256(constant.zero_points.data, constant.zero_points.size));
  }
  const std::lock_guard<std::mutex> hold(lock);
  for (auto entry = all.begin(); entry != all.end();) entry = entry->second.expired() && entry->first != key ? all.erase(entry) : std::next(entry);
  std::weak_ptr<const Memory>& known = all[key];
  std::shared_ptr<const Memory> values = known.lock();
  if (values == nullptr) known = values = restored(constant, stored);
  return values;
}

}  // namespace

Constants::Constants(const NetworkFile& network, const std::map<std::string, Bytes>& shared) {
  for (const ConstantSpec& constant : network.constants) {
    Bytes stored;
    if (constant.data) {
      stored = *constant.data;
    } else {
      const auto found = shared.find(constant.sha256);
      if (found == shared.end()) bad_data("the shared weights do not hold constant '", constant.name, "' (", constant.sha256, "): they are another network's");
      stored = found->second;
      if (stored.size != constant.stored_bytes) {
        bad_data("the shared weights hold ", stored.size, " bytes of constant '", constant.name, "', its shape wants ", constant.stored_bytes);
      }
    }
    Entry entry{constant.tensor, {}, values_of(constant, stored)};
    for (size_t i = 0; i < constant.tensor.shape.size(); ++i) entry.dim_order.push_back(static_cast<uint8_t>(i));
    entries_.emplace(constant.name, std::move(entry));
  }
}

Result<const TensorLayout> Constants::get_tensor_layout(std::string_view key) const {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return Error::NotFound;
  const Entry& entry = found->second;
  return TensorLayout::create({entry.tensor.shape.data(), entry.tensor.shape.size()}, {entry.dim_order.data(), entry.dim_order.size()}, entry.tensor.dtype);
}

Result<FreeableBuffer> Constants::get_data(std::string_view key) const {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return Error::NotFound;
  const Memory& values = *found->second.values;
  return FreeableBuffer(values.data.get(), values.bytes, /*free_fn=*/nullptr);
}

Error Constants::load_data_into(std::string_view key, void* buffer, size_t size) const {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return Error::NotFound;
  const Memory& values = *found->second.values;
  if (size > values.bytes) return Error::InvalidArgument;
  if (size > 0) std::memcpy(buffer, values.data.get(), size);
  return Error::Ok;
}

Result<uint32_t> Constants::get_num_keys() const { return static_cast<uint32_t>(entries_.size()); }

Result<const char*> Constants::get_key(uint32_t index) const {
  if (index >= entries_.size()) return Error::InvalidArgument;
  return std::next(entries_.begin(), index)->first.c_str();
}

}  // namespace etcli::neuron_sim
