// For any CPU.
#include "vector.inc"


namespace etcli::aqlm {

extern const Kernel kernels_baseline[2];
const Kernel kernels_baseline[2] = {{1, 10, one_token<4>}, {4, 20, tokens<4, 2>}};

}  // namespace etcli::aqlm
