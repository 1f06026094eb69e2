// Damaged files: refused with a code, or, where the damage touches nothing that counts, computed as if there were none.
#include <doctest/doctest.h>

#include <random>

#include "network.h"

namespace {

// NEURON_NO_ERROR where the results are right; -1 where they are wrong.
int life(const std::vector<char>& bytes) {
  Restored network(bytes);
  Example example(1);
  if (const int code = network.restore()) return code;
  if (const int code = example.bind(network)) return code;
  if (const int code = network.a.compute(network.execution)) return code;
  return example.new_cache == example.expected_cache && Example::close(example.y, example.expected_y) ? 0 : -1;
}

// The same with shared weights.
int shared_life(const std::vector<char>& bytes, const std::vector<char>& shared) {
  Restored network(bytes);
  Example example(1);
  if (const int code = network.restore(3)) return code;
  if (const int code = example.bind(network)) return code;
  // Exactly as long, so that a byte too far is seen.
  const std::vector<char> weights(shared);
  if (const int code = network.a.set_input(network.execution, 2, nullptr, weights.data(), weights.size())) return code;
  if (const int code = network.a.compute(network.execution)) return code;
  return example.new_cache == example.expected_cache && Example::close(example.y, example.expected_y) ? 0 : -1;
}

bool is_refusal(int code) { return code == vendor::kBadData || code == vendor::kBadVersion; }

uint32_t header_size(const std::vector<char>& file) {
  uint32_t size = 0;
  std::memcpy(&size, file.data() + 12, sizeof size);
  return size;
}

// The file with another text in its header, which is as long as the room before its first part lets it be.
std::vector<char> edited(std::vector<char> file, const std::string& from, const std::string& to) {
  const uint32_t size = header_size(file);
  std::string header(file.data() + 16, size);
  const size_t at = header.find(from);
  REQUIRE(at != std::string::npos);
  header.replace(at, from.size(), to);
  const size_t room = 20;  // at least: the writer leaves some for each part
  REQUIRE(header.size() <= size + room);
  const uint32_t new_size = static_cast<uint32_t>(header.size());
  std::memcpy(file.data() + 12, &new_size, sizeof new_size);
  std::copy(header.begin(), header.end(), file.begin() + 16);
  return file;
}

}  // namespace

TEST_CASE("a file that ends too early, at any byte") {
  const std::vector<char> whole = file_bytes("network_1.bin"), shared = file_bytes("shared.bin"), slim = file_bytes("slim_1.bin");
  REQUIRE(life(whole) == vendor::kOk);
  REQUIRE(shared_life(slim, shared) == vendor::kOk);
  // Behind the last part there are zeros that nobody reads.
  const size_t end = whole.size() - 16, shared_end = shared.size() - 16;
  for (size_t length = 1; length < end; length += length < 64 ? 1 : 37) {
    CAPTURE(length);
    CHECK(is_refusal(life({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)})));
  }
  for (size_t length = 1; length < shared_end; ++length) {
    CAPTURE(length);
    CHECK(is_refusal(shared_life(slim, {shared.begin(), shared.begin() + static_cast<std::ptrdiff_t>(length)})));
  }
}

TEST_CASE("one changed byte, anywhere in the headers and in many places of the rest") {
  std::mt19937 random(1);
  for (const char* name : {"network_1.bin", "slim_1.bin", "shared.bin"}) {
    CAPTURE(name);
    const std::vector<char> whole = file_bytes(name), slim = file_bytes("slim_1.bin"), shared = file_bytes("shared.bin");
    int refused = 0, tried = 0;
    for (size_t at = 0; at < whole.size(); at += at < 16 + header_size(whole) ? 1 : 61) {
      std::vector<char> damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ static_cast<char>(1u << random() % 7));
      CAPTURE(at);
      const int code = whole == shared ? shared_life(slim, damaged) : whole == slim ? shared_life(damaged, shared) : life(damaged);
      CHECK((code == 0 || is_refusal(code)));
      ++tried;
      refused += code != 0;
    }
    // What may change without a consequence is little: options, the platform, bytes between parts.
    CHECK(refused > tried * 9 / 10);
  }
}

TEST_CASE("headers that are whole JSON and wrong") {
  const std::vector<char> whole = file_bytes("network_1.bin");
  REQUIRE(life(edited(whole, "\"mt6991\"", "\"mt6989\"")) == vendor::kOk);
  const std::pair<const char*, const char*> edits[] = {
      {"\"simulated\":true", "\"simulated\":false"},
      {"\"simulated\":true", "\"simulated\":null"},
      {"\"platform\":", "\"platforms\":"},
      {"\"inputs\":[", "\"inputs\":[7,"},
      {"\"shape\":[1,4]", "\"shape\":[4,1]"},
      {"\"shape\":[1,4]", "\"shape\":[1,4,1]"},
      {"\"shape\":[1,4]", "\"shape\":[-1,-4]"},
      {"\"shape\":[1,4]", "\"shape\":[1,4.0]"},
      {"\"shape\":[1,4]", "\"shape\":[1,4e0]"},
      {"\"shape\":[1,4]", "\"shape\":[1,99999999999]"},
      {"\"shape\":[1,4]", "\"shape\":[2147483647,9]"},
      {"\"shape\":[1,4]", "\"shape\":4"},
      {"\"shape\":[1,4]", "\"shape\":null"},
      {"\"dtype\":\"float32\"", "\"dtype\":\"float16\""},
      {"\"dtype\":\"float32\"", "\"dtype\":\"int32\""},
      {"\"dtype\":\"float32\"", "\"dtype\":\"double\""},
      {"\"dtype\":\"float32\"", "\"dtype\":32"},
      {"\"offset\":", "\"offset\":-"},
      {"\"offset\":", "\"offset\":99999999"},
      {"\"offset\":", "\"offset\":9223372036854775"},
      {"\"size\":", "\"size\":-"},
      {"\"size\":", "\"size\":9999999999999"},
      {"\"program\":{", "\"program\":[{"},
      {"\"name\":\"linear.weight\"", "\"name\":\"linear.weights\""},
      {"\"name\":\"linear.weight\"", "\"name\":\"linear.bias\""},
      {"\"name\":\"linear.weight\"", "\"name\":\"linear\\u0000weight\""},
      {"\"dtype\":\"int8\"", "\"dtype\":\"uint16\""},
      {"\"dtype\":\"int8\"", "\"dtype\":\"int16\""},
      {"\"dtype\":\"int8\"", "\"dtype\":\"bool\""},
      {"\"axis\":0", "\"axis\":1"},
      {"\"axis\":0", "\"axis\":2"},
      {"\"axis\":0", "\"axis\":-1"},
      {"\"axis\":0", "\"axis\":null"},
      {"\"axis\":0", "\"axis\":\"0\""},
      {"\"scales\":{", "\"scale\":{"},
      {"\"zero_points\":{", "\"zero_point\":{"},
      {"\"zero_points\":null", "\"zero_points\":7"},
      {"\"shared\":false", "\"shared\":true"},
      {"\"shared\":false", "\"shared\":0"},
      {"\"shared\":false", "\"shared\":false,\"shared\":false"},
      {"{\"simulated\"", "[\"simulated\""},
      {"{\"simulated\"", "{{\"simulated\""},
  };
  for (const auto& [from, to] : edits) {
    CAPTURE(from);
    CAPTURE(to);
    CHECK(is_refusal(life(edited(whole, from, to))));
  }
}

TEST_CASE("a network and its shared weights that are not of one piece") {
  const std::vector<char> slim = file_bytes("slim_1.bin"), shared = file_bytes("shared.bin"), whole = file_bytes("network_1.bin");
  CHECK(is_refusal(shared_life(slim, whole)));
  CHECK(is_refusal(life(shared)));
  CHECK(is_refusal(shared_life(edited(slim, "\"shared\":true", "\"shared\":false"), shared)));
  CHECK(is_refusal(shared_life(edited(slim, "\"key\":\"", "\"key\":\"0"), shared)));
  CHECK(is_refusal(shared_life(edited(slim, "\"size\":12", "\"size\":13"), shared)));
  CHECK(is_refusal(shared_life(slim, edited(shared, "\"size\":12", "\"size\":11"))));
  CHECK(is_refusal(shared_life(slim, edited(shared, "\"weights\":{", "\"weights\":[{"))));
}
