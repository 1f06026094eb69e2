// Calls that are told to fail, and the trace.
#include <doctest/doctest.h>

#include <unistd.h>

#include <array>
#include <sstream>

#include "network.h"

namespace {

struct Environment {
  Environment(const char* variable, const std::string& value) : name(variable) { ::setenv(name, value.c_str(), 1); }
  ~Environment() { ::unsetenv(name); }
  const char* name;
};

// A whole life of a network with a buffer: the code of the first call that fails. Frees what there is in any case.
int life() {
  const vendor::BufferAllocator buffers;
  if (buffers.handle == nullptr) return -1;
  Restored network(file_bytes("network_1.bin"));
  Example example(1);
  const vendor::Adapter& a = network.a;
  if (const int code = network.restore()) return code;
  size_t size = 0;
  if (const int code = a.input_size(network.compilation, 0, &size)) return code;
  if (const int code = a.output_size(network.compilation, 0, &size)) return code;
  void* const y = buffers.allocate(12);
  void* const x = buffers.allocate(16);
  if (x == nullptr || y == nullptr) return -1;
  const vendor::MemoryUnit* const unit_x = buffers.find(x);
  const vendor::MemoryUnit* const unit_y = buffers.find(y);
  if (unit_x == nullptr || unit_y == nullptr) return -1;
  if (const int code = example.bind(network)) return code;
  if (const int code = a.set_input_from_memory(network.execution, 0, nullptr, unit_x->memory, 0, 16)) return code;
  if (const int code = a.set_output_from_memory(network.execution, 1, nullptr, unit_y->memory, 0, 12)) return code;
  if (const int code = a.compute(network.execution)) return code;
  if (const int code = a.compute(network.execution)) return code;
  return buffers.remove(x) ? 0 : -1;
}

}  // namespace

TEST_CASE("every function with a result can be told to fail, and nothing is left behind") {
  REQUIRE(life() == 0);
  for (const char* function :
       {"NeuronModel_create", "NeuronModel_addOperand", "NeuronModel_getExtensionOperandType", "NeuronModel_getExtensionOperationType",
        "NeuronModel_setOperandValue", "NeuronModel_addOperation", "NeuronModel_identifyInputsAndOutputs", "NeuronModel_finish",
        "NeuronCompilation_createWithOptions", "NeuronCompilation_setPreference", "NeuronCompilation_setPriority", "NeuronCompilation_finish",
        "NeuronCompilation_getInputPaddedSize", "NeuronCompilation_getOutputPaddedSize", "NeuronExecution_create", "NeuronExecution_setInput",
        "NeuronExecution_setOutput", "NeuronExecution_setInputFromMemory", "NeuronExecution_setOutputFromMemory", "NeuronExecution_compute",
        "NeuronMemory_createFromAHardwareBuffer", "neuron_buffer_allocator_create", "neuron_buffer_allocate", "neuron_buffer_find",
        "neuron_buffer_remove"}) {
    CAPTURE(function);
    {
      const Environment told("ETCLI_NEURON_SIM_FAIL", function);
      CHECK(life() != 0);
    }
    CHECK(life() == 0);
  }
}

TEST_CASE("the n-th call alone fails") {
  Restored network(file_bytes("network_1.bin"));
  Example example(1);
  REQUIRE(network.restore() == vendor::kOk);
  REQUIRE(example.bind(network) == vendor::kOk);
  const vendor::Adapter& a = network.a;
  const Environment told("ETCLI_NEURON_SIM_FAIL", "NeuronExecution_compute:3,NeuronExecution_setInput:1");
  CHECK(a.compute(network.execution) == vendor::kOk);
  CHECK(a.compute(network.execution) == vendor::kOk);
  CHECK(a.compute(network.execution) == vendor::kFailed);
  CHECK(a.compute(network.execution) == vendor::kOk);
  CHECK(example.bind(network) == vendor::kFailed);
  CHECK(example.bind(network) == vendor::kOk);
}

TEST_CASE("what is told wrongly fails everything, rather than nothing") {
  for (const char* wrong : {"NeuronModel_free", "NeuronModel_make", "compute", "NeuronExecution_compute:0", "NeuronExecution_compute:", "NeuronExecution_compute:x",
                            "NeuronExecution_compute:-1", ",", "NeuronExecution_compute,"}) {
    CAPTURE(wrong);
    const Environment told("ETCLI_NEURON_SIM_FAIL", wrong);
    void* model = nullptr;
    CHECK(vendor::adapter().model_create(&model) == vendor::kBadState);
    CHECK(model == nullptr);
  }
}

TEST_CASE("the trace has a line for every call of both libraries, and why it was refused") {
  std::array<char, 64> path{"/tmp/etcli-neuron-sim-trace-XXXXXX"};
  const int file = ::mkstemp(path.data());
  REQUIRE(file >= 0);
  {
    const Environment trace("ETCLI_NEURON_SIM_TRACE", path.data());
    const Environment told("ETCLI_NEURON_SIM_FAIL", "NeuronExecution_compute:2");
    CHECK(life() == vendor::kFailed);
  }
  std::ifstream stream(path.data());
  const std::string all{std::istreambuf_iterator<char>(stream), {}};
  size_t lines = 0;
  std::istringstream text(all);
  for (std::string line; std::getline(text, line); ++lines) CHECK(line.rfind("simulated ", 0) == 0);
  CHECK(lines > 30);
  for (const char* expected :
       {"simulated NeuronModel_create() = NEURON_NO_ERROR, model ", ", options ) = NEURON_NO_ERROR, compilation ", ") = NEURON_NO_ERROR, platform mt6991\n",
        "simulated NeuronExecution_setInputFromMemory(execution ", "input 0, memory ", "offset 0, 16 bytes) = NEURON_NO_ERROR\n",
        ") = NEURON_OP_FAILED: told to fail by ETCLI_NEURON_SIM_FAIL=NeuronExecution_compute:2\n", "simulated neuron_buffer_allocate(", ") = void\n"}) {
    CAPTURE(expected);
    CHECK(all.find(expected) != std::string::npos);
  }
  ::close(file);
  ::unlink(path.data());
}
