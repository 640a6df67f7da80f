#pragma once

#include <cstddef>

namespace h2o::host {

/// Saves this context's registers on its stack, its stack pointer in `*from`, and goes on
/// at the context that was saved as `to`.
extern "C" void h2o_switch_context(void** from, void* to);

/// A context that starts with `entry`, which must not return, on the given stack.
void* new_context(char* stack, size_t size, void (*entry)());

} // namespace h2o::host
