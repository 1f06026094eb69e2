// JSON lines: one flat object a line, written as it happens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace etcli {

// The same text with U+FFFD in place of bytes that are not UTF-8: names of files and messages of the runtime can hold anything.
std::string valid_utf8(std::string_view value);

// A JSON string literal, always valid UTF-8.
std::string json_string(std::string_view value);

// A JSON number with nine significant digits; null for infinities and NaN, which JSON does not have.
std::string json_number(double value);

// An object under construction, members in the order of the calls.
struct JsonObject {
  JsonObject& put(std::string_view key, std::string_view value) { return put_raw(key, json_string(value)); }
  JsonObject& put(std::string_view key, const char* value) { return put_raw(key, json_string(value)); }
  JsonObject& put(std::string_view key, double value) { return put_raw(key, json_number(value)); }
  JsonObject& put(std::string_view key, int64_t value) { return put_raw(key, std::to_string(value)); }
  JsonObject& put(std::string_view key, int value) { return put_raw(key, std::to_string(value)); }
  JsonObject& put(std::string_view key, bool value) { return put_raw(key, value ? "true" : "false"); }
  JsonObject& put_null(std::string_view key) { return put_raw(key, "null"); }
  JsonObject& put_raw(std::string_view key, std::string_view json);

  std::string str() const { return "{" + members + "}"; }

  std::string members;
};

// "[a, b]" of members that are JSON already.
std::string json_array(const std::vector<std::string>& items);
std::string json_array(const std::vector<int64_t>& items);

// {"event": NAME, ...} to start from.
JsonObject event(std::string_view name);

}  // namespace etcli
