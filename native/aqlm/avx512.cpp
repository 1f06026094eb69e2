// For x86-64 with AVX-512F: batches. One token is served by AVX2, which look-ups one by one do no worse with.
#include "vector.inc"

namespace etcli::aqlm {

extern const Kernel kernels_avx512[1];
const Kernel kernels_avx512[1] = {{16, 18, tokens<16, 2>}};

}  // namespace etcli::aqlm
