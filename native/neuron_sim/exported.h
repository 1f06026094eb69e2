// The functions that the library shows: those of the adapter's C interface, and no others.
#pragma once

#include "neuron.h"

#define ETCLI_NEURON_EXPORTED(result, name, parameters) extern "C" __attribute__((visibility("default"))) result name parameters noexcept;
ETCLI_NEURON_FUNCTIONS(ETCLI_NEURON_EXPORTED)
#undef ETCLI_NEURON_EXPORTED
