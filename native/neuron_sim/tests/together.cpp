// One process with our runner's ExecuTorch and the simulated NPU's, as on a device: one runtime, every kernel registered once. Prints what
// failed; as a program of its own, because a second registration ends the process.
#include <cstdio>
#include <memory>
#include <string>

#include "main.h"
#include "memory.h"
#include "network.h"
#include "program.h"

namespace {

int failures = 0;

void check(bool is_right, const char* what) {
  std::printf("%s: %s\n", is_right ? "ok" : "FAILED", what);
  failures += !is_right;
}

// Rows that softmax made.
bool sums_to_one(const std::vector<float>& row) {
  float sum = 0;
  for (const float value : row) sum += value;
  return sum > 0.999f && sum < 1.001f;
}

}  // namespace

int main() {
  etcli::start_runtime(/*verbose=*/false, etcli::program_hooks());
  etcli::ScratchAllocator scratch;
  const auto program = std::make_shared<const etcli::Program>(network_path("ordinary.pte"));
  std::vector<float> x = file_floats("input_1_0.bin"), before(3), between(3), after(3);
  const auto run = [&](std::vector<float>& out) {
    etcli::Method method(program, "forward", scratch);
    method.set_input(0, x.data());
    method.set_output(0, out.data(), Example::bytes(out));
    method.execute();
  };
  run(before);
  check(sums_to_one(before), "the runner's program before the simulated NPU is there");
  {
    Restored network(file_bytes("slim_1.bin"));
    const std::vector<char> shared = file_bytes("shared.bin");
    Example example(1);
    check(network.restore(3) == vendor::kOk, "a network is restored");
    run(between);
    check(example.bind(network) == vendor::kOk, "inputs and outputs are bound");
    check(network.a.set_input(network.execution, 2, nullptr, shared.data(), shared.size()) == vendor::kOk, "shared weights are bound");
    check(network.a.compute(network.execution) == vendor::kOk, "the network computes");
    check(example.new_cache == example.expected_cache && Example::close(example.y, example.expected_y), "its results are PyTorch's");
  }
  run(after);
  check(before == between && before == after, "the runner's program computes the same with it and after it");
  return failures == 0 ? 0 : 1;
}
