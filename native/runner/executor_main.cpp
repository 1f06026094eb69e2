// etcli_executor_runner: runs any method of any program, with inputs from files or ones (docs/runner-protocol.md).
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "clock.h"
#include "events.h"
#include "failure.h"
#include "files.h"
#include "main.h"
#include "memory.h"
#include "program.h"
#include "runtime.h"

using namespace etcli;
using executorch::aten::ScalarType;

static const std::vector<Flag> kFlags = {
    {"--model", "FILE", "the program (.pte)"},
    {"--method", "NAME", "one of its methods (default: the only one, or forward)"},
    {"--input", "FILE", "raw bytes of one tensor input, once for each in order (default: ones)", true},
    {"--iterations", "N", "how often to run it (default 1)"},
    {"--output-dir", "DIR", "write each tensor output there as output_N.bin, raw bytes"},
    {"--threads", "N", "threads of the CPU backends (default: the runtime's choice)"},
    {"--verbose", nullptr, "the runtime's informational messages on stderr too"},
    {"--version", nullptr, "print the version"},
    {"--help", nullptr, "print this text"},
};

static std::string choose_method(const Program& program, const Flags& flags) {
  if (flags.has("--method")) return flags.get("--method");
  const std::vector<std::string> names = program.method_names();
  if (names.size() == 1) return names[0];
  if (std::find(names.begin(), names.end(), "forward") != names.end()) return "forward";
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  throw usage_failure(text(program.path, " has several methods, choose with --method: ", all));
}

template <class T>
static void fill(Buffer& buffer, T value) {
  for (size_t at = 0; at + sizeof(T) <= buffer.bytes; at += sizeof(T)) std::memcpy(buffer.data() + at, &value, sizeof(T));
}

static void fill_with_ones(Buffer& buffer, ScalarType dtype, const std::string& label) {
  switch (dtype) {
    case ScalarType::Bool:
    case ScalarType::Byte:
    case ScalarType::Char: return fill<uint8_t>(buffer, 1);
    case ScalarType::Short:
    case ScalarType::UInt16: return fill<uint16_t>(buffer, 1);
    case ScalarType::Int:
    case ScalarType::UInt32: return fill<uint32_t>(buffer, 1);
    case ScalarType::Long:
    case ScalarType::UInt64: return fill<uint64_t>(buffer, 1);
    case ScalarType::Half: return fill<uint16_t>(buffer, 0x3C00);
    case ScalarType::BFloat16: return fill<uint16_t>(buffer, 0x3F80);
    case ScalarType::Float: return fill<float>(buffer, 1);
    case ScalarType::Double: return fill<double>(buffer, 1);
    default: throw tensor_failure(text(label, " is ", dtype_name(dtype), ", for which there are no ones; give it with --input"));
  }
}

// Memory for every tensor input, filled from files or with ones; other inputs keep the value that the program was exported with.
static std::vector<Buffer> make_inputs(const Method& method, const std::vector<std::string>& files) {
  size_t tensors = 0;
  for (const TensorFacts& input : method.inputs) tensors += input.is_tensor;
  if (!files.empty() && files.size() != tensors) {
    throw usage_failure(text("--input is given ", files.size(), " times, ", method.where(), " has ", tensors, " tensor inputs"));
  }
  std::vector<Buffer> buffers(method.inputs.size());
  size_t next = 0;
  for (size_t i = 0; i < method.inputs.size(); ++i) {
    const TensorFacts& input = method.inputs[i];
    if (!input.is_tensor) continue;
    buffers[i] = Buffer(input.bytes);
    const std::string label = text(method.where(), ": input ", i);
    if (files.empty()) {
      fill_with_ones(buffers[i], input.dtype, label);
      continue;
    }
    const MappedFile file(files[next++]);
    if (file.size != input.bytes) {
      throw tensor_failure(text(files[next - 1], " has ", file.size, " bytes, ", label, " is ", dtype_name(input.dtype), " ",
                                shape_text(input.sizes), ", ", input.bytes, " bytes"));
    }
    if (file.size > 0) std::memcpy(buffers[i].data(), file.data, file.size);
  }
  return buffers;
}

static std::string describe(const std::vector<TensorFacts>& tensors) {
  std::vector<std::string> all;
  for (const TensorFacts& tensor : tensors) {
    JsonObject object;
    object.put("kind", tensor.kind);
    if (tensor.is_tensor) {
      object.put("dtype", dtype_name(tensor.dtype)).put_raw("shape", json_array(tensor.sizes));
      object.put("bytes", static_cast<int64_t>(tensor.bytes)).put("planned", tensor.planned);
    }
    all.push_back(object.str());
  }
  return json_array(all);
}

static void make_folder(const std::string& path) {
  struct stat facts {};
  if (::mkdir(path.c_str(), 0755) == 0) return;
  const int reason = errno;
  if (::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode)) return;
  throw file_failure(text("cannot make the folder ", path, ": ", std::strerror(reason)));
}

static void emit_outputs(const Method& method, const std::string& folder) {
  for (size_t i = 0; i < method.outputs.size(); ++i) {
    const auto& value = method.method->get_output(i);
    JsonObject object = event("output");
    object.put("index", static_cast<int64_t>(i)).put("kind", method.outputs[i].kind);
    if (value.isTensor()) {
      const auto tensor = value.toTensor();  // the sizes of this run, which may be below those that were exported
      object.put("dtype", dtype_name(tensor.scalar_type()));
      object.put_raw("shape", json_array(std::vector<int64_t>(tensor.sizes().begin(), tensor.sizes().end())));
      object.put("bytes", static_cast<int64_t>(tensor.nbytes()));
      if (!folder.empty()) {
        const std::string path = text(folder, "/output_", i, ".bin");
        write_file(path, tensor.const_data_ptr(), tensor.nbytes());
        object.put("path", path);
      }
    }
    emit(object);
  }
}

static void emit_stats(std::vector<double> seconds, double load_seconds) {
  const size_t count = seconds.size();
  const double mean = std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(count);
  std::sort(seconds.begin(), seconds.end());
  const double median = (seconds[(count - 1) / 2] + seconds[count / 2]) / 2;
  emit(event("stats")
           .put("iterations", static_cast<int64_t>(count))
           .put("load_s", load_seconds)
           .put("min_s", seconds.front())
           .put("median_s", median)
           .put("mean_s", mean)
           .put("max_s", seconds.back())
           .put("peak_memory_bytes", peak_resident_bytes()));
}

static void work(const Flags& flags) {
  if (!flags.has("--model")) throw usage_failure("--model is needed");
  const int64_t iterations = flags.number("--iterations", 1, 1, 1000000);
  const int64_t wanted_threads = flags.number("--threads", 0, 1, 1024);
  const std::string folder = flags.has("--output-dir") ? flags.get("--output-dir") : "";
  if (!folder.empty()) make_folder(folder);

  const double start = now();
  const int64_t threads = set_threads(wanted_threads);
  share_packed_weights();
  const auto program = std::make_shared<const Program>(flags.get("--model"));
  ScratchAllocator scratch;
  Method method(program, choose_method(*program, flags), scratch);
  std::vector<Buffer> inputs = make_inputs(method, flags.all("--input"));
  const double load_seconds = now() - start;
  emit(event("loaded")
           .put("load_s", load_seconds)
           .put("method", method.name)
           .put_raw("inputs", describe(method.inputs))
           .put_raw("outputs", describe(method.outputs))
           .put("threads", threads)
           .put("memory_bytes", resident_bytes()));

  std::vector<Buffer> outputs(method.outputs.size());
  std::vector<double> seconds;
  for (int64_t n = 0; n < iterations; ++n) {
    // Before every run, because the memory of a planned input may be reused once the program has read it.
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (method.inputs[i].is_tensor) {
        method.set_input(i, inputs[i].data());
      } else {
        method.keep_input(i);
      }
    }
    for (size_t i = 0; n == 0 && i < outputs.size(); ++i) {
      // An output that is an input or a constant has memory already, planned or not.
      const auto& value = method.method->get_output(i);
      if (!value.isTensor() || value.toTensor().const_data_ptr() != nullptr) continue;
      outputs[i] = Buffer(method.outputs[i].bytes);
      method.set_output(i, outputs[i].data(), outputs[i].bytes);
    }
    const double begin = now();
    method.execute();
    seconds.push_back(now() - begin);
  }
  emit_outputs(method, folder);
  emit_stats(seconds, load_seconds);
}

int main(int argc, char** argv) {
  return run_program({"etcli_executor_runner", "etcli_executor_runner --model FILE [flags]", kFlags}, argc, argv, work);
}
