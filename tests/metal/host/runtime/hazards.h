#pragma once

#include <optional>
#include <string>

#include "dispatch.h"
#include "slots.h"

namespace h2o::host {

/// Enters what a dispatch touched of an allocation. Returns what it would race with on a
/// device: a dispatch with no barrier in between, one of both writing the same byte.
std::optional<std::string> enter_and_compare(
    const Dispatch& dispatch,
    const std::shared_ptr<Allocation>& allocation,
    const std::string& buffer_name,
    int64_t binding_offset,
    const Slot& slot);

/// Enters what a dispatch wrote of an allocation that its evaluation made. Returns the
/// first byte that it read without anybody having written it, or -1.
int64_t enter_and_find_unwritten(
    const Dispatch& dispatch, Allocation& allocation, const Slot& slot);

} // namespace h2o::host
