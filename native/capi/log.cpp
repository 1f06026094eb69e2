#include "log.h"

#ifdef __ANDROID__
#include <android/log.h>
#else
#include <cstdio>
#endif

namespace etcli {

void log_line(bool is_error, const std::string& line) {
#ifdef __ANDROID__
  __android_log_write(is_error ? ANDROID_LOG_ERROR : ANDROID_LOG_INFO, "etcli", line.c_str());
#else
  (void)is_error;
  std::fprintf(stderr, "%s\n", line.c_str());
#endif
}

}  // namespace etcli
