// What the kinds of cache differ in: the tensors of a method, where padding stands, and what each call needs (docs/runner-protocol.md).
// A kind is one file that implements Contract, and one line in contract.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config.h"
#include "program.h"

namespace etcli {

// A tensor that a contract asks of a method.
struct TensorNeed {
  std::string role;  // "mask", "key cache 0", ...
  executorch::aten::ScalarType dtype;
  std::vector<int64_t> sizes;

  // Throws Failure "runner.config" where that is more than memory can be.
  size_t bytes() const;
};

struct Signature {
  std::vector<TensorNeed> inputs;   // hidden, guide, rotary, then the caches
  std::vector<TensorNeed> outputs;  // hidden or logits, then the caches: each is written over its input
};

// Where the caches start among the inputs and among the outputs.
constexpr size_t kFirstCacheInput = 3, kFirstCacheOutput = 1;

// One run of all chunks: `rows` rows, of which `tokens` from row `first_row` on are real and the others padding.
struct CallRows {
  int64_t rows = 0;
  int64_t tokens = 0;
  int64_t first_row = 0;
  int64_t seen = 0;  // tokens of earlier calls
};

struct Contract {
  virtual ~Contract() = default;

  // The tensors of a method of `tokens` tokens a call in a chunk of `layers` layers; the last chunk ends in logits.
  virtual Signature signature(const Config& config, int64_t layers, bool is_last, int64_t tokens) const = 0;

  // The row of the first real token in a call of `rows` rows with `padding` rows of padding.
  virtual int64_t first_row(int64_t padding) const = 0;

  // Fills the hidden row of a padding token, `width` numbers, given the pad token's embedding.
  virtual void fill_padding(float* row, const float* pad_row, int64_t width) const = 0;

  // Whether a call with padding may follow tokens: where it would leave a gap between them, it may only be the first of all.
  virtual bool pads_behind_tokens() const = 0;

  // Whether the latest tokens can be forgotten by counting fewer as seen.
  virtual bool can_go_back() const = 0;

  // Fills input 1, which tells the attention who sees whom.
  virtual void fill_guide(void* guide, const CallRows& call, int64_t cache_length) const = 0;

  // Which row of the last chunk's output 0 holds the logits of the last real token.
  virtual int64_t logits_row(const CallRows& call) const = 0;

  // Makes a cache [1, NKV, C, D] ready for the next call after one with padding.
  virtual void after_padding(float* cache, const CallRows& call, const Config& config) const = 0;

  // Makes a cache ready for a first token.
  virtual void clear(float* cache, const Config& config) const = 0;
};

// The kinds' names as runner.cfg has them, and the contract of one of them; any other word is a fault of the caller.
std::vector<std::string> contract_names();
const Contract& contract_of(const std::string& name);

// The contracts, each in its own file.
const Contract& shift_contract();
const Contract& ring_contract();

// 2 * layers caches of the configuration, all keys then all values, put behind `tensors`.
void add_caches(std::vector<TensorNeed>& tensors, const Config& config, int64_t layers);

// Compares what a method has with what it needs: one problem for each difference, naming `where`, tensor, what was found and needed.
void check_tensors(const std::string& where, const std::vector<TensorFacts>& inputs, const std::vector<TensorFacts>& outputs,
                   const Signature& needs, std::vector<std::string>& problems);

}  // namespace etcli
