// The configuration of a model: what `etcli export` writes into a bundle as runner.cfg (docs/runner-protocol.md).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace etcli {

struct MethodFile {
  std::string path;  // of the program
  std::string name;  // of the method in it
};

struct ChunkConfig {
  int64_t layers = 0;
  std::map<int64_t, MethodFile> methods;  // by tokens a call: every prompt shape, and 1
};

struct EmbeddingConfig {
  std::string path;
  std::string dtype;       // one of embedding_dtypes()
  int64_t group_size = 0;  // columns that share a scale; 0 for a dtype without scales
  int64_t rows = 0;
  int64_t cols = 0;
};

struct Config {
  std::string name;
  std::string cache;  // the kind: one of contract_names()
  int64_t hidden_size = 0;
  int64_t head_dim = 0;
  int64_t num_kv_heads = 0;
  int64_t num_layers = 0;
  int64_t vocab_size = 0;
  int64_t cache_length = 0;            // C
  std::vector<int64_t> prompt_tokens;  // the T of each prompt shape, largest first
  std::vector<int64_t> stop_ids;
  int64_t pad_id = 0;
  EmbeddingConfig embedding;
  std::string rope_path;
  int64_t rope_positions = 0;
  std::vector<ChunkConfig> chunks;
};

// Parses the text of a configuration; `where` is its name in messages. Paths stay as written.
// Throws Failure "runner.config" that names every problem with its line.
Config parse_config(std::string_view content, const std::string& where);

// Reads a configuration and puts its folder before each path. Throws Failure "runner.file" or "runner.config".
Config read_config(const std::string& path);

}  // namespace etcli
