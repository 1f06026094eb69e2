// The token embedding: a memory-mapped table whose rows become float32 as they are looked up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "config.h"
#include "files.h"

namespace etcli {

// How rows are stored: float32 and float16 as numbers; int8 and int4 as records of `cols / group_size` float32 scales, then the codes of
// the row, where a value is its code times the scale of its group. int8 codes are signed bytes; int4 codes are stored plus 8, two in a
// byte, the even column in the low half. Everything is little-endian and unaligned.
struct EmbeddingFormat {
  const char* dtype;  // as runner.cfg names it
  bool is_grouped;    // has scales, so `embedding.group_size` goes with it
  int bits;           // of one number or code
  // `row` to `cols` numbers at `out`.
  void (*decode)(float* out, const unsigned char* row, int64_t cols, int64_t group_size);

  // Bytes of a row; `group_size` is not looked at without groups. Sizes are those that config.h bounds.
  size_t row_bytes(int64_t cols, int64_t group_size) const;
};

// The formats' dtypes, and the format of one of them; any other word is a fault of the caller.
std::vector<std::string> embedding_dtypes();
const EmbeddingFormat& embedding_format(const std::string& dtype);

struct Embedding {
  // Throws Failure "runner.file" for a file that cannot be mapped or is not of the size that the configuration says.
  explicit Embedding(const EmbeddingConfig& config);

  // Row `id`, which is below `rows`, as `cols` float32 numbers.
  void copy_row(float* out, int64_t id) const;

  EmbeddingConfig config;
  const EmbeddingFormat& format;
  size_t row_bytes;
  MappedFile file;
};

}  // namespace etcli
