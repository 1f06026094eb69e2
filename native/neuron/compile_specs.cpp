#include "compile_specs.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>

#include "log.h"

namespace etcli::neuron {

using executorch::runtime::ArrayRef;
using executorch::runtime::CompileSpec;
using executorch::runtime::Error;
using executorch::runtime::Result;

namespace {

constexpr size_t kMaxKeyBytes = 4096;
constexpr const char* kCompilerOnly[] = {"platform-config", "gno", "gno-exp", "gno-non-4d-tiling"};

Error read_flag(const std::string& where, const CompileSpec& spec, bool& flag) {
  if (spec.value.buffer == nullptr || spec.value.nbytes != 1) {
    return refuse(Error::InvalidProgram, text(where, ": compile spec ", spec.key, " has ", spec.value.nbytes, " bytes, a flag is one byte"));
  }
  const unsigned value = *static_cast<const unsigned char*>(spec.value.buffer);
  if (value > 1) return refuse(Error::InvalidProgram, text(where, ": compile spec ", spec.key, " is ", value, ", a flag is 0 or 1"));
  flag = value == 1;
  return Error::Ok;
}

Error read_key(const std::string& where, const CompileSpec& spec, std::string& key) {
  if (spec.value.buffer == nullptr || spec.value.nbytes == 0 || spec.value.nbytes > kMaxKeyBytes) {
    return refuse(Error::InvalidProgram, text(where, ": compile spec ", spec.key, " has ", spec.value.nbytes, " bytes, the key of weights has 1 to ",
                                              kMaxKeyBytes));
  }
  key.assign(static_cast<const char*>(spec.value.buffer), spec.value.nbytes);
  if (key.find('\0') != std::string::npos) return refuse(Error::InvalidProgram, text(where, ": compile spec ", spec.key, " has a zero byte in it"));
  return Error::Ok;
}

void remark(const std::string& where, const char* key) {
  static std::mutex lock;
  static std::set<std::string> known;
  const std::lock_guard<std::mutex> hold(lock);
  if (known.insert(key).second) log_info(text(where, ": compile spec ", key, " means nothing to the delegate; it is taken for one of the compiler's"));
}

}  // namespace

std::string Options::runtime_text() const {
  std::string members;
  // The quotes are escaped because the adapter splits its options as a shell would.
  if (high_addr) members += R"(\"high_addr\": true)";
  if (import_forever) members += text(members.empty() ? "" : ", ", R"(\"import_forever\": true)");
  return members.empty() ? "" : text("--apusys-config \"{ ", members, " }\"");
}

Result<Options> read_compile_specs(const std::string& where, ArrayRef<CompileSpec> specs) {
  Options options;
  std::set<std::string> read;
  for (const CompileSpec& spec : specs) {
    if (spec.key == nullptr) return refuse(Error::InvalidProgram, text(where, ": a compile spec has no name"));
    const std::string name = spec.key;
    Error error = Error::Ok;
    if (!read.insert(name).second) {
      error = refuse(Error::InvalidProgram, text(where, ": compile spec ", name, " is there twice"));
    } else if (name == "ImportForever") {
      error = read_flag(where, spec, options.import_forever);
    } else if (name == "HighAddr") {
      error = read_flag(where, spec, options.high_addr);
    } else if (name == "ExtractSharedBlobKey") {
      error = read_key(where, spec, options.shared_weights);
    } else if (std::find(std::begin(kCompilerOnly), std::end(kCompilerOnly), name) == std::end(kCompilerOnly)) {
      remark(where, spec.key);
    }
    if (error != Error::Ok) return error;
  }
  return options;
}

}  // namespace etcli::neuron
