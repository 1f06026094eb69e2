// Command lines of the form `--name value` or `--name=value`.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace etcli {

struct Flag {
  const char* name;   // with its dashes
  const char* value;  // what stands after it in the help text; null for a switch
  const char* help;
  bool repeatable = false;
};

struct Flags {
  bool has(const std::string& name) const { return given.count(name) != 0; }
  // The value of a flag that has() it.
  const std::string& get(const std::string& name) const { return given.at(name).front(); }
  std::vector<std::string> all(const std::string& name) const;
  // The flag as a number from `least` to `most`, or `otherwise` when it was not given. Throws Failure "runner.usage".
  int64_t number(const std::string& name, int64_t otherwise, int64_t least, int64_t most) const;
  // The same for a decimal number such as 0.7 or 1e-3.
  double decimal(const std::string& name, double otherwise, double least, double most) const;

  std::map<std::string, std::vector<std::string>> given;
};

// Throws Failure "runner.usage" for an unknown or repeated flag, a missing or superfluous value, a stray word.
Flags parse_flags(const std::vector<std::string>& words, const std::vector<Flag>& known);

std::string help_text(const std::string& usage, const std::vector<Flag>& known);

}  // namespace etcli
