// Memory objects: buffers that executions are given by.
#include "calls.h"
#include "exported.h"
#include "hardware_buffer.h"
#include "objects.h"

using namespace etcli::neuron_sim;

int NeuronMemory_createFromAHardwareBuffer(const AHardwareBuffer* buffer, NeuronMemory** memory) noexcept {
  return answer(__func__, text("buffer ", static_cast<const void*>(buffer)), [&] {
    refuse_null(memory, "the place for the memory");
    *memory = nullptr;
    refuse_null(buffer, "the hardware buffer");
    if (!buffer->is_whole()) bad_data("the hardware buffer is none of the simulated allocator's");
    auto made = std::make_shared<NeuronMemory>();
    made->address = buffer->address;
    made->size = buffer->size;
    *memory = live<NeuronMemory>().add(std::move(made));
    return named(*memory);
  });
}

void NeuronMemory_free(NeuronMemory* key) noexcept {
  const std::string arguments = named(key);
  const bool was_there = live<NeuronMemory>().take(key) != nullptr;
  record(__func__, arguments, "void", was_there || key == nullptr ? "" : "this memory does not exist: it was freed, or never made");
}
