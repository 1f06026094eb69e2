// SHA-256 (FIPS 180-4), by which parts of files are known.
#pragma once

#include <cstddef>
#include <string>

namespace etcli::neuron_sim {

// 64 hexadecimal digits.
std::string sha256(const void* data, size_t size);

}  // namespace etcli::neuron_sim
