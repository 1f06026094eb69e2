// What the stand-ins for the device's libraries (fake_*.cpp) share with the tests. They record every call and can be told to fail; they are
// no simulation of an NPU.
//
// A network of theirs is, all u32 little-endian: inputs, outputs, the bytes of each input, the bytes of each output, 1 where it takes shared
// weights. Each float32 of an output is the sum of the inputs' floats at its place, counted round each input, plus the first float of the
// shared weights, plus the output's index.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "neuron.h"

// As the allocator's buffers know it, and the adapter reads it.
struct NeuronMemory {
  unsigned char* address;
  size_t bytes;
};

struct Fake {
  std::string library;             // the name that the adapter was built under
  std::vector<std::string> calls;  // of the adapter, "function(arguments without pointers)"
  std::string fail;                // the function that fails
  int fail_call = 1;               // at this call of it, counted from the last reset
  int fail_code = NEURON_OP_FAILED;
  std::string no_handle;           // the function that succeeds without a handle
  int models = 0, compilations = 0, executions = 0;  // alive
  size_t extra_padding = 0;        // added to every padded size
  const void* network = nullptr;   // what was given as the operand's value
  std::vector<uint32_t> taken, given, inputs, outputs;  // of the last operation and identification

  void reset() {
    const std::string name = library;
    *this = Fake();
    library = name;
  }
  void fails(const std::string& function, int call = 1, int code = NEURON_OP_FAILED) {
    fail = function;
    fail_call = call;
    fail_code = code;
  }
};
extern "C" Fake* fake_adapter();

struct FakeAllocator {
  int creations = 0;
  std::vector<void*> live;       // addresses
  bool empty = false;            // it has no memory left
  bool forgets = false;          // it does not find what it allocated
  size_t misaligned = 0;         // bytes that addresses are off by
};
extern "C" FakeAllocator* fake_allocator();

struct FakePerformance {
  std::atomic<int> acquisitions{0}, releases{0};  // a thread of the delegate's acquires
  std::atomic<int32_t> last_handle{0}, last_mode{0};
  std::atomic<uint32_t> last_milliseconds{0};
};
extern "C" FakePerformance* fake_performance();

inline std::string fake_network(const std::vector<uint32_t>& inputs, const std::vector<uint32_t>& outputs, bool shared = false) {
  std::vector<uint32_t> words{static_cast<uint32_t>(inputs.size()), static_cast<uint32_t>(outputs.size())};
  words.insert(words.end(), inputs.begin(), inputs.end());
  words.insert(words.end(), outputs.begin(), outputs.end());
  words.push_back(shared);
  return {reinterpret_cast<const char*>(words.data()), words.size() * 4};
}
