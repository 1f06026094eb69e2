// Messages of the delegate, in ExecuTorch's log.
#pragma once

#include <sstream>
#include <string>

#include <executorch/runtime/core/error.h>

namespace etcli::neuron {

// "a" + 1 + "b" without the pluses: every argument through operator<<.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// ET_LOG cuts messages off at 256 bytes, where the end may be what matters; these go whole to the same place.
void log_info(const std::string& message, int line = __builtin_LINE(), const char* file = __builtin_FILE());
void log_error(const std::string& message, int line = __builtin_LINE(), const char* file = __builtin_FILE());

// Logs `message` as an error and returns `error`.
executorch::runtime::Error refuse(executorch::runtime::Error error, const std::string& message, int line = __builtin_LINE(),
                                  const char* file = __builtin_FILE());

// Logs that a function of the adapter returned `code`, and returns what that is among ExecuTorch's errors. `what` is what it was called
// for, as "input 3"; it may be empty.
executorch::runtime::Error failed(const std::string& where, const char* function, int code, const std::string& what = "",
                                  int line = __builtin_LINE(), const char* file = __builtin_FILE());

// "NEURON_BAD_DATA (4)"
std::string code_name(int code);

}  // namespace etcli::neuron
