#pragma once

#include "encode.h"
#include "encoder.h"

namespace h2o::metal {

/// As `attend`, on an encoder.
void encode_attention(
    Encoder& encoder, const Attention& attention, mx::array& out, mx::array* scores);

} // namespace h2o::metal
