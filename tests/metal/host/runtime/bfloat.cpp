#include <cstdint>

// Older compilers' runtime libraries lack what clang calls to round a float to a bfloat.
extern "C" __attribute__((visibility("hidden"))) __bf16 __truncsfbf2(float x) {
  const auto bits = __builtin_bit_cast(uint32_t, x);
  if ((bits & 0x7fffffff) > 0x7f800000) {
    return __builtin_bit_cast(__bf16, static_cast<uint16_t>((bits >> 16) | 0x40));
  }
  const uint32_t to_even = 0x7fff + ((bits >> 16) & 1);
  return __builtin_bit_cast(__bf16, static_cast<uint16_t>((bits + to_even) >> 16));
}
