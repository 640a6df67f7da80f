#pragma once

#include "h2o_host/kernel.h"

namespace h2o::host {

enum class ConstantType : uint8_t { none, boolean, int32, uint32, int16, uint16, f16, f32 };

template <typename T>
constexpr ConstantType constant_type = ConstantType::none;
template <>
inline constexpr ConstantType constant_type<bool> = ConstantType::boolean;
template <>
inline constexpr ConstantType constant_type<int> = ConstantType::int32;
template <>
inline constexpr ConstantType constant_type<unsigned> = ConstantType::uint32;
template <>
inline constexpr ConstantType constant_type<short> = ConstantType::int16;
template <>
inline constexpr ConstantType constant_type<unsigned short> = ConstantType::uint16;
template <>
inline constexpr ConstantType constant_type<_Float16> = ConstantType::f16;
template <>
inline constexpr ConstantType constant_type<float> = ConstantType::f32;

// Both are functions of the pipeline alone, so the compiler may read each constant once;
// it may not read one where the kernel would not have.
[[gnu::const]] uint32_t constant_bits(int index, ConstantType, const char* name) noexcept;
[[gnu::const]] bool constant_is_defined(int index) noexcept;

/// A function constant: its value is the running pipeline's.
template <typename T, int index>
struct Constant {
  static_assert(constant_type<T> != ConstantType::none, "no such function constant");
  const char* name;

  operator T() const {
    uint32_t bits = constant_bits(index, constant_type<T>, name);
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(bits);
    } else if constexpr (sizeof(T) == 2) {
      return __builtin_bit_cast(T, static_cast<uint16_t>(bits));
    } else {
      return __builtin_bit_cast(T, bits);
    }
  }
};

} // namespace h2o::host

namespace metal {

template <typename T, int index>
inline bool is_function_constant_defined(h2o::host::Constant<T, index>) {
  return h2o::host::constant_is_defined(index);
}

} // namespace metal
