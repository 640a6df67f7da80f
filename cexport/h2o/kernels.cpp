#include "kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

// Vectors wider than the baseline's registers are passed only between inlined
// functions, so their calling convention does not matter.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

namespace h2o::cpu {

namespace {

constexpr float lowest = std::numeric_limits<float>::lowest();
constexpr float infinity = std::numeric_limits<float>::infinity();

struct Float16 {
  uint16_t bits;
};

struct BFloat16 {
  uint16_t bits;
};

/// A bfloat16 that is always read together with its neighbor.
struct PairedBFloat16 {
  uint16_t bits;
};

float from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

uint32_t to_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

uint16_t to_float16(float value) {
  uint32_t bits = to_bits(value);
  uint16_t sign = uint16_t((bits >> 16) & 0x8000);
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) {
    return sign | 0x7e00;
  }
  if (magnitude >= 0x47800000) { // 2^16 and up
    return sign | 0x7c00;
  }
  if (magnitude < 0x38800000) { // below the smallest normal number: the addition rounds
    return sign | uint16_t(to_bits(from_bits(magnitude) + 0.5f) - to_bits(0.5f));
  }
  uint32_t rebased = magnitude - (112u << 23);
  return sign | uint16_t((rebased + 0xfff + ((rebased >> 13) & 1)) >> 13);
}

/// Stores `count` floats one by one, for processors without float16 instructions.
void store_halves(Float16* p, const float* values, int count) {
  for (int i = 0; i < count; ++i) {
    p[i] = {to_float16(values[i])};
  }
}

} // namespace
} // namespace h2o::cpu

#define H2O_NAMESPACE baseline
#define H2O_TARGET
#define H2O_LANES 4
#define H2O_STORE_HALF(p, v) \
  float lane[lanes];         \
  store(lane, v);            \
  store_halves(p, lane, lanes)
#define H2O_WIDEN_BYTES(bytes) widen_bytes(bytes)
#define H2O_WIDEN_HALF(x) load(&x, 1)[0]
#if defined(__aarch64__)
#define H2O_REGISTER "w"
#define H2O_BLOCK 4
#define H2O_LOAD_HALF(p) \
  vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const uint16_t*>(p))))
#else
#define H2O_REGISTER "x"
#define H2O_BLOCK 2
#define H2O_LOAD_HALF(p) widen_half(p)
#endif
#include "kernels_impl.h"

#if defined(__x86_64__)

#define H2O_NAMESPACE avx2
#define H2O_TARGET __attribute__((target("avx2,fma,f16c")))
#define H2O_LANES 8
#define H2O_STORE_HALF(p, v) \
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, 0))
#define H2O_WIDEN_BYTES(bytes) \
  _mm256_cvtepi32_ps(          \
      _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(__builtin_bit_cast(long long, bytes))))
#define H2O_WIDEN_HALF(x) _cvtsh_ss((x).bits)
#define H2O_REGISTER "x"
#define H2O_BLOCK 2
#define H2O_LOAD_HALF(p) \
  _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))
#include "kernels_impl.h"

#define H2O_NAMESPACE avx512
#define H2O_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")))
#define H2O_LANES 16
#define H2O_STORE_HALF(p, v) \
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_maskz_cvtps_ph(0xffff, v, 0))
#define H2O_WIDEN_BYTES(bytes) \
  _mm512_maskz_cvtepi32_ps(    \
      0xffff, _mm512_maskz_cvtepu8_epi32(0xffff, __builtin_bit_cast(__m128i, bytes)))
#define H2O_WIDEN_HALF(x) _cvtsh_ss((x).bits)
#define H2O_REGISTER "v"
#define H2O_BLOCK 4
#define H2O_LOAD_HALF(p) \
  _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))
#include "kernels_impl.h"

#endif

namespace h2o::cpu {

namespace {

#define H2O_KERNELS(set, is_available)                                                    \
  Kernels {                                                                               \
    #set, is_available, set::dot_rows, set::largest_dots, set::mix_rows, set::to_float32, \
        set::from_float32, set::largest, set::exp_shifted, set::hide_not_finite,          \
        set::add_scaled, set::add_scaled_abs, set::update_scores, set::importance,        \
        set::quantize_vector                                                              \
  }

// The instruction sets, widest first.
const Kernels all_kernels[] = {
#if defined(__x86_64__)
    H2O_KERNELS(
        avx512,
        [] {
          return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                 __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
        }),
    H2O_KERNELS(
        avx2,
        [] {
          return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                 __builtin_cpu_supports("f16c");
        }),
#endif
    H2O_KERNELS(baseline, [] { return true; }),
};

const Kernels*& selected() {
  static const Kernels* widest = std::find_if(
      std::begin(all_kernels), std::end(all_kernels),
      [](const auto& set) { return set.is_available(); });
  return widest;
}

} // namespace

const Kernels& kernels() {
  return *selected();
}

void use_instruction_set(const std::string& name) {
  for (const auto& set : all_kernels) {
    if (name == set.name && set.is_available()) {
      selected() = &set;
      return;
    }
  }
  throw std::invalid_argument(
      "[use_instruction_set] \"" + name +
      "\" is not available on this processor or in this build.");
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const auto& set : all_kernels) {
    if (set.is_available()) {
      names.emplace_back(set.name);
    }
  }
  return names;
}

} // namespace h2o::cpu
