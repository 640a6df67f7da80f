#pragma once

#include "functions.h"

/// The functions of functions.h as MLX operations. A GPU runs them for calls that our
/// kernels do not support. The results are the same; the logits of the observed queries
/// are stored in memory. Arguments are already checked.
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

/// MLX's own attention, for keys and values in any dtype: [B, Hq, L, Dv] in the dtype of
/// the queries.
mx::array attention(
    const mx::array& queries,
    const mx::array& keys,
    const mx::array& values,
    float scale,
    const Mask& mask,
    const std::optional<mx::array>& sinks,
    mx::StreamOrDevice s);

/// A long chunk is evaluated, a few heads after the other, so that little is unpacked at once.
mx::array full_attention(
    const mx::array& queries,
    const mx::array& rows,
    int length,
    int key_dim,
    const RowFormat& format,
    float scale,
    const Mask& mask,
    const std::optional<mx::array>& sinks,
    mx::StreamOrDevice s);

} // namespace h2o::fallback
