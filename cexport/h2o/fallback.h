#pragma once

#include "functions.h"

/// The functions of functions.h in MLX operations: what a GPU runs for calls that our
/// kernels do not take. Same results; the logits of the observed queries are materialized.
/// Arguments are already checked.
namespace h2o::fallback {

std::pair<mx::array, mx::array> scaled_dot_product_attention_with_scores(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    float scale,
    const Mask& mask,
    const std::optional<mx::array>& sinks,
    mx::StreamOrDevice s);

Attended cache_attend(
    const AttendArguments& arguments, const CacheConfig& config, mx::StreamOrDevice s);

} // namespace h2o::fallback
