// sha256sum of a virtual device. Android's hashes with BoringSSL, by the processor's own instructions; the host's coreutils often do not, and
// a device that hashes four times slower than it could says nothing of what a check of its files costs. So this one hashes with the host's
// libcrypto. Whatever it does not know (options, names that need escaping, no libcrypto) it leaves to the host's program.

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <initializer_list>

namespace {

constexpr const char* kHost = "/usr/bin/sha256sum";
constexpr size_t kBlock = 256 << 10;
constexpr off_t kWorthLoading = 1 << 20;  // bytes that take longer to hash than libcrypto to load
constexpr unsigned kDigest = 32;

struct Crypto {
  void* (*context_new)();
  void (*context_free)(void*);
  const void* (*sha256)();
  int (*init)(void*, const void*, void*);
  int (*update)(void*, const void*, size_t);
  int (*final)(void*, unsigned char*, unsigned*);
};

template <typename Function>
bool find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

bool load(Crypto* crypto) {
  for (const char* name : {"libcrypto.so.3", "libcrypto.so.1.1"}) {
    void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr && find(library, "EVP_MD_CTX_new", &crypto->context_new) &&
        find(library, "EVP_MD_CTX_free", &crypto->context_free) && find(library, "EVP_sha256", &crypto->sha256) &&
        find(library, "EVP_DigestInit_ex", &crypto->init) && find(library, "EVP_DigestUpdate", &crypto->update) &&
        find(library, "EVP_DigestFinal_ex", &crypto->final)) {
      return true;
    }
  }
  return false;
}

// Hashes what `file` holds from here on; false with errno where it cannot be read.
bool hash(const Crypto& crypto, int file, unsigned char* digest) {
  static unsigned char block[kBlock];
  void* context = crypto.context_new();
  bool fine = context != nullptr && crypto.init(context, crypto.sha256(), nullptr) == 1;
  for (ssize_t count = 1; fine && count > 0;) {
    count = read(file, block, kBlock);
    fine = count >= 0 && crypto.update(context, block, static_cast<size_t>(count)) == 1;
  }
  unsigned length = kDigest;
  fine = fine && crypto.final(context, digest, &length) == 1;
  const int error = errno;
  if (context != nullptr) crypto.context_free(context);
  errno = error;
  return fine;
}

// Whether everything on the command line, and no more, is for this program: names of files that need no escaping, of some size together.
bool ours(int argc, char** argv) {
  off_t total = 0;
  struct stat status;
  if (argc == 1) {
    return fstat(STDIN_FILENO, &status) == 0 && S_ISREG(status.st_mode) && status.st_size >= kWorthLoading;
  }
  for (int i = 1; i < argc; ++i) {
    if (argv[i][0] == '-' || strpbrk(argv[i], "\\\n\r") != nullptr) return false;
    if (stat(argv[i], &status) == 0) total += status.st_size;
  }
  return total >= kWorthLoading;
}

void print(const unsigned char* digest, const char* name) {
  for (unsigned i = 0; i < kDigest; ++i) printf("%02x", digest[i]);
  printf("  %s\n", name);
}

}  // namespace

int main(int argc, char** argv) {
  Crypto crypto;
  if (!ours(argc, argv) || !load(&crypto)) {
    execv(kHost, argv);
    fprintf(stderr, "sha256sum: %s: %s\n", kHost, strerror(errno));
    return 127;
  }
  unsigned char digest[kDigest];
  int code = 0;
  if (argc == 1) {
    if (hash(crypto, STDIN_FILENO, digest)) {
      print(digest, "-");
    } else {
      fprintf(stderr, "sha256sum: -: %s\n", strerror(errno));
      code = 1;
    }
  }
  for (int i = 1; i < argc; ++i) {
    const int file = open(argv[i], O_RDONLY | O_CLOEXEC);
    if (file >= 0 && hash(crypto, file, digest)) {
      print(digest, argv[i]);
    } else {
      fprintf(stderr, "sha256sum: %s: %s\n", argv[i], strerror(errno));
      code = 1;
    }
    if (file >= 0) close(file);
  }
  return fflush(stdout) == 0 ? code : 1;
}
