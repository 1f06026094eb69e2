// JSON (RFC 8259) read strictly: for headers and options, which come from files that may be damaged.
//
// Own code, since this is compiled on users' machines and for their devices, where nothing but ExecuTorch's package can be counted on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace etcli::neuron_sim {

struct Json {
  enum class Kind { kNull, kBoolean, kInteger, kNumber, kString, kArray, kObject };

  // The member of this name, null where it lacks or this is no object.
  const Json* find(std::string_view name) const;

  Kind kind = Kind::kNull;
  bool boolean = false;
  int64_t integer = 0;  // numbers without fraction and exponent that fit
  double number = 0;    // the other ones
  std::string string;
  std::vector<Json> items;
  std::vector<std::pair<std::string, Json>> members;
};

// Throws Refusal NEURON_BAD_DATA with the byte at which it goes wrong: among the rest for members of one name, for nesting deeper than the
// files of the simulator have, and for NUL in strings.
Json read_json(std::string_view source);

}  // namespace etcli::neuron_sim
