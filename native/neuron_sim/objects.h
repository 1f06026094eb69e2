// The objects behind the adapter's opaque pointers.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "network.h"
#include "options.h"
#include "refusal.h"

// Any of them may be used from several threads; its own calls come one after the other.

struct NeuronMemory {
  static constexpr char kName[] = "memory";
  int number = 0;
  unsigned char* address = nullptr;
  size_t size = 0;
};

struct NeuronModel {
  static constexpr char kName[] = "model";

  struct Operand {
    bool is_network = false;
    etcli::neuron_sim::Bytes value;
  };

  int number = 0;
  std::mutex lock;
  bool finished = false;
  std::vector<Operand> operands;
  std::vector<uint32_t> operation_inputs, operation_outputs;  // empty before there is one
  bool has_operation = false, has_inputs_and_outputs = false;
  uint32_t network_operand = 0;
};

struct NeuronCompilation {
  static constexpr char kName[] = "compilation";

  int number = 0;
  std::mutex lock;
  std::shared_ptr<NeuronModel> model;
  etcli::neuron_sim::Options options;
  std::shared_ptr<const etcli::neuron_sim::Network> network;  // null before it is finished
};

struct NeuronExecution {
  static constexpr char kName[] = "execution";

  struct Binding {
    bool is_set = false;
    void* address = nullptr;
    bool from_memory = false;
    std::weak_ptr<NeuronMemory> memory;
  };

  int number = 0;
  std::mutex lock;
  std::shared_ptr<NeuronCompilation> compilation;
  std::vector<Binding> inputs, outputs;  // the shared weights are the last input
  std::unique_ptr<etcli::neuron_sim::Instance> instance;  // null while the shared weights are not bound
};

namespace etcli::neuron_sim {

// All objects of a kind that were made and not freed: what comes in from outside is compared with these before it is touched, and an object
// that is freed while a call uses it stays until the call ends.
template <class T>
class Live {
 public:
  T* add(std::shared_ptr<T> object) {
    const std::lock_guard<std::mutex> hold(lock_);
    object->number = ++last_number_;
    T* const key = object.get();
    objects_.emplace(key, std::move(object));
    return key;
  }

  // Throws Refusal.
  std::shared_ptr<T> get(const T* key) {
    if (key == nullptr) throw Refusal(NEURON_UNEXPECTED_NULL, text("the ", T::kName, " is null"));
    std::shared_ptr<T> found = find(key);
    if (found == nullptr) bad_data("this ", T::kName, " does not exist: it was freed, or never made");
    return found;
  }

  std::shared_ptr<T> find(const T* key) {
    const std::lock_guard<std::mutex> hold(lock_);
    const auto found = objects_.find(key);
    return found == objects_.end() ? nullptr : found->second;
  }

  // Null where there is none.
  std::shared_ptr<T> take(const T* key) {
    const std::lock_guard<std::mutex> hold(lock_);
    const auto found = objects_.find(key);
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<T> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

 private:
  std::mutex lock_;
  std::map<const T*, std::shared_ptr<T>> objects_;
  int last_number_ = 0;
};

// Never destroyed: a process may end with objects that nobody freed.
template <class T>
Live<T>& live() {
  static Live<T>* const all = new Live<T>;
  return *all;
}

// "model 1" for the trace.
template <class T>
std::string named(const T* key) {
  if (key == nullptr) return text(T::kName, " null");
  const std::shared_ptr<T> found = live<T>().find(key);
  return found == nullptr ? text(T::kName, " unknown") : text(T::kName, " ", found->number);
}


}  // namespace etcli::neuron_sim
