// The header of 13 bytes.
#include "payload.h"

#include <doctest/doctest.h>

#include "fixture.h"

using namespace etcli::neuron;
using executorch::runtime::Error;
using fixture::header;

static Error error_of(const std::string& bytes) { return read_payload("here", bytes.data(), bytes.size()).error(); }

TEST_CASE("a header is read little-endian, and the network is what follows it") {
  const std::string bytes = header(0x0201, 0x0302, 5) + "12345";
  const auto payload = read_payload("here", bytes.data(), bytes.size());
  REQUIRE(payload.ok());
  CHECK(payload->inputs == 0x0201);
  CHECK(payload->outputs == 0x0302);
  CHECK(payload->network == reinterpret_cast<const unsigned char*>(bytes.data()) + 13);
  CHECK(payload->network_bytes == 5);
}

TEST_CASE("every cut of a blob is refused, and what is read ends where it ends") {
  const std::string whole = header(1, 1, 5) + "12345";
  for (size_t size = 0; size < whole.size(); ++size) {
    // A block of its own, so that a sanitizer sees reads behind it.
    const std::vector<char> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    CHECK(read_payload("here", cut.data(), cut.size()).error() == Error::InvalidProgram);
  }
  CHECK(read_payload("here", nullptr, 100).error() == Error::InvalidProgram);
}

TEST_CASE("what does not fit together is refused") {
  fixture::log().clear();
  CHECK(error_of(header(1, 1, 5) + "123456") == Error::InvalidProgram);
  CHECK(fixture::is_logged("tells of a compiled network of 5 bytes, the program holds 6"));
  CHECK(error_of(header(1, 1, 0)) == Error::InvalidProgram);
  CHECK(error_of(header(1, 1, UINT32_MAX) + "12345") == Error::InvalidProgram);
  CHECK(error_of(header(1, 0, 5) + "12345") == Error::InvalidProgram);
  CHECK(error_of(header(UINT32_MAX, 1, 5) + "12345") == Error::InvalidProgram);
  CHECK(error_of(header(1, kMaxTensors + 1, 5) + "12345") == Error::InvalidProgram);
  CHECK(error_of(header(0, 1, 5) + "12345") == Error::Ok);
}

TEST_CASE("another version is told from damage") {
  fixture::log().clear();
  CHECK(error_of(header(1, 1, 5, 2) + "12345") == Error::DelegateInvalidCompatibility);
  CHECK(fixture::is_logged("here: the header of the compiled network is of version 2, this delegate reads version 1"));
  CHECK(error_of(header(1, 1, 5, 0) + "12345") == Error::DelegateInvalidCompatibility);
}
