#include "shared_weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "allocator.h"
#include "log.h"

namespace etcli::neuron {

using executorch::runtime::Error;
using executorch::runtime::FreeableBuffer;
using executorch::runtime::NamedDataMap;
using executorch::runtime::Result;

namespace {

struct Entry {
  std::weak_ptr<const SharedWeights> weights;
  // Where they came from. What the loader owns is valid only as long as this, and so are its users, so nothing else has this address then.
  const NamedDataMap* named_data;
};

struct Registry {
  std::mutex lock;
  std::map<std::string, std::vector<Entry>> by_key;
};

// Never destroyed, as the allocator's pool.
Registry& registry() {
  static Registry& only = *new Registry;
  return only;
}

void forget_dead(Registry& all) {
  for (auto at = all.by_key.begin(); at != all.by_key.end();) {
    auto& entries = at->second;
    entries.erase(std::remove_if(entries.begin(), entries.end(), [](const Entry& entry) { return entry.weights.expired(); }), entries.end());
    at = entries.empty() ? all.by_key.erase(at) : std::next(at);
  }
}

}  // namespace

SharedWeights::~SharedWeights() {
  if (copy != nullptr) release(copy);
}

Result<std::shared_ptr<const SharedWeights>> shared_weights(const std::string& where, const NamedDataMap* named_data, const std::string& key) {
  Registry& all = registry();
  // Held while weights are read, so that two methods that are loaded at once do not both read them.
  const std::lock_guard<std::mutex> hold(all.lock);
  forget_dead(all);
  std::vector<Entry>& known = all.by_key[key];
  for (const Entry& entry : known) {
    auto weights = entry.weights.lock();
    if (weights != nullptr && weights->copy == nullptr && entry.named_data == named_data) return weights;
  }

  if (named_data == nullptr) {
    return refuse(Error::InvalidProgram, text(where, ": it needs shared weights under the key '", key, "', and the program has no named data"));
  }
  auto read = named_data->get_data(key);
  if (!read.ok()) {
    return refuse(read.error() == Error::NotFound ? Error::InvalidProgram : read.error(),
                  text(where, ": the shared weights '", key, "' are not in the program's named data, or cannot be read"));
  }
  FreeableBuffer source = std::move(read.get());
  if (source.data() == nullptr || source.size() == 0) {
    return refuse(Error::InvalidProgram, text(where, ": the shared weights '", key, "' are empty"));
  }
  // A key is a word of the exporter's: two models in one process may have different weights under it.
  for (const Entry& entry : known) {
    auto weights = entry.weights.lock();
    if (weights == nullptr || weights->copy == nullptr || weights->bytes != source.size()) continue;
    if (std::memcmp(weights->data, source.data(), source.size()) == 0) return weights;
  }

  auto weights = std::make_shared<SharedWeights>();
  weights->bytes = source.size();
  weights->copy = allocate(source.size());
  if (weights->copy != nullptr) {
    std::memcpy(weights->copy, source.data(), source.size());
    weights->data = weights->copy;
    source.Free();
  } else {
    weights->data = source.data();
    weights->source.emplace(std::move(source));
  }
  known.push_back({weights, named_data});
  return std::shared_ptr<const SharedWeights>(std::move(weights));
}

}  // namespace etcli::neuron
