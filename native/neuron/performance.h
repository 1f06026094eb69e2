// A lock that keeps the NPU at its highest clock, from the device's libapuwareutils. Without that library there is none, and nothing is lost
// but speed.
#pragma once

#include <memory>

namespace etcli::neuron {

class PerformanceLock;

// The lock that all delegates of the process share: taken again every second, as long as anyone has it; given back with the last. Null
// without the library.
std::shared_ptr<PerformanceLock> performance_lock();

}  // namespace etcli::neuron
