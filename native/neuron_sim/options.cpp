#include "options.h"

#include <vector>

#include "json_reader.h"
#include "refusal.h"

namespace etcli::neuron_sim {

namespace {

std::vector<std::string> words(const std::string& line) {
  std::vector<std::string> all;
  bool in_word = false, in_quotes = false;
  for (size_t i = 0; i < line.size(); ++i) {
    char c = line[i];
    if (!in_quotes && (c == ' ' || c == '\t')) {
      in_word = false;
      continue;
    }
    if (!in_word) all.emplace_back();
    in_word = true;
    if (c == '"') {
      in_quotes = !in_quotes;
      continue;
    }
    if (c == '\\') {
      if (++i == line.size() || (line[i] != '"' && line[i] != '\\')) bad_data("the options have a backslash before nothing that needs one: ", line);
      c = line[i];
    }
    all.back() += c;
  }
  if (in_quotes) bad_data("the options have a quote that does not end: ", line);
  return all;
}

}  // namespace

Options read_options(const std::string& line) {
  Options options;
  const std::vector<std::string> all = words(line);
  bool has_config = false;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] != "--apusys-config") bad_data("unknown option '", all[i], "'");
    if (has_config) bad_data("--apusys-config is given twice");
    if (++i == all.size()) bad_data("--apusys-config has no value");
    has_config = true;
    const Json config = read_json(all[i]);
    if (config.kind != Json::Kind::kObject || config.members.empty()) bad_data("--apusys-config wants an object with members: ", all[i]);
    for (const auto& [name, value] : config.members) {
      bool* const known = name == "high_addr" ? &options.high_addr : name == "import_forever" ? &options.import_forever : nullptr;
      if (known == nullptr) bad_data("--apusys-config has no '", name, "'");
      if (value.kind != Json::Kind::kBoolean) bad_data("--apusys-config: '", name, "' is true or false");
      *known = value.boolean;
    }
  }
  return options;
}

}  // namespace etcli::neuron_sim
