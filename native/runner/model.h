// A Llama model in chunks, ready to run: programs, tables, caches and the buffers between chunks.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "config.h"
#include "files.h"
#include "memory.h"
#include "program.h"

namespace etcli {

struct Chunk {
  int64_t layers = 0;
  std::map<int64_t, std::unique_ptr<Method>> methods;  // by tokens a call
  std::vector<Buffer> caches;                          // all keys, then all values: [1, NKV, C, D] each
};

struct Model {
  // Loads everything and checks each file's size and each tensor against the configuration, all of it before weights are touched.
  // Throws Failure "runner.file", "runner.load", "runner.method" or "runner.tensor".
  explicit Model(Config config);

  // Runs the `tokens - padding` ids at `ids` through all chunks by the methods of `tokens` tokens a call, and counts them as seen.
  // Returns the logits of the last one, `vocab_size` numbers. Throws Failure "runner.execute".
  const float* forward(const int64_t* ids, int64_t tokens, int64_t padding);

  // Forgets every token.
  void reset();

  Config config;
  MappedFile embedding;  // [vocab_size, hidden_size]
  MappedFile rope;       // [positions, 2, head_dim]
  std::vector<Chunk> chunks;
  Buffer hidden[2];  // [1, T, H]: chunk k reads hidden[k % 2] and writes the other
  Buffer logits;     // [1, T, V]
  Buffer mask;       // [1, 1, T, C + T]
  Buffer rotary;     // [1, 2, T, D]
  int64_t seen = 0;  // tokens in the caches
  std::vector<double> chunk_seconds;  // spent in each chunk, for ever
};

}  // namespace etcli
