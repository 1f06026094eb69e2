// "shift": whole caches go in and come out, the last C rows, newest row last; padding on the left; a mask says who sees whom.
// The MediaTek runner works with the same tensors.
#include <algorithm>

#include "contract.h"
#include "inputs.h"

namespace etcli {

namespace {

using executorch::aten::ScalarType;

struct ShiftContract : Contract {
  Signature signature(const Config& config, int64_t layers, bool is_last, int64_t tokens) const override {
    Signature needs;
    needs.inputs = {{"hidden", ScalarType::Float, {1, tokens, config.hidden_size}},
                    {"mask", ScalarType::Float, {1, 1, tokens, config.cache_length + tokens}},
                    {"rotary", ScalarType::Float, {1, 2, tokens, config.head_dim}}};
    needs.outputs = {{is_last ? "logits" : "hidden", ScalarType::Float, {1, tokens, is_last ? config.vocab_size : config.hidden_size}}};
    add_caches(needs.inputs, config, layers);
    add_caches(needs.outputs, config, layers);
    return needs;
  }

  int64_t first_row(int64_t padding) const override { return padding; }

  void fill_padding(float* row, const float* pad_row, int64_t width) const override { std::copy(pad_row, pad_row + width, row); }

  bool pads_behind_tokens() const override { return false; }

  // Every call has moved the rows on, and those that fell out at the front are gone.
  bool can_go_back() const override { return false; }

  void fill_guide(void* guide, const CallRows& call, int64_t cache_length) const override {
    fill_mask(static_cast<float*>(guide), call.rows, cache_length, call.seen, call.first_row);
  }

  int64_t logits_row(const CallRows& call) const override { return call.rows - 1; }

  void after_padding(float* cache, const CallRows& call, const Config& config) const override {
    clear_left_padding(cache, config.num_kv_heads, config.cache_length, config.head_dim, call.rows, call.first_row);
  }

  // Rows that were never written are masked, not skipped: a number times the weight zero has to be zero.
  void clear(float* cache, const Config& config) const override {
    std::fill(cache, cache + config.num_kv_heads * config.cache_length * config.head_dim, 0.0f);
  }
};

}  // namespace

const Contract& shift_contract() {
  static const ShiftContract contract;
  return contract;
}

}  // namespace etcli
