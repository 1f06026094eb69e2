// Stands for an ExecuTorch of another release that is linked into the process and shown by it, as upstream's delegate shows the one it was
// built with: what the simulated NPU must not come to. Declared without ExecuTorch's headers; only the names count.
#include <cstdio>
#include <cstdlib>

namespace {

[[noreturn]] void wrong(const char* name) {
  std::fprintf(stderr, "FAILED: %s of another ExecuTorch was called\n", name);
  std::_Exit(3);
}

}  // namespace

#define OTHER(name, symbol) \
  extern "C" void name() __asm__(symbol); \
  extern "C" void name() { wrong(#name); }

OTHER(register_kernels, "_ZN10executorch7runtime16register_kernelsENS0_4SpanIKNS0_6KernelEEE")
OTHER(runtime_init, "_ZN10executorch7runtime12runtime_initEv")
OTHER(program_load, "_ZN10executorch7runtime7Program4loadEPNS0_10DataLoaderENS1_12VerificationE")
OTHER(method_set_input, "_ZN10executorch7runtime6Method9set_inputERKNS0_6EValueEm")
OTHER(method_execute, "_ZN10executorch7runtime6Method7executeEv")
OTHER(tensor_layout_create, "_ZN10executorch7runtime12TensorLayout6createENS0_4SpanIKiEENS2_IKhEENS0_7etensor10ScalarTypeE")
OTHER(parallel_for, "_ZN10executorch9extension12parallel_forElllNS_7runtime11FunctionRefIFvllEEE")
