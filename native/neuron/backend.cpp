// The delegate as ExecuTorch sees it: registered as NeuropilotBackend, which programs name.
#include <new>

#include <executorch/runtime/backend/interface.h>

#include "delegate.h"
#include "log.h"

namespace etcli::neuron {

namespace {

using executorch::runtime::ArrayRef;
using executorch::runtime::Backend;
using executorch::runtime::BackendExecutionContext;
using executorch::runtime::BackendInitContext;
using executorch::runtime::BackendInterface;
using executorch::runtime::CompileSpec;
using executorch::runtime::DelegateHandle;
using executorch::runtime::Error;
using executorch::runtime::EValue;
using executorch::runtime::FreeableBuffer;
using executorch::runtime::Result;
using executorch::runtime::Span;

// The runtime is compiled for use without exceptions: none may pass through it.
template <class Work>
auto contained(Error out_of_memory, const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return refuse(out_of_memory, "NeuropilotBackend: out of memory");
  } catch (const std::exception& unexpected) {
    return refuse(Error::Internal, text("NeuropilotBackend: ", unexpected.what()));
  }
}

class NeuropilotBackend final : public BackendInterface {
 public:
  // Whether the device has an adapter is init's to say, which can say what is missing.
  bool is_available() const override { return true; }

  Result<DelegateHandle*> init(BackendInitContext& context, FreeableBuffer* processed, ArrayRef<CompileSpec> specs) const override {
    return contained(Error::DelegateMemoryAllocationFailed, [&]() -> Result<DelegateHandle*> {
      if (processed == nullptr) return refuse(Error::InvalidArgument, "NeuropilotBackend: a network of nothing");
      auto delegate = std::make_unique<Delegate>();
      const Error error = delegate->load(context, *processed, specs);
      if (error != Error::Ok) return error;
      return static_cast<DelegateHandle*>(delegate.release());
    });
  }

  Error execute(BackendExecutionContext&, DelegateHandle* handle, Span<EValue*> args) const override {
    return contained(Error::MemoryAllocationFailed, [&] {
      if (handle == nullptr) return refuse(Error::DelegateInvalidHandle, "NeuropilotBackend: a method is executed whose network was not loaded");
      return static_cast<Delegate*>(handle)->execute(args);
    });
  }

  void destroy(DelegateHandle* handle) const override { delete static_cast<Delegate*>(handle); }
};

NeuropilotBackend instance;
// A table at rest, so that what a program registers can be read from its file.
const Backend kBackend{"NeuropilotBackend", &instance};
[[maybe_unused]] const Error registered = executorch::runtime::register_backend(kBackend);

}  // namespace

}  // namespace etcli::neuron
