#include "calls.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

namespace etcli::neuron_sim {

namespace {

constexpr char kFail[] = "ETCLI_NEURON_SIM_FAIL";
constexpr char kTrace[] = "ETCLI_NEURON_SIM_TRACE";

// Those with a result: freeing cannot fail.
const std::vector<std::string>& functions_that_can_fail() {
  static const auto* const names = [] {
    auto* all = new std::vector<std::string>{"neuron_buffer_allocator_create", "neuron_buffer_allocate", "neuron_buffer_remove", "neuron_buffer_find"};
#define ETCLI_NAME(result, name, parameters) \
  if (std::strcmp(#result, "void") != 0) all->push_back(#name);
    ETCLI_NEURON_FUNCTIONS(ETCLI_NAME)
#undef ETCLI_NAME
    return all;
  }();
  return *names;
}

struct Told {
  std::string from;                      // the variable's text
  std::string problem;                   // with it
  std::map<std::string, long> failing;   // the call to fail, 0 for every one
  std::map<std::string, long> calls;     // so far
};

Told read_told(const std::string& from) {
  Told told;
  told.from = from;
  for (size_t begin = 0; begin <= from.size() && !from.empty();) {
    const size_t end = std::min(from.find(',', begin), from.size());
    std::string name = from.substr(begin, end - begin);
    begin = end + 1;
    long call = 0;
    if (const size_t colon = name.find(':'); colon != std::string::npos) {
      const std::string digits = name.substr(colon + 1);
      name.resize(colon);
      const bool is_number = !digits.empty() && digits.size() < 10 && digits.find_first_not_of("0123456789") == std::string::npos;
      call = is_number ? std::atol(digits.c_str()) : 0;
      if (call == 0) told.problem = text(kFail, ": '", digits, "' is no number of a call, the first is 1");
    }
    const auto& known = functions_that_can_fail();
    if (std::find(known.begin(), known.end(), name) == known.end()) told.problem = text(kFail, ": '", name, "' is no function that can fail");
    told.failing[name] = call;
  }
  return told;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Kept for ever: calls can come from destructors that run when the process ends.
template <class T>
T& kept() {
  static T* const value = new T;
  return *value;
}

}  // namespace

std::string code_name(int code) {
  switch (code) {
    case NEURON_NO_ERROR: return "NEURON_NO_ERROR";
    case NEURON_OUT_OF_MEMORY: return "NEURON_OUT_OF_MEMORY";
    case NEURON_INCOMPLETE: return "NEURON_INCOMPLETE";
    case NEURON_UNEXPECTED_NULL: return "NEURON_UNEXPECTED_NULL";
    case NEURON_BAD_DATA: return "NEURON_BAD_DATA";
    case NEURON_OP_FAILED: return "NEURON_OP_FAILED";
    case NEURON_UNMAPPABLE: return "NEURON_UNMAPPABLE";
    case NEURON_BAD_STATE: return "NEURON_BAD_STATE";
    case NEURON_BAD_VERSION: return "NEURON_BAD_VERSION";
    default: return std::to_string(code);
  }
}

void say(const std::string& message) { std::fprintf(stderr, "simulated NPU: %s\n", message.c_str()); }

void fail_when_told(const char* function) {
  static std::mutex& lock = kept<std::mutex>();
  static Told& told = kept<Told>();
  const std::lock_guard<std::mutex> hold(lock);
  if (const std::string now = environment(kFail); now != told.from) told = read_told(now);
  if (!told.problem.empty()) bad_state(told.problem);
  const auto found = told.failing.find(function);
  if (found == told.failing.end()) return;
  const long call = ++told.calls[function];
  if (found->second == 0 || found->second == call) throw Refusal(NEURON_OP_FAILED, text("told to fail by ", kFail, "=", told.from));
}

void record(const char* function, const std::string& arguments, const std::string& result, const std::string& problem) {
  if (!problem.empty()) say(text(function, ": ", result, ": ", problem));
  const std::string path = environment(kTrace);
  if (path.empty()) return;
  const std::string line = text("simulated ", function, "(", arguments, ") = ", result, problem.empty() ? "" : ": ", problem, "\n");
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const bool written = file >= 0 && ::write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  if (!written) say(text("cannot write the trace ", path, ": ", std::strerror(errno)));
  if (file >= 0) ::close(file);
}

}  // namespace etcli::neuron_sim
