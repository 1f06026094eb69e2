// Runs programs of the device's instruction set by an emulator, inside a virtual device whose own tools are the host's.
//
// The dynamic loader puts this library into every program of the device (/etc/ld.so.preload, so that no environment variable
// shows and `env -i` does not lose it). Its exec and spawn functions look at the ELF header of what is to be started: a program of the
// device's machine is started as `EMULATOR ARGS... -0 ARGV0 PATH ARGV1...`, everything else as asked. Unlike a binfmt_misc
// entry this needs no privilege and changes nothing outside the device. /system/etc/emulator holds one item a line: the ELF machine
// number, the name that uname gives, then the emulator's command line.
//
// Everything here may run between vfork and exec: the stack is the only memory written to, and no lock is taken.

#include <alloca.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

extern char** environ;

namespace {

constexpr const char* kSettings = "/system/etc/emulator";
constexpr size_t kMaxWords = 16;
constexpr size_t kMaxPath = 4096;

using Spawn = int (*)(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const[], char* const[]);

Spawn real_spawn = nullptr;
Spawn real_spawnp = nullptr;

__attribute__((constructor)) void find_real_functions() {
  real_spawn = reinterpret_cast<Spawn>(dlsym(RTLD_NEXT, "posix_spawn"));
  real_spawnp = reinterpret_cast<Spawn>(dlsym(RTLD_NEXT, "posix_spawnp"));
}

ssize_t read_start(const char* path, char* buffer, size_t size) {
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return -1;
  const ssize_t count = read(file, buffer, size);
  close(file);
  return count;
}

// The settings file, split in place into lines.
struct Settings {
  char text[1024];
  char* lines[kMaxWords];
  size_t count = 0;

  Settings() {
    const int saved = errno;
    ssize_t size = read_start(kSettings, text, sizeof text - 1);
    errno = saved;
    if (size <= 0) return;
    text[size] = '\0';
    for (char* at = text; *at != '\0' && count < kMaxWords;) {
      lines[count++] = at;
      at = strchrnul(at, '\n');
      if (*at != '\0') *at++ = '\0';
    }
  }

  bool usable() const { return count >= 3; }
  int machine() const { return atoi(lines[0]); }
  const char* machine_name() const { return lines[1]; }
  char* const* emulator() const { return lines + 2; }
  size_t emulator_words() const { return count - 2; }
};

bool is_foreign(const Settings& settings, const char* path) {
  const int saved = errno;
  char header[EI_NIDENT + 4];
  bool foreign = false;
  struct stat status;
  // Without the x bit the kernel's own answer, EACCES, is the right one.
  if (settings.usable() && stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0 &&
      read_start(path, header, sizeof header) == static_cast<ssize_t>(sizeof header) && memcmp(header, ELFMAG, SELFMAG) == 0) {
    const int machine = static_cast<unsigned char>(header[EI_NIDENT + 2]) | static_cast<unsigned char>(header[EI_NIDENT + 3]) << 8;
    foreign = machine == settings.machine();
  }
  errno = saved;
  return foreign;
}

size_t words_in(char* const argv[]) {
  size_t count = 0;
  while (argv != nullptr && argv[count] != nullptr) ++count;
  return count;
}

size_t emulated_words(const Settings& settings, char* const argv[]) { return settings.emulator_words() + words_in(argv) + 5; }

// Fills `out`, which has room for emulated_words(), with the emulator's command line for `path`.
void emulated(const Settings& settings, const char* path, char* const argv[], char** out) {
  size_t at = 0;
  for (size_t i = 0; i < settings.emulator_words(); ++i) out[at++] = settings.emulator()[i];
  const size_t given = words_in(argv);
  out[at++] = const_cast<char*>("-0");
  out[at++] = given > 0 ? argv[0] : const_cast<char*>(path);
  out[at++] = const_cast<char*>(path);
  for (size_t i = 1; i < given; ++i) out[at++] = argv[i];
  out[at] = nullptr;
}

int start(const char* path, char* const argv[], char* const envp[]) {
  const Settings settings;
  if (!is_foreign(settings, path)) return static_cast<int>(syscall(SYS_execve, path, argv, envp));
  auto** words = static_cast<char**>(alloca(emulated_words(settings, argv) * sizeof(char*)));
  emulated(settings, path, argv, words);
  return static_cast<int>(syscall(SYS_execve, words[0], words, envp));
}

// A script without a first line #!: the shell runs it, as the execvp of POSIX has it.
int start_script(const char* path, char* const argv[], char* const envp[]) {
  const size_t given = words_in(argv);
  auto** words = static_cast<char**>(alloca((given + 3) * sizeof(char*)));
  words[0] = const_cast<char*>("sh");
  words[1] = const_cast<char*>(path);
  for (size_t i = 1; i < given; ++i) words[i + 1] = argv[i];
  words[given > 0 ? given + 1 : 2] = nullptr;
  return static_cast<int>(syscall(SYS_execve, "/bin/sh", words, envp));
}

// The next folder of a PATH joined with `name`; false at the end. A folder too long to be one is skipped by leaving `out` empty.
bool next_candidate(const char*& folders, const char* name, char* out) {
  if (folders == nullptr) return false;
  const char* end = strchrnul(folders, ':');
  const size_t length = static_cast<size_t>(end - folders);
  out[0] = '\0';
  if (length + strlen(name) + 2 <= kMaxPath) {
    memcpy(out, folders, length);
    if (length > 0) out[length] = '/';
    strcpy(out + length + (length > 0 ? 1 : 0), name);
  }
  folders = *end == ':' ? end + 1 : nullptr;
  return true;
}

const char* search_path() {
  const char* folders = getenv("PATH");
  return folders != nullptr ? folders : "/bin:/usr/bin";
}

int start_on_path(const char* name, char* const argv[], char* const envp[]) {
  if (strchr(name, '/') != nullptr) {
    start(name, argv, envp);
    return errno == ENOEXEC ? start_script(name, argv, envp) : -1;
  }
  if (*name == '\0') {
    errno = ENOENT;
    return -1;
  }
  char candidate[kMaxPath];
  bool denied = false;
  const char* folders = search_path();
  while (next_candidate(folders, name, candidate)) {
    if (candidate[0] == '\0') continue;
    start(candidate, argv, envp);
    if (errno == ENOEXEC) return start_script(candidate, argv, envp);
    if (errno == EACCES) {
      denied = true;
    } else if (errno != ENOENT && errno != ENOTDIR && errno != ESTALE && errno != ENODEV && errno != ETIMEDOUT) {
      return -1;
    }
  }
  errno = denied ? EACCES : ENOENT;
  return -1;
}

// The arguments of an execl call, from `first` up to and without its closing null.
size_t count_list(va_list list) {
  size_t count = 1;
  while (va_arg(list, char*) != nullptr) ++count;
  return count;
}

void fill_list(const char* first, va_list list, char** out) {
  size_t at = 0;
  out[at++] = const_cast<char*>(first);
  while ((out[at] = va_arg(list, char*)) != nullptr) ++at;
}

}  // namespace

#define ETCLI_ARGV_FROM_LIST(first, argv)                                    \
  va_list counting;                                                          \
  va_start(counting, first);                                                 \
  auto** argv = static_cast<char**>(alloca((count_list(counting) + 1) * sizeof(char*))); \
  va_end(counting);                                                          \
  va_list filling;                                                           \
  va_start(filling, first);                                                  \
  fill_list(first, filling, argv)

extern "C" {

int execve(const char* path, char* const argv[], char* const envp[]) noexcept { return start(path, argv, envp); }

int execv(const char* path, char* const argv[]) noexcept { return start(path, argv, environ); }

int execvp(const char* name, char* const argv[]) noexcept { return start_on_path(name, argv, environ); }

int execvpe(const char* name, char* const argv[], char* const envp[]) noexcept { return start_on_path(name, argv, envp); }

int execl(const char* path, const char* first, ...) noexcept {
  ETCLI_ARGV_FROM_LIST(first, argv);
  va_end(filling);
  return start(path, argv, environ);
}

int execlp(const char* name, const char* first, ...) noexcept {
  ETCLI_ARGV_FROM_LIST(first, argv);
  va_end(filling);
  return start_on_path(name, argv, environ);
}

int execle(const char* path, const char* first, ...) noexcept {
  ETCLI_ARGV_FROM_LIST(first, argv);
  char* const* envp = va_arg(filling, char* const*);
  va_end(filling);
  return start(path, argv, envp);
}

int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes,
                char* const argv[], char* const envp[]) {
  const Settings settings;
  if (!is_foreign(settings, path)) return real_spawn(pid, path, actions, attributes, argv, envp);
  auto** words = static_cast<char**>(alloca(emulated_words(settings, argv) * sizeof(char*)));
  emulated(settings, path, argv, words);
  return real_spawn(pid, words[0], actions, attributes, words, envp);
}

int posix_spawnp(pid_t* pid, const char* name, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes,
                 char* const argv[], char* const envp[]) {
  if (strchr(name, '/') != nullptr) return posix_spawn(pid, name, actions, attributes, argv, envp);
  char candidate[kMaxPath];
  const char* folders = search_path();
  while (next_candidate(folders, name, candidate)) {
    if (candidate[0] != '\0' && access(candidate, X_OK) == 0) return posix_spawn(pid, candidate, actions, attributes, argv, envp);
  }
  return real_spawnp(pid, name, actions, attributes, argv, envp);
}

// The device answers with its own machine, not the host's.
int uname(struct utsname* name) noexcept {
  const int result = static_cast<int>(syscall(SYS_uname, name));
  const Settings settings;
  if (result == 0 && settings.usable() && strlen(settings.machine_name()) < sizeof name->machine) {
    strcpy(name->machine, settings.machine_name());
  }
  return result;
}

}  // extern "C"
