#include "json_reader.h"

#include <charconv>
#include <cstdlib>

#include "refusal.h"

namespace etcli::neuron_sim {

namespace {

constexpr int kMaxDepth = 16;

struct Reader {
  [[noreturn]] void wrong(const char* why) const { bad_data("no JSON, at byte ", at, ": ", why); }

  bool has(char c) const { return at < source.size() && source[at] == c; }

  void skip_space() {
    while (at < source.size() && (source[at] == ' ' || source[at] == '\t' || source[at] == '\n' || source[at] == '\r')) ++at;
  }

  void expect(char c) {
    if (!has(c)) wrong("something else is expected here");
    ++at;
  }

  Json value(int depth) {
    if (depth > kMaxDepth) wrong("nested too deeply");
    if (at >= source.size()) wrong("it ends too early");
    switch (source[at]) {
      case '{': return object(depth);
      case '[': return array(depth);
      case '"': return string();
      case 't': return word("true", Json::Kind::kBoolean, true);
      case 'f': return word("false", Json::Kind::kBoolean, false);
      case 'n': return word("null", Json::Kind::kNull, false);
      default: return number();
    }
  }

  Json word(std::string_view expected, Json::Kind kind, bool boolean) {
    if (source.substr(at, expected.size()) != expected) wrong("no value");
    at += expected.size();
    Json json;
    json.kind = kind;
    json.boolean = boolean;
    return json;
  }

  size_t skip_digits() {
    const size_t begin = at;
    while (at < source.size() && source[at] >= '0' && source[at] <= '9') ++at;
    if (at == begin) wrong("a digit is expected here");
    return at - begin;
  }

  Json number() {
    const size_t begin = at;
    if (has('-')) ++at;
    const bool leads_with_zero = has('0');
    if (skip_digits() > 1 && leads_with_zero) wrong("a number that begins with 0");
    bool is_integer = true;
    if (has('.')) {
      ++at;
      skip_digits();
      is_integer = false;
    }
    if (has('e') || has('E')) {
      ++at;
      if (has('+') || has('-')) ++at;
      skip_digits();
      is_integer = false;
    }
    const std::string digits(source.substr(begin, at - begin));
    Json json;
    json.kind = Json::Kind::kNumber;
    json.number = std::strtod(digits.c_str(), nullptr);
    const char* const end = digits.data() + digits.size();
    if (is_integer && std::from_chars(digits.data(), end, json.integer).ec == std::errc()) json.kind = Json::Kind::kInteger;
    return json;
  }

  uint32_t hex() {
    uint32_t code = 0;
    const std::string_view digits = source.substr(at, 4);
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() < 4 || read.ec != std::errc() || read.ptr != digits.data() + 4) wrong("four hexadecimal digits are expected here");
    at += 4;
    return code;
  }

  void escape(std::string& out) {
    if (at >= source.size()) wrong("it ends too early");
    const char c = source[at++];
    switch (c) {
      case '"': case '\\': case '/': out += c; return;
      case 'b': out += '\b'; return;
      case 'f': out += '\f'; return;
      case 'n': out += '\n'; return;
      case 'r': out += '\r'; return;
      case 't': out += '\t'; return;
      case 'u': break;
      default: wrong("no escape sequence");
    }
    uint32_t code = hex();
    if (code >= 0xD800 && code < 0xDC00) {
      if (source.substr(at, 2) != "\\u") wrong("half of a surrogate pair");
      at += 2;
      const uint32_t low = hex();
      if (low < 0xDC00 || low > 0xDFFF) wrong("half of a surrogate pair");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code == 0 || (code >= 0xDC00 && code < 0xE000)) {
      wrong("a character that no text has");
    }
    if (code < 0x80) {
      out += static_cast<char>(code);
      return;
    }
    const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    constexpr uint32_t kFirst[] = {0, 0xC0, 0xE0, 0xF0};
    out += static_cast<char>(kFirst[more] | (code >> (6 * more)));
    for (int i = more - 1; i >= 0; --i) out += static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3F));
  }

  Json string() {
    expect('"');
    Json json;
    json.kind = Json::Kind::kString;
    while (!has('"')) {
      if (at >= source.size()) wrong("it ends too early");
      const char c = source[at++];
      if (static_cast<unsigned char>(c) < 0x20) wrong("a control character in a string");
      if (c == '\\') {
        escape(json.string);
      } else {
        json.string += c;
      }
    }
    ++at;
    return json;
  }

  Json array(int depth) {
    Json json;
    json.kind = Json::Kind::kArray;
    expect('[');
    skip_space();
    while (!has(']')) {
      if (!json.items.empty()) {
        expect(',');
        skip_space();
      }
      json.items.push_back(value(depth + 1));
      skip_space();
    }
    ++at;
    return json;
  }

  Json object(int depth) {
    Json json;
    json.kind = Json::Kind::kObject;
    expect('{');
    skip_space();
    while (!has('}')) {
      if (!json.members.empty()) {
        expect(',');
        skip_space();
      }
      std::string name = string().string;
      if (json.find(name) != nullptr) wrong("a second member of the same name");
      skip_space();
      expect(':');
      skip_space();
      json.members.emplace_back(std::move(name), value(depth + 1));
      skip_space();
    }
    ++at;
    return json;
  }

  std::string_view source;
  size_t at = 0;
};

}  // namespace

const Json* Json::find(std::string_view name) const {
  for (const auto& member : members) {
    if (member.first == name) return &member.second;
  }
  return nullptr;
}

Json read_json(std::string_view source) {
  Reader reader{source};
  reader.skip_space();
  Json json = reader.value(0);
  reader.skip_space();
  if (reader.at != source.size()) reader.wrong("something follows it");
  return json;
}

}  // namespace etcli::neuron_sim
