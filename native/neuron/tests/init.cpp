// Loading a network: the order of calls, and every way in which it can fail.
#include <doctest/doctest.h>

#include <set>

#include "fixture.h"

using executorch::runtime::Error;
using fixture::Loaded;

TEST_CASE("the calls of a load and of its end, in the order of ExecuTorch's own MediaTek backend") {
  Fake& fake = fixture::adapter();
  fake.reset();
  fixture::NamedData data;
  data.entries["model_0"] = std::string(64, 'w');
  const fixture::Specs specs = {{"platform-config", "mt6991"}, {"ImportForever", fixture::kOn}, {"ExtractSharedBlobKey", "model_0"}};
  const std::string blob = fixture::blob({16, 8}, {16, 4}, true);
  {
    const Loaded loaded(blob, specs, &data);
    REQUIRE(loaded.error == Error::Ok);
    CHECK(fake.network == loaded.blob.data() + 13);
  }
  const std::vector<std::string> expected = {
      "NeuronModel_create()",
      "NeuronModel_addOperand(3, 0)",
      "NeuronModel_addOperand(3, 0)",
      "NeuronModel_addOperand(3, 0)",
      "NeuronModel_getExtensionOperandType(com.mediatek.compiled_network, 256)",
      "NeuronModel_addOperand(1879048448, 0)",
      "NeuronModel_addOperand(3, 0)",
      "NeuronModel_addOperand(3, 0)",
      "NeuronModel_setOperandValue(3, " + std::to_string(blob.size() - 13) + ")",
      "NeuronModel_getExtensionOperationType(com.mediatek.compiled_network, 0)",
      "NeuronModel_addOperation(1879048192, 4, 2)",
      "NeuronModel_identifyInputsAndOutputs(3, 2)",
      "NeuronModel_finish()",
      R"(NeuronCompilation_createWithOptions(--apusys-config "{ \"import_forever\": true }"))",
      "NeuronCompilation_setPreference(3)",
      "NeuronCompilation_setPriority(110)",
      "NeuronCompilation_finish()",
      "NeuronExecution_create()",
      "NeuronCompilation_getInputPaddedSize(0)",
      "NeuronCompilation_getInputPaddedSize(1)",
      "NeuronCompilation_getOutputPaddedSize(0)",
      "NeuronCompilation_getOutputPaddedSize(1)",
      "NeuronExecution_free()",
      "NeuronCompilation_free()",
      "NeuronModel_free()",
  };
  CHECK(fake.calls == expected);
  CHECK(fake.taken == std::vector<uint32_t>{0, 1, 2, 3});
  CHECK(fake.given == std::vector<uint32_t>{4, 5});
  CHECK(fake.inputs == std::vector<uint32_t>{0, 1, 2});
  CHECK(fake.outputs == std::vector<uint32_t>{4, 5});
}

TEST_CASE("faults 21 and 28: a load that fails at any call is an error, never a null handle, and leaves nothing behind") {
  Fake& fake = fixture::adapter();
  fake.reset();
  fixture::NamedData data;
  data.entries["model_0"] = std::string(64, 'w');
  const fixture::Specs specs = {{"ExtractSharedBlobKey", "model_0"}};
  const std::string blob = fixture::blob({16, 8}, {16, 4}, true);
  { const Loaded loaded(blob, specs, &data); }
  std::map<std::string, int> counts;  // of the calls that can fail
  for (const std::string& call : fake.calls) {
    const std::string function = call.substr(0, call.find('('));
    if (function.find("_free") == std::string::npos) ++counts[function];
  }
  CHECK(counts.size() == 15);
  for (const auto& [function, count] : counts) {
    for (int n = 1; n <= count; ++n) {
      for (int code : {1, 2, 3, 4, 5, 6, 7, 8, 99, -1}) {
        CAPTURE(function);
        CAPTURE(n);
        CAPTURE(code);
        fake.reset();
        fixture::log().clear();
        fake.fails(function, n, code);
        {
          const Loaded loaded(blob, specs, &data);
          CHECK(!loaded.has_value);
          CHECK(loaded.error != Error::Ok);
        }
        CHECK(fake.models == 0);
        CHECK(fake.compilations == 0);
        CHECK(fake.executions == 0);
        CHECK(data.held == 0);
        REQUIRE(fixture::errors().size() == 1);
        CHECK(fixture::errors()[0].find("method 'forward' on the NPU: " + function) == 0);
        CHECK(fixture::errors()[0].find(std::to_string(code)) != std::string::npos);
      }
    }
  }
}

TEST_CASE("a failure is told with its function, what it was for, and the code's name") {
  Fake& fake = fixture::adapter();
  const auto message_of = [&](const char* function, int call, int code, Error error) {
    fake.reset();
    fixture::log().clear();
    fake.fails(function, call, code);
    const Loaded loaded(fixture::blob({16, 8}, {16, 4}));
    CHECK(loaded.error == error);
    return fixture::errors().at(0);
  };
  CHECK(message_of("NeuronModel_addOperand", 2, NEURON_OUT_OF_MEMORY, Error::MemoryAllocationFailed) ==
        "method 'forward' on the NPU: NeuronModel_addOperand for input 1 failed with NEURON_OUT_OF_MEMORY (1)");
  CHECK(message_of("NeuronCompilation_getOutputPaddedSize", 1, NEURON_BAD_STATE, Error::InvalidState) ==
        "method 'forward' on the NPU: NeuronCompilation_getOutputPaddedSize for output 0 failed with NEURON_BAD_STATE (7)");
  CHECK(message_of("NeuronCompilation_finish", 1, NEURON_BAD_VERSION, Error::DelegateInvalidCompatibility) ==
        "method 'forward' on the NPU: NeuronCompilation_finish failed with NEURON_BAD_VERSION (8)");
  CHECK(message_of("NeuronModel_finish", 1, 1234, Error::Internal) ==
        "method 'forward' on the NPU: NeuronModel_finish failed with the NEURON code 1234");
}

TEST_CASE("fault 21: a function that succeeds without a handle is a failure") {
  Fake& fake = fixture::adapter();
  for (const char* function : {"NeuronModel_create", "NeuronCompilation_createWithOptions", "NeuronExecution_create"}) {
    fake.reset();
    fixture::log().clear();
    fake.no_handle = function;
    const Loaded loaded(fixture::blob({16}, {16}));
    CHECK(loaded.error == Error::Internal);
    CHECK(!loaded.has_value);
    CHECK(fixture::is_logged(function));
    CHECK(fake.models + fake.compilations + fake.executions == 0);
  }
}

TEST_CASE("fault 21: a method without a network is refused when it is executed, and destroyed without harm") {
  Loaded loaded("nothing");
  CHECK(loaded.handle == nullptr);
  std::vector<float> data(4);
  CHECK(loaded.run({fixture::floats(data.data(), 4), fixture::floats(data.data(), 4)}) == Error::DelegateInvalidHandle);
}

TEST_CASE("fault 25: a damaged header is refused before the device is asked for anything") {
  Fake& fake = fixture::adapter();
  fake.reset();
  std::string blob = fixture::blob({16}, {16});
  for (const std::string& damaged : {blob.substr(0, 5), blob.substr(0, blob.size() - 1), blob + "x", std::string("\x02") + blob.substr(1), std::string()}) {
    const Loaded loaded(damaged);
    CHECK(loaded.error != Error::Ok);
    CHECK(!loaded.has_value);
  }
  const Loaded loaded(blob, {{"ImportForever", ""}});
  CHECK(loaded.error == Error::InvalidProgram);
  CHECK(fake.calls.empty());
}
