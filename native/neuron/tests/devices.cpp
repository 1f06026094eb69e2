// Devices with and without the vendor's libraries. Each test is run on a device of its own (CMakeLists.txt).
#include <doctest/doctest.h>

#include "allocator.h"
#include "fixture.h"

using executorch::runtime::Error;
using fixture::Loaded;

static std::string only_error() {
  const auto errors = fixture::errors();
  REQUIRE(errors.size() == 1);
  return errors[0];
}

TEST_CASE("a device with no adapter: the error has all names and the system's reasons") {
  for (int attempt = 0; attempt < 2; ++attempt) {
    fixture::log().clear();
    const Loaded loaded(fixture::blob({4}, {4}));
    CHECK(loaded.error == Error::NotFound);
    CHECK(loaded.handle == nullptr);
    const std::string message = only_error();
    for (const char* name : {"libneuronusdk_adapter.mtk.so", "libneuron_adapter_mgvi.so", "libneuron_adapter.so", "cannot open shared object"}) {
      CHECK(message.find(name) != std::string::npos);
    }
  }
  CHECK(etcli::neuron::allocate(100) == nullptr);
  CHECK(!etcli::neuron::find_buffer(&fixture::log()));
}

TEST_CASE("an adapter that lacks functions: one error names all of them, and none is called") {
  const Loaded loaded(fixture::blob({4}, {4}));
  CHECK(loaded.error == Error::NotSupported);
  CHECK(loaded.handle == nullptr);
  const std::string message = only_error();
  CHECK(message.find("libneuronusdk_adapter.mtk.so lacks 3 functions: NeuronCompilation_setPriority, NeuronExecution_setOutput, "
                     "NeuronMemory_createFromAHardwareBuffer") != std::string::npos);
  CHECK(fixture::adapter().calls.empty());
}

TEST_CASE("the first name goes before the others") {
  const Loaded loaded(fixture::blob({4}, {4}));
  CHECK(loaded.error == Error::Ok);
  CHECK(etcli::neuron::adapter().get()->library == "libneuronusdk_adapter.mtk.so");
  CHECK(fixture::adapter().library == "libneuronusdk_adapter.mtk.so");
}

TEST_CASE("the second name goes before the third, and fault 26: an allocator that makes none is done without") {
  const Loaded loaded(fixture::blob({4}, {4}));
  CHECK(loaded.error == Error::Ok);
  CHECK(etcli::neuron::adapter().get()->library == "libneuron_adapter_mgvi.so");
  CHECK(etcli::neuron::allocate(100) == nullptr);
  CHECK(fixture::allocator()->creations == 1);
  CHECK(fixture::errors().empty());
}

TEST_CASE("the third name is enough") {
  const Loaded loaded(fixture::blob({4}, {4}));
  CHECK(loaded.error == Error::Ok);
  CHECK(etcli::neuron::adapter().get()->library == "libneuron_adapter.so");
}
