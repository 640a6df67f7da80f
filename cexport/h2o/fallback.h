#pragma once

#include "functions.h"

/// The functions of functions.h in MLX operations: what a device without our own
/// evaluation runs. Same results; no buffer is written in place, and the logits
/// of the observed queries are materialised. Arguments are already checked.
namespace h2o::fallback {

std::pair<mx::array, mx::array> scaled_dot_product_attention_with_scores(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    float scale,
    const Mask& mask,
    const std::optional<mx::array>& sinks,
    mx::StreamOrDevice s);

mx::array cache_write(
    const std::optional<mx::array>& rows,
    const mx::array& keys,
    const mx::array& values,
    const mx::array& victim,
    int length,
    const CacheConfig& config,
    mx::StreamOrDevice s);

Attended cache_attend(
    const std::optional<mx::array>& queries,
    const mx::array& rows,
    const Ledger& ledger,
    int tokens,
    int offset,
    int length,
    float scale,
    const Mask& mask,
    const std::optional<mx::array>& sinks,
    const CacheConfig& config,
    mx::StreamOrDevice s);

} // namespace h2o::fallback
