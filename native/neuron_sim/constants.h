// Constants of a network as its program wants them: dequantised, aligned, once in the process however many networks have them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <executorch/runtime/core/named_data_map.h>

#include "blob.h"

namespace etcli::neuron_sim {

// Zeroed memory at an alignment that every kernel can use, with room behind it for kernels that read past the end.
struct Memory {
  static constexpr size_t kAlignment = 64;
  static constexpr size_t kExtra = 128;

  // Throws std::bad_alloc.
  explicit Memory(size_t size);

  struct Free {
    void operator()(unsigned char* pointer) const;
  };
  std::unique_ptr<unsigned char, Free> data;
  size_t bytes;
};

// What a program's external constants are looked up in.
class Constants final : public executorch::runtime::NamedDataMap {
 public:
  // `shared` holds those of them that the file does not. Throws Refusal NEURON_BAD_DATA where one lacks or is damaged.
  Constants(const NetworkFile& network, const std::map<std::string, Bytes>& shared);

  executorch::runtime::Result<const executorch::runtime::TensorLayout> get_tensor_layout(std::string_view key) const override;
  executorch::runtime::Result<executorch::runtime::FreeableBuffer> get_data(std::string_view key) const override;
  executorch::runtime::Error load_data_into(std::string_view key, void* buffer, size_t size) const override;
  executorch::runtime::Result<uint32_t> get_num_keys() const override;
  executorch::runtime::Result<const char*> get_key(uint32_t index) const override;

 private:
  struct Entry {
    TensorSpec tensor;
    std::vector<uint8_t> dim_order;
    std::shared_ptr<const Memory> values;
  };
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace etcli::neuron_sim
