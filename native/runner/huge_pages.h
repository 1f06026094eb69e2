// Fewer, larger pages for what every token reads. A backend packs weights into ordinary memory in pages of 4 KiB; in pages of 2 MiB
// decoding takes less time for address translation. Loading takes more system time, for the system has to find and clear whole huge
// pages (figures: docs/runner-protocol.md).
#pragma once

#include <cstddef>

namespace etcli {

// From now on, memory of at least a huge page that `operator new` gives out, as XNNPACK's for packed weights, asks the system for huge
// pages (`madvise`) before it is first written to. A system without them, or one told never to use them, gives ordinary ones. Nothing is
// moved or copied, and no memory is taken that is not written to. Call before a method is loaded.
void use_huge_pages();

// Bytes that one huge page maps: 2 MiB with pages of 4 KiB, 32 MiB with pages of 16 KiB.
size_t huge_page_size();

}  // namespace etcli
