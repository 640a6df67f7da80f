#include "config.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "mlx/utils.h"

namespace h2o {

namespace {

constexpr int growth_step = 256;

template <class... Parts>
[[noreturn]] void refuse_config(const Parts&... parts) {
  std::ostringstream text;
  text << "H2O cache configuration: ";
  (text << ... << parts);
  throw std::invalid_argument(text.str());
}

} // namespace

void validate(const RowFormat& format) {
  for (auto [name, bits] :
       {std::pair{"key_bits", format.key_bits}, std::pair{"value_bits", format.value_bits},
        std::pair{"recent_bits", format.has_ring() ? format.recent_bits : 16}}) {
    if (bits != 4 && bits != 8 && bits != 16) {
      refuse_config(name, " is ", bits, "; it must be 4, 8 or 16.");
    }
  }
  if ((format.key_bits == 16) != (format.value_bits == 16)) {
    refuse_config(
        "key_bits is ", format.key_bits, " and value_bits ", format.value_bits,
        "; either both are 16 or neither is.");
  }
  if (format.has_ring() && format.key_bits != format.value_bits) {
    refuse_config(
        "key_bits is ", format.key_bits, " and value_bits ", format.value_bits,
        "; with recent_bits they must be equal.");
  }
  if (!format.is_all_dense() && format.dtype != mlx::core::float32 &&
      format.dtype != mlx::core::float16 && format.dtype != mlx::core::bfloat16) {
    refuse_config("dtype is ", format.dtype, "; it must be float32, float16 or bfloat16.");
  }
  if (format.group_size != 32 && format.group_size != 64 && format.group_size != 128) {
    refuse_config("group_size is ", format.group_size, "; it must be 32, 64 or 128.");
  }
}

int grown_capacity(int capacity, int needed, int max_size) {
  if (needed <= capacity) {
    return capacity;
  }
  if (needed > max_size) {
    return needed;
  }
  int rounded = (needed + growth_step - 1) / growth_step * growth_step;
  return std::min(rounded, max_size);
}

} // namespace h2o
