#include "binding.h"

#include "log.h"

namespace etcli::neuron {

using executorch::runtime::Error;

static std::string name_of(Side side, uint32_t index) { return text(side == Side::input ? "input " : "output ", index); }

void Bindings::start(const Network& network, size_t inputs, size_t outputs) {
  network_ = &network;
  inputs_.assign(inputs, std::nullopt);
  outputs_.assign(outputs, std::nullopt);
  releases_ = releases();
}

void Bindings::forget_released() {
  const uint64_t now = releases();
  if (now == releases_) return;
  releases_ = now;
  for (auto at = hints_.begin(); at != hints_.end();) {
    const uint64_t id = std::get<2>(*at);
    at = id != 0 && !is_live(id) ? hints_.erase(at) : std::next(at);
  }
}

Error Bindings::hint(const std::string& where, Side side, uint32_t index, const void* data) {
  forget_released();
  const auto buffer = find_buffer(data);
  if (!buffer) return Error::Ok;
  const Hint hint{side, index, buffer->id, buffer->memory, buffer->address, buffer->bytes};
  if (hints_.count(hint) != 0) return Error::Ok;
  // It is a binding like any other, in place of the one before; bind() follows.
  bound(side, index).reset();
  const Error error = bind_part(where, side, index, {*buffer, 0, buffer->bytes});
  if (error == Error::Ok) hints_.insert(hint);
  return error;
}

Error Bindings::bind(const std::string& where, Side side, uint32_t index, void* data, size_t bytes) {
  std::optional<Part>& now = bound(side, index);
  const auto buffer = find_buffer(data);
  if (!buffer) {
    now.reset();
    const Adapter& adapter = *network_->adapter;
    NeuronExecution* execution = network_->execution.get();
    const auto at = static_cast<int32_t>(index);
    const int code = side == Side::input ? adapter.NeuronExecution_setInput(execution, at, nullptr, data, bytes)
                                         : adapter.NeuronExecution_setOutput(execution, at, nullptr, data, bytes);
    if (code == NEURON_NO_ERROR) return Error::Ok;
    return failed(where, side == Side::input ? "NeuronExecution_setInput" : "NeuronExecution_setOutput", code,
                  text(name_of(side, index), " of ", bytes, " bytes"));
  }
  const Part part{*buffer, static_cast<size_t>(static_cast<const unsigned char*>(data) - buffer->address), bytes};
  if (bytes > buffer->bytes - part.offset) {
    return refuse(Error::InvalidArgument, text(where, ": ", name_of(side, index), " of ", bytes, " bytes ends behind its buffer of ", buffer->bytes,
                                               " bytes, where it begins at ", part.offset));
  }
  if (now && *now == part && buffer->id != 0) return Error::Ok;
  now.reset();
  const Error error = bind_part(where, side, index, part);
  if (error == Error::Ok) now = part;
  return error;
}

Error Bindings::bind_part(const std::string& where, Side side, uint32_t index, const Part& part) {
  const Adapter& adapter = *network_->adapter;
  const bool is_input = side == Side::input;
  const auto set = is_input ? adapter.NeuronExecution_setInputFromMemory : adapter.NeuronExecution_setOutputFromMemory;
  const int code = set(network_->execution.get(), index, nullptr, part.buffer.memory, part.offset, part.bytes);
  if (code == NEURON_NO_ERROR) return Error::Ok;
  return failed(where, is_input ? "NeuronExecution_setInputFromMemory" : "NeuronExecution_setOutputFromMemory", code,
                text(name_of(side, index), " (", part.bytes, " bytes from ", part.offset, " of a buffer of ", part.buffer.bytes, ")"));
}

}  // namespace etcli::neuron
