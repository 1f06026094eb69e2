#include "generate.h"

#include <algorithm>

#include "clock.h"
#include "failure.h"
#include "inputs.h"
#include "numbers.h"
#include "split.h"

namespace etcli {

std::vector<int64_t> parse_ids(const std::string& words) {
  std::vector<int64_t> ids;
  const char* separators = ", \t\r\n";
  for (size_t at = words.find_first_not_of(separators); at != std::string::npos;) {
    const size_t end = std::min(words.find_first_of(separators, at), words.size());
    const std::string word = words.substr(at, end - at);
    const auto id = parse_int(word, INT32_MAX);
    if (!id) throw prompt_failure(text("prompt id ", ids.size(), " is '", word.substr(0, 40), "', not a token id"));
    ids.push_back(*id);
    at = words.find_first_not_of(separators, end);
  }
  return ids;
}

void check_prompt(const Config& config, const std::vector<int64_t>& prompt) {
  const int64_t length = static_cast<int64_t>(prompt.size());
  if (length == 0) throw prompt_failure("the prompt has no tokens");
  if (length > config.cache_length) {
    throw prompt_failure(text("the prompt has ", length, " tokens, the cache of this model holds ", config.cache_length));
  }
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] >= config.vocab_size) {
      throw prompt_failure(text("prompt id ", i, " is ", prompt[i], ", the vocabulary has ", config.vocab_size, " tokens"));
    }
  }
}

static int64_t best_token(const Model& model, const float* logits) {
  const int64_t id = argmax(logits, model.config.vocab_size);
  if (id < 0) throw execute_failure(text("the logits after ", model.seen, " tokens hold a value that is not a number (NaN)"));
  return id;
}

GenerateStats generate(Model& model, const std::vector<int64_t>& prompt, const GenerateOptions& options,
                       const std::function<void(const GenerateStats&)>& on_prefill,
                       const std::function<void(int64_t, int64_t, double)>& on_token) {
  GenerateStats stats;
  stats.prompt_tokens = static_cast<int64_t>(prompt.size());
  model.reset();

  const double start = now();
  const float* logits = nullptr;
  const int64_t* next = prompt.data();
  std::vector<int64_t> shapes = model.config.prompt_tokens;
  shapes.push_back(1);  // the decode methods take prompts too
  for (const Call& call : split_prompt(stats.prompt_tokens, shapes)) {
    const int64_t real = call.tokens - call.padding;
    logits = model.forward(next, call.tokens, real);
    next += real;
    ++stats.prefill_calls;
  }
  int64_t token = best_token(model, logits);
  stats.prefill_seconds = stats.first_token_seconds = now() - start;
  on_prefill(stats);

  const std::vector<double> before = model.chunk_seconds;
  const std::vector<int64_t>& stops = model.config.stop_ids;
  while (true) {
    on_token(stats.new_tokens, token, now() - start);
    ++stats.new_tokens;
    if (!options.ignore_stop_ids && std::find(stops.begin(), stops.end(), token) != stops.end()) {
      stats.stop_reason = "stop_id";
      break;
    }
    if (stats.new_tokens >= options.max_new_tokens) {
      stats.stop_reason = "max_new_tokens";
      break;
    }
    if (model.seen >= model.config.cache_length) {
      stats.stop_reason = "cache_full";
      break;
    }
    const double step = now();
    token = best_token(model, model.forward(&token, 1, 1));
    stats.decode_seconds += now() - step;
    ++stats.decode_steps;
  }
  for (size_t k = 0; k < before.size(); ++k) stats.chunk_seconds.push_back(model.chunk_seconds[k] - before[k]);
  return stats;
}

}  // namespace etcli
