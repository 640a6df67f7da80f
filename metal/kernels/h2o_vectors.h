#pragma once

#include "h2o_types.h"

#include "h2o_parameters.h"

/// Reads and writes single vectors of rows. 16 bits means elements that are not
/// quantized; 4 and 8 bits mean MLX's affine quantization, x = scale * word + bias for
/// each group.

constant int h2o_key_bits [[function_constant(7)]];
constant int h2o_value_bits [[function_constant(8)]];
constant int h2o_group_size [[function_constant(9)]];
constant int h2o_ring_bits
    [[function_constant(10)]]; // of keys and values in the ring; 0: no ring

constant bool h2o_pool_packed = h2o_key_bits != 16;
constant bool h2o_has_ring = h2o_ring_bits != 0;
constant bool h2o_ring_packed = h2o_ring_bits != 0 && h2o_ring_bits != 16;

/// A vector in memory; `stride` is the stride of its elements, if it is not quantized.
template <typename T>
struct H2OVector {
  const device uchar* words;
  const device T* scales;
  const device T* biases;
  int bits;
  int64_t stride;

  float at(int d) const {
    if (bits == 16) {
      return static_cast<float>(reinterpret_cast<const device T*>(words)[d * stride]);
    }
    int group = d / h2o_group_size;
    uint word = bits == 8 ? words[d] : (words[d / 2] >> (4 * (d & 1))) & 15;
    return static_cast<float>(scales[group]) * word + static_cast<float>(biases[group]);
  }
};

/// The vector at `layout` of the row at `row`.
template <typename T>
inline H2OVector<T> h2o_vector(
    const device uchar* row, const constant H2OVectorLayout& layout, int bits) {
  return {
      row + layout.words, reinterpret_cast<const device T*>(row + layout.scales),
      reinterpret_cast<const device T*>(row + layout.biases), bits, 1};
}

/// The elements of a vector of D elements that one lane of a simdgroup works on. They are
/// adjacent, so that one load reads them, except for D = 96, where three adjacent ones
/// would cross a group's boundary.
template <int D>
struct H2OLane {
  static constant constexpr const int count = D / 32;

  static int element(uint lane, int j) {
    return D == 96 ? int(lane) + 32 * j : int(lane) * count + j;
  }

  /// Reads the lane's elements from words, scales and biases.
  template <typename T>
  static void read_packed(
      const device uchar* words,
      const device T* scales,
      const device T* biases,
      int bits,
      uint lane,
      thread float* x) {
    if (D == 96) {
      for (int j = 0; j < count; ++j) {
        x[j] = H2OVector<T>{words, scales, biases, bits, 1}.at(element(lane, j));
      }
      return;
    }
    const int group = int(lane) * count / h2o_group_size;
    const float scale = static_cast<float>(scales[group]);
    const float bias = static_cast<float>(biases[group]);
    if (bits == 8) {
      uint low, high = 0;
      if (count == 2) {
        low = reinterpret_cast<const device ushort*>(words)[lane];
      } else if (count == 4) {
        low = reinterpret_cast<const device uint*>(words)[lane];
      } else {
        low = reinterpret_cast<const device uint*>(words)[2 * lane];
        high = reinterpret_cast<const device uint*>(words)[2 * lane + 1];
      }
      for (int j = 0; j < count; ++j) {
        uint word = ((j < 4 ? low : high) >> (8 * (j & 3))) & 255;
        x[j] = scale * word + bias;
      }
    } else {
      uint packed;
      if (count == 2) {
        packed = words[lane];
      } else if (count == 4) {
        packed = reinterpret_cast<const device ushort*>(words)[lane];
      } else {
        packed = reinterpret_cast<const device uint*>(words)[lane];
      }
      for (int j = 0; j < count; ++j) {
        x[j] = scale * ((packed >> (4 * j)) & 15) + bias;
      }
    }
  }

  template <typename T>
  static void read(const device T* elements, uint lane, thread float* x) {
    for (int j = 0; j < count; ++j) {
      x[j] = static_cast<float>(elements[element(lane, j)]);
    }
  }
};

/// Stores a group of a vector as MLX's Metal backend quantizes it: the range always
/// includes 0, and halves are rounded away from 0. One simdgroup works on it. `group` is
/// the group's index.
template <typename T>
inline void h2o_quantize_group(
    H2OVector<T> from,
    device uchar* row,
    const constant H2OVectorLayout& layout,
    int bits,
    int group,
    uint lane) {
  const int per_lane = h2o_group_size / 32; // 1, 2 or 4 elements per lane
  const int first = group * h2o_group_size + int(lane) * per_lane;
  float x[4];
  float low = FLT_MAX, high = 0;
  for (int i = 0; i < per_lane; ++i) {
    // Rounds as for a vector that is not quantized, because a moved row was not rounded.
    x[i] = static_cast<float>(static_cast<T>(from.at(first + i)));
    low = min(low, x[i]);
    high = max(high, x[i]);
  }
  low = simd_min(low);
  high = simd_max(high);
  const float bins = (1 << bits) - 1;
  float scale = max((high - low) / bins, 1e-7f);
  const bool from_low = abs(low) > abs(high);
  scale = from_low ? scale : -scale;
  const float edge = from_low ? low : high;
  const float steps = round(edge / scale);
  const bool at_zero = steps == 0;
  scale = at_zero ? scale : edge / steps;
  const float bias = at_zero ? 0 : edge;
  if (lane == 0) {
    reinterpret_cast<device T*>(row + layout.scales)[group] = static_cast<T>(scale);
    reinterpret_cast<device T*>(row + layout.biases)[group] = static_cast<T>(bias);
  }
  uint packed = 0;
  for (int i = 0; i < per_lane; ++i) {
    uint word = uint(max(min(round((x[i] - bias) / scale), bins), 0.0f));
    packed |= word << (bits * i);
  }
  device uchar* to = row + layout.words + first * bits / 8;
  const int width = per_lane * bits;
  if (width == 4) { // two lanes share a byte
    packed |= simd_shuffle_down(packed, ushort(1)) << 4;
    if (lane % 2 == 0) {
      *to = uchar(packed);
    }
  } else if (width == 8) {
    *to = uchar(packed);
  } else if (width == 16) {
    *reinterpret_cast<device ushort*>(to) = ushort(packed);
  } else {
    *reinterpret_cast<device uint*>(to) = packed;
  }
}
