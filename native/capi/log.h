// Where the library's log goes: an app's stderr is read by nobody on Android.
#pragma once

#include <string>

namespace etcli {

void log_line(bool is_error, const std::string& line);

}  // namespace etcli
