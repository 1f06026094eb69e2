// The options of a compilation.
#pragma once

#include <string>

namespace etcli::neuron_sim {

struct Options {
  bool high_addr = false;
  bool import_forever = false;
};

// From a command line of options: words, which may be in double quotes with backslashes before quotes and backslashes. Known is
// --apusys-config with a JSON object of these members. Throws Refusal NEURON_BAD_DATA.
Options read_options(const std::string& line);

}  // namespace etcli::neuron_sim
