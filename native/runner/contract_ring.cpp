// "ring": the token at position p lives in slot p mod C and is written there once; padding on the right; two numbers tell the position of
// the first token and how many are real. Attention reads slots of seen positions only, so there is no mask and nothing to clear.
#include <algorithm>

#include "contract.h"

namespace etcli {

namespace {

using executorch::aten::ScalarType;

struct RingContract : Contract {
  Signature signature(const Config& config, int64_t layers, bool is_last, int64_t tokens) const override {
    Signature needs;
    needs.inputs = {{"hidden", ScalarType::Float, {1, tokens, config.hidden_size}},
                    {"pos", ScalarType::Long, {2}},
                    {"rotary", ScalarType::Float, {1, 2, tokens, config.head_dim}}};
    needs.outputs = {is_last ? TensorNeed{"logits", ScalarType::Float, {1, 1, config.vocab_size}}
                             : TensorNeed{"hidden", ScalarType::Float, {1, tokens, config.hidden_size}}};
    add_caches(needs.inputs, config, layers);
    add_caches(needs.outputs, config, layers);
    return needs;
  }

  int64_t first_row(int64_t) const override { return 0; }

  // Nobody reads these rows; zeros keep them finite whatever the pad token's embedding is.
  void fill_padding(float* row, const float*, int64_t width) const override { std::fill(row, row + width, 0.0f); }

  bool pads_behind_tokens() const override { return true; }

  bool can_go_back() const override { return true; }

  void fill_guide(void* guide, const CallRows& call, int64_t) const override {
    int64_t* pos = static_cast<int64_t*>(guide);
    pos[0] = call.seen;
    pos[1] = call.tokens;
  }

  int64_t logits_row(const CallRows&) const override { return 0; }

  void after_padding(float*, const CallRows&, const Config&) const override {}

  void clear(float*, const Config&) const override {}
};

}  // namespace

const Contract& ring_contract() {
  static const RingContract contract;
  return contract;
}

}  // namespace etcli
