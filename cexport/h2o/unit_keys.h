#pragma once

#include "functions.h"

namespace h2o {

/// k/|k| in float32 for keys [..., Dk]; zero where |k| is zero or not finite.
mx::array unit_keys(const mx::array& keys, mx::StreamOrDevice s);

} // namespace h2o
