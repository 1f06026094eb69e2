// Compile specs, and what becomes of them in the adapter's options.
#include "compile_specs.h"

#include <doctest/doctest.h>

#include "fixture.h"

using namespace etcli::neuron;
using executorch::runtime::CompileSpec;
using executorch::runtime::Error;

static executorch::runtime::Result<Options> read(const fixture::Specs& specs) {
  static std::vector<std::unique_ptr<std::string>> kept;
  std::vector<CompileSpec> given;
  for (const auto& [key, value] : specs) {
    kept.push_back(std::make_unique<std::string>(value));
    given.push_back({key.c_str(), {value.empty() ? nullptr : kept.back()->data(), value.size()}});
  }
  return read_compile_specs("here", {given.data(), given.size()});
}

TEST_CASE("options are those of the set members, in the adapter's quotes") {
  CHECK(read({})->runtime_text() == "");
  CHECK(read({{"ImportForever", fixture::kOn}})->runtime_text() == R"(--apusys-config "{ \"import_forever\": true }")");
  CHECK(read({{"HighAddr", fixture::kOn}})->runtime_text() == R"(--apusys-config "{ \"high_addr\": true }")");
  const auto both = read({{"ImportForever", fixture::kOn}, {"HighAddr", fixture::kOn}});
  CHECK(both->runtime_text() == R"(--apusys-config "{ \"high_addr\": true, \"import_forever\": true }")");
  CHECK(read({{"ImportForever", std::string(1, '\0')}})->runtime_text() == "");
  CHECK(read({{"ExtractSharedBlobKey", "model_0"}})->shared_weights == "model_0");
}

TEST_CASE("values that mean nothing are refused") {
  for (const char* flag : {"ImportForever", "HighAddr"}) {
    for (const std::string& value : {std::string(), std::string("\x02"), std::string("1"), std::string("\x01\x00", 2), std::string("true")}) {
      fixture::log().clear();
      CHECK(read({{flag, value}}).error() == Error::InvalidProgram);
      CHECK(fixture::is_logged(std::string("compile spec ") + flag));
    }
  }
  CHECK(read({{"ExtractSharedBlobKey", ""}}).error() == Error::InvalidProgram);
  CHECK(read({{"ExtractSharedBlobKey", std::string("a\0b", 3)}}).error() == Error::InvalidProgram);
  CHECK(read({{"ExtractSharedBlobKey", std::string(5000, 'a')}}).error() == Error::InvalidProgram);
  CHECK(read({{"HighAddr", fixture::kOn}, {"HighAddr", fixture::kOn}}).error() == Error::InvalidProgram);
  const CompileSpec nameless{nullptr, {nullptr, 0}};
  CHECK(read_compile_specs("here", {&nameless, 1}).error() == Error::InvalidProgram);
}

TEST_CASE("fault 27: specs of the compiler's are known, and nothing is said of them") {
  fixture::log().clear();
  CHECK(read({{"platform-config", "mt6991"}, {"gno", "LTS"}, {"gno-exp", ""}, {"gno-non-4d-tiling", ""}, {"ImportForever", fixture::kOn}}).ok());
  CHECK(fixture::log().empty());
}

TEST_CASE("fault 27: an unknown spec is remarked upon once, and is no error") {
  fixture::log().clear();
  for (int i = 0; i < 3; ++i) CHECK(read({{"num-of-something", "3"}}).ok());
  REQUIRE(fixture::log().size() == 1);
  CHECK(fixture::log()[0].substr(0, 1) == "I");
  CHECK(fixture::is_logged("num-of-something"));
}
