// A Llama model in chunks, ready to run: programs, tables, caches and the buffers between chunks.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "config.h"
#include "contract.h"
#include "embedding.h"
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

  // Runs the `tokens` ids at `ids` through all chunks by the methods of `rows` tokens a call, padding the rest, and counts them as seen.
  // Returns the logits of the last one, `vocab_size` numbers. Throws Failure "runner.execute".
  const float* forward(const int64_t* ids, int64_t rows, int64_t tokens);

  // Forgets every token.
  void reset();

  Config config;
  const Contract& contract;
  Embedding embedding;  // [vocab_size, hidden_size]
  MappedFile rope;      // [positions, 2, head_dim]
  ScratchAllocator scratch;
  std::vector<Chunk> chunks;
  Buffer hidden[2];            // [1, T, H]: chunk k reads hidden[k % 2] and writes the other
  Buffer logits;               // output 0 of the last chunk
  Buffer guide;                // input 1: a mask or positions
  Buffer rotary;               // [1, 2, T, D]
  std::vector<float> pad_row;  // embedding of the pad token
  int64_t seen = 0;            // tokens in the caches
  bool used = false;           // something has been run since the caches were made or cleared
  std::vector<double> chunk_seconds;  // spent in each chunk, for ever

 private:
  using Programs = std::map<std::string, std::shared_ptr<const Program>>;
  Programs open_programs() const;
  void load_chunks(const Programs& programs);
  bool is_last(size_t chunk) const { return chunk + 1 == config.chunks.size(); }
};

}  // namespace etcli
