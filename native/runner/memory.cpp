#include "memory.h"

#include <sys/resource.h>

#include <cstdio>
#include <cstring>
#include <new>

namespace etcli {

Buffer::Buffer(size_t size) : bytes(size) {
  if (size > SIZE_MAX - kExtra) throw std::bad_alloc();
  memory.reset(static_cast<unsigned char*>(::operator new(size + kExtra, std::align_val_t(kAlignment))));
  std::memset(memory.get(), 0, size + kExtra);
}

void Buffer::Free::operator()(unsigned char* pointer) const { ::operator delete(pointer, std::align_val_t(kAlignment)); }

// A line "VmRSS:   1234 kB" of the kernel's status file.
static int64_t status_bytes(const char* key) {
  FILE* file = std::fopen("/proc/self/status", "r");
  if (file == nullptr) return 0;
  int64_t bytes = 0;
  char line[256];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    long long kilobytes = 0;
    if (std::strncmp(line, key, std::strlen(key)) == 0 && std::sscanf(line + std::strlen(key), ": %lld kB", &kilobytes) == 1) {
      bytes = static_cast<int64_t>(kilobytes) * 1024;
    }
  }
  std::fclose(file);
  return bytes;
}

int64_t resident_bytes() { return status_bytes("VmRSS"); }

int64_t peak_resident_bytes() {
  // Not getrusage first: ru_maxrss outlives exec, so it can be the peak of the process that started this one.
  const int64_t peak = status_bytes("VmHWM");
  if (peak > 0) return peak;
  struct rusage usage {};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<int64_t>(usage.ru_maxrss) * 1024 : 0;
}

}  // namespace etcli
