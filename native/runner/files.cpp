#include "files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "failure.h"

namespace etcli {

namespace {

struct Descriptor {
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  int fd = -1;
};

Failure failed(const char* what, const std::string& path) {
  return file_failure(text("cannot ", what, " ", path, ": ", std::strerror(errno)));
}

// Opens a regular file and tells its size.
size_t open_regular(const std::string& path, Descriptor& file) {
  file.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file.fd < 0) throw failed("open", path);
  struct stat facts {};
  if (::fstat(file.fd, &facts) != 0) throw failed("stat", path);
  if (!S_ISREG(facts.st_mode)) throw file_failure(text(path, " is not a regular file"));
  return static_cast<size_t>(facts.st_size);
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  Descriptor file;
  size = open_regular(path, file);
  if (size == 0) return;
  void* memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (memory == MAP_FAILED) throw failed("map", path);
  data = static_cast<const unsigned char*>(memory);
}

MappedFile::~MappedFile() {
  if (data != nullptr) ::munmap(const_cast<unsigned char*>(data), size);
}

void MappedFile::expect_random_access() const {
  if (data != nullptr) ::madvise(const_cast<unsigned char*>(data), size, MADV_RANDOM);
}

std::string read_file(const std::string& path, size_t most) {
  Descriptor file;
  const size_t size = open_regular(path, file);
  if (size > most) throw file_failure(text(path, " has ", size, " bytes, at most ", most, " are read"));
  std::string content(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(file.fd, content.data() + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw failed("read", path);
    if (got == 0) throw file_failure(text(path, " ended after ", done, " of ", size, " bytes"));
    done += static_cast<size_t>(got);
  }
  return content;
}

void write_file(const std::string& path, const void* data, size_t size) {
  const std::string partial = path + ".part";
  Descriptor file;
  file.fd = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file.fd < 0) throw failed("create", partial);
  size_t done = 0;
  while (done < size) {
    const ssize_t put = ::write(file.fd, static_cast<const char*>(data) + done, size - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      const Failure failure = failed("write", partial);
      ::unlink(partial.c_str());
      throw failure;
    }
    done += static_cast<size_t>(put);
  }
  if (::rename(partial.c_str(), path.c_str()) != 0) throw failed("rename to", path);
}

}  // namespace etcli
