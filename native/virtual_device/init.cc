// The first process of a virtual device: starts its commands, buries its dead, ends process trees.
//
// It runs as PID 1 of the device's namespaces and talks to the ADB daemon outside over the SOCK_SEQPACKET socket that is its
// standard input; when that closes it ends, and the kernel ends everything else in the device. One packet is one message, numbers in
// the machine's byte order. Every message starts with {uint32 kind, uint32 id, int32 value}:
//
//   daemon -> init   kStart   id, flags; then "CWD\0TEXT\0"; descriptors: stdin, stdout, stderr
//                    kSignal  id, signal: sent to every process that the command started and that did not detach itself
//                    kForget  id: the command's number may be used again
//   init -> daemon   kRoot    once at start; descriptor: the device's root folder
//                    kStarted id, process id
//                    kFailed  id, errno
//                    kExited  id, exit status, or 128 + signal

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr int kSocket = STDIN_FILENO;
constexpr size_t kMaxCommands = 1024;
constexpr size_t kMaxProcesses = 16384;
constexpr size_t kMaxMessage = 160 * 1024;

enum Kind : uint32_t { kRoot = 1, kStart, kSignal, kForget, kStarted, kFailed, kExited };
constexpr int32_t kTerminal = 1;  // flag of kStart: the descriptors are a terminal, which becomes the controlling one

struct Message {
  uint32_t kind;
  uint32_t id;
  int32_t value;
};

struct Command {
  uint32_t id = 0;
  pid_t pid = 0;  // 0: slot is free. Also the number of the command's session, which may outlive its first process.
  bool exited = false;
};

Command commands[kMaxCommands];
char packet[kMaxMessage];

struct Process {
  pid_t pid, parent, session;
  bool chosen;
};
Process processes[kMaxProcesses];

union Descriptors {
  char space[CMSG_SPACE(3 * sizeof(int))];
  cmsghdr align;
};

void send_message(Kind kind, uint32_t id, int32_t value, int descriptor = -1) {
  Message message{kind, id, value};
  iovec part{&message, sizeof message};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  Descriptors control{};
  if (descriptor >= 0) {
    header.msg_control = control.space;
    header.msg_controllen = CMSG_SPACE(sizeof(int));
    cmsghdr* item = CMSG_FIRSTHDR(&header);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(item), &descriptor, sizeof descriptor);
  }
  while (sendmsg(kSocket, &header, MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) _exit(1);  // the daemon is gone
  }
}

Command* find_command(uint32_t id) {
  for (Command& command : commands) {
    if (command.pid != 0 && command.id == id) return &command;
  }
  return nullptr;
}

Command* free_slot() {
  for (Command& command : commands) {
    if (command.pid == 0) return &command;
  }
  return nullptr;
}

[[noreturn]] void become(const char* cwd, const char* text, int32_t flags, const int* descriptors) {
  setsid();
  for (int i = 0; i < 3; ++i) dup2(descriptors[i], i);
  if ((flags & kTerminal) != 0) ioctl(STDIN_FILENO, TIOCSCTTY, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);  // what the daemon ignores would stay ignored
  if (chdir(cwd) != 0) {
    dprintf(STDERR_FILENO, "%s: %s\n", cwd, strerror(errno));
    _exit(1);
  }
  if (*text == '\0') {
    execl("/system/bin/sh", "sh", static_cast<char*>(nullptr));
  } else {
    execl("/system/bin/sh", "sh", "-c", text, static_cast<char*>(nullptr));
  }
  dprintf(STDERR_FILENO, "/system/bin/sh: %s\n", strerror(errno));
  _exit(errno == ENOENT ? 127 : 126);
}

void start_command(const Message& message, size_t size, const int* descriptors, int count) {
  const char* cwd = packet + sizeof message;
  const char* end = packet + size;
  const char* text = static_cast<const char*>(memchr(cwd, '\0', static_cast<size_t>(end - cwd)));
  Command* slot = free_slot();
  if (count != 3 || text == nullptr || ++text >= end || end[-1] != '\0') {
    send_message(kFailed, message.id, EINVAL);
  } else if (slot == nullptr) {
    send_message(kFailed, message.id, EAGAIN);
  } else {
    const pid_t pid = fork();
    if (pid == 0) become(cwd, text, message.value, descriptors);
    if (pid < 0) {
      send_message(kFailed, message.id, errno);
    } else {
      *slot = Command{message.id, pid, false};
      send_message(kStarted, message.id, pid);
    }
  }
}

size_t list_processes() {
  size_t count = 0;
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return 0;
  while (dirent* entry = readdir(folder)) {
    const pid_t pid = atoi(entry->d_name);
    if (pid <= 1 || count == kMaxProcesses) continue;
    char path[64];
    char line[512];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    const ssize_t size = read(file, line, sizeof line - 1);
    close(file);
    if (size <= 0) continue;
    line[size] = '\0';
    const char* after_name = strrchr(line, ')');  // the name may hold anything
    char state = 0;
    int parent = 0, group = 0, session = 0;
    if (after_name == nullptr || sscanf(after_name + 1, " %c %d %d %d", &state, &parent, &group, &session) != 4 || state == 'Z') continue;
    processes[count++] = Process{pid, parent, session, false};
  }
  closedir(folder);
  return count;
}

// Signals the command, everything in its session and all their descendants. Stops looking when a pass finds nothing new, so that
// a process forked meanwhile is not missed when the signal is SIGKILL.
void signal_tree(pid_t root, int signal_number) {
  for (int pass = 0; pass < 8; ++pass) {
    const size_t count = list_processes();
    bool grown = true;
    bool found = false;
    while (grown) {
      grown = false;
      for (size_t i = 0; i < count; ++i) {
        Process& process = processes[i];
        if (process.chosen) continue;
        bool chosen = process.pid == root || process.session == root;
        for (size_t j = 0; j < count && !chosen; ++j) chosen = processes[j].chosen && processes[j].pid == process.parent;
        if (!chosen) continue;
        process.chosen = grown = found = true;
      }
    }
    for (size_t i = 0; i < count; ++i) {
      if (processes[i].chosen) kill(processes[i].pid, signal_number);
    }
    if (!found || signal_number != SIGKILL) return;
  }
}

void receive_message() {
  iovec part{packet, sizeof packet};
  Descriptors control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.space;
  header.msg_controllen = sizeof control.space;
  const ssize_t size = recvmsg(kSocket, &header, MSG_CMSG_CLOEXEC);
  if (size < 0 && errno == EINTR) return;
  if (size <= 0) _exit(0);
  int descriptors[3] = {-1, -1, -1};
  int count = 0;
  if (cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr && item->cmsg_type == SCM_RIGHTS) {
    count = static_cast<int>((item->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    memcpy(descriptors, CMSG_DATA(item), static_cast<size_t>(count) * sizeof(int));
  }
  Message message{};
  if (static_cast<size_t>(size) >= sizeof message) memcpy(&message, packet, sizeof message);
  if (message.kind == kStart) {
    start_command(message, static_cast<size_t>(size), descriptors, count);
  } else if (Command* command = find_command(message.id)) {
    if (message.kind == kSignal) signal_tree(command->pid, message.value);
    if (message.kind == kForget) command->pid = 0;
  }
  for (int i = 0; i < count; ++i) close(descriptors[i]);
}

void bury() {
  int status = 0;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    for (Command& command : commands) {
      if (command.pid != pid || command.exited) continue;
      command.exited = true;
      send_message(kExited, command.id, WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
    }
  }
}

}  // namespace

int main() {
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  sigprocmask(SIG_BLOCK, &children, nullptr);
  signal(SIGPIPE, SIG_IGN);
  const int deaths = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
  const int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (deaths < 0 || root < 0) return 1;
  send_message(kRoot, 0, 0, root);
  close(root);
  pollfd sources[] = {{kSocket, POLLIN, 0}, {deaths, POLLIN, 0}};
  for (;;) {
    if (poll(sources, 2, -1) < 0) continue;
    if (sources[1].revents != 0) {
      signalfd_siginfo drained;
      while (read(deaths, &drained, sizeof drained) > 0) {
      }
      bury();
    }
    if (sources[0].revents != 0) receive_message();
  }
}
