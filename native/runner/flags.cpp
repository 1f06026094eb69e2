#include "flags.h"

#include <cstdint>
#include <cstdlib>

#include "failure.h"
#include "numbers.h"

namespace etcli {

std::vector<std::string> Flags::all(const std::string& name) const {
  const auto found = given.find(name);
  return found == given.end() ? std::vector<std::string>{} : found->second;
}

int64_t Flags::number(const std::string& name, int64_t otherwise, int64_t least, int64_t most) const {
  if (!has(name)) return otherwise;
  const auto value = parse_int(get(name), most);
  if (!value || *value < least) {
    throw usage_failure(text(name, " takes a whole number from ", least, " to ", most, ", not '", get(name), "'"));
  }
  return *value;
}

double Flags::decimal(const std::string& name, double otherwise, double least, double most) const {
  if (!has(name)) return otherwise;
  const std::string& word = get(name);
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);  // of the locale "C", which no program here leaves
  const bool is_number = !word.empty() && word.find_first_not_of("0123456789.eE+-") == std::string::npos && *end == '\0';
  if (!is_number || !(least <= value && value <= most)) {
    throw usage_failure(text(name, " takes a number from ", least, " to ", most, ", not '", word, "'"));
  }
  return value;
}

Flags parse_flags(const std::vector<std::string>& words, const std::vector<Flag>& known) {
  Flags flags;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const Flag* flag = nullptr;
    for (const Flag& candidate : known) {
      if (name == candidate.name) flag = &candidate;
    }
    if (flag == nullptr) throw usage_failure(text("unknown argument '", word, "'; --help lists the flags"));
    if (flags.has(name) && !flag->repeatable) throw usage_failure(text(name, " is given twice"));
    std::string value;
    if (flag->value == nullptr) {
      if (equals != std::string::npos) throw usage_failure(text(name, " takes no value"));
    } else if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else {
      if (i + 1 == words.size()) throw usage_failure(text(name, " needs a value: ", flag->value));
      value = words[++i];
    }
    flags.given[name].push_back(value);
  }
  return flags;
}

std::string help_text(const std::string& usage, const std::vector<Flag>& known) {
  std::string out = "usage: " + usage + "\n\n";
  for (const Flag& flag : known) {
    std::string left = text("  ", flag.name, flag.value ? text(" ", flag.value) : "");
    if (left.size() < 28) left.resize(28, ' ');
    out += left + "  " + flag.help + "\n";
  }
  return out;
}

}  // namespace etcli
