#include "log.h"

#include <cstring>

#include <executorch/runtime/platform/platform.h>

#include "neuron.h"

namespace etcli::neuron {

using executorch::runtime::Error;

namespace {

void emit(et_pal_log_level_t level, const std::string& message, int line, const char* file) {
  const char* slash = std::strrchr(file, '/');
  executorch::runtime::pal_emit_log_message(executorch::runtime::pal_current_ticks(), level, slash ? slash + 1 : file, "NeuropilotBackend",
                                            static_cast<size_t>(line), message.c_str(), message.size());
}

Error error_of(int code) {
  switch (code) {
    case NEURON_OUT_OF_MEMORY: return Error::MemoryAllocationFailed;
    case NEURON_BAD_DATA: return Error::InvalidArgument;
    case NEURON_UNMAPPABLE: return Error::AccessFailed;
    case NEURON_BAD_STATE: return Error::InvalidState;
    case NEURON_BAD_VERSION: return Error::DelegateInvalidCompatibility;
    default: return Error::Internal;
  }
}

}  // namespace

void log_info(const std::string& message, int line, const char* file) { emit(kInfo, message, line, file); }

void log_error(const std::string& message, int line, const char* file) { emit(kError, message, line, file); }

Error refuse(Error error, const std::string& message, int line, const char* file) {
  log_error(message, line, file);
  return error;
}

Error failed(const std::string& where, const char* function, int code, const std::string& what, int line, const char* file) {
  return refuse(error_of(code), text(where, ": ", function, what.empty() ? "" : " for ", what, " failed with ", code_name(code)), line, file);
}

std::string code_name(int code) {
  static constexpr const char* kNames[] = {"NEURON_NO_ERROR", "NEURON_OUT_OF_MEMORY", "NEURON_INCOMPLETE",
                                           "NEURON_UNEXPECTED_NULL", "NEURON_BAD_DATA", "NEURON_OP_FAILED",
                                           "NEURON_UNMAPPABLE", "NEURON_BAD_STATE", "NEURON_BAD_VERSION"};
  const bool is_known = code >= 0 && static_cast<size_t>(code) < sizeof kNames / sizeof *kNames;
  return text(is_known ? kNames[code] : "the NEURON code", is_known ? " (" : " ", code, is_known ? ")" : "");
}

}  // namespace etcli::neuron
