// etcli_llama_runner: token ids in, JSON lines out (docs/runner-protocol.md).
#include "clock.h"
#include "events.h"
#include "failure.h"
#include "files.h"
#include "generate.h"
#include "huge_pages.h"
#include "main.h"
#include "model.h"
#include "runtime.h"

using namespace etcli;

static const std::vector<Flag> kFlags = {
    {"--config", "FILE", "the model's configuration; paths in it are relative to its folder"},
    {"--prompt-ids", "1,2,3", "the prompt as token ids"},
    {"--prompt-ids-file", "FILE", "the same, separated by white space or commas"},
    {"--max-new-tokens", "N", "upper bound, a stop id counts (default 64)"},
    {"--threads", "N", "threads of the CPU backends (default: the runtime's choice)"},
    {"--no-shared-weights", nullptr, "let each method pack its own weights, to see what sharing saves"},
    {"--no-huge-pages", nullptr, "keep weights in memory pages of the usual size"},
    {"--ignore-stop-ids", nullptr, "go on to the bound, for benchmarks"},
    {"--check", nullptr, "load and check everything, run nothing"},
    {"--verbose", nullptr, "the runtime's informational messages on stderr too"},
    {"--version", nullptr, "print the version"},
    {"--help", nullptr, "print this text"},
};

static std::vector<int64_t> read_prompt(const Flags& flags) {
  if (flags.has("--prompt-ids") && flags.has("--prompt-ids-file")) throw usage_failure("--prompt-ids and --prompt-ids-file exclude one another");
  if (flags.has("--prompt-ids-file")) return parse_ids(read_file(flags.get("--prompt-ids-file"), 256u << 20));
  if (flags.has("--prompt-ids")) return parse_ids(flags.get("--prompt-ids"));
  throw usage_failure("a prompt is needed: --prompt-ids or --prompt-ids-file");
}

static double rate(int64_t tokens, double seconds) { return static_cast<double>(tokens) / seconds; }

static std::string seconds_array(const std::vector<double>& seconds) {
  std::vector<std::string> items;
  for (double item : seconds) items.push_back(json_number(item));
  return json_array(items);
}

static void emit_stats(const GenerateStats& stats, double load_seconds) {
  JsonObject object = event("stats");
  object.put("stop_reason", stats.stop_reason)
      .put("prompt_tokens", stats.prompt_tokens)
      .put("new_tokens", stats.new_tokens)
      .put("load_s", load_seconds)
      .put("prefill_s", stats.prefill_seconds)
      .put("decode_s", stats.decode_seconds)
      .put("decode_steps", stats.decode_steps)
      .put("prefill_tokens_per_s", rate(stats.prompt_tokens, stats.prefill_seconds));
  if (stats.decode_steps > 0) {
    object.put("decode_tokens_per_s", rate(stats.decode_steps, stats.decode_seconds));
  } else {
    object.put_null("decode_tokens_per_s");
  }
  object.put("time_to_first_token_s", stats.first_token_seconds)
      .put("peak_memory_bytes", peak_resident_bytes())
      .put_raw("chunk_seconds", seconds_array(stats.chunk_seconds));
  emit(object);
}

static void work(const Flags& flags) {
  // Everything that is cheap to refuse comes before the model is loaded.
  if (!flags.has("--config")) throw usage_failure("--config is needed");
  const bool only_check = flags.has("--check");
  GenerateOptions options;
  options.max_new_tokens = flags.number("--max-new-tokens", options.max_new_tokens, 1, INT32_MAX);
  options.ignore_stop_ids = flags.has("--ignore-stop-ids");
  const int64_t wanted_threads = flags.number("--threads", 0, 1, 1024);
  const bool has_prompt = flags.has("--prompt-ids") || flags.has("--prompt-ids-file");
  std::vector<int64_t> prompt;
  if (!only_check || has_prompt) prompt = read_prompt(flags);
  Config config = read_config(flags.get("--config"));
  if (!only_check || has_prompt) check_prompt(config, prompt);

  const double start = now();
  const int64_t threads = set_threads(wanted_threads);
  if (!flags.has("--no-shared-weights")) share_packed_weights();
  if (!flags.has("--no-huge-pages")) use_huge_pages();
  Model model(std::move(config));
  const double load_seconds = now() - start;
  emit(event("loaded")
           .put("load_s", load_seconds)
           .put("chunks", static_cast<int64_t>(model.chunks.size()))
           .put("threads", threads)
           .put("memory_bytes", resident_bytes())
           .put("cache", model.config.cache)
           .put("huge_page_bytes", huge_page_bytes()));
  if (only_check) return;

  const GenerateStats stats = generate(
      model, prompt, options,
      [](const GenerateStats& so_far) {
        emit(event("prefill")
                 .put("tokens", so_far.prompt_tokens)
                 .put("calls", so_far.prefill_calls)
                 .put("seconds", so_far.prefill_seconds)
                 .put_raw("chunk_seconds", seconds_array(so_far.prefill_chunk_seconds)));
      },
      [](int64_t index, int64_t id, double seconds) { emit(event("token").put("index", index).put("id", id).put("t_s", seconds)); });
  emit_stats(stats, load_seconds);
}

int main(int argc, char** argv) {
  return run_program({"etcli_llama_runner", "etcli_llama_runner --config FILE --prompt-ids 1,2,3 [flags]", kFlags}, argc, argv, work);
}
