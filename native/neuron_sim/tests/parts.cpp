// The parts that read text and bytes.
#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "json_reader.h"
#include "refusal.h"
#include "sha256.h"

using etcli::neuron_sim::Json;
using etcli::neuron_sim::read_json;
using etcli::neuron_sim::Refusal;
using etcli::neuron_sim::sha256;

TEST_CASE("SHA-256 of FIPS 180-4's examples and of every length around a block") {
  CHECK(sha256("", 0) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc", 3) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56) == "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  const std::string million(1000000, 'a');
  CHECK(sha256(million.data(), million.size()) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  // Python's hashlib over the digests of 0 to 129 times 'a', one after the other.
  std::string all;
  for (size_t length = 0; length < 130; ++length) all += sha256(million.data(), length);
  CHECK(sha256(all.data(), all.size()) == "c665ed20ef30f158e90c7e921d8182bc0943c4b087a82f64a18d417bcdfadce7");
}

TEST_CASE("JSON values") {
  const Json json = read_json(" {\"a\": [1, -2, 0, 3.5e1, true, false, null], \"b\": {\"\": \"\"}, \"c\": \"x\\n\\\"\\\\\\/\\u00e9\\u20ac\\ud83d\\ude00\"} ");
  REQUIRE(json.kind == Json::Kind::kObject);
  const Json* const a = json.find("a");
  REQUIRE(a != nullptr);
  REQUIRE(a->items.size() == 7);
  CHECK(a->items[1].integer == -2);
  CHECK(a->items[1].kind == Json::Kind::kInteger);
  CHECK(a->items[3].kind == Json::Kind::kNumber);
  CHECK(a->items[3].number == 35.0);
  CHECK(a->items[4].boolean);
  CHECK(a->items[6].kind == Json::Kind::kNull);
  CHECK(json.find("c")->string == "x\n\"\\/\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
  CHECK(json.find("d") == nullptr);
  CHECK(json.find("b")->find("")->string.empty());
  CHECK(read_json("9223372036854775807").integer == INT64_MAX);
  CHECK(read_json("-9223372036854775808").integer == INT64_MIN);
  CHECK(read_json("9223372036854775808").kind == Json::Kind::kNumber);
}

TEST_CASE("text that is no JSON") {
  const std::string deep(100000, '[');
  for (const std::string_view wrong :
       {std::string_view(""), std::string_view(" "), std::string_view("{"), std::string_view("}"), std::string_view("[1,]"), std::string_view("[1 2]"),
        std::string_view("[,1]"), std::string_view("{\"a\":1,}"), std::string_view("{\"a\" 1}"), std::string_view("{a:1}"), std::string_view("{\"a\":1 \"b\":2}"),
        std::string_view("{\"a\":1,\"a\":1}"), std::string_view("01"), std::string_view("-"), std::string_view("+1"), std::string_view("1."), std::string_view(".5"),
        std::string_view("1e"), std::string_view("nul"), std::string_view("True"), std::string_view("\""), std::string_view("\"\\"), std::string_view("\"\\x\""),
        std::string_view("\"\\u12\""), std::string_view("\"\\u12g4\""), std::string_view("\"\\ud800\""), std::string_view("\"\\ud800\\u0041\""),
        std::string_view("\"\\ude00\""), std::string_view("\"\\u0000\""), std::string_view("\"a\nb\""), std::string_view("'a'"), std::string_view("1 2"),
        std::string_view("1\0", 2), std::string_view("NaN"), std::string_view("\"\\u-123\""), std::string_view(deep)}) {
    CAPTURE(std::string(wrong.substr(0, 40)));
    CHECK_THROWS_AS(read_json(wrong), Refusal);
  }
}
