// For x86-64 with AVX2 and FMA.
#include "vector.inc"

namespace etcli::aqlm {

extern const Kernel kernels_avx2[2];
const Kernel kernels_avx2[2] = {{1, 8, one_token<8>}, {8, 13, tokens<8, 2>}};

}  // namespace etcli::aqlm
