// Libraries of the device, opened while the program runs.
#pragma once

#include <string>
#include <vector>

namespace etcli::neuron {

// The first of several libraries that can be opened. It stays open as long as the process, because threads and callbacks of such libraries
// may outlive whatever asked for them.
struct Library {
  void* handle = nullptr;
  std::string name;

  explicit operator bool() const { return handle != nullptr; }
};

// Tries the names in order. `why` gets the system's reason for each that cannot be opened.
Library open_library(const std::vector<const char*>& names, std::string* why = nullptr);

// The function called `name`, null where the library has none; its name is then added to `missing`.
void* find_function(const Library& library, const char* name, std::vector<std::string>& missing);

std::string joined(const std::vector<std::string>& words);  // "a, b, c"

}  // namespace etcli::neuron
