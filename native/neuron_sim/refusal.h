// Why a call is refused: a result code of the adapter and what is wrong, in words.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

#include "neuron.h"

namespace etcli::neuron_sim {

struct Refusal : std::runtime_error {
  Refusal(int result_code, const std::string& message) : std::runtime_error(message), code(result_code) {}
  int code;
};

// "a" + 1 + "b" without the pluses: every argument through operator<<.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

template <class... Parts>
[[noreturn]] void bad_data(const Parts&... parts) {
  throw Refusal(NEURON_BAD_DATA, text(parts...));
}

template <class... Parts>
[[noreturn]] void bad_state(const Parts&... parts) {
  throw Refusal(NEURON_BAD_STATE, text(parts...));
}

inline void refuse_null(const void* pointer, const char* what) {
  if (pointer == nullptr) throw Refusal(NEURON_UNEXPECTED_NULL, text(what, " is null"));
}

}  // namespace etcli::neuron_sim
