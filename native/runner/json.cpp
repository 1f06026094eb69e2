#include "json.h"

#include <cmath>
#include <cstdio>

namespace etcli {

// Length of the valid UTF-8 sequence at the start of `s`, 0 if there is none (RFC 3629: no overlong forms, no surrogates).
static size_t utf8_length(std::string_view s) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  auto follows = [&](size_t i) { return i < s.size() && (byte(i) & 0xC0) == 0x80; };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if (!follows(1) || !follows(2)) return 0;
    if (first == 0xE0 && byte(1) < 0xA0) return 0;
    if (first == 0xED && byte(1) > 0x9F) return 0;
    return 3;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (!follows(1) || !follows(2) || !follows(3)) return 0;
    if (first == 0xF0 && byte(1) < 0x90) return 0;
    if (first == 0xF4 && byte(1) > 0x8F) return 0;
    return 4;
  }
  return 0;
}

std::string valid_utf8(std::string_view value) {
  std::string out;
  while (!value.empty()) {
    const size_t length = utf8_length(value);
    out += length == 0 ? "\xEF\xBF\xBD" : value.substr(0, length);
    value.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

std::string json_string(std::string_view value) {
  std::string out = "\"";
  for (char c : valid_utf8(value)) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      char escape[7];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      out += escape;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.9g", value);
  return digits;
}

JsonObject& JsonObject::put_raw(std::string_view key, std::string_view json) {
  if (!members.empty()) members += ", ";
  members += json_string(key);
  members += ": ";
  members += json;
  return *this;
}

std::string json_array(const std::vector<std::string>& items) {
  std::string out = "[";
  for (size_t i = 0; i < items.size(); ++i) out += (i ? ", " : "") + items[i];
  return out + "]";
}

std::string json_array(const std::vector<int64_t>& items) {
  std::vector<std::string> texts;
  for (int64_t item : items) texts.push_back(std::to_string(item));
  return json_array(texts);
}

JsonObject event(std::string_view name) {
  JsonObject object;
  object.put("event", name);
  return object;
}

}  // namespace etcli
