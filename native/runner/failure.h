// Failures that end a program: each has the code and the exit status of docs/runner-protocol.md.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace etcli {

struct Failure : std::runtime_error {
  Failure(const char* stable_code, int exit_status, const std::string& message)
      : std::runtime_error(message), code(stable_code), status(exit_status) {}
  const char* code;
  int status;
};

// "a" + 1 + "b" without the pluses: every argument through operator<<.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

inline Failure usage_failure(const std::string& message) { return {"runner.usage", 2, message}; }
inline Failure config_failure(const std::string& message) { return {"runner.config", 2, message}; }
inline Failure prompt_failure(const std::string& message) { return {"runner.prompt", 2, message}; }
inline Failure file_failure(const std::string& message) { return {"runner.file", 3, message}; }
inline Failure load_failure(const std::string& message) { return {"runner.load", 3, message}; }
inline Failure method_failure(const std::string& message) { return {"runner.method", 3, message}; }
inline Failure memory_failure(const std::string& message) { return {"runner.memory", 3, message}; }
inline Failure tensor_failure(const std::string& message) { return {"runner.tensor", 4, message}; }
inline Failure execute_failure(const std::string& message) { return {"runner.execute", 5, message}; }

// Several problems as one message; beyond `most` only their number, since one wrong size shows in every cache of every chunk.
inline std::string list_problems(const std::vector<std::string>& problems, size_t most = 8) {
  std::string all;
  for (size_t i = 0; i < problems.size() && i < most; ++i) all += (i ? "; " : "") + problems[i];
  if (problems.size() > most) all += text("; and ", problems.size() - most, " more");
  return all;
}

}  // namespace etcli
