// For any CPU.
#include "vector.inc"

namespace etcli::aqlm {

extern const Kernel kernels_baseline[2];
const Kernel kernels_baseline[2] = {{1, 8, one_token<4>}, {4, 13, tokens<4, 2>}};

}  // namespace etcli::aqlm
