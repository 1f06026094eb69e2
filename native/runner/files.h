// Files as the runner reads them: small ones whole, large ones memory-mapped.
#pragma once

#include <cstddef>
#include <string>

namespace etcli {

// A file mapped for reading, for as long as the object lives. Throws Failure "runner.file".
struct MappedFile {
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Rows are looked up here and there: tells the kernel not to read ahead.
  void expect_random_access() const;

  const unsigned char* data = nullptr;
  size_t size = 0;
};

// The whole content of a regular file of at most `most` bytes. Throws Failure "runner.file".
std::string read_file(const std::string& path, size_t most);

// Writes through a temporary name, so that a file with this name is always whole. Throws Failure "runner.file".
void write_file(const std::string& path, const void* data, size_t size);

}  // namespace etcli
