#include "library.h"

#include <dlfcn.h>

#include "log.h"

namespace etcli::neuron {

Library open_library(const std::vector<const char*>& names, std::string* why) {
  for (const char* name : names) {
    if (void* handle = ::dlopen(name, RTLD_LAZY | RTLD_LOCAL)) return {handle, name};
    const char* reason = ::dlerror();
    if (why != nullptr) *why += text(why->empty() ? "" : "; ", reason != nullptr ? reason : name);
  }
  return {};
}

void* find_function(const Library& library, const char* name, std::vector<std::string>& missing) {
  void* function = ::dlsym(library.handle, name);
  if (function == nullptr) missing.emplace_back(name);
  return function;
}

std::string joined(const std::vector<std::string>& words) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : ", ") + word;
  return all;
}

}  // namespace etcli::neuron
