// What a program holds for the delegate: a header of 13 bytes, then the compiled network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <executorch/runtime/core/result.h>

namespace etcli::neuron {

// Little-endian, packed: u8 version (1), u32 inputs, u32 outputs, u32 bytes of the network. Shared weights are not among the inputs.
constexpr size_t kHeaderBytes = 13;
constexpr uint8_t kHeaderVersion = 1;
// More than any program has; a header with more is damaged.
constexpr uint32_t kMaxTensors = 16384;

struct Payload {
  uint32_t inputs = 0, outputs = 0;
  const unsigned char* network = nullptr;  // inside the program, aligned to nothing
  size_t network_bytes = 0;
};

// DelegateInvalidCompatibility for another version of the header, InvalidProgram where it is damaged. `where` begins messages.
executorch::runtime::Result<Payload> read_payload(const std::string& where, const void* data, size_t bytes);

}  // namespace etcli::neuron
