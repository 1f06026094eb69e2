#include "json.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace etcli;

TEST_CASE("strings are escaped and always UTF-8") {
  CHECK(json_string("plain") == "\"plain\"");
  CHECK(json_string("a\"b\\c/") == "\"a\\\"b\\\\c/\"");
  CHECK(json_string("line\nnext\tx\r") == "\"line\\nnext\\tx\\u000d\"");
  CHECK(json_string(std::string_view("\0\x1f\x7f", 3)) == "\"\\u0000\\u001f\\u007f\"");
  CHECK(json_string("d\xC3\xA9j\xC3\xA0 \xE2\x82\xAC \xF0\x9F\x98\x80") == "\"d\xC3\xA9j\xC3\xA0 \xE2\x82\xAC \xF0\x9F\x98\x80\"");
  const std::string bad = "\xEF\xBF\xBD";
  CHECK(json_string("\xFF") == "\"" + bad + "\"");
  CHECK(json_string("\xC3") == "\"" + bad + "\"");                              // cut off
  CHECK(json_string("\xC3(") == "\"" + bad + "(\"");                            // no continuation
  CHECK(json_string("\xC0\xAF") == "\"" + bad + bad + "\"");                    // overlong
  CHECK(json_string("\xE0\x80\xAF") == "\"" + bad + bad + bad + "\"");          // overlong
  CHECK(json_string("\xED\xA0\x80") == "\"" + bad + bad + bad + "\"");          // surrogate
  CHECK(json_string("\xF4\x90\x80\x80") == "\"" + bad + bad + bad + bad + "\"");  // beyond U+10FFFF
}

TEST_CASE("numbers are finite or null") {
  CHECK(json_number(0) == "0");
  CHECK(json_number(12.5) == "12.5");
  CHECK(json_number(1e-7) == "1e-07");
  CHECK(json_number(std::numeric_limits<double>::infinity()) == "null");
  CHECK(json_number(std::nan("")) == "null");
}

TEST_CASE("objects keep the order of their members") {
  CHECK(JsonObject{}.str() == "{}");
  JsonObject object = event("token");
  object.put("index", int64_t{1}).put("x", 0.5).put("ok", true).put("name", std::string("q\"")).put_null("none");
  object.put_raw("list", json_array(std::vector<int64_t>{1, 2})).put_raw("empty", json_array(std::vector<std::string>{}));
  CHECK(object.str() == R"({"event": "token", "index": 1, "x": 0.5, "ok": true, "name": "q\"", "none": null, "list": [1, 2], "empty": []})");
}
