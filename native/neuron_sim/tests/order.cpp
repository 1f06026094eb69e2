// Calls out of order, and with what they do not take.
#include <doctest/doctest.h>

#include <algorithm>
#include <utility>

#include "network.h"

namespace {

const vendor::OperandType kTensor{vendor::kFloat32, 0, nullptr, 0.0f, 0};

// A model that has two inputs, the network's operand as operand 2, and two outputs, and no more.
struct Begun : Restored {
  Begun() : Restored(file_bytes("network_2.bin")) {
    REQUIRE(a.model_create(&model) == vendor::kOk);
    REQUIRE(a.operand_type(model, vendor::kExtension, 0x0100, &network.type) == vendor::kOk);
    REQUIRE(a.operation_type(model, vendor::kExtension, 0x0000, &operation) == vendor::kOk);
    for (int i = 0; i < 5; ++i) REQUIRE(a.add_operand(model, i == 2 ? &network : &kTensor) == vendor::kOk);
  }

  int add(std::vector<uint32_t> ins, std::vector<uint32_t> outs) {
    return a.add_operation(model, operation, static_cast<uint32_t>(ins.size()), ins.data(), static_cast<uint32_t>(outs.size()), outs.data());
  }
  int identify(std::vector<uint32_t> ins, std::vector<uint32_t> outs) {
    return a.identify(model, static_cast<uint32_t>(ins.size()), ins.data(), static_cast<uint32_t>(outs.size()), outs.data());
  }

  vendor::OperandType network{0, 0, nullptr, 0.0f, 0};
  int32_t operation = 0;
};

}  // namespace

TEST_CASE("objects that are null, freed or of another kind are refused, not touched") {
  const vendor::Adapter& a = vendor::adapter();
  void* model = nullptr;
  CHECK(a.model_create(nullptr) == vendor::kNull);
  CHECK(a.add_operand(nullptr, &kTensor) == vendor::kNull);
  REQUIRE(a.model_create(&model) == vendor::kOk);
  a.model_free(model);
  a.model_free(model);
  a.model_free(nullptr);
  a.compilation_free(nullptr);
  a.execution_free(nullptr);
  a.memory_free(nullptr);
  CHECK(a.model_finish(model) == vendor::kBadData);
  int stranger = 0;
  CHECK(a.add_operand(&stranger, &kTensor) == vendor::kBadData);
  CHECK(a.compute(&stranger) == vendor::kBadData);
  CHECK(a.compute(nullptr) == vendor::kNull);
  CHECK(a.compilation_finish(&stranger) == vendor::kBadData);
  void* made = &stranger;
  CHECK(a.execution_create(nullptr, &made) == vendor::kNull);
  CHECK(made == nullptr);
  CHECK(a.memory_create(nullptr, &made) == vendor::kNull);
  std::vector<char> no_buffer(256);
  CHECK(a.memory_create(no_buffer.data(), &made) == vendor::kBadData);
  a.memory_free(&stranger);
}

TEST_CASE("types: only float32 and those of the extension for compiled networks") {
  Begun model;
  const vendor::Adapter& a = model.a;
  const vendor::OperandType unknown{4, 0, nullptr, 0.0f, 0}, without_dimensions{vendor::kFloat32, 2, nullptr, 0.0f, 0};
  CHECK(a.add_operand(model.model, nullptr) == vendor::kNull);
  CHECK(a.add_operand(model.model, &unknown) == vendor::kBadData);
  CHECK(a.add_operand(model.model, &without_dimensions) == vendor::kNull);
  int32_t type = 0;
  CHECK(a.operand_type(model.model, "com.example.other", 0x0100, &type) == vendor::kBadData);
  CHECK(a.operand_type(model.model, vendor::kExtension, 0x0000, &type) == vendor::kBadData);
  CHECK(a.operand_type(model.model, nullptr, 0x0100, &type) == vendor::kNull);
  CHECK(a.operand_type(model.model, vendor::kExtension, 0x0100, nullptr) == vendor::kNull);
  CHECK(a.operation_type(model.model, vendor::kExtension, 0x0100, &type) == vendor::kBadData);
  CHECK(model.operation != model.network.type);
}

TEST_CASE("a model's value, operation, inputs and outputs") {
  Begun model;
  const vendor::Adapter& a = model.a;
  const char* const data = model.blob.data();
  CHECK(model.identify({0, 1}, {3, 4}) == vendor::kBadState);  // no operation yet
  CHECK(a.model_finish(model.model) == vendor::kBadState);
  SUBCASE("values") {
    CHECK(a.set_operand_value(model.model, -1, data, 8) == vendor::kBadData);
    CHECK(a.set_operand_value(model.model, 5, data, 8) == vendor::kBadData);
    CHECK(a.set_operand_value(model.model, 0, data, 8) == vendor::kBadData);
    CHECK(a.set_operand_value(model.model, 2, nullptr, 8) == vendor::kNull);
    CHECK(a.set_operand_value(model.model, 2, data, 0) == vendor::kBadData);
    CHECK(a.set_operand_value(model.model, 2, data, 8) == vendor::kOk);
    CHECK(a.set_operand_value(model.model, 2, data, 8) == vendor::kBadState);
  }
  SUBCASE("operations") {
    CHECK(a.add_operation(model.model, model.operation + 1, 1, nullptr, 1, nullptr) == vendor::kBadData);
    CHECK(a.add_operation(model.model, model.operation, 3, nullptr, 2, nullptr) == vendor::kNull);
    CHECK(model.add({0, 1, 2}, {}) == vendor::kBadData);
    CHECK(model.add({0, 2, 1}, {3, 4}) == vendor::kBadData);     // the network is not the last
    CHECK(model.add({0, 0, 2}, {3, 4}) == vendor::kBadData);     // twice
    CHECK(model.add({0, 9, 2}, {3, 4}) == vendor::kBadData);     // does not exist
    CHECK(model.add({0, 1, 2}, {1, 4}) == vendor::kBadData);     // input and output
    CHECK(model.add({0, 2}, {3, 4}) == vendor::kBadData);        // operand 1 is nowhere
    CHECK(model.add({0, 1, 2}, {3, 4}) == vendor::kOk);
    CHECK(model.add({0, 1, 2}, {3, 4}) == vendor::kBadState);
  }
  SUBCASE("inputs and outputs") {
    REQUIRE(model.add({0, 1, 2}, {3, 4}) == vendor::kOk);
    CHECK(a.model_finish(model.model) == vendor::kBadState);
    CHECK(model.identify({0, 1, 2}, {3, 4}) == vendor::kBadData);  // with the network
    CHECK(model.identify({1, 0}, {3, 4}) == vendor::kBadData);
    CHECK(model.identify({0, 1}, {4, 3}) == vendor::kBadData);
    CHECK(model.identify({0, 1}, {3}) == vendor::kBadData);
    CHECK(model.identify({}, {3, 4}) == vendor::kBadData);
    CHECK(model.identify({0, 1}, {3, 4}) == vendor::kOk);
    CHECK(model.identify({0, 1}, {3, 4}) == vendor::kBadState);
    CHECK(a.model_finish(model.model) == vendor::kBadState);  // no value
  }
}

TEST_CASE("a finished model does not change, an unfinished one is not compiled") {
  Restored network(file_bytes("network_2.bin"));
  const vendor::Adapter& a = network.a;
  REQUIRE(a.model_create(&network.model) == vendor::kOk);
  CHECK(a.compilation_create(network.model, &network.compilation, "") == vendor::kBadState);
  CHECK(network.compilation == nullptr);
  a.model_free(network.model);
  REQUIRE(network.make_model(2, 2) == vendor::kOk);
  CHECK(a.add_operand(network.model, &kTensor) == vendor::kBadState);
  CHECK(a.model_finish(network.model) == vendor::kBadState);
  CHECK(a.compilation_create(network.model, &network.compilation, nullptr) == vendor::kNull);
  CHECK(a.compilation_create(network.model, nullptr, "") == vendor::kNull);
}

TEST_CASE("a compilation's settings, and what may follow when") {
  Restored network(file_bytes("network_2.bin"));
  const vendor::Adapter& a = network.a;
  size_t size = 0;
  REQUIRE(network.make_model(2, 2) == vendor::kOk);
  REQUIRE(a.compilation_create(network.model, &network.compilation, "") == vendor::kOk);
  CHECK(a.set_preference(network.compilation, 4) == vendor::kBadData);
  CHECK(a.set_preference(network.compilation, -1) == vendor::kBadData);
  CHECK(a.set_priority(network.compilation, 3) == vendor::kBadData);
  CHECK(a.set_priority(network.compilation, 100) == vendor::kOk);
  CHECK(a.input_size(network.compilation, 0, &size) == vendor::kBadState);
  CHECK(a.execution_create(network.compilation, &network.execution) == vendor::kBadState);
  REQUIRE(a.compilation_finish(network.compilation) == vendor::kOk);
  CHECK(a.compilation_finish(network.compilation) == vendor::kBadState);
  CHECK(a.set_preference(network.compilation, 0) == vendor::kBadState);
  CHECK(a.execution_create(network.compilation, nullptr) == vendor::kNull);

  CHECK((a.input_size(network.compilation, 0, &size) == vendor::kOk && size == 2 * 4 * 4));
  CHECK((a.input_size(network.compilation, 1, &size) == vendor::kOk && size == 6 * 4 * 4));
  CHECK(a.input_size(network.compilation, 2, &size) == vendor::kBadData);
  CHECK(a.input_size(network.compilation, -1, &size) == vendor::kBadData);
  CHECK(a.input_size(network.compilation, 0, nullptr) == vendor::kNull);
  CHECK((a.output_size(network.compilation, 0, &size) == vendor::kOk && size == 6 * 4 * 4));
  CHECK((a.output_size(network.compilation, 1, &size) == vendor::kOk && size == 2 * 3 * 4));
  CHECK(a.output_size(network.compilation, 2, &size) == vendor::kBadData);
}

TEST_CASE("a model with another number of inputs or outputs than its network") {
  for (const auto& [inputs, outputs] : {std::pair{1u, 2u}, {3u, 2u}, {2u, 1u}, {2u, 3u}}) {
    Restored network(file_bytes("network_2.bin"));
    CHECK(network.restore(inputs, outputs) == vendor::kBadData);
  }
  Restored shared(file_bytes("slim_2.bin"));
  CHECK(shared.restore(2, 2) == vendor::kBadData);
}

TEST_CASE("options") {
  for (const char* good : {"", "  ", "--apusys-config \"{ \\\"high_addr\\\": true, \\\"import_forever\\\": true }\"", "--apusys-config \"{ \\\"high_addr\\\": true }\"",
                           "--apusys-config \"{ \\\"import_forever\\\": true }\"", "--apusys-config {\\\"import_forever\\\":false}"}) {
    CAPTURE(good);
    Restored network(file_bytes("network_2.bin"));
    CHECK(network.restore(2, 2, good) == vendor::kOk);
  }
  for (const char* bad : {"--opt=3", "--apusys-config", "--apusys-config \"{ \\\"high_addr\\\": true", "--apusys-config \"{ \\\"high_addr\\\": true \"", "--apusys-config \"{}\"",
                          "--apusys-config \"{ \\\"high_address\\\": true }\"", "--apusys-config \"{ \\\"high_addr\\\": 1 }\"", "--apusys-config \"{ high_addr: true }\"",
                          "--apusys-config \"{ \\\"high_addr\\\": true } \" --apusys-config \"{ \\\"high_addr\\\": true }\"", "--apusys-config \"[true]\"",
                          "--apusys-config \"{ \\\"high_addr\\\": true, \\\"high_addr\\\": true }\"", "--apusys-config \"{ \\\"high_addr\\\": true, }\"", "\\"}) {
    CAPTURE(bad);
    Restored network(file_bytes("network_2.bin"));
    REQUIRE(network.make_model(2, 2) == vendor::kOk);
    CHECK(network.compile(bad) == vendor::kBadData);
    CHECK(network.compilation == nullptr);
  }
}

TEST_CASE("inputs and outputs by address") {
  Restored network(file_bytes("network_2.bin"));
  Example example(2);
  const vendor::Adapter& a = network.a;
  REQUIRE(network.restore() == vendor::kOk);
  CHECK(a.compute(network.execution) == vendor::kBadData);  // nothing is set
  float* const x = example.x.data();
  CHECK(a.set_input(network.execution, 2, nullptr, x, 32) == vendor::kBadData);
  CHECK(a.set_input(network.execution, -1, nullptr, x, 32) == vendor::kBadData);
  CHECK(a.set_input(network.execution, 0, nullptr, nullptr, 32) == vendor::kNull);
  CHECK(a.set_input(network.execution, 0, nullptr, x, 31) == vendor::kBadData);
  CHECK(a.set_input(network.execution, 0, nullptr, x, 36) == vendor::kBadData);
  CHECK(a.set_input(network.execution, 0, nullptr, reinterpret_cast<char*>(x) + 1, 32) == vendor::kBadData);
  CHECK(a.set_input(network.execution, 0, &kTensor, x, 32) == vendor::kBadData);
  CHECK(a.set_output(network.execution, 2, nullptr, x, 24) == vendor::kBadData);
  CHECK(a.set_output(network.execution, 1, nullptr, x, 0) == vendor::kBadData);
  CHECK(a.set_output(network.execution, 1, nullptr, nullptr, 24) == vendor::kNull);
  for (int missing = 0; missing < 4; ++missing) {
    void* execution = nullptr;
    REQUIRE(a.execution_create(network.compilation, &execution) == vendor::kOk);
    if (missing != 0) CHECK(a.set_input(execution, 0, nullptr, x, 32) == vendor::kOk);
    if (missing != 1) CHECK(a.set_input(execution, 1, nullptr, example.cache.data(), 96) == vendor::kOk);
    if (missing != 2) CHECK(a.set_output(execution, 0, nullptr, example.new_cache.data(), 96) == vendor::kOk);
    if (missing != 3) CHECK(a.set_output(execution, 1, nullptr, example.y.data(), 24) == vendor::kOk);
    CHECK(a.compute(execution) == vendor::kBadData);
    a.execution_free(execution);
  }
}

TEST_CASE("freeing in the wrong order leaves what is still there usable") {
  Restored network(file_bytes("network_2.bin"));
  Example example(2);
  REQUIRE(network.restore() == vendor::kOk);
  network.a.model_free(network.model);
  network.a.compilation_free(network.compilation);
  CHECK(network.a.model_finish(network.model) == vendor::kBadData);
  network.model = network.compilation = nullptr;
  REQUIRE(example.bind(network) == vendor::kOk);
  CHECK(network.a.compute(network.execution) == vendor::kOk);
  CHECK(Example::close(example.y, example.expected_y));
}

TEST_CASE("the compiled network's memory is read when the compilation is finished, not later") {
  Restored network(file_bytes("network_2.bin"));
  Example example(2);
  REQUIRE(network.restore() == vendor::kOk);
  std::fill(network.blob.memory.begin(), network.blob.memory.end(), '\0');
  REQUIRE(example.bind(network) == vendor::kOk);
  CHECK(network.a.compute(network.execution) == vendor::kOk);
  CHECK(Example::close(example.y, example.expected_y));
}
