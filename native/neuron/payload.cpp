#include "payload.h"

#include "log.h"

namespace etcli::neuron {

using executorch::runtime::Error;
using executorch::runtime::Result;

static uint32_t little_endian(const unsigned char* bytes) {
  return uint32_t{bytes[0]} | uint32_t{bytes[1]} << 8 | uint32_t{bytes[2]} << 16 | uint32_t{bytes[3]} << 24;
}

Result<Payload> read_payload(const std::string& where, const void* data, size_t bytes) {
  if (data == nullptr || bytes < kHeaderBytes) {
    return refuse(Error::InvalidProgram,
                  text(where, ": the compiled network has ", data == nullptr ? 0 : bytes, " bytes, its header alone has ", kHeaderBytes));
  }
  const auto* header = static_cast<const unsigned char*>(data);
  if (header[0] != kHeaderVersion) {
    return refuse(Error::DelegateInvalidCompatibility, text(where, ": the header of the compiled network is of version ", int{header[0]},
                                                            ", this delegate reads version ", int{kHeaderVersion}));
  }
  const Payload payload{little_endian(header + 1), little_endian(header + 5), header + kHeaderBytes, little_endian(header + 9)};
  if (payload.inputs > kMaxTensors || payload.outputs > kMaxTensors || payload.outputs == 0) {
    return refuse(Error::InvalidProgram, text(where, ": the header of the compiled network tells of ", payload.inputs, " inputs and ",
                                              payload.outputs, " outputs; the program is damaged"));
  }
  if (payload.network_bytes == 0 || payload.network_bytes != bytes - kHeaderBytes) {
    return refuse(Error::InvalidProgram, text(where, ": the header tells of a compiled network of ", payload.network_bytes,
                                              " bytes, the program holds ", bytes - kHeaderBytes, "; it is damaged"));
  }
  return payload;
}

}  // namespace etcli::neuron
